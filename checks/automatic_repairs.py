"""Repairs of a deploy to its own state where a check fails, by the check and by the survey's facts about the host.

Only what the rig declares decides: units, paths and modes that a host reports are matched against those of the rig.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from checks import Drift
from checks.survey.answers import SurveyAnswers
from checks.survey.host.entry_live import RECORDER, TRANSIENT
from checks.survey.kernel import KERNEL
from checks.survey.managed_files import OURS
from checks.survey.section import SurveyScope
from checks.survey.service_exposure import REACH, private_folders, socket_units
from checks.survey.units import UNITS, expected_units
from checks.survey.weights import WEIGHTS
from checks.test_nvidia_boot import DEVICE_MODE
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, ROUTER_UNIT
from rigwright.model.instance import loaded_weights
from rigwright.plan.repairs import Repair, is_added_path
from rigwright.weights.weight_server import SHARE_UNIT

UNIT = re.compile(r"(?<![/\w.:@-])rigwright[-_][A-Za-z0-9:_.\\@-]*\.service")
DEVICE = re.compile(r"/dev/nvidia[a-z0-9-]*")
WEIGHT_FOLDER, SECRET = "755", "600"
ROOT = "root:root"


@dataclass(frozen=True)
class DriftedCheck:
    """A check that does not hold, of a host or of a part of it."""

    id: str
    title: str
    part: str
    """As its line names it; empty for the host."""
    unit: str
    """Of the instance that it is about; empty for none."""
    drift: Drift


def find_repairs(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> frozenset[Repair]:
    """The repairs of a deploy for a failed check; empty where that is for the operator to decide."""
    find = REPAIRS.get(failed.id)
    try:
        return frozenset(find(survey, scope, failed)) if find else frozenset()
    except (Drift, ValueError):
        return frozenset()  # the survey has no such answer, or names nothing that a deploy may change


def has_foreign_additions(survey: SurveyAnswers, scope: SurveyScope) -> bool:
    """Whether drop-ins for units of all names, which are not ours to remove, alter units of ours."""
    try:
        units = survey.read(UNITS)
    except Drift:
        return False
    ours = expected_units(scope)
    return any(not is_added_path(path) for name in ours for path in units.property_names(name, "DropInPaths"))


def _added_files(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    """Drop-ins, relations and unit files below names of ours, but for those that the rig has there itself."""
    units, ours = survey.read(UNITS), expected_units(scope)
    right = {one.path for one in ours.values()}
    pulls = {f"{target}.wants/{name}" for target in ours for name in ours}
    lying = {one.path for one in units.lying}
    lying |= {path for name in ours for path in units.property_names(name, "DropInPaths")}
    for name in ours:
        for prop, folder in (("Requires", "requires"), ("Wants", "wants"), ("Upholds", "upholds")):
            lying |= {
                f"{place}/{name}.{folder}/{other}"
                for other in units.property_names(name, prop)
                if other not in ours
                for place in ("/etc/systemd/system", "/run/systemd/system")
                if f"{failed.drift.found} ".find(f"{name} has {prop} {other}") >= 0
            }
    for path in sorted(lying - right):
        folder, _, file = path.rpartition("/")
        if folder == TRANSIENT and RECORDER.fullmatch(file):
            continue  # it records a start, and goes by itself
        if is_added_path(path) and not any(path.endswith(f"/{pull}") for pull in pulls):
            yield Repair("remove", path)


def _restart_faulty(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    """The services that a failure is about, and that of its instance. Its text is of no use: a worker of one service
    may have the name of another among its arguments.
    """
    services = {name for name, one in expected_units(scope).items() if one.kind == "service"}
    named = {*failed.drift.restarts, failed.unit} & services
    yield from (Repair("restart", name) for name in sorted(named))


def _restart_stopped(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    """Stopped processes start again; one that is traced would stay behind, for its tracer keeps it."""
    if "is traced by" not in failed.drift.found:
        yield from _restart_faulty(survey, scope, failed)


def _thaw(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    units = survey.read(UNITS)
    for name in expected_units(scope):
        if units.property_value(name, "FreezerState") not in ("", "running"):
            yield Repair("thaw", name)


def _reload_gateway(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    yield Repair("reload", GATEWAY_UNIT)


def _restart_share(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    yield Repair("restart", SHARE_UNIT)


def _restart_router(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    yield Repair("restart", ROUTER_UNIT)


def _gateway(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    """Other settings in its processes than lie there, or another program."""
    named = {*UNIT.findall(failed.drift.expected)}
    if failed.drift.found == "another program":
        named |= {*UNIT.findall(failed.drift.cure)}
    elif "reload rigwright_gateway" in failed.drift.cure:
        yield Repair("reload", GATEWAY_UNIT)
    elif "restart rigwright_router" in failed.drift.cure:
        named.add(ROUTER_UNIT)
    yield from (Repair("restart", name) for name in sorted(named & {GATEWAY_UNIT, ROUTER_UNIT}))


def _sockets(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    """Owners, modes and access lists of sockets and of the folders that close them, as their units make them."""
    rig, reach = scope.rig, survey.read(REACH)
    accounts, closed = rig.accounts, {*private_folders(rig.instances, rig.gateway)}
    users = {one.socket: (accounts.of_instance(one), accounts.socket_groups(one, rig.gateway)) for one in rig.instances}
    for path in socket_units(rig.instances, rig.gateway):
        owner, groups = users.get(path, (accounts.gateway, (accounts.gateway,)))
        folder = str(PurePosixPath(path).parent)
        for at in [path, *([folder] if folder in closed else [])]:
            lying = reach.lying[at]
            guard = at == folder if folder in closed else at == path
            owners = {owner} if folder in closed else {owner, "root"}
            if lying.kind not in ("a socket", "a folder"):
                continue
            opened = guard and lying.mode & 0o007
            if lying.owner not in owners or lying.group not in groups or lying.listed or opened:
                mode = lying.mode & 0o7770 if guard else lying.mode
                yield Repair("open", at, f"{mode:04o}", f"{owner}:{groups[-1]}")


def _weight_folders(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    roots = scope.rig.roots
    above = {
        str(path)
        for artefact in loaded_weights(scope.rig.instances)
        for path in PurePosixPath(roots.weight_path(artefact)).parents
    }
    for one in survey.read(WEIGHTS).folders:
        if one.path in above and one.path.startswith(f"{roots.models}/") and one.kind == "folder":
            yield Repair("open", one.path, WEIGHT_FOLDER, ROOT)


def _secrets(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    for one in survey.read(OURS).secrets:
        ours = PurePosixPath(one.path).parent == PurePosixPath(scope.rig.roots.credentials)
        if ours and one.kind == "file" and (one.mode, one.uid) != (0o600, 0):
            yield Repair("open", one.path, SECRET, ROOT)


def _devices(survey: SurveyAnswers, scope: SurveyScope, failed: DriftedCheck) -> Iterator[Repair]:
    options = scope.rig.driver.module_options
    mode = f"{int(options.get('NVreg_DeviceFileMode', DEVICE_MODE)):04o}"
    owner = f"{int(options.get('NVreg_DeviceFileUID', 0))}:{int(options.get('NVreg_DeviceFileGID', 0))}"
    for one in survey.read(KERNEL).devices:
        wrong = f"{one.mode:04o} {one.uid}:{one.gid}" != f"{mode} {owner}"
        if one.kind == "device" and wrong and DEVICE.fullmatch(one.path):
            yield Repair("open", one.path, mode, owner)


Find = Callable[[SurveyAnswers, SurveyScope, DriftedCheck], Iterable[Repair]]
REPAIRS: dict[str, Find] = {
    **dict.fromkeys(("U02", "U03", "U06", "U07", "D03", "H03", "Q03", "S03", "S11", "W05"), _added_files),
    **dict.fromkeys(("S12", "S16", "S17", "S18", "S19", "S20", "S21", "S25", "Q02", "V04"), _restart_faulty),
    **dict.fromkeys(("H02", "H08"), _restart_share),
    "S22": _restart_stopped,
    "U09": _thaw,
    "D02": _gateway,
    "D11": _restart_router,
    **dict.fromkeys(("D12", "D13"), _reload_gateway),
    **dict.fromkeys(("R05", "R06", "A12"), _sockets),
    "W04": _weight_folders,
    "O04": _secrets,
    "N37": _devices,
}
"""Check -> what a deploy does where it fails."""
