"""Processes as the survey sees them: real ones of this machine, and what checks make of others."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks import Drift, test_code, test_groups, test_process, test_serving
from checks.automatic_repairs import DriftedCheck, find_repairs
from checks.service_processes import is_helper
from checks.survey.accounts import SurveyGroup, SurveyUser
from checks.survey.answers import SurveyAnswers
from checks.survey.host import processes
from checks.survey.host.mapped_code import Code
from checks.survey.processes import (
    ForeignProcess,
    KernelProcess,
    Processes,
    ServiceProcesses,
    executed_command,
    split_command,
)
from checks.survey.section import SurveyScope
from checks.survey.units import ExpectedUnit, expected_units
from rigwright.engines import kind_of
from rigwright.gateway.secrets_distribution import RESIDENCY_UNIT
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.repairs import Repair
from rigwright.serving.instance_units import instance_variables
from roles.residency.host.observation import SHOWN
from tests.unit.samples import sample_facts, sample_instance, sample_rig
from tests.unit.test_effective_units import sound

UP = "print('up', flush=True); input()"


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits."""
    with subprocess.Popen([sys.executable, "-c", UP], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout
        one.stdout.readline()
        yield one.pid
        one.kill()


def test_a_process_is_seen_as_it_is(child: int) -> None:
    found = processes._process(child, Code(()))
    assert found is not None
    told = KernelProcess(**found)  # type: ignore[arg-type] # judged by pydantic where it comes from a host
    assert told.words[1:] == ["-c", UP]
    assert told.status["Uid"].split()[0] == str(os.getuid())
    assert told.limits["open files"][0].isdecimal()
    assert {"mnt", "net", "user"} <= told.spaces.keys()
    assert told.environment["PATH"] == os.environ["PATH"]
    assert all(len(thread.split()) == 3 for thread in told.threads)
    assert f"file {os.path.realpath(sys.executable)}" in told.code


@pytest.mark.parametrize(
    ("command", "executed"),
    [
        ("/opt/e/bin/python -I start.py --set a=b", "/opt/e/bin/python -I start.py --set a=b"),
        (
            '/usr/bin/env A=1 "B=two words" /opt/e/bin/python -I start.py --set=a',
            "/opt/e/bin/python -I start.py --set=a",
        ),
        ("/usr/bin/env A=1", ""),
    ],
)
def test_a_program_after_env_is_what_a_service_runs(command: str, executed: str) -> None:
    assert " ".join(executed_command(f"[Service]\nExecStart={command}\n")) == executed


def test_a_host_without_services_is_asked_for_none() -> None:
    assert processes._groups([]) == {}


def test_one_that_has_ended_does_not_count() -> None:
    with subprocess.Popen(["true"]) as one:
        one.wait()
    assert processes._process(one.pid, Code(())) is None


def test_code_that_was_replaced_or_removed_is_reported(tmp_path: Path) -> None:
    library = tmp_path / "part.so"
    library.write_bytes(bytes(4096))
    load = f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_EXEC); {UP}"
    with subprocess.Popen([sys.executable, "-c", load], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout
        one.stdout.readline()
        assert f"file {library}" in Code(()).of(one.pid)
        other = tmp_path / "other.so"
        other.write_bytes(bytes(4096))
        library.rename(tmp_path / "kept.so")
        other.rename(library)
        found = Code(()).of(one.pid)
        assert {f"replaced {library}", f"file {tmp_path / 'kept.so'}"} & found
        (tmp_path / "kept.so").unlink()
        assert not {f"file {library}"} & Code(()).of(one.pid)
        one.kill()


def test_processes_of_our_users_are_reported(child: int) -> None:
    others = processes.Others("/nowhere/", {str(os.getuid())}, "ours-to-try", set())
    assert {"pid": child, "what": "runs as a user of ours"}.items() <= next(
        one for one in others.find_intruders(set()) if one["pid"] == child
    ).items()
    assert child not in [one["pid"] for one in others.find_intruders({child})]


def test_the_surveys_own_process_is_not_counted_to_a_unit_of_user_nobody(child: int) -> None:
    others = processes.Others("/nowhere/", {str(os.getuid())}, "ours-to-try", set(), looking=os.getpid())
    found = {one["pid"] for one in others.find_intruders(set())}
    assert child not in found
    assert os.getppid() in found  # a parent of such a child is not one of them


@pytest.mark.parametrize(("pid", "looks"), [(7, False), (6, True), (5, True), (4, False)])
def test_a_process_with_an_ended_parent_is_not_the_surveys(
    monkeypatch: pytest.MonkeyPatch, pid: int, looks: bool
) -> None:
    """Of 7 the parent, 6, has ended; 5 is the survey's, and 4 of init's."""
    stats = {"/proc/7/stat": "7 (a) S 6", "/proc/5/stat": "5 (b) S 3", "/proc/4/stat": "4 (c) S 1"}
    monkeypatch.setattr(processes.common, "read", lambda path, most=0: stats.get(str(path)))
    assert processes.Others("/nowhere/", set(), "ours", set(), looking=3)._looks(pid) == looks


def test_another_file_at_the_same_path_is_reported(child: int, tmp_path: Path) -> None:
    assert not processes._other(child, str(tmp_path))
    assert not processes._other(child, str(tmp_path / "none"))


RIG = sample_rig(sample_instance())
WANTED = build_target_state(RIG, sample_facts())
CHAT = "rigwright-chat.service"
OURS = expected_units(SurveyScope(RIG, WANTED))
FIRST = KernelProcess(
    pid=1,
    exe="/sbin/init",
    words=[],
    variables=[],
    status={"Cpus_allowed_list": "0-3", "Mems_allowed_list": "0"},
    limits={limit: ["unlimited", "unlimited"] for limit in test_process.LIMITS},
    group="/init.scope",
    spaces={space: f"{space}:[1]" for space in processes.SPACES},
    oom=0,
    threads=["0 0 0"],
    ioprio=0,
    code=[],
)
CARRIER = "rigwright_listener-8020.service"


def process(name: str, pid: int, uid: str, group: str) -> KernelProcess:
    """One as its unit says."""
    own = {space: f"{space}:[{pid}]" for space in ("ipc", "mnt", "net", "user", "uts")}
    text = dict(line.split("=", 1) for line in OURS[name].text.splitlines() if "=" in line and line[0] != "#")
    limits = FIRST.limits | {"open files": ["65536", "65536"], "core file size": ["0", "unlimited"]}
    return replace(
        FIRST,
        pid=pid,
        exe=split_command(OURS[name].text)[0],
        words=split_command(OURS[name].text),
        variables=[
            f"{key}={value}" for key, value in instance_variables(RIG.instances[0], SERVICE).items() if name == CHAT
        ],
        status={
            **FIRST.status,
            "State": "S (sleeping)",
            "Umask": text["UMask"],
            "TracerPid": "0",
            "Uid": "\t".join([uid] * 4),
            "Gid": "\t".join([uid] * 4),
            "Groups": "\t".join({"990", uid}),
            **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16),
            "NoNewPrivs": "1",
            "Seccomp": "2",
        },
        limits=limits,
        group=group,
        spaces=FIRST.spaces | own,
    )


