"""A box whose driver is managed and comes from a bundle: locked packages of a driver, built and served."""

import hashlib
from pathlib import Path

from rigwright.supply.lock import Artefact, render_lock
from tests.unit import built_debs
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.file_server import complete_file
from tests.unit.samples import KEY_TEXT, archive_key, sample_deb

SYSTEM, GROUP, VERSION = "debian-12", "driver-debian-12", "580.178.04-1"
KERNEL, OTHER_KERNEL = "6.1.0-40-amd64", "6.1.0-41-amd64"
NEEDS = {
    "libcuda1": "",
    "nvidia-driver-cuda": f"libcuda1 (= {VERSION}), nvidia-persistenced (= {VERSION}), glx-diversions",
    "nvidia-persistenced": "",
    "nvidia-kernel-open-dkms": "dkms (>= 2.1.1.1)",
    "nvidia-kernel-dkms": "dkms (>= 2.1.1.1)",
    "nvidia-driver": f"nvidia-driver-cuda (= {VERSION}), not-in-any-archive",
}
INPUT = f"""
[inputs.{GROUP}]
kind = "deb"
version = "580.178.04"
sources = ["nvidia:debian12/x86_64"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({rigs!r}, allow=["locks.tools", "locks.driver-debian-12"], bundle="the bundle")
"""


def build_driver_deb(name: str, version: str = VERSION) -> bytes:
    """One of the driver's packages."""
    needs = f"Depends: {NEEDS[name]}\n" if NEEDS[name] else ""
    other = {"nvidia-kernel-dkms": "nvidia-kernel-open-dkms"}.get(name)
    conflicts = f"Conflicts: {other}\n" if other else ""
    return built_debs.build_deb(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\n"
        f"{needs}{conflicts}Description: one\n of two lines\n"
    )


def driver_rows() -> list[Artefact]:
    """The lock's rows."""
    rows = []
    for name in NEEDS:
        content = build_driver_deb(name)
        row = sample_deb(name, VERSION, group=GROUP, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
        rows.append(row.model_copy(update={"sources": (f"nvidia:debian12/x86_64/{row.file}",)}))
    return rows


class DriverBundle:
    """`rigwright bundle` over such a box."""

    def __init__(self, maker: BundleFixture, archive: SignedAptArchive) -> None:
        self.maker, self.archive, self.rows = maker, archive, driver_rows()
        archive.add_package("dkms", "3.0.10-8+deb12u1", "make")
        for name in ("make", "glx-diversions"):
            archive.add_package(name)
        archive.add_package("linux-headers-amd64", "6.1.2", f"linux-headers-{OTHER_KERNEL}")
        for kernel in (KERNEL, OTHER_KERNEL):
            archive.add_package(f"linux-headers-{kernel}", "6.1.2", "linux-kbuild")
        archive.add_package("linux-kbuild")
        archive.publish_suites("bookworm", ("main", "contrib"))
        for row in self.rows:
            maker.files.serve(f"nvidia/debian12/x86_64/{row.file}", complete_file(build_driver_deb(row.name)))
        maker.box.write("catalog/driver.toml", INPUT)
        key = archive_key(
            name=f"nvidia-{SYSTEM}", group=GROUP, file=f"{GROUP}.asc", sources=["nvidia:debian12/x86_64/3bf863cc.pub"]
        )
        maker.box.write("locks/driver.lock.toml", render_lock([*self.rows, key], "catalog/driver.toml"))
        (maker.box.folder / f"locks/{GROUP}.asc").write_text(KEY_TEXT)
        self.write_inventory()

    def write_inventory(self, **driver: object) -> None:
        """Declare the box, with other keys of its driver."""
        url = self.maker.files.url
        mirrors = {"store": [f"{url}/good"], "nvidia": [f"{url}/nvidia"], "apt": [f"{url}/archive/debian"]}
        rig = {
            "ssh_hostname": "192.0.2.1",
            "cards": ["rtx-3090"],
            "driver": {"managed": True, **driver},
            "mirrors": mirrors,
            "instances": {"chat": {"variant": "llamacpp/cpu", "port": 8020}},
        }
        self.maker.box.write("rig.py", INVENTORY.format(rigs={"box": rig}))

    @property
    def folder(self) -> Path:
        """The bundle's."""
        return self.maker.bundle_folder
