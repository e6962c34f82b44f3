"""The probe's output becomes facts; the probe itself runs on any Linux, as root or not."""

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rigwright.fetch_job_spec import fetch_unit_name
from rigwright.host import script_output
from rigwright.host.basic_facts import ListeningSocket
from rigwright.host.pci_cards import PciCard
from rigwright.host.service_states import ServiceState
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.fact_types import HostAccount, HostFacts, MonitoringFacts
from rigwright.monitoring import monitoring_facts, self_check
from rigwright.monitoring.monitoring_units import unit_name
from rigwright.plan.host_probe import PACKAGES, SCHEMA, SOURCES, parse, probe_values
from rigwright.plan.plan_inputs import list_orphans
from rigwright.render import render
from rigwright.supply.supply_signatures import AcceptedSerial
from rigwright.weights import weight_server
from rigwright.weights.weight_server import SHARE_UNIT
from tests.unit.channel_records import card_record, channel_lines_of
from tests.unit.samples import sample_artefact, sample_instance, sample_probe_values, sample_rig

RECORDS = [
    ("os_id", "debian"),
    ("os_version", "12"),
    ("architecture", "x86_64"),
    ("kernel", "6.1.0-40-amd64"),
    ("systemd", "252"),
    ("uid", "0"),
    ("memory_kib", "65843212"),
    ("disk", "/opt/rigwright", "51234567", "/"),
    ("disk", "/srv/models", "1234567890", "/srv"),
    ("sent_kib", "300"),
    ("cuda_version", "13.0"),
    ("nvcc", "13.0.88"),
    ("bare_function", "rsqrt"),
    ("glibc", "2.41"),
    ("apt_lock", "apt-get"),
    card_record("0000:21:00.0", "10de:2204"),
    card_record("0000:01:00.0", "10de:1e07"),
    ("listener", "8020", "127.0.0.53%lo", "llama-server", "/system.slice/rigwright-chat.service", "7", "999"),
    ("listener", "22", "[fe80::1]%eth0", "sshd", "/system.slice/ssh.service", "8", "0"),
    ("listener", "5000", "*", "python3", "", "", ""),
    ("engine", "plain-1.0-0123456789ab"),
    ("unfit", "plain-1.0-0123456789ab"),
    ("user", "rigwright-chat:x:999:999::/nonexistent:/usr/sbin/nologin", "yes"),
    ("user_process", "rigwright-chat", "llama-server", "4711", "rigwright-chat.service"),
    ("user_process", "rigwright-chat", "sh", "4712", ""),
    ("user_process", "rigwright-code", "sh", "4713", ""),
    ("user", "rigwright-code:x:1000:1000::/home/code:/bin/bash", "no"),
    ("foreign_group", "rigwright-more"),
    ("weight", "4096", "/srv/models/small/1/small.gguf"),
    ("building", "plain-1.0-ba9876543210"),
    ("linked", "/srv/models"),
    ("read_only", "/opt/rigwright"),
    ("missing", "ninja-build"),
    ("missing", "cmake"),
    ("foreign", "/srv/models", "ops", "2775"),
    ("elsewhere", "/etc/other"),
    ("driver_ours", "yes"),
    ("containers_ours", "yes"),
    ("settings_ours", "yes"),
    ("undeclared", "/etc/rigwright/ca.pem"),
    ("address", "127.0.0.1"),
    ("address", "10.0.0.5"),
    ("address", "fe80::1"),
    ("unit", SHARE_UNIT, "active", "enabled", "01" * 32, "no", "no"),
    ("unit", unit_name("node"), "active", "enabled", "02" * 32, "no", "no"),
    ("watching_secret", "/etc/rigwright/credentials/monitoring-ops.token"),
    ("self_check", "03" * 32),
    ("accepted_serial", "lock", "20261129131014", "04" * 32),
    ("clock", "1790000000"),
]
MANY = {
    "unit",
    "bare_function",
    "disk",
    "card",
    "listener",
    "engine",
    "unfit",
    "user",
    "user_process",
    "foreign_group",
    "weight",
    "building",
    "linked",
    "read_only",
    "missing",
    "foreign",
    "undeclared",
    "address",
    "watching_secret",
    "accepted_serial",
}
SINGLE = [record for record in RECORDS if record[0] not in MANY]
CUT = {"os_version", "systemd", "sent_kib", "cuda_version", "nvcc", "glibc", "apt_lock", "elsewhere", "self_check"}
"""The keys that may be empty."""


