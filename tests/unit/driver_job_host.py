"""A folder that stands in for a host on which the driver's jobs run, with stand-ins for apt, dpkg and DKMS."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from rigwright.model.rig import Rig
from tests.unit import short_programs
from tests.unit.rendered_scripts import driver_script, write_stand_in
from tests.unit.samples import sample_rig

HERE = 'cd "$(dirname "$0")/.."'
REMEMBER = f'{HERE}; echo "$(basename "$0") $*" >> asked'
# records its arguments, and puts the archive's file at its target; one in `broken` fails
APT_GET = f"""
{HERE}
verb=
for word in "$@"; do
  case $word in
    Dir::Cache::Archives=*) into=${{word#*=}} ;;
    Dir::Etc::SourceParts=*) sources=$(ls "${{word#*=}}" | tr '\\n' ' ') ;;
    update | indextargets) verb=$word ;;
    -s) verb=simulate ;;
    --download-only) verb=fetch ;;
    install) [ -n "$verb" ] || verb=install ;;
  esac
done
words=$(echo "$*" | sed 's/.* install //')
case $verb in install | simulate | fetch) ;; *) words=${{sources-}} ;; esac
echo "$verb $words" >> asked
echo "$*" >> arguments
[ $verb != update ] || [ ! -s lists ] || {{ cat lists >&2; : > lists; exit 100; }}
case $verb in
  indextargets) case "$*" in *ORIGIN*) cat targets ;; *) cat components ;; esac ;;
  simulate)
    case $words in
      linux-headers*) cat headers ;;
      */kept/*) cat simulated-kept ;;
      *' linux-image-'*) cat simulated-kernel ;;
      *) cat simulated ;;
    esac
    ;;
  fetch) cp archive/*.deb "$into/" ;;
esac
! echo "$verb $words" | grep -qf broken
"""
DPKG = f"""
{HERE}
echo "dpkg $*" >> asked
[ ! -s locked ] || {{ cat locked; : > locked; exit 2; }}
cat half
[ ! -s half ]
"""
DPKG_QUERY = f'{HERE}; grep -qx "$2" there'
MODINFO = f"""
{HERE}
while [ $# -gt 1 ]; do
  [ "$1" != -k ] || kernel=$2
  shift
done
[ "$1" = nvidia ] && cat "modules/$kernel"
"""
DKMS = f"""
{HERE}
[ $1 != status ] || {{ cat dkms-status; exit; }}
{REMEMBER}
[ $1 = uninstall ] || grep -qx "$3" refuses || echo 595.71.05 > "modules/$3"
"""
KERNELS = ("6.12.94+deb13-amd64", "6.12.107+deb13-amd64")
FILES = (
    "asked",
    "arguments",
    "targets",
    "components",
    "headers",
    "simulated",
    "simulated-kept",
    "simulated-kernel",
    "locked",
    "lists",
    "half",
    "there",
    "offered",
    "dkms-status",
)


class DriverJobHost:
    """One host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        programs = {"apt-get": APT_GET, "dpkg": DPKG, "dpkg-query": DPKG_QUERY, "modinfo": MODINFO, "dkms": DKMS}
        programs["apt-cache"] = f"{HERE}; cat offered"
        for name, text in programs.items():
            write_stand_in(root / "bin", name, text)
        for name in ("update-initramfs", "apt-mark", "systemctl", "sleep"):
            write_stand_in(root / "bin", name, REMEMBER)
        for folder in ("archive", "boot", "modules", "tmp", "dkms", "settings"):
            (root / folder).mkdir()
        for kernel in KERNELS:
            (root / "headers-of" / kernel / "build").mkdir(parents=True)
        for name in FILES:
            (root / name).touch()
        self.set_answers(broken="^nothing$\n", refuses="^nothing$\n")
        self.ledger, self.done, self.store = root / "owned", root / "done", root / "store"
        self.ledger.write_text("package curl\n")

    def set_answers(self, **texts: str) -> None:
        """The output of a program, or its failure."""
        for name, text in texts.items():
            (self.root / name.replace("_", "-")).write_text(text)

    def add_archive_deb(self, name: str, content: bytes = b"") -> str:
        """Have the archive hold a package's file; returns its SHA-256."""
        content = content or name.encode()
        (self.root / "archive" / f"{name}.deb").write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def add_kept_files(self, version: str, **contents: bytes) -> Path:
        """Files of an earlier driver."""
        folder = self.store / version
        folder.mkdir(parents=True)
        for name, content in contents.items():
            (folder / f"{name}.deb").write_bytes(content)
        lines = (f"{hashlib.sha256(content).hexdigest()}  {name}.deb\n" for name, content in contents.items())
        (folder / "SHA256SUMS").write_text("".join(lines))
        return folder

    def run_job(self, name: str, made: Rig | None = None, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Run a job with a rig's values, its fixed places moved into the folder."""
        places: dict[str, Any] = {
            "ledger": self.ledger,
            "done": self.done,
            "source_file": self.root / "ours.sources",
            "component_file": self.root / "component.sources",
        }
        if name == "install":
            places |= {"folder": self.store, "modprobe": self.root / "modprobe.conf"}
        script = driver_script(name, made or sample_rig(mirrors={}), **places | changes)
        folders = {"/boot/": "boot", "/var/lib/dkms/": "dkms", "/lib/modules/": "headers-of"}
        for place, folder in {**folders, "/etc/modprobe.d/": "settings", "/lib/modprobe.d/": "settings"}.items():
            script = script.replace(place, f"{self.root}/{folder}/")
        environment = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "TMPDIR": f"{self.root}/tmp"}
        command = ["sh", "-c", script]
        return short_programs.run_program(command, env=environment)

    @property
    def recorded_commands(self) -> list[str]:
        """The orders to programs, apt's by its verb."""
        return (self.root / "asked").read_text().splitlines()

    @property
    def ledger_lines(self) -> list[str]:
        """The ledger."""
        return self.ledger.read_text().splitlines()
