"""Code, words and variables that processes of our services run with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from checks import ItemText, check
from checks.service_processes import (
    describe_process,
    expect_no_unit_faults,
    is_helper,
    iterate_processes,
    running_services,
    unit_settings_of,
)
from checks.survey.answers import SurveyAnswers
from checks.survey.processes import PROCESSES, KernelProcess, ServiceProcesses, split_command
from checks.survey.section import SurveyScope
from checks.survey.units import ExpectedUnit
from checks.unit_settings import parse_unit_settings, split_quoted_words
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import CACHES, COMPILED, Instance
from rigwright.model.roots import Roots
from rigwright.plan.plan_inputs import TargetState
from rigwright.serving.instance_units import INHERITED_VARIABLES

# Where engines that compile while they run write to: a cache, and what they alone see of these.
COMPILED_TO = (f"{COMPILED}/", f"{CACHES}/", "/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108
# A driver that its operator has installed is no package's; another check says whether it is one driver.
DRIVERS = re.compile(r".*/lib(cuda|nvidia|nvcu|nvoptix|nvrtc)[^/]*")
UNKNOWN = "not from any package"
"""The survey's word for code without a known package."""
# The text that nginx writes over the words that it was started with, and over its variables.
TITLE = re.compile("nginx: (master|worker|cache manager|cache loader) process ?")
# The variables that systemd gives to services with sockets, or with a readiness message (sd_listen_fds(3),
# sd_notify(3)).
GIVEN = re.compile("LISTEN_(PID|FDS|FDNAMES|PIDFDID)|NOTIFY_SOCKET|WATCHDOG_(PID|USEC)|(LOGS|STATE)_DIRECTORY|FDSTORE")


@check(
    "S21",
    "running code matches the files on disk, which come from a package or the engine",
    severity="critical",
    why="a replaced, deleted or injected library changes the computed answers",
    blind="code in the form of libffi's closures: its contents are plausible at one moment, not proven",
)
def test_code(
    survey: SurveyAnswers,
    roots: Roots,
    declared_cards: tuple[Card, ...],
    declared_instances: tuple[Instance, ...],
    scope: SurveyScope,
    desired: TargetState,
    record_property: Callable[[str, object], None],
) -> None:
    services = running_services(survey, scope)
    judged = survey.read(PROCESSES).code
    folders = {
        i.unit: f"{roots.installation_path(desired.installations[i.installed_as].folder)}/" for i in declared_instances
    }
    wrong: list[tuple[str, str]] = []
    # a restart runs the same bytes of a file
    lasting: list[tuple[str, str]] = []
    plausible: list[str] = []
    for one, unit, process in iterate_processes(services):
        who = describe_process(one, unit, process)
        own = folders.get(one.name, "/nobody/")
        for what, path in (entry.partition(" ")[::2] for entry in process.code):
            if _compiled(one, what, path) or (
                declared_cards and DRIVERS.fullmatch(path) and judged.get(path) == UNKNOWN
            ):
                continue
            if what == "unnamed":
                wrong.append((one.name, f"{who} runs code without a file{f' ({path})' if path else ''}"))
            elif what == "closures":
                plausible.append(f"{who} ({path})")
            elif what == "unjudged":
                wrong.append((one.name, f"{who} cannot be checked: {path}"))
            elif what != "file":
                wrong.append((one.name, f"{who} runs {path}, which was {what}"))
            elif path in judged:
                lasting.append((one.name, f"{one.name} runs {path}: {judged[path]}"))
                wrong.append(lasting[-1])
            elif path.startswith(f"{roots.installations}/") and not path.startswith(own):
                wrong.append((one.name, f"{who} runs {path} of another engine"))
        may_run = is_helper(one, unit, process) or _interpreted(one, unit, process)
        if process.exe.removesuffix(" (deleted)") != unit.program and not may_run:
            wrong.append((one.name, f"{who} runs {process.exe}, not {unit.program}"))
    if plausible:
        record_property("how", f"code in no file that has the form of libffi's closures: {', '.join(plausible)}")
    expect_no_unit_faults(wrong, "the declared programs and their libraries", lasting)


def _compiled(one: ExpectedUnit, what: str, path: str) -> bool:
    """Whether it is code that an engine has compiled while it runs, which its unit lets it do."""
    return unit_settings_of(one).get("MemoryDenyWriteExecute") != "yes" and (
        what == "unnamed" or path.startswith(COMPILED_TO)
    )


def _interpreted(one: ExpectedUnit, unit: ServiceProcesses, process: KernelProcess) -> bool:
    """Whether a process is a script of its service's, or one of an engine's that starts compilers."""
    if unit_settings_of(one).get("MemoryDenyWriteExecute") != "yes" and process.pid != unit.main:
        return True
    return process.exe.startswith("/usr/bin/") and unit.program in process.words[1:3]


@check(
    "S25",
    "services other than instances run with their units' arguments and environment",
    severity="critical",
    why="another configuration, or a variable set for all services, can give access to others",
)
def test_words(survey: SurveyAnswers, declared_instances: tuple[Instance, ...], scope: SurveyScope) -> None:
    services = running_services(survey, scope)
    # an instance's have a check of their own
    beside = {name: one for name, one in services.items() if name not in {i.unit for i in declared_instances}}
    wrong = [(name, f"{name} has no process") for name, (_, unit) in beside.items() if not unit.processes]
    for one, unit, process in iterate_processes(beside):
        wrong += [
            (one.name, said) for said in _worded(one, unit, process, f"{describe_process(one, unit, process)} has")
        ]
    expect_no_unit_faults(wrong, "the arguments and environment of their units")


def _worded(one: ExpectedUnit, unit: ServiceProcesses, process: KernelProcess, begin: str) -> Iterable[str]:
    wanted, main = split_command(one.text), process.pid == unit.main
    title = TITLE.match(" ".join(process.words))
    if not title and process.words != wanted and not is_helper(one, unit, process):
        yield ItemText.shorten(" ".join(process.words), 200, f"{begin} arguments ")
    elif title and (main or title[1] == "master"):
        had = " ".join(process.words)[title.end() :].rstrip().split(" ")
        if had != wanted:
            yield ItemText.shorten(" ".join(had), 200, f"{begin} arguments ")
    given = dict(
        variable.partition("=")[::2]
        for name, value in parse_unit_settings(one.text)
        if name == "Environment"
        for variable in split_quoted_words(value)
    )
    found = process.environment
    for name in sorted(found):
        if name in given:
            if found[name] != given[name]:
                value = ItemText.shorten(found[name], 80, f"{begin} {name} ")
                yield ItemText(f"{value}, not {given[name]}", f"{value.items[0]}, not {given[name]}")
        elif not INHERITED_VARIABLES.fullmatch(name) and not GIVEN.fullmatch(name):
            yield ItemText.shorten(found[name], 0, f"{begin} the variable {name}")
