"""Processes of our services as the kernel runs them now, against what their units say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from checks import check
from checks.drift_text import describe_stray_process, expect_none
from checks.effective_units import ExpectedProperties
from checks.remedy import Remedy, host_command, kill_processes
from checks.service_processes import (
    Services,
    describe_process,
    expect_no_unit_faults,
    iterate_processes,
    running_services,
    unit_settings_of,
)
from checks.survey.accounts import ACCOUNTS, Accounts
from checks.survey.answers import SurveyAnswers
from checks.survey.processes import PROCESSES, KernelProcess, ServiceProcesses
from checks.survey.section import SurveyScope
from checks.survey.units import UNITS, ExpectedUnit

# The kernel's words for limits (proc(5)) -> systemd's.
LIMITS = {
    "cpu time": "CPU",
    "file size": "FSIZE",
    "data size": "DATA",
    "stack size": "STACK",
    "core file size": "CORE",
    "resident set": "RSS",
    "processes": "NPROC",
    "open files": "NOFILE",
    "locked memory": "MEMLOCK",
    "address space": "AS",
    "file locks": "LOCKS",
    "pending signals": "SIGPENDING",
    "msgqueue size": "MSGQUEUE",
    "nice priority": "NICE",
    "realtime priority": "RTPRIO",
    "realtime timeout": "RTTIME",
}
# A worker may take less of these for itself, though not as little as keeps it from its work.
LEAST = {"open files": 1024, "core file size": 0}
# Settings that give a service a namespace of its own.
PRIVATE = {
    "PrivateNetwork": "net",
    "PrivateIPC": "ipc",
    "PrivateUsers": "user",
    "PrivateMounts": "mnt",
    "ProtectHostname": "uts",
}
DYNAMIC = range(61184, 65520)
"""Ids that systemd gives to services for as long as they run (systemd.exec(5))."""
BEST_EFFORT = 0x4000, 0x4005
"""The result of ioprio_get(2), in some kernels, for a process that has asked for nothing, and for one before others."""
HINTS = 0x1FF8
CAPABILITIES = {"CAP_NET_ADMIN": 1 << 12, "CAP_NET_RAW": 1 << 13}
"""Those that a unit of ours may have, by their bits (linux/capability.h)."""
GRANTED = ("CapInh", "CapPrm", "CapEff", "CapBnd")
"""Bits of that which have no effect on priority (linux/ioprio.h)."""


@check(
    "S16",
    "processes have their units' limits",
    severity="high",
    why="a process that cannot open more files rejects clients",
)
def test_limits(survey: SurveyAnswers, scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    first, rights = survey.read(PROCESSES).first, _rights(survey, services)
    wrong = [
        (one.name, f"{describe_process(one, unit, process)} has {said}")
        for one, unit, process in iterate_processes(services)
        for said in _limited(rights[one.name], first, process, main=process.pid == unit.main)
    ]
    expect_no_unit_faults(wrong, "their units' limits")


def _rights(survey: SurveyAnswers, services: Services) -> dict[str, ExpectedProperties]:
    units = survey.read(UNITS)
    return {name: ExpectedProperties(units, one) for name, (one, _) in services.items()}


def _number(value: str) -> float:
    return float(value) if value.isdecimal() else float("inf")


def _limited(right: ExpectedProperties, first: KernelProcess, process: KernelProcess, *, main: bool) -> Iterable[str]:
    for limit, name in LIMITS.items():
        soft, hard = map(_number, process.limits.get(limit, ["0", "0"]))
        most = _number(first.limits.get(limit, ["", ""])[1])
        # a process that may not raise its own gives what it has
        whole = _number(right.expected_value(f"Limit{name}"))
        may = {min(whole, most), whole}
        wanted = min(_number(right.expected_value(f"Limit{name}Soft")), most)
        if limit in LEAST and not main:
            fits = LEAST[limit] <= soft <= hard <= max(may)
        else:
            # a core dump writes keys to disk
            fits = hard in may and (soft <= wanted if limit == "core file size" else wanted <= soft <= hard)
        if not fits:
            yield f"at most {soft:g} and {hard:g} of {limit}, not {wanted:g} and {min(may):g}"
    dumped, usual = (one.status.get("CoredumpFilter", "") for one in (process, first))
    if dumped != usual:
        # a core has what these bits name, keys and weights as well (core(5))
        yield f"the filter {dumped} of what a core has of its memory, not {usual}"


@check(
    "S17",
    "processes have their share of the host's CPUs and disks",
    severity="high",
    why="a service at the lowest priority, or confined to one CPU, answers late without an error",
    blind="CPU affinity of threads that an engine pins itself",
)
def test_scheduling(survey: SurveyAnswers, scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    first = survey.read(PROCESSES).first
    rights = _rights(survey, services)
    wrong = [
        (one.name, f"{describe_process(one, unit, process)} has {said}")
        for one, unit, process in iterate_processes(services)
        for said in _scheduled(rights[one.name], one, first, process, main=process.pid == unit.main)
    ]
    expect_no_unit_faults(wrong, "the defaults of every service")


def _scheduled(
    right: ExpectedProperties, one: ExpectedUnit, first: KernelProcess, process: KernelProcess, *, main: bool
) -> Iterable[str]:
    usual = {thread.split()[0] for thread in first.threads}
    # an engine's own limits
    if "--prio" not in " ".join(process.words):
        for nice, policy, priority in (thread.split() for thread in process.threads):
            if nice not in usual:
                yield f"niceness {nice}"
            if (policy, priority) != ("0", "0"):
                yield f"the scheduling policy {policy} with priority {priority}"
    # an engine pins its own threads
    if "CPUAffinity" not in unit_settings_of(one) and (main or not one.name.startswith("rigwright-")):
        for what, kind in (("processors", "Cpus_allowed_list"), ("nodes of memory", "Mems_allowed_list")):
            if process.status.get(kind) != first.status.get(kind):
                yield f"the {what} {process.status.get(kind)} of {first.status.get(kind)}"
    if process.ioprio and process.ioprio & ~HINTS not in {*range(*BEST_EFFORT), first.ioprio & ~HINTS}:
        yield f"priority {process.ioprio:#x} at disks"
    if str(process.oom) != (right.expected_value("OOMScoreAdjust") or "0"):
        yield f"{process.oom} as its OOM score"


@check(
    "S18",
    "processes run as their service user, without further privileges",
    severity="critical",
    why="a service that runs as another user, or with a privilege, endangers the box when it is compromised",
)
def test_privileges(survey: SurveyAnswers, scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    accounts = survey.read(ACCOUNTS)
    wrong = [
        (one.name, f"{describe_process(one, unit, process)} has {said}")
        for one, unit, process in iterate_processes(services)
        for said in _privileged(accounts, unit_settings_of(one), process)
    ]
    expect_no_unit_faults(wrong, "their units' users and groups, without privileges")


def _privileged(accounts: Accounts, made: Mapping[str, str], process: KernelProcess) -> Iterable[str]:
    status = {name: value.split() for name, value in process.status.items()}
    uids, gids, groups = set(status["Uid"]), set(status["Gid"]), {*status["Groups"], *status["Gid"]}
    ids = {group.name: str(group.gid) for group in accounts.groups}
    wanted = {ids.get(name, "none") for name in made.get("SupplementaryGroups", "").split()}
    user = accounts.user(made.get("User", ""))
    if user is None and made.get("CapabilityBoundingSet"):
        # of the units without a user, those with capabilities are root's
        wanted.add("0")
        if uids != {"0"}:
            yield f"the user ids {', '.join(sorted(uids))}, not 0"
    elif user is None:
        if len(uids) > 1 or not uids.isdisjoint({"0"}) or int(min(uids)) not in DYNAMIC:
            yield f"the user ids {', '.join(sorted(uids))}"
        wanted |= {uid for uid in uids if int(uid) in DYNAMIC}
    else:
        if uids != {str(user.uid)}:
            yield f"the user ids {', '.join(sorted(uids))}, not {user.uid}"
        wanted.add(ids.get(made.get("Group", user.name), "none"))
    if groups != wanted or len(gids) > 1:
        yield f"the groups {', '.join(sorted(groups))}, not {', '.join(sorted(wanted))}"
    allowed = sum(CAPABILITIES.get(name, 0) for name in made.get("CapabilityBoundingSet", "").split())
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(process.status[kind], 16) & ~(allowed if kind in GRANTED else 0):
            yield f"capabilities ({kind} {process.status[kind]})"
    if process.status["NoNewPrivs"] != "1":
        yield "the right to gain privileges"
    if process.status["Seccomp"] != "2":
        yield "every system call"
    if (umask := made.get("UMask")) and int(process.status.get("Umask", "0"), 8) & int(umask, 8) != int(umask, 8):
        yield f"the umask {process.status.get('Umask')}, not {umask}"


@check(
    "S19",
    "processes have their own namespaces, and see the host's files",
    severity="critical",
    why="in the host's network a service listens and sends; behind another mount it serves other weights",
)
def test_namespaces(survey: SurveyAnswers, scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    first = survey.read(PROCESSES).first
    wrong = [
        (one.name, f"{describe_process(one, unit, process)} is in {said}")
        for one, unit, process in iterate_processes(services)
        for said in _apart(unit_settings_of(one), unit, first, process)
    ]
    wrong += [
        (name, f"{name} sees a different {place} than the host")
        for name, (_, unit) in services.items()
        for place in unit.elsewhere
    ]
    expect_no_unit_faults(wrong, "the namespaces of their units")


def _apart(
    made: Mapping[str, str], unit: ServiceProcesses, first: KernelProcess, process: KernelProcess
) -> Iterable[str]:
    main = unit.processes[0]
    own = {space for setting, space in PRIVATE.items() if made.get(setting) == "yes"} | {"mnt"}
    for space, found in process.spaces.items():
        if space in own and found == first.spaces.get(space):
            yield f"the host's {space} namespace"
        if space not in own and found != first.spaces.get(space):
            yield f"another {space} namespace"
        if found != main.spaces.get(space) and process is not main:
            yield f"another {space} namespace than the main process"
    if "net" in own and (strange := set(unit.interfaces) - {"lo"}):
        yield f"a network with the interface {', '.join(sorted(strange))}"


@check(
    "S22",
    "no process is stopped or traced",
    severity="critical",
    why="a stopped process holds its socket and gives no answer; a tracer reads its key",
)
def test_running(survey: SurveyAnswers, scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    wrong, cure, stopped = list[str](), Remedy(()), list[str]()
    for one, unit, process in iterate_processes(services):
        state = process.status["State"]
        if state.startswith(("T", "t")):
            stopped.append(one.name)
            wrong.append(f"{describe_process(one, unit, process)} is {state}")
            cure += host_command("kill -CONT {}", str(process.pid))
        if process.status["TracerPid"] != "0":
            wrong.append(f"{describe_process(one, unit, process)} is traced by process {process.status['TracerPid']}")
            cure += kill_processes([int(process.status["TracerPid"])])
    expect_none(wrong, "processes that are neither stopped nor traced", cure, stopped)


@check(
    "S24",
    "no other process runs as a service user, or in a service's sandbox",
    severity="critical",
    why="such a process can read the service's memory and impersonate it",
)
def test_others(survey: SurveyAnswers) -> None:
    found = [one for one in survey.read(PROCESSES).others if not one.what.startswith("runs from")]
    told = [describe_stray_process(one.pid, one.words, one.what, 60) for one in found]
    expect_none(told, "only processes of Rigwright's units", kill_processes(one.pid for one in found))
