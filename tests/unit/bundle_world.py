"""A box to bundle for: its folder and lock, mirrors, an index and a signed apt archive on the loopback interface."""

import hashlib
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli import main
from rigwright.problems import Invalid
from rigwright.supply import bundle
from rigwright.supply.bundle import Bundle
from tests.lock_files import render_sealed_lock
from tests.unit import built_debs, short_programs
from tests.unit.file_server import LoopbackFileServer, complete_file
from tests.unit.index_server import LoopbackPackageIndex, ProjectFile
from tests.unit.samples import COMMIT, OperatorFolder

WEIGHTS = bytes(range(256)) * 20_000
SOURCE, WHEEL = "sources/engine-1.0.tar.gz", "wheels/tool-1.0-py3-none-any.whl"
WEIGHT = f"weights/small/{COMMIT}/small-q4.gguf"
FILES = {SOURCE, WHEEL, WEIGHT}
POOL = {f"packages/debian-12/0/pool/{name}" for name in ("curl_8.1_amd64.deb", "g++_1.0_amd64.deb")}
POOL |= {"packages/debian-12/0/pool/libcurl_1.0_amd64.deb"}
SIGNED = {f"packages/debian-12/0/dists/bookworm/{name}" for name in ("InRelease", "main/binary-amd64/Packages")}
DEBS = POOL | SIGNED
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({rigs!r}, allow={allow!r}, bundle="the bundle")
"""
ALLOW = ["locks.tools", "locks.docker-debian-12"]
ROW = """
[[artefact]]
kind = "{kind}"
{group}name = "{name}"
version = "{version}"
file = "{file}"
sha256 = "{sha256}"
size = {size}
sources = ["{source}"]
"""


class BundleFixture:
    """A box's folder, what is served to it, and `rigwright bundle` over them."""

    def __init__(self, folder: Path, files: LoopbackFileServer) -> None:
        self.box = OperatorFolder(folder)
        self.files = files
        self.index = LoopbackPackageIndex(files, "json")
        source = self.index.publish_source("engine", "1.0")
        wheel = self.index.publish_wheel("tool", "1.0")
        self.content = {"engine-1.0.tar.gz": source.content, wheel.file: wheel.content, "small-q4.gguf": WEIGHTS}
        self.box.write("catalog/tools.toml", '[inputs.tools]\nkind = "wheel"\nrequirements = ["tool"]\n')
        self.serve_mirror("good", WEIGHTS)
        self.write_lock(WEIGHTS)
        self.write_inventory("good")

    def write_lock(self, weights: bytes, file: str = "small-q4.gguf") -> None:
        """Lock the engine, the tool, and weights."""
        rows = [
            ("source", "", "engine-source", "1.0", "engine-1.0.tar.gz", "index:engine"),
            ("wheel", 'group = "tools"\n', "tool", "1.0", "tool-1.0-py3-none-any.whl", "index:tool"),
            ("weight", "", "small", COMMIT, file, f"store:{file}"),
        ]
        self.content[file] = weights
        texts = []
        for kind, group, name, version, file, source in rows:
            content = self.content[file]
            digest, size = hashlib.sha256(content).hexdigest(), len(content)
            known = {"kind": kind, "group": group, "name": name, "version": version, "file": file, "source": source}
            texts.append(ROW.format(**known, sha256=digest, size=size))
        self.box.write("locks/box.lock.toml", render_sealed_lock(*texts))

    def write_inventory(self, *mirrors: str, apt: str = "archive", rigs: int = 1, **changes: object) -> None:
        """Write the inventory, with these mirrors of files."""
        known = {"store": [f"{self.files.url}/{name}" for name in mirrors]}
        if apt:
            known["apt"] = [f"{self.files.url}/{name}/debian" for name in apt.split()]
        instances = {"chat": {"variant": "llamacpp/cpu", "port": 8020}}
        entry = {"mirrors": known, "instances": instances} | changes
        made = {f"box{number}": {"ssh_hostname": f"192.0.2.{number}", **entry} for number in range(rigs)}
        self.box.write("rig.py", INVENTORY.format(rigs=made, allow=ALLOW))

    def serve_mirror(self, name: str, weights: bytes, file: str = "small-q4.gguf") -> None:
        """Serve weights from a mirror."""
        self.files.serve(f"{name}/{file}", complete_file(weights))

    def remove_project(self, project: str) -> None:
        """Take a project off the index."""
        self.index.projects[project] = {"other.whl": ProjectFile("other.whl", b"other")}
        self.index.publish_project(project)

    def run_bundle(self, *options: str, system: str = "debian-12") -> Result:
        arguments = ["bundle", str(self.box.inventory), *(["--system", system] if system else []), *options]
        return CliRunner().invoke(main, arguments)

    def make_bundle(self, *options: str) -> Bundle:
        """Make one that comes about."""
        done = self.run_bundle(*options)
        assert done.exit_code == 0, done.output
        return self.read_bundle()

    def error_lines(self, *options: str, system: str = "debian-12") -> list[str]:
        """The lines of an error."""
        done = self.run_bundle(*options, system=system)
        assert done.exit_code in (1, 2), done.output
        assert "Traceback" not in done.output
        assert isinstance(done.exception, SystemExit), done.exception
        return done.stderr.partition("Error: ")[2].splitlines()  # the output before it is progress

    def read_bundle(self) -> Bundle:
        """The bundle, every byte of which is as its index says."""
        found = bundle.load_bundle(self.bundle_folder)
        for row in found.rows:
            assert hashlib.sha256((self.bundle_folder / row.path).read_bytes()).hexdigest() == row.sha256, row.path
        return found

    def bundle_problems(self) -> list[str]:
        """The lines with which the bundle is refused before any host is reached."""
        with pytest.raises(Invalid) as refused:
            bundle.load_bundle(self.bundle_folder)
        return str(refused.value).splitlines()

    @property
    def bundle_folder(self) -> Path:
        return self.box.folder / "the bundle"

    @property
    def bundle_paths(self) -> set[str]:
        """The files in the bundle's folder, next to its lock."""
        return {
            str(path.relative_to(self.bundle_folder)) for path in self.bundle_folder.rglob("[!.]*") if path.is_file()
        }

    @property
    def fetched_paths(self) -> list[str]:
        """The paths of files that were fetched since this was asked last."""
        found = [one.path for one in self.files.asked if one.path.endswith((".gguf", ".gz", ".whl", ".deb"))]
        self.files.asked.clear()
        return [path for path in found if "Packages" not in path]


