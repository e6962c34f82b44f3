"""A box without any network: from a signed bundle to a signed verdict, with everything that a throwaway host can have.

Kernel, cards and NVIDIA's archives are stand-ins; kernel headers, DKMS, apt, Docker, nginx and the exporters are real.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from cli.lock_resolver.distribution_packages import DistributionArchive
from lab import tiny_model
from lab.throwaway_lab import ThrowawayLab
from rigwright.nvidia.driver.driver_facts import release_key
from tests.forged_bundles import rewrite_index
from tests.hosts.containers_box import BUNDLE, DISKS, INPUT, TOOLKIT, ContainersBox
from tests.hosts.driver_box import C3090, NEW, OLD, boot_driver_box, single_release_mark
from tests.hosts.gateway_box import LAN
from tests.hosts.support import PORT, deploy, is_serving, isolate_host, run_deploy
from tests.stand_ins.nvidia.signing_keys import SigningKey
from tests.unit.signing_keys import make_key, public_key

pytestmark = [pytest.mark.all_only, single_release_mark("debian-13")]

HEADERS = re.compile(r"^Depends: linux-headers-(\S+) \(= (\S+)\)$", re.MULTILINE)
CHANGES = "find / -xdev -newer {} -type f -not -path '/proc/*' -not -path '/sys/*' -not -path '/run/*'"
# logins, the journal and a probe of apt write there
LOGS = ("/var/log/", "/var/lib/systemd/", "/var/cache/apt/", "/tmp/")
# once the host is deployed, its own services and timers write there
MEASUREMENTS = tuple(f"/var/lib/rigwright/{folder}/" for folder in ("metrics", "monitoring", "self_check"))


def newest_kernel(system: str) -> tuple[str, str]:
    """The newest kernel of which a distribution has headers, and the version of its packages."""
    listed = DistributionArchive(system, ()).list_component("main")
    stanzas = [one for one in listed.split("\n\n") if one.startswith("Package: linux-headers-amd64\n")]
    return max(
        (matched.groups() for one in stanzas if (matched := HEADERS.search(one))), key=lambda one: release_key(one[0])
    )


class AirGappedBox(ContainersBox):
    """A host with cards and without a network, its bundle, and an inventory with signers."""

    kernel = ""
    signing_key: Path

    def declare_all(self, *, online: bool = False, **changes: Any) -> None:
        """Write the inventory: with addresses of archives for the making of the bundle alone."""
        also = {
            "bundle": BUNDLE,
            "mirrors": {**self.mirrors, "shelf": [self.lab.shelf_url]} if online else {},
            "signers": {"ana": {"key": str(public_key(self.signing_key))}},
            "containers": {"engines": ["docker", "podman"]},
            "instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT}},
            "gateway": {"listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}}},
            "monitoring": {
                "address": self.host.address,
                "server": {"allow": [f"{self.lab.gateway}/32"], "size_gb": 1, "receivers": {}},
            },
        }
        self.declare({**also, **changes})

    def make_bundle(self, version: str) -> None:
        """Lock the driver and the toolkit, make the bundle, sign both, and forget the archives."""
        self.write_container_tables()
        self.declare_all(online=True)
        self.lock(version, INPUT.format(TOOLKIT))
        self.sign()
        self.run_rig("bundle", "--system", self.system, "--kernel", self.kernel)
        self.sign()
        self.declare_all()

    def sign(self) -> None:
        """Sign lock and bundle."""
        self.run_rig("sign", "--key", str(self.signing_key))


@pytest.fixture(scope="module")
def bundled_box(
    lab: ThrowawayLab, release: str, key: SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirGappedBox]:
    """A blank host, cut off, and its signed bundle."""
    kernel, version = newest_kernel(release)
    folder = tmp_path_factory.mktemp("gap") / "box"
    made = boot_driver_box(
        lab, release, folder, key, cards=(C3090, C3090), disks=DISKS, kernels=(kernel,), image_version=version
    )
    box = AirGappedBox(made.lab, made.host, made.folder, made.key)
    box.kernel, box.signing_key = kernel, make_key(folder, "ana")
    box.publish(OLD[release], NEW[release])
    box.publish_toolkit(TOOLKIT)
    box.make_bundle(OLD[release])
    isolate_host(box.host)
    yield box
    box.host.destroy()


def is_cut_off(box: AirGappedBox) -> bool:
    """Whether a host has no route beyond its own bridges and the login's network, and no resolver."""
    return box.host.run("ip route show default; cat /etc/resolv.conf") == ""