SERVICE = kind_of(RIG.instances[0]).service(RIG, RIG.instances[0], WANTED.installations["plain"])
GROUPS = {CHAT: f"/rigwright.slice/rigwright-chat.slice/{CHAT}", CARRIER: f"/system.slice/{CARRIER}"}


def declared_host() -> Processes:
    """A host on which all runs as declared."""
    chat = process(CHAT, 100, "990", GROUPS[CHAT])
    carrier = process(CARRIER, 200, "61200", GROUPS[CARRIER])
    return Processes(
        units={
            CHAT: ServiceProcesses(100, GROUPS[CHAT], chat.exe, [chat], [], ["lo"]),
            CARRIER: ServiceProcesses(200, GROUPS[CARRIER], carrier.exe, [carrier], [], ["lo"]),
        },
        groups={"/system.slice": {"cgroup.freeze": "0"}, GROUPS[CHAT]: {"cpu.max": "max 100000", "memory.high": "max"}},
        first=FIRST,
        code={},
        others=[],
        shared=[],
    )


def red(found: Processes, notes: list[str] | None = None) -> dict[str, str]:
    """Check -> what it says, of those that are red."""
    user, group = (
        SurveyUser("rigwright-chat", 990, 990, "/nonexistent", "/usr/sbin/nologin"),
        SurveyGroup("rigwright-chat", 990, []),
    )
    accounts = SimpleNamespace(groups=[group], user=lambda name: user if name == user.name else None)
    made = replace(
        sound(),
        manager={f"DefaultLimit{limit}": "infinity" for limit in test_process.LIMITS.values()}
        | {"DefaultLimitCORESoft": "0"},
    )
    survey = SurveyAnswers({}, _read={"processes": found, "accounts": accounts, "units": made})
    one = RIG.instances[0]

    def note(_: str, text: object) -> None:
        if notes is not None:
            notes.append(str(text))

    checks: dict[str, Callable[[], None]] = {
        "S12": lambda: test_serving.test_process_is_the_declared_one(
            survey, RIG.roots, WANTED, one, SERVICE, found.units[CHAT]
        ),
        "S16": lambda: test_process.test_limits(survey, SurveyScope(RIG, WANTED)),
        "S17": lambda: test_process.test_scheduling(survey, SurveyScope(RIG, WANTED)),
        "S18": lambda: test_process.test_privileges(survey, SurveyScope(RIG, WANTED)),
        "S19": lambda: test_process.test_namespaces(survey, SurveyScope(RIG, WANTED)),
        "S20": lambda: test_groups.test_groups(survey, SurveyScope(RIG, WANTED)),
        "S21": lambda: test_code.test_code(
            survey, RIG.roots, RIG.cards, RIG.instances, SurveyScope(RIG, WANTED), WANTED, note
        ),
        "S25": lambda: test_code.test_words(survey, RIG.instances, SurveyScope(RIG, WANTED)),
        "S22": lambda: test_process.test_running(survey, SurveyScope(RIG, WANTED)),
        "S24": lambda: test_process.test_others(survey),
    }
    told = {}
    for name, check in checks.items():
        try:
            check()
        except Drift as drift:
            told[name] = str(drift)
    return told