@contextmanager
def archive_signing(keyring: Path) -> Iterator[Path]:
    """Make a key to sign archives with, a stand-in for the distribution's own; gives the folder that gpg has it in."""
    with tempfile.TemporaryDirectory() as home:  # below a short path: gpg has a socket there
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet"]
        short_programs.run_program(
            [*gpg, "--passphrase", "", "--quick-gen-key", "archive", "rsa2048", "sign", "1d"], check=True
        )
        keyring.write_bytes(subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout)
        yield Path(home)
        short_programs.run_program(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], check=True)


class SignedAptArchive:
    """An archive with packages of one line, signed, in the places of a Debian or Ubuntu one."""

    def __init__(self, files: LoopbackFileServer, home: Path, name: str = "archive") -> None:
        self.files, self.home, self.name = files, home, name
        self.debs: dict[str, bytes] = {}
        self.secure: dict[str, bytes] = {}
        """Packages of the security archive, which lies beside the other."""

    def add_package(self, name: str, version: str = "1.0", depends: str = "", secure: bool = False) -> None:
        """Build a package."""
        needs = f"Depends: {depends}\n" if depends else ""
        control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\n"
        where = self.secure if secure else self.debs
        where[f"pool/{name}_{version.partition(':')[2] or version}_amd64.deb"] = built_debs.build_deb(
            f"{control}{needs}Description: one\n"
        )

    def publish_suites(
        self, codename: str = "bookworm", components: tuple[str, ...] = ("main",), until: str = ""
    ) -> None:
        """Serve the packages in the suites of a release, and an empty suite for updates.

        Args:
            codename: The release's.
            components: Each has all packages.
            until: When the security suite expires; never without it.
        """
        base = f"{self.name}/debian"
        self._publish_suite(base, codename, components, self._render_stanzas(base, self.debs))
        self._publish_suite(base, f"{codename}-updates", components, "")
        self._publish_suite(base, f"{codename}-security", components, "")
        secure = f"{base}-security"
        self._publish_suite(
            secure, f"{codename}-security", components, self._render_stanzas(secure, self.secure), until
        )

    def _render_stanzas(self, base: str, packages: dict[str, bytes]) -> str:
        stanzas = []
        for path, content in packages.items():
            control = built_debs.read_control(content).rstrip("\n")
            digest = hashlib.sha256(content).hexdigest()
            stanzas.append(f"{control}\nFilename: {path}\nSize: {len(content)}\nSHA256: {digest}\n")
            self.serve(path, content, base)
        return "\n".join(stanzas)

    def serve(self, path: str, content: bytes, base: str = "") -> None:
        """Serve one package, by the name that apt asks for."""
        quoted = path.replace("+", "%2b").replace("~", "%7e")
        self.files.serve(f"{base or f'{self.name}/debian'}/{quoted}", complete_file(content))

    def _publish_suite(
        self, base: str, suite: str, components: tuple[str, ...], packages: str, until: str = ""
    ) -> None:
        lists = {f"{one}/binary-amd64/Packages": packages.encode() for one in components}
        lines = [f"Origin: Debian\nLabel: Debian\nSuite: {suite}\nCodename: {suite}"]
        lines += ["Date: Sat, 01 Nov 2025 00:00:00 UTC", *([f"Valid-Until: {until}"] if until else [])]
        lines += [f"Architectures: amd64\nComponents: {' '.join(components)}\nSHA256:"]
        for path, content in lists.items():
            lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {path}")
            self.files.serve(f"{base}/dists/{suite}/{path}", complete_file(content))
        release = "\n".join(lines) + "\n"
        gpg = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--clearsign"]
        signed = short_programs.run_program(gpg, input=release, check=True).stdout
        self.files.serve(f"{base}/dists/{suite}/InRelease", complete_file(signed.encode()))
