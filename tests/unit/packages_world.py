"""A box whose container toolkit and Docker are to be locked, and small signed archives of both on the loopback."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from rigwright.model.containers import archive_tables
from tests.unit import built_debs
from tests.unit.container_samples import FIVE, FOUR, SYSTEM
from tests.unit.driver_world import ArchiveSigner
from tests.unit.file_server import LoopbackFileServer, complete_file
from tests.unit.lock_folder import LockFolder

DOCKER = f"docker-{SYSTEM}"
TOOLKIT_VERSION, DOCKER_VERSION = "1.20.0", "28.5.2"
FINGERPRINTS = ("C95B321B61E88C1809C4F759DDCAE044F796ECB0", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88")
CATALOG = f"""
[inputs.container-toolkit]
kind = "deb"
version = "{TOOLKIT_VERSION}"
sources = ["container-toolkit:stable/deb/amd64"]

[inputs.{DOCKER}]
kind = "deb"
version = "{DOCKER_VERSION}"
sources = ["docker:debian"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "mirrors": {mirrors!r}}}}})
"""


@dataclass
class ContainerPackageArchive:
    """One archive."""

    files: LoopbackFileServer
    signer: ArchiveSigner
    place: str
    """Its folder on the server."""
    suite: str = ""
    """Below it; empty for a flat one."""
    component: str = "stable"
    debs: dict[str, bytes] = field(default_factory=dict)

    def add_package(self, name: str, version: str) -> None:
        """Add a package."""
        control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\nDescription: one\n"
        self.debs[f"{name}_{version.partition(':')[2] or version}_amd64.deb"] = built_debs.build_deb(control)

    def publish(self) -> None:
        """Serve it."""
        pool = f"dists/{self.suite}/pool/" if self.suite else "./"
        stanzas = []
        for file, content in self.debs.items():
            sums = f"Size: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
            stanzas.append(f"{built_debs.read_control(content)}Filename: {pool}{file}\n{sums}")
        content = "\n".join(stanzas).encode()
        listed = f"{self.component}/binary-amd64/Packages" if self.suite else "Packages"
        release = "Origin: One\nLabel: One\nArchitectures: amd64\nDate: Sat, 01 Nov 2025 00:00:00 UTC\n"
        if self.suite:
            release += f"Suite: {self.suite}\nCodename: {self.suite}\nComponents: {self.component}\n"
        release += f"SHA256:\n {hashlib.sha256(content).hexdigest()} {len(content)} {listed}\n"
        at = f"{self.place}/dists/{self.suite}" if self.suite else self.place
        self.files.serve(f"{at}/InRelease", complete_file(self.signer.sign_text(release)))
        self.files.serve(f"{at}/{listed}", complete_file(content))


class ContainerLockFixture(LockFolder):
    """A box's folder and `rigwright lock` over it."""

    def __init__(self, folder: Path, files: LoopbackFileServer, signer: ArchiveSigner) -> None:
        self.folder, self.files, self.signer = folder, files, signer
        self.toolkit = ContainerPackageArchive(files, signer, "toolkit/stable/deb/amd64")
        self.docker = ContainerPackageArchive(files, signer, "docker/debian", "trixie")
        for name in FOUR:
            for version in ("1.19.1-1", "1.20.0~rc.1-1", "1.20.0-1"):
                self.toolkit.add_package(name, version)
        for name in FIVE:
            versions = ["5:28.5.2-1~debian.13~trixie", "5:29.1.0-1~debian.13~trixie"]
            if name == "containerd.io" or name.endswith("-plugin"):
                versions = ["1.7.28-1~debian.13~trixie", "1.7.9-1~debian.13~trixie"]
            for version in versions:
                self.docker.add_package(name, version)
        for one in (self.toolkit, self.docker):
            one.publish()
        for key in ("toolkit/gpgkey", "docker/debian/gpg"):
            files.serve(key, complete_file(signer.armoured.encode()))
        (folder / "catalog/containers").mkdir(parents=True)
        self.write_catalog(CATALOG)
        self.write_tables(signer.fingerprint)
        mirrors = {"container-toolkit": [f"{files.url}/toolkit"], "docker": [f"{files.url}/docker"]}
        (folder / "rig.py").write_text(INVENTORY.format(mirrors=mirrors))

    def write_catalog(self, text: str) -> None:
        (self.folder / "catalog/mine.toml").write_text(text)

    def write_tables(self, fingerprint: str) -> None:
        """Tables of the box's own, with another key."""
        text = archive_tables.SHIPPED.read_text()
        for one in FINGERPRINTS:
            text = text.replace(one, fingerprint)
        (self.folder / "catalog/containers/containers.toml").write_text(text)
        archive_tables.load_container_tables.cache_clear()

    def lock_error_lines(self) -> list[str]:
        """The lines of an error, after which nothing is written."""
        done = self.run_lock()
        assert done.exit_code in (1, 2), done.output
        assert not (self.folder / "locks").exists()
        return done.stderr.partition("Error: ")[2].splitlines()