def with_process(found: Processes, name: str = CHAT, **changed: object) -> Processes:
    """The same, with some of a service's process changed."""
    unit = found.units[name]
    made = replace(unit.processes[0], **changed)  # type: ignore[arg-type] # a test names the fields it means
    return replace(found, units={**found.units, name: replace(unit, processes=[made])})


def status(found: Processes, **changed: str) -> Processes:
    """The same, with some of its status changed."""
    return with_process(found, status=found.units[CHAT].processes[0].status | changed)


def test_a_sound_host_is_green() -> None:
    assert red(declared_host()) == {}


def test_closures_of_libffis_are_a_note() -> None:
    notes: list[str] = []
    assert red(with_process(declared_host(), code=["closures /memfd:libffi (deleted)"]), notes) == {}
    assert len(notes) == 1
    assert f"libffi's closures: {CHAT}'s process {MAIN.pid} (/memfd" in notes[0]
    assert set(red(with_process(declared_host(), code=["unnamed /memfd:libffi (deleted)"]))) == {"S21"}


def test_a_process_that_is_not_judged_is_red_by_its_name() -> None:
    found = red(with_process(declared_host(), code=["unjudged too many mappings"]))
    assert set(found) == {"S21"}
    assert f"{CHAT}'s process {MAIN.pid} cannot be checked: too many mappings" in found["S21"]