def test_a_probes_lines_become_facts() -> None:
    assert parse(channel_lines_of(RECORDS)) == HostFacts(
        os_id="debian",
        os_version="12",
        architecture="x86_64",
        kernel="6.1.0-40-amd64",
        systemd=252,
        uid=0,
        memory_kib=65843212,
        disk_free_kib={"/opt/rigwright": 51234567, "/srv/models": 1234567890},  # type: ignore[arg-type]
        file_systems={"/opt/rigwright": "/", "/srv/models": "/srv"},  # type: ignore[arg-type]
        sent_kib=300,
        cuda_version="13.0",
        nvcc="13.0.88",
        bare_functions=frozenset({"rsqrt"}),
        glibc="2.41",
        apt_lock_holder="apt-get",
        pci_cards=(PciCard("0000:01:00.0", "10de:1e07"), PciCard("0000:21:00.0", "10de:2204")),
        listeners=(
            ListeningSocket(22, "sshd", "ssh.service", "fe80::1", 8),
            ListeningSocket(5000, "python3", ""),
            ListeningSocket(8020, "llama-server", "rigwright-chat.service", "127.0.0.53", 7, 999),
        ),
        built_engines=frozenset({"plain-1.0-0123456789ab"}),
        unfit_engines=frozenset({"plain-1.0-0123456789ab"}),
        users=(
            HostAccount(
                "rigwright-chat:x:999:999::/nonexistent:/usr/sbin/nologin",
                True,
                ("llama-server (pid 4711, rigwright-chat.service)", "sh (pid 4712)"),
            ),
            HostAccount("rigwright-code:x:1000:1000::/home/code:/bin/bash", False, ("sh (pid 4713)",)),
        ),
        foreign_groups=("rigwright-more",),
        weight_bytes={"/srv/models/small/1/small.gguf": 4096},  # type: ignore[arg-type]
        started_builds=frozenset({"plain-1.0-ba9876543210"}),
        linked_roots=("/srv/models",),
        read_only_roots=("/opt/rigwright",),
        missing_packages=("ninja-build", "cmake"),
        clock=1790000000,
        foreign_roots=(("/srv/models", "ops", 0o2775),),
        elsewhere="/etc/other",
        driver_ours=True,
        containers_ours=True,
        settings_ours=True,
        undeclared=frozenset({"/etc/rigwright/ca.pem"}),
        addresses=frozenset({"127.0.0.1", "10.0.0.5", "fe80::1"}),
        sharing=ServiceState("active", "enabled", "01" * 32),
        self_check="03" * 32,
        accepted_serials={"lock": AcceptedSerial(20261129131014, "04" * 32)},  # type: ignore[arg-type]
        monitoring=MonitoringFacts(
            {"node": ServiceState("active", "enabled", "02" * 32)},
            frozenset({"/etc/rigwright/credentials/monitoring-ops.token"}),
        ),
    )


def test_missing_facts_are_empty() -> None:
    found = parse(channel_lines_of([(record[0], "") if record[0] in CUT else record for record in SINGLE]))
    assert (found.cuda_version, found.apt_lock_holder, found.os_version) == ("", "", "")
    assert (found.missing_packages, found.linked_roots, found.started_builds) == ((), (), frozenset())
    assert (found.weight_bytes, found.systemd, found.sent_kib) == ({}, 0, 0)
    assert (found.users, found.foreign_groups) == ((), ())
    assert (found.pci_cards, found.listeners, found.built_engines) == ((), (), frozenset())
    assert (found.sharing, dict(found.monitoring.units)) == (None, {})


@pytest.mark.parametrize("missing", SINGLE, ids=lambda record: record[0])
def test_missing_parts_are_named(missing: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"'{missing[0]}' no times"):
        parse(channel_lines_of([record for record in RECORDS if record is not missing]))


@pytest.mark.parametrize(
    "record",
    [
        ("systemd", "two-fifty"),
        ("uid", "root"),
        ("uid", "-1"),
        ("memory_kib", "12.5"),
        ("disk", "/srv", "1"),
        ("disk", "/srv", "much", "/"),
        ("disk", "srv", "1", "/"),
        ("sent_kib", "much"),
        ("card", "0000:01:00.0"),
        card_record("0000:01:00.0", "10de:2204 more"),
        card_record("0000:01:00.0\n", "10de:2204"),
        ("listener", "22"),
        ("listener", "ssh", "*", "sshd", "", "", ""),
        ("weight", "much", "/srv/a.gguf"),
        ("clock", "noon"),
        ("address", ""),
        ("address", "10.0.0.5 10.0.0.6"),
        ("address", "10.0.0"),
        ("missing", "a b"),
        ("missing", "$(id)"),
        ("linked", "srv"),
        ("read_only", "srv"),
        ("user", "svc:x:1:1", "yes"),
        ("user", "svc:x:1:1::/:/bin/sh\nroot:x:0:0::/:/bin/sh", "yes"),
        ("user", "", "no"),
        ("user", "svc:x:1:1::/:/bin/sh", "perhaps"),
        ("user_process", "svc", "sh", "one", ""),
        ("user_process", "sh", "1", ""),
        ("foreign_group", "a b"),
        ("os_id", "debian\n"),
        ("kernel", "6.1; id"),
        ("nvcc", "V13"),
        ("colour", "red"),
    ],
)
def test_a_malformed_record_is_refused(record: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"for '{record[0]}'|of '{record[0]}'|'{record[0]}', which was not asked"):
        parse(channel_lines_of([*(one for one in RECORDS if one[0] != record[0]), record]))


