"""Preflight: each thing that stands in the way of a rig is refused on its own, with what to do."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.engines.llama_cpp.build import Build, plan_build
from rigwright.host.basic_facts import ListeningSocket
from rigwright.host.supported_systems import SUPPORTED
from rigwright.model.fact_types import HostAccount, HostFacts
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.rig import Rig
from rigwright.plan.preflight import find_refusals, find_warnings
from rigwright.supply.bundle import Bundle
from tests.unit.host_states import rig_target_state
from tests.unit.samples import (
    GIB,
    NOW,
    sample_artefact,
    sample_build,
    sample_card,
    sample_engine,
    sample_facts,
    sample_instance,
    sample_parts,
    sample_rig,
)

AMPERE = sample_card("8.6", "10de:2204", "NVIDIA GeForce RTX 3090")
TURING = sample_card("7.5", "10de:1e07", "NVIDIA GeForce RTX 2080 Ti")
OURS = "rigwright-chat:x:999:999::/nonexistent:/usr/sbin/nologin"
FOREIGN = HostAccount("rigwright-chat:x:1000:1000::/home/rigwright:/bin/bash", ours=False)
MOVED = OURS.replace("/nonexistent", "/srv/x")
PRESENT = (("0000:01:00.0", "10de:2204"), ("0000:02:00.0", "10de:1e07"))


def box() -> Rig:
    return sample_rig(sample_instance("chat", cards=(0, 1)), cards=(AMPERE, TURING), cuda_root="/opt/cuda")


CUDA = plan_build(box(), "plain", sample_engine(), sample_facts())


def good(**changes: object) -> HostFacts:
    return sample_facts(**{"pci_cards": PRESENT} | changes)


def space(**free_gib: float) -> MappingProxyType[str, int]:
    names = {"software": "/opt/rigwright", "models": "/srv/models", "state": "/var/lib/rigwright"}
    return MappingProxyType({path: int(free_gib.get(name, 50) * GIB) for name, path in names.items()})


def fetched_so_far(mib: int) -> dict[str, int]:
    """So much of the weights, and the source that the engine is built from."""
    (source,) = CUDA.artefacts
    path = f"/srv/models/{source.package_path}"
    return {box().roots.weight_path(sample_artefact()): mib << 20, path: source.size}


@pytest.mark.parametrize(("clock", "said"), [(-601, "behind"), (601, "ahead of"), (-599, ""), (599, "")])
def test_a_clock_that_is_wrong_by_more_than_ten_minutes_is_refused(clock: int, said: str) -> None:
    reasons = find_refusals(rig_target_state(box(), good(clock=NOW + clock), CUDA), NOW)
    assert [said in reason for reason in reasons] == ([True] if said else [])


@pytest.mark.parametrize("system", sorted(SUPPORTED))
def test_nothing_stands_in_the_way_on_a_good_host(system: tuple[str, str]) -> None:
    host = good(os_id=system[0], os_version=system[1])
    assert find_refusals(rig_target_state(box(), host, CUDA), NOW) == []
    assert find_warnings(sample_rig(), host) == []


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"os_version": "11"}, ["debian 11 is not supported", "debian 12", "ubuntu 24.04"]),
    ({"os_id": "fedora", "os_version": "42"}, ["fedora 42 is not supported"]),
    ({"os_version": ""}, ["debian", "is not supported"]),
    ({"architecture": "aarch64"}, ["aarch64", "only x86_64"]),
    ({"systemd": 246}, ["systemd 246", "at least 247"]),
    ({"systemd": 0}, ["systemd is missing", "at least 247"]),
    ({"uid": 1000}, ["not root", '"_sudo": True']),
    ({"memory_kib": 2 * GIB - 1}, ["GiB of memory", "at least 2 GiB"]),
    ({"pci_cards": ()}, ["card 0 is declared as NVIDIA GeForce RTX 3090 (10de:2204)", "no NVIDIA card"]),
    ({"pci_cards": PRESENT[:1]}, ["card 1 is declared as NVIDIA GeForce RTX 2080 Ti", "10de:2204 at 0000:01:00.0"]),
    (
        {"users": (FOREIGN,)},
        ["the user rigwright-chat exists, not managed by Rigwright", "another service_user", "instance name"],
    ),
    (
        {"foreign_groups": ("rigwright-chat",)},
        ["the group rigwright-chat exists, not managed by Rigwright", "another service_user"],
    ),
    (
        {"users": (HostAccount(MOVED, True, ("sh (pid 7)", "llama-server (pid 8, a.service)")),)},
        ["the home of the user rigwright-chat is /srv/x", "sh (pid 7), llama-server (pid 8, a.service)", "stop them"],
    ),
    ({"foreign_roots": (("/srv/models", "ops", 0o755),)}, ["/srv/models is ops's with mode 755", "in roots"]),
    ({"foreign_roots": (("/srv/models", "root", 0o775),)}, ["/srv/models is root's with mode 775", "in roots"]),
    (
        {"covered": ("/opt/rigwright/engines", "/opt/rigwright/engines/x")},
        ["mounted over", "umount --lazy /opt/rigwright/engines/x /opt/rigwright/engines,", "/etc/fstab"],
    ),
    ({"elsewhere": "/etc/other"}, ["configuration in /etc/other", "roots.config"]),
    ({"kernel": "5.10.0-28-amd64"}, ["kernel 5.10.0-28-amd64", "at least 5.15"]),
    ({"kernel": "5.15.167.4-microsoft-standard-WSL2"}, ["Windows Subsystem for Linux", "on the machine itself"]),
    ({"kernel": "6.6.0-22621-Microsoft"}, ["Windows Subsystem for Linux"]),
    ({"linked_roots": ("/srv/models",)}, ["/srv/models is a symbolic link"]),
    (
        {"read_only_roots": ("/opt/rigwright",)},
        ["/opt/rigwright is on a read-only file system", "findmnt --target /opt/rigwright"],
    ),
    ({"read_only_roots": ("/opt/rigwright",), "uid": 1000}, ["not root"]),
    ({"cuda_version": ""}, ["no CUDA toolkit at /opt/cuda", "plain", "cuda_root"]),
    (
        {"listeners": (ListeningSocket(8020, "nginx", "nginx.service"),)},
        ["port 8020 of instance chat", "nginx.service"],
    ),
    ({"listeners": (ListeningSocket(8020, "python3", ""),)}, ["port 8020 of instance chat", "in use by python3:"]),
    (
        {"listeners": (ListeningSocket(8020, "systemd", "cups.service"),)},
        ["port 8020 of instance chat", "cups.service"],
    ),
    ({"disk_free_kib": space(models=0.5)}, ["/srv/models has 0.5 GiB free", "1.0 GiB are required"]),
    ({"disk_free_kib": space(state=6.5)}, ["/var/lib/rigwright has 6.5 GiB free", "7.0 GiB are required"]),
]


@pytest.mark.parametrize(("changes", "essence"), REFUSED, ids=lambda value: "+".join(value))
def test_each_thing_in_the_way_is_refused_alone(changes: dict[str, Any], essence: list[str]) -> None:
    reasons = find_refusals(rig_target_state(box(), good(**changes), CUDA), NOW)
    if changes.get("pci_cards") == ():
        reasons = [reason for reason in reasons if "2080 Ti" not in reason]
    (reason,) = reasons
    assert all(part in reason for part in essence), reason


def test_each_user_that_is_in_the_way_is_reported() -> None:
    made = sample_rig(*(sample_instance(name, port=8020 + at) for at, name in enumerate(("chat", "code", "more"))))
    moved = HostAccount(MOVED.replace("chat", "code"), True, ("sh (pid 7)",))
    found = find_refusals(
        rig_target_state(
            made, sample_facts(users=(FOREIGN, moved), foreign_groups=("rigwright-more",)), sample_build()
        ),
        NOW,
    )
    begins = (
        "the user rigwright-chat exists",
        "the group rigwright-more exists",
        "the home of the user rigwright-code is",
    )
    assert [reason.startswith(begin) for reason, begin in zip(found, begins, strict=True)] == [True] * 3, found


def test_everything_in_the_way_is_reported_at_once() -> None:
    host = sample_facts(
        os_version="11",
        architecture="aarch64",
        systemd=0,
        uid=1,
        memory_kib=0,
        cuda_version="",
        users=(FOREIGN,),
        listeners=(ListeningSocket(8020, "nginx", ""),),
        disk_free_kib=space(models=0, state=0),
    )
    reasons = find_refusals(rig_target_state(box(), host, CUDA), NOW)
    begins = [
        "debian 11",
        "the CPU architecture",
        "systemd",
        "not root",
        "0.0 GiB of memory",
        "card 0",
        "card 1",
        "the user",
        "no CUDA",
        "port",
    ]
    begins += ["/var/lib/rigwright", "/srv/models"]
    assert [reason.startswith(begin) for reason, begin in zip(reasons, begins, strict=True)] == [True] * len(begins)


@pytest.mark.parametrize(
    ("changes", "builds"),
    [
        ({"cuda_version": ""}, [sample_build()]),
        ({"disk_free_kib": space(state=1.5), "built_engines": frozenset({CUDA.folder})}, [CUDA]),
        ({"disk_free_kib": space(state=1.5), "started_builds": frozenset({CUDA.folder})}, [CUDA]),
        ({"disk_free_kib": space(models=0), "weight_bytes": fetched_so_far(2)}, [CUDA]),
        ({"disk_free_kib": space(models=0), "weight_bytes": fetched_so_far(9)}, [CUDA]),
        ({"users": (HostAccount(OURS, True),)}, [CUDA]),
        ({"users": (HostAccount(OURS, True, ("sh (pid 7)",)),)}, [CUDA]),
        ({"users": (HostAccount(MOVED, True),)}, [CUDA]),
        # of another instance, that was; those of the generations that are kept
        ({"users": (HostAccount(MOVED.replace("chat", "gone"), True, ("sh (pid 7)",)),)}, [CUDA]),
        ({"users": (HostAccount(FOREIGN.passwd.replace("chat", "gone"), False),)}, [CUDA]),
        ({"foreign_groups": ("rigwright-gone",)}, [CUDA]),
        ({"foreign_roots": (("/srv/models", "root", 0o755),)}, [CUDA]),
        ({"cuda_version": ""}, [sample_build(options={"GGML_CUDA": "ON"})]),
        ({"disk_free_kib": space(software=0)}, [CUDA]),
        ({"listeners": (ListeningSocket(8020, "llama-server", "rigwright-chat.service"),)}, [CUDA]),
        ({"listeners": (ListeningSocket(8020, "systemd", "rigwright_listener-8020.service"),)}, [CUDA]),
        ({"listeners": (ListeningSocket(8020, "llama-server", "rigwright-old.service"),)}, [CUDA]),
        # systemd holds the port already: a holder on another address, as every local user can be, does not collide
        (
            {
                "listeners": (
                    ListeningSocket(8020, "python3", "user@1000.service"),
                    ListeningSocket(8020, "systemd", "rigwright_listener-8020.service"),
                )
            },
            [CUDA],
        ),
        ({"listeners": (ListeningSocket(22, "sshd", "ssh.service"),)}, [CUDA]),
        ({"pci_cards": (*PRESENT, ("0000:03:00.0", "10de:2b85"))}, [CUDA]),
        ({"memory_kib": 2 * GIB}, [CUDA]),
        ({"systemd": 247}, [CUDA]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_irrelevant_differences_are_not_refused(changes: dict[str, Any], builds: list[Build]) -> None:
    assert find_refusals(rig_target_state(box(), good(**changes), *builds), NOW) == []


@pytest.mark.parametrize(
    ("declared", "present", "refused"),
    [
        ((AMPERE, AMPERE), ["10de:2204", "10de:2204"], 0),
        ((AMPERE, AMPERE), ["10de:2204"], 1),
        ((AMPERE, AMPERE, TURING), ["10de:2204"], 2),
        ((TURING,), ["10de:2204", "10de:1e07"], 1),
        ((TURING, AMPERE), ["10de:2204", "10de:1e07"], 2),
        ((AMPERE,), ["10de:2204", "10de:1e07"], 0),
        ((AMPERE, TURING), ["10de:2204", "10de:2b85", "10de:1e07"], 1),
        ((), ["10de:2204"], 0),
        ((), [], 0),
    ],
)
def test_each_declared_card_must_be_at_its_place_on_the_bus(
    declared: tuple[Any, ...], present: list[str], refused: int
) -> None:
    bus = tuple((f"0000:0{slot}:00.0", pci_id) for slot, pci_id in enumerate(present, 1))
    assert len(find_refusals(rig_target_state(sample_rig(cards=declared), sample_facts(pci_cards=bus)), NOW)) == refused


def test_a_card_is_known_by_any_of_its_ids() -> None:
    either = sample_card("7.5", "10de:1e04").model_copy(update={"pci_ids": ("10de:1e04", "10de:1e07")})
    for pci_id in either.pci_ids:
        assert (
            find_refusals(
                rig_target_state(sample_rig(cards=(either,)), sample_facts(pci_cards=(("0000:01:00.0", pci_id),))), NOW
            )
            == []
        )


def test_the_space_for_all_missing_weights_is_summed() -> None:
    large = [sample_artefact(name=name, size=10 * GIB * 1024) for name in ("one", "two")]
    made = sample_rig(
        sample_instance("a", parts=sample_parts(large[0])),
        sample_instance("b", parts=sample_parts(large[1]), port=8021),
    )
    host = sample_facts(disk_free_kib=space(models=20.5))
    (reason,) = find_refusals(rig_target_state(made, host), NOW)
    assert "/srv/models has 20.5 GiB free, 21.0 GiB are required" in reason
    there = replace(host, weight_bytes=MappingProxyType({made.roots.weight_path(large[0]): large[0].size}))
    assert find_refusals(rig_target_state(made, there), NOW) == []


@pytest.mark.parametrize(
    ("holder", "shown"),
    [
        ("unattended-upgr", "dpkg's lock is held by unattended-upgr: "),
        ("rw-job-packages.service", "dpkg's lock is held by Rigwright's own job rw-job-packages.service: "),
    ],
)
def test_a_held_dpkg_lock_is_worth_knowing_and_no_reason_to_refuse(holder: str, shown: str) -> None:
    host = good(apt_lock_holder=holder)
    assert find_refusals(rig_target_state(box(), host, CUDA), NOW) == []
    (warning,) = find_warnings(sample_rig(), host)
    assert warning.startswith(shown)


def test_downloaded_files_need_no_space_again() -> None:
    large = sample_artefact(size=10 * GIB * 1024)
    made = sample_rig(sample_instance(parts=sample_parts(large)))
    for begun_gib, free_gib, refused in ((0, 10.5, 1), (4, 7, 0), (4, 6.5, 1), (10, 0, 0)):
        there = MappingProxyType({made.roots.weight_path(large): begun_gib * GIB * 1024})
        host = sample_facts(disk_free_kib=space(models=free_gib), weight_bytes=there)
        assert len(find_refusals(rig_target_state(made, host), NOW)) == refused, (begun_gib, free_gib)


def test_a_port_listened_on_over_both_protocols_is_reported_once() -> None:
    host = good(listeners=(ListeningSocket(8020, "nginx", "nginx.service"),) * 2)
    assert len(find_refusals(rig_target_state(box(), host, CUDA), NOW)) == 1
    other = good(listeners=(ListeningSocket(8020, "nginx", "nginx.service"), ListeningSocket(8020, "python3", "")))
    assert len(find_refusals(rig_target_state(box(), other, CUDA), NOW)) == 2


HELD = ListeningSocket(8001, "systemd", "rigwright_gateway-8001.socket", "0.0.0.0", 1)
LAN = "port 8001 of gateway.listeners.lan"
TWIN = ListeningSocket(8001, "python3", "user@1000.service", "::", 812, 1000)


@pytest.mark.parametrize(
    ("address", "listeners", "refused", "warned"),
    [
        ("0.0.0.0", (ListeningSocket(8001, "x", "", "0.0.0.0", 7, 3),), f"{LAN} is in use by x, pid 7 of uid 3:", ""),
        ("0.0.0.0", (ListeningSocket(8001, "x", "", "192.0.2.9"),), f"{LAN} is in use by x:", ""),
        ("0.0.0.0", (ListeningSocket(8001, "x", ""),), f"{LAN} is in use by x:", ""),
        ("127.0.0.1", (ListeningSocket(8001, "x", "", "::ffff:127.0.0.1"),), f"{LAN} is in use by x:", ""),
        # no address that is needed, nor one at which clients arrive instead
        (
            "127.0.0.1",
            (ListeningSocket(8001, "x", "", "192.0.2.9"), ListeningSocket(8001, "x", "", "2001:db8::9")),
            "",
            "",
        ),
        ("0.0.0.0", (ListeningSocket(8002, "x", "", "::"),), "", ""),
        # before the gateway has the port, and afterwards, when a user must not keep deploys away
        ("0.0.0.0", (TWIN,), f"[::]:8001 is in use by {TWIN.holder_text}, and clients", ""),
        ("127.0.0.1", (replace(TWIN, address="::1"),), "[::1]:8001 is in use by python3", ""),
        ("192.0.2.7", (replace(TWIN, address="127.0.0.1"),), "127.0.0.1:8001 is in use by python3", ""),
        ("127.0.0.1", (replace(TWIN, address="127.0.1.1"),), "127.0.1.1:8001 is in use by python3", ""),
        ("0.0.0.0", (HELD, TWIN), "", f"[::]:8001 is in use by {TWIN.holder_text}: clients"),
    ],
)
def test_a_deploy_is_refused_for_addresses_that_it_needs(
    address: str, listeners: tuple[ListeningSocket, ...], refused: str, warned: str
) -> None:
    made = sample_rig(sample_instance(), gateway=Gateway(listeners={"lan": ListenerEntry(address=address, port=8001)}))
    host = good(listeners=listeners, addresses=frozenset({"127.0.0.1", "192.0.2.7"}))
    reasons = find_refusals(rig_target_state(made, host), NOW)
    assert [one[: len(refused)] for one in reasons] == ([refused] if refused else [])
    notes = [one for one in find_warnings(made, host) if "8001" in one]
    assert [one[: len(warned)] for one in notes] == ([warned] if warned else [])


@pytest.mark.parametrize(
    ("at", "refused"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", True), ("::", True), ("192.0.2.9", False)]
)
def test_an_instance_needs_both_loopback_addresses(at: str, refused: bool) -> None:
    host = good(listeners=(ListeningSocket(8020, "x", "", at),))
    assert bool(find_refusals(rig_target_state(box(), host, CUDA), NOW)) == refused


def bundled_rig(*systems: str) -> Rig:
    """A rig with a bundle that has packages of these systems."""
    large = sample_artefact(size=10 * GIB * 1024)
    return sample_rig(sample_instance(parts=sample_parts(large)), bundle=Bundle(Path("/home/ops/bundle"), systems, ()))


@pytest.mark.parametrize(
    ("systems", "missing", "said"),
    [
        (("debian-12",), ("cmake", "curl"), ""),
        (("debian-12", "debian-13"), ("curl",), ""),
        (("debian-13",), (), ""),
        (("debian-13",), ("cmake", "curl"), "cmake, curl must be installed, but /home/ops/bundle has packages of"),
        (("debian-1", "ubuntu-24.04"), ("curl",), "has packages of debian-1, ubuntu-24.04: "),
        ((), ("curl",), "has packages of no system: recreate it with `rigwright bundle --system debian-12`"),
    ],
)
def test_a_bundle_has_the_hosts_packages_unless_none_is_missing(
    systems: tuple[str, ...], missing: tuple[str, ...], said: str
) -> None:
    reasons = find_refusals(rig_target_state(bundled_rig(*systems), sample_facts(missing_packages=missing)), NOW)
    assert [said in reason for reason in reasons] == ([True] if said else []), reasons


def test_a_host_without_a_bundle_may_miss_packages() -> None:
    assert find_refusals(rig_target_state(sample_rig(), sample_facts(missing_packages=("curl",))), NOW) == []