def changed_files(box: AirGappedBox, since: str) -> list[str]:
    """Files of the host that are newer than another one, but for logs and measurements."""
    found = box.host.run(f"{CHANGES.format(since)} 2>/dev/null", check=False).split("\n")
    return [path for path in found if path and not path.startswith(LOGS + MEASUREMENTS)]


def assert_refused(box: AirGappedBox, message: str, *options: str) -> None:
    """Assert that a deploy is refused and the host stays as it is."""
    box.host.run("touch /root/before")
    run = run_deploy(box.inventory, *options)
    assert run.status == 1, run.said
    assert message in run.said
    assert "Traceback" not in run.said
    assert changed_files(box, "/root/before") == []


def flip_byte(path: Path) -> bytes:
    """Change the last byte of a file, and return its previous content."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    return whole


def test_a_blank_box_without_a_network_goes_from_a_signed_bundle_to_a_signed_verdict(bundled_box: AirGappedBox) -> None:
    box, bundle = bundled_box, bundled_box.folder / BUNDLE
    signatures = [box.folder / "locks/rig.lock.sig", bundle / "bundle.json.sig"]
    older = [path.read_bytes() for path in signatures]
    box.sign()
    assert is_cut_off(box)
    box.run_rig("validate")

    # a byte of the driver; the same with an index that is right about it; two files that are gone
    (deb,), (other,) = bundle.glob("debs/driver-debian-13/libcuda1_*.deb"), bundle.glob("packages/**/dkms_*.deb")
    index = (bundle / "bundle.json").read_bytes()
    whole = flip_byte(deb)
    assert_refused(box, f"refused: {deb} has SHA-256 ")
    rewrite_index(bundle)
    assert_refused(box, "the bundle is refused: ")
    (bundle / "bundle.json").write_bytes(index)
    other.rename(other.with_suffix(".away"))
    deb.unlink()
    said = box.run_rig("validate", status=2)
    assert all(str(path.relative_to(bundle)) in said for path in (deb, other))
    assert_refused(box, "No such file or directory")
    deb.write_bytes(whole)
    other.with_suffix(".away").rename(other)

    box.interrupt("powered off", "==> installing the driver")
    deploy(box.inventory, "--yes", "--data", "reboot=true")
    assert is_cut_off(box), "the network is back after a reboot"
    assert (box.installed_driver, box.loaded_module) == (OLD[box.system],) * 2
    assert is_serving(box.host)
    asked = {"model": "tiny-rig", "messages": [{"role": "user", "content": "Are you there?"}]}
    told = requests.post(f"http://{box.host.address}:{LAN}/v1/chat/completions", json=asked, timeout=60)
    assert told.json()["choices"][0]["message"]["content"].strip() == tiny_model.ANSWER
    assert box.host.run("docker info -f '{{.ServerVersion}}' && podman info -f '{{.Host.OCIRuntime.Name}}'")
    assert box.spec_driver == OLD[box.system]
    box.assert_unchanged()
    assert box.host.run("ls /etc/apt/sources.list.d/rigwright* 2>/dev/null", check=False) == ""

    said = box.run_rig("check", "--sign", "--key", str(box.signing_key))
    assert "signed verdict" in said
    (verdict,) = (box.folder / "verdicts").glob("*/*.jsonl")
    signers = box.folder / "signers"
    signers.write_text(f'ana namespaces="verdict@rigwright" {public_key(box.signing_key)}\n')
    words = [sys.executable, "-m", "cli", "verify-verdict", "--signers", str(signers), "--complete", str(verdict)]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr

    for path, content in zip(signatures, older, strict=True):
        path.write_bytes(content)
    assert_refused(box, "and this host has accepted ")