MAIN = declared_host().units[CHAT].processes[0]
SICK: dict[str, tuple[Processes, set[str]]] = {
    "other words": (with_process(declared_host(), words=[*MAIN.words[:-1], "9"]), {"S12"}),
    "a variable": (with_process(declared_host(), variables=[*MAIN.variables, "LD_PRELOAD=/x.so"]), {"S12"}),
    "another value": (
        with_process(declared_host(), variables=["CUDA_VISIBLE_DEVICES=7", *MAIN.variables[2:]]),
        {"S12"},
    ),
    "few files": (with_process(declared_host(), limits=MAIN.limits | {"open files": ["64", "65536"]}), {"S16"}),
    "few files for good": (
        with_process(declared_host(), limits=MAIN.limits | {"open files": ["65536", "65537"]}),
        {"S16"},
    ),
    "more in a core": (with_process(declared_host(), status=MAIN.status | {"CoredumpFilter": "000001ff"}), {"S16"}),
    "core dumps": (with_process(declared_host(), limits=MAIN.limits | {"core file size": ["1", "unlimited"]}), {"S16"}),
    "no address space": (with_process(declared_host(), limits=MAIN.limits | {"address space": ["1", "1"]}), {"S16"}),
    "the last in the queue": (with_process(declared_host(), threads=["0 0 0", "19 0 0"]), {"S17"}),
    "an idle thread": (with_process(declared_host(), threads=["0 5 0"]), {"S17"}),
    "one processor": (status(declared_host(), Cpus_allowed_list="0"), {"S17"}),
    "idle disks": (with_process(declared_host(), ioprio=0x6007), {"S17"}),
    "the first to be killed": (with_process(declared_host(), oom=1000), {"S17"}),
    "another user": (status(declared_host(), Uid="0\t0\t0\t0"), {"S18"}),
    "a saved user": (status(declared_host(), Uid="990\t990\t0\t990"), {"S18"}),
    "a group": (status(declared_host(), Groups="4 990"), {"S18"}),
    "a capability": (status(declared_host(), CapPrm="0000000000000400"), {"S18"}),
    "a capability to be had": (status(declared_host(), CapBnd="0000000000000400"), {"S18"}),
    "gaining privileges": (status(declared_host(), NoNewPrivs="0"), {"S18"}),
    "all system calls": (status(declared_host(), Seccomp="0"), {"S18"}),
    "files for others": (status(declared_host(), Umask="0022"), {"S18"}),
    "the host's network": (with_process(declared_host(), spaces=MAIN.spaces | {"net": "net:[1]"}), {"S12", "S19"}),
    "the host's messages": (with_process(declared_host(), spaces=MAIN.spaces | {"ipc": "ipc:[1]"}), {"S19"}),
    "another process's ids": (with_process(declared_host(), spaces=MAIN.spaces | {"pid": "pid:[2]"}), {"S19"}),
    "another group": (with_process(declared_host(), group="/x"), {"S20"}),
    "a frozen slice": (replace(declared_host(), groups={"/system.slice": {"cgroup.freeze": "1"}}), {"S20"}),
    "a quota": (replace(declared_host(), groups={GROUPS[CHAT]: {"cpu.max": "5000 100000"}}), {"S20"}),
    "a library that was replaced": (with_process(declared_host(), code=["replaced /usr/lib/x.so"]), {"S21"}),
    "code of no file": (with_process(declared_host(), code=["unnamed"]), {"S21"}),
    "a library of nobody's": (
        replace(with_process(declared_host(), code=["file /x.so"]), code={"/x.so": "not from any package"}),
        {"S21"},
    ),
    "another engine's": (with_process(declared_host(), code=["file /opt/rigwright/engines/other-1/bin/x.so"]), {"S21"}),
    "another program": (with_process(declared_host(), exe="/srv/llama-server"), {"S12", "S21"}),
    "stopped": (status(declared_host(), State="T (stopped)"), {"S22"}),
    "traced": (status(declared_host(), TracerPid="77"), {"S22"}),
    "somebody inside": (
        replace(declared_host(), others=[ForeignProcess(9, "runs as a user of ours", ["sh"])]),
        {"S24"},
    ),
}


@pytest.mark.parametrize("what", SICK)
def test_each_sick_host_turns_its_check_red_and_no_other(what: str) -> None:
    found, wanted = SICK[what]
    assert set(red(found)) == wanted


def test_code_that_an_engine_compiles_at_run_time_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_process(declared_host(), code=["unnamed", "deleted /tmp/x", "file /var/cache/rigwright/compiled/a.so"])
    assert set(red(found)) == {"S21"}
    text = OURS[CHAT].text.replace("MemoryDenyWriteExecute=yes\n", "")
    monkeypatch.setattr(
        test_code, "running_services", lambda *_: {CHAT: (replace(OURS[CHAT], text=text), found.units[CHAT])}
    )
    test_code.test_code(
        SurveyAnswers({}, _read={"processes": found}),
        RIG.roots,
        RIG.cards,
        RIG.instances,
        SurveyScope(RIG, WANTED),
        WANTED,
        lambda *_: None,
    )


@pytest.mark.parametrize(
    "changed", [{"words": ["/usr/lib/systemd/systemd-socket-proxyd", "/tmp/x"]}, {"variables": ["LD_PRELOAD=/x.so"]}]
)
def test_other_words_and_variables_of_a_carrier_are_reported(changed: dict[str, object]) -> None:
    assert set(red(with_process(declared_host(), CARRIER, **changed))) == {"S25"}


