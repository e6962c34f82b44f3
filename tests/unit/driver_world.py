"""A box whose driver is to be locked, and small signed archives of drivers on the loopback interface."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rigwright.model.nvidia_tables import SHIPPED
from tests.unit import built_debs, short_programs
from tests.unit.file_server import LoopbackFileServer, complete_file
from tests.unit.lock_folder import LockFolder

SYSTEM = "debian-13"
NAME = f"driver-{SYSTEM}"
FOLDER = "debian13/x86_64"
FINGERPRINT = "02182E60104FCDC26EAE1B8597A5D4CB8793F200"  # of the shipped tables, for that system
DRIVER, NEWER = "595.71.05", "595.91.07"
PACKAGES = ("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "libcuda1", "nvidia-modprobe")
CATALOG = f"""
[inputs.{NAME}]
kind = "deb"
version = "{DRIVER}"
sources = ["nvidia:{FOLDER}"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "mirrors": {mirrors!r}}}}})
"""


@dataclass(frozen=True)
class ArchiveSigner:
    """A key to sign archives with."""

    home: Path
    armoured: str
    fingerprint: str

    def sign_text(self, text: str) -> bytes:
        """The text with its signature."""
        return _run_gpg(self.home, "--clearsign", input=text).encode()


def _run_gpg(home: Path, *arguments: str, input: str = "") -> str:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *arguments]
    return short_programs.run_program(command, input=input, check=True).stdout


@contextmanager
def make_signer(lasts: str = "0", *before: str) -> Iterator[ArchiveSigner]:
    """Make a key.

    Args:
        lasts: As gpg takes it: 0 for ever, 1d for a day.
        before: More options of gpg.
    """
    with tempfile.TemporaryDirectory() as home:  # below a short path: gpg has a socket there
        where = Path(home)
        _run_gpg(where, *before, "--quick-gen-key", "drivers", "rsa2048", "sign", lasts)
        listed = _run_gpg(where, "--list-keys", "--with-colons")
        fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
        try:
            yield ArchiveSigner(where, _run_gpg(where, "--export", "--armor"), fingerprint)
        finally:
            short_programs.run_program(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], check=True)


@dataclass
class FlatDriverArchive:
    """A flat archive, as NVIDIA's are."""

    files: LoopbackFileServer
    signer: ArchiveSigner
    place: str = f"mirror/{FOLDER}"
    debs: dict[str, bytes] = field(default_factory=dict)
    """File -> its content."""

    def add_driver(self, version: str, revision: str = "-1") -> None:
        """Add a small driver."""
        for name in PACKAGES:
            self.build_package(name, f"{version}{revision}")
        self.build_package(f"nvidia-driver-pinning-{version}", "1-1", "all")

    def build_package(self, name: str, version: str, architecture: str = "amd64") -> str:
        """Build a package with the real tool; returns its file's name."""
        control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: nobody\n"
        file = f"{name}_{version.partition(':')[2] or version}_{architecture}.deb"
        self.debs[file] = built_debs.build_deb(f"{control}Description: one\n")
        return file

    @property
    def package_list(self) -> str:
        """Its list of packages."""
        stanzas = []
        for file, content in self.debs.items():
            digest = hashlib.sha256(content).hexdigest()
            stanzas.append(
                f"{built_debs.read_control(content)}Filename: ./{file}\nSize: {len(content)}\nSHA256: {digest}\n"
            )
        return "\n".join(stanzas)

    def publish(self, *, until: str = "", served: str = "", listed: str = "", signed: bool = True) -> None:
        """Serve it.

        Args:
            until: When its signature ends, as Release files say it; empty for never.
            served: A list in place of the one that was signed.
            listed: A list in place of its own.
            signed: Whether it is.
        """
        content = (listed or self.package_list).encode()
        release = "Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitecture: x86_64\nDate: Sat, 01 Nov 2025 00:00:00 UTC\n"
        release += f"Valid-Until: {until}\n" if until else ""
        release += f"SHA256:\n {hashlib.sha256(content).hexdigest()} {len(content)} Packages\n"
        for name in ("InRelease", "Release", "Packages"):
            self.files.answers.pop(f"{self.place}/{name}", None)
        if signed:
            self.serve("InRelease", self.signer.sign_text(release))
        else:
            self.serve("Release", release.encode())
        self.serve("Packages", served.encode() if served else content)
        self.serve("8793F200.pub", self.signer.armoured.encode())

    def serve(self, name: str, content: bytes) -> None:
        """Serve one file of it."""
        self.files.serve(f"{self.place}/{name}", complete_file(content))


class DriverLockFixture(LockFolder):
    """A box's folder and `rigwright lock` over it."""

    def __init__(self, folder: Path, archive: FlatDriverArchive) -> None:
        self.folder, self.archive = folder, archive
        (folder / "catalog").mkdir(parents=True)
        self.write("catalog/mine.toml", CATALOG)
        self.write_tables(archive.signer.fingerprint)
        self.write_inventory(nvidia=[f"{archive.files.url}/mirror"])

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_inventory(self, **mirrors: list[str]) -> None:
        self.write("rig.py", INVENTORY.format(mirrors=mirrors))

    def write_tables(self, fingerprint: str, base: str = "") -> None:
        """Tables of drivers of the box's own, with another key of NVIDIA's, and another address."""
        text = SHIPPED.read_text().replace(FINGERPRINT, fingerprint)
        self.write(
            "catalog/driver/driver.toml", text.replace("https://developer.download.nvidia.com", base or "https://h")
        )
        # a file that was read once is kept
        from rigwright.model.nvidia_tables import load_driver_tables

        load_driver_tables.cache_clear()

    def request_driver(self, version: str) -> None:
        """Ask for another driver."""
        self.write("catalog/mine.toml", CATALOG.replace(DRIVER, version))

    def lock_error(self) -> str:
        """The one line of an error, after which nothing is written."""
        before = self.lock_files
        done = self.run_lock()
        assert (done.exit_code, self.lock_files) == (1, before), done.output
        assert isinstance(done.exception, SystemExit), done.exception
        (line,) = done.stderr.partition("Error: ")[2].splitlines()
        prefix = f"{self.folder / 'catalog/mine.toml'}: inputs.{NAME}: "
        assert line.startswith(prefix), line
        return line.removeprefix(prefix)

    def check_lines(self, code: int) -> list[str]:
        before = self.lock_files
        done = self.run_lock("--check")
        assert (done.exit_code, self.lock_files) == (code, before), done.output
        return [line for line in done.output.splitlines() if not line.startswith("lock")]

    @property
    def lock_files(self) -> dict[str, str]:
        """The files in the locks folder."""
        folder = self.folder / "locks"
        return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}