@pytest.mark.parametrize("output", [[], ["sudo: a password is required"]])
def test_an_invalid_answer_is_refused(output: list[str]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse(output)


def probe(*, user: int | None = None, within: Sequence[str] = (), **changes: Any) -> HostFacts:
    script = render("probe/probe.sh.j2", **sample_probe_values(**changes))
    done = subprocess.run([*within, "sh", "-c", script], capture_output=True, text=True, check=True, user=user)
    return parse(done.stdout.splitlines())


def test_the_probe_finds_out_what_this_machine_is() -> None:
    found = probe(folders=["/", "/not/yet/there"])
    kernel = os.uname()
    assert (found.architecture, found.kernel, found.uid) == (kernel.machine, kernel.release, os.geteuid())
    assert found.os_id == platform.freedesktop_os_release()["ID"]
    assert f"MemTotal: {found.memory_kib} kB" in " ".join(Path("/proc/meminfo").read_text().split())
    assert "127.0.0.1" in found.addresses
    assert found.sharing is None
    assert found.disk_free_kib["/not/yet/there"] > 0
    assert set(found.disk_free_kib) == {"/", "/not/yet/there"}
    assert found.read_only_roots == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_the_probe_tells_roots_on_a_read_only_file_system(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir()
    roots = [f"{tmp_path}/fixed/models", f"{tmp_path}/state"]
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    found = probe(within=[*mount, f"{tmp_path}/fixed"], folders=roots)
    assert found.read_only_roots == (roots[0],)


def test_the_probe_finds_engines_that_are_whole_weights_and_the_toolkit(tmp_path: Path) -> None:
    for name in ("whole", "half"):
        (tmp_path / name).mkdir()
    (tmp_path / "whole" / "build.json").touch()
    (tmp_path / "link").symlink_to("whole")
    models = tmp_path / "models"
    (models / "deep").mkdir(parents=True)
    weight, begun, both = (models / "deep" / f"{name}.gguf" for name in ("small", "begun", "both"))
    for name in ("with\nuid 7", "with\\nuid 7", 'it\'s "one" \u00e9'):
        (models / name).write_bytes(b"x" * 5)
    weight.write_bytes(b"x" * 10)
    for path in (begun, both):
        path.with_name(path.name + ".part").write_bytes(b"x" * 3)
    both.write_bytes(b"x" * 7)
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\necho 'release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    header = tmp_path / "cuda/include/crt/math_functions.h"
    header.parent.mkdir(parents=True)
    # as the wheels 13.0.88 have it
    header.write_text(
        "extern double                 rsqrt(double x);\n"
        "extern double                 sinpi(double x) __NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER;\n"
    )
    folders = [str(models), str(tmp_path / "gone")]
    found = probe(engines=str(tmp_path), weights=folders, cuda_root=str(tmp_path / "cuda"))
    assert found.built_engines == {"whole"}
    odd = {str(models / name): 5 for name in ("with\\nuid 7", 'it\'s "one" \u00e9')}
    assert found.weight_bytes == {str(weight): 10, str(begun): 3, str(both): 7, **odd}
    assert found.uid == os.getuid()
    assert (found.cuda_version, found.nvcc, found.bare_functions) == ("13.0", "13.0.88", {"rsqrt"})
    assert found.glibc == platform.libc_ver()[1]


def test_the_probe_adds_up_what_was_sent_of_weights_and_says_where_file_systems_are_mounted(tmp_path: Path) -> None:
    assert probe(jobs=str(tmp_path)).sent_kib == 0
    weights = [fetch_unit_name([sample_artefact(sha256=digit * 64)]) for digit in "ab"]
    for unit in (*weights, "rw-job-packages"):
        (tmp_path / unit / "files").mkdir(parents=True)
        (tmp_path / unit / "files" / "one").write_bytes(os.urandom(300 << 10))
        (tmp_path / unit / "log").write_bytes(os.urandom(500 << 10))
    assert 600 <= probe(jobs=str(tmp_path)).sent_kib < 640
    found = probe(folders=["/", "/not/yet/there", "/proc"])
    assert found.file_systems == {"/": "/", "/not/yet/there": "/", "/proc": "/proc"}


def test_the_probe_finds_what_is_left_of_what_is_not_declared_any_more(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.touch()
    link.symlink_to("/nowhere")
    asked = [str(there), str(link), str(tmp_path / "not there")]
    assert probe(undeclared=asked).undeclared == {str(there), str(link)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_probe_recognises_a_user_without_root() -> None:
    assert probe(user=65534).uid == 65534


def test_the_probe_is_asked_about_the_rigs_own_places_and_user() -> None:
    made = sample_rig(
        sample_instance("a"), sample_instance("b"), cuda_root="/opt/cuda", accounts=ServiceAccounts("svc")
    )
    assert probe_values(made) == {
        "folders": ["/var/lib/rigwright", "/opt/rigwright", "/srv/models", "/etc/rigwright"],
        "parts": [one.template for one in SOURCES if one.template],
        "engines": "/opt/rigwright/engines",
        "builds": "/var/lib/rigwright/build",
        "jobs": "/var/lib/rigwright/jobs",
        "weights": [made.roots.weight_path(sample_artefact()).rpartition("/")[0], "/srv/models/_packages"],
        "mathematical": ["rsqrt", "sinpi"],
        "cuda_root": "/opt/cuda",
        "users": ["svc-a", "svc-b"],
        "packages": [*PACKAGES, "cmake", "g++", "ninja-build"],
        "ledger": "/var/lib/rigwright/owned",
        "inside": ["/var/lib/rigwright", "/opt/rigwright", "/etc/rigwright"],
        "weight_files": [made.roots.weight_path(sample_artefact())],
        "config": "/etc/rigwright",
        "units": "/etc/systemd/system",
        "programs": ["llama-server"],
        "cpu_features": [],
        "settings": ["/etc/systemd/system/rigwright-power.service", "/etc/sysctl.d/60-rigwright.conf"],
        "containers": "/var/lib/rigwright/containers",
        "undeclared": sorted(path for one in list_orphans(made) for path in one.paths),
        **weight_server.share_state_values(),
        **monitoring_facts.monitoring_state_values(made.roots),
        **self_check.self_check_state_values(made),
        "accepted_serials": made.roots.accepted_serials,
        "pull_record": "",
    }


def test_each_fact_and_each_value_of_the_probe_belongs_to_one_source() -> None:
    made = sample_rig(sample_instance())
    values = [key for one in SOURCES for key in one.values(made)]
    keys = [key for one in SOURCES for key in one.schema]
    assert len(values) == len(set(values))
    assert len(keys) == len(set(keys))
    # and the fields that they read exist, so that a wrong name is no error of a host's
    facts = parse(channel_lines_of(RECORDS))
    told = script_output.parse_output(channel_lines_of(RECORDS), SCHEMA)
    read = [key for one in SOURCES for key in one.read(told)]
    assert len(read) == len(set(read))
    assert all(hasattr(facts, key) for key in read)


def test_the_probe_finds_what_was_there_before_us(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir(mode=0o750)
    ledger = tmp_path / "owned"
    ledger.write_text(f"dir {ours}\n")
    found = probe(folders=[str(ours), str(theirs), str(tmp_path / "none")], ledger=str(ledger))
    assert [(path, mode) for path, _, mode in found.foreign_roots] == [(str(theirs), 0o750)]


@pytest.mark.parametrize(("text", "whole"), [("dir /a\ndir /b\n", True), ("dir /a\ndir /b", False), (None, True)])
def test_the_probe_tells_a_ledger_whose_last_line_lost_its_end(tmp_path: Path, text: str | None, whole: bool) -> None:
    ledger = tmp_path / "owned"
    if text is not None:
        ledger.write_text(text)
    assert probe(ledger=str(ledger)).ledger_whole is whole


def test_the_probe_tells_what_is_mounted_within_our_folders_and_over_weights() -> None:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [one for one in dict.fromkeys(points) if one.startswith("/proc/")]
    assert probe(inside=["/nowhere"], weight_files=["/proc"]).covered == ("/proc",)
    assert probe(inside=["/proc", "/nowhere"]).covered == (*below,)
    # a mount at a root itself is its operator's disk
    assert probe(inside=["/nowhere/proc"]).covered == ()


def test_every_question_has_its_place_in_the_probe() -> None:
    script = render(
        "probe/probe.sh.j2",
        **probe_values(sample_rig(sample_instance(), cuda_root="/opt/cuda", accounts=ServiceAccounts("svc"))),
    )
    for value in ("/srv/models/small/", "/opt/rigwright/engines", "/opt/cuda", "svc-chat"):
        assert value in script