SHOW_UNITS = ["show", f"--property={','.join(SHOWN)}", CHAT, "rigwright-code.service"]
QUERY_CARDS = ["--query-gpu=index,uuid,memory.used,memory.free", "--format=csv,noheader,nounits"]


@pytest.mark.parametrize(
    ("unit", "exe", "pid", "arguments", "own"),
    [
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 8, SHOW_UNITS, True),
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 8, [*SHOW_UNITS, "rw-job-activate.service"], True),
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 8, ["stop", "--no-block", CHAT], True),
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 8, ["reset-failed", CHAT], True),
        (RESIDENCY_UNIT, "/usr/lib/nvidia/current/nvidia-smi", 8, QUERY_CARDS, True),
        (RESIDENCY_UNIT, "/usr/bin/nvidia-smi", 8, [*QUERY_CARDS, "-f", f"/tmp/{CHAT}"], False),
        (RESIDENCY_UNIT, "/usr/bin/nvidia-smi", 8, ["-l", "1", "-f", f"/tmp/ {CHAT}"], False),
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 8, ["start", "--no-block", "ssh.service", CHAT], False),
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 8, ["edit", CHAT], False),
        (RESIDENCY_UNIT, "/usr/bin/systemctl", 7, SHOW_UNITS, False),
        (RESIDENCY_UNIT, "/usr/bin/bash", 8, SHOW_UNITS, False),
        (RESIDENCY_UNIT, "/tmp/systemctl", 8, SHOW_UNITS, False),
        (CARRIER, "/usr/bin/systemctl", 8, SHOW_UNITS, False),
    ],
)
def test_programs_that_the_residency_service_starts_for_a_moment_are_its_own(
    unit: str, exe: str, pid: int, arguments: list[str], own: bool
) -> None:
    declared = ExpectedUnit(unit, "", "", "[Service]\nExecStart=/usr/bin/python3 /x\n")
    helper = replace(FIRST, pid=pid, exe=exe, words=["x", *arguments], variables=[])
    service = ServiceProcesses(7, "/x", "/usr/bin/python3", [helper], [], [])
    assert is_helper(declared, service, helper) == own
    assert len([*test_code._worded(declared, service, helper, "it has")]) == (not own)


def test_a_deploy_restarts_the_service_of_a_process_and_none_that_its_arguments_name() -> None:
    found = with_process(declared_host(), CARRIER, words=["/usr/lib/systemd/systemd-socket-proxyd", f"x {CHAT}"])
    scope = SurveyScope(RIG, WANTED)
    survey = SurveyAnswers({}, _read={"processes": found})
    with pytest.raises(Drift, match=CHAT) as drift:
        test_code.test_words(survey, RIG.instances, scope)
    made = find_repairs(survey, scope, DriftedCheck("S25", "", "", "", drift.value))
    assert made == {Repair("restart", CARRIER)}


def test_a_way_into_its_network_is_reported() -> None:
    made = declared_host()
    unit = replace(made.units[CHAT], interfaces=["lo", "veth0"])
    assert set(red(replace(made, units={**made.units, CHAT: unit}))) == {"S19"}


def test_other_weights_in_its_view_are_reported() -> None:
    made = declared_host()
    unit = replace(made.units[CHAT], elsewhere=["/srv/models/a.gguf"])
    assert set(red(replace(made, units={**made.units, CHAT: unit}))) == {"S19"}


def test_the_surveys_word_for_code_without_a_package_is_the_checks(tmp_path: Path) -> None:
    code = Code(())
    code.files = {str(tmp_path / "libcuda.so.1")}
    assert code.find_problems() == {str(tmp_path / "libcuda.so.1"): test_code.UNKNOWN}


def test_only_files_of_our_users_in_shared_memory_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "psm_left").write_text("x")
    (tmp_path / "psm_link").symlink_to("/etc/passwd")
    monkeypatch.setattr(processes, "SHARED", str(tmp_path))
    own = str(os.getuid())
    assert [*processes._shared({own})] == [str(tmp_path / "psm_left"), str(tmp_path / "psm_link")]
    assert [*processes._shared({"61999"})] == []
    monkeypatch.setattr(processes, "SHARED", str(tmp_path / "gone"))
    assert [*processes._shared({own})] == []
