"""Checks of trees on a survey: each is red for its own cause, and green next to the others."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from checks import Drift, test_cuda_toolkit, test_engines, test_generation, test_tools, test_trees
from checks.survey.answers import SurveyAnswers
from rigwright.host.generation_layout import file_mode
from rigwright.plan import plan_inputs
from rigwright.plan.plan_inputs import build_target_state
from rigwright.weights.verification import PACKAGE, weights_program_folder
from tests.unit.check_runner import RIG_FIXTURES
from tests.unit.samples import sample_facts, sample_instance, sample_rig

RIG = sample_rig(sample_instance())
DESIRED = build_target_state(RIG, sample_facts())
(MADE,) = DESIRED.installations.values()
ENGINE = RIG.roots.installation_path(MADE.folder)
WEIGHTS = f"{weights_program_folder(RIG.roots)}/{PACKAGE}"
GENERATION = f"{RIG.roots.generations}/2"
EARLIER = f"{RIG.roots.generations}/1"
OLD = "/opt/rigwright/engines/old-1-0123456789ab"
MODULES = (test_trees, test_engines, test_tools, test_cuda_toolkit, test_generation)
Answers = dict[str, Any]


def tree(path: str, **changes: Any) -> dict[str, Any]:
    marker = json.dumps({"inputs": MADE.record}) if path == ENGINE else ""
    return {"path": path, "there": True, "unrecorded": "", "changes": [], "count": 0, "marker": marker, **changes}


def change(what: str, **values: str) -> dict[str, Any]:
    row = {"what": what, "path": "bin/x", "expected": "a", "found": "b", "since": "2026-11-23 03:10 UTC", **values}
    return {"changes": [row], "count": 1}


def kept_generation(number: int, **changes: Any) -> dict[str, Any]:
    made = DESIRED.generation
    files = {path: f"{test_generation.sha256(text)} {file_mode(text)}" for path, text in made.files.items()}
    files |= {path: f"-> {target}" for path, target in made.links.items()}
    row = {"number": number, "sealed": made.digest, "files": files, "lost": [], "proven": True}
    return {**row, **changes}


def folder(path: str, **changes: Any) -> dict[str, Any]:
    return {"path": path, "kind": "folder", "uid": 0, "gid": 0, "mode": 0o755, "rights": [], **changes}


def mount(point: str, **changes: Any) -> dict[str, Any]:
    row = {"point": point, "root": "/", "kind": "ext4", "source": "/dev/sda1", "options": ["rw"], "boot": True}
    return {**row, **changes}


def answers() -> Answers:
    """A host as it should be."""
    roots = RIG.roots
    paths = [*plan_inputs.declared_trees(DESIRED), WEIGHTS, GENERATION, EARLIER, OLD]
    lines = DESIRED.tools.requirements.splitlines()
    pins = [line.split(" ")[0] for line in lines if "==" in line and ";" not in line]
    names = [f"{pin.replace('==', '-')}.dist-info" for pin in pins]
    return {
        "trees": {
            "trees": list(map(tree, paths)),
            "beside": [],
            "gone": [],
            "distributions": {DESIRED.tools.folder: names or ["x-1.dist-info"]},
        },
        "generations": {
            "kept": [kept_generation(1, sealed="0" * 64), kept_generation(2)],
            "current": "generations/2",
            "activating": False,
            "beside": ["current", "generations", "credentials", "share.conf", "ca.pem", "driver.json", "cards"],
        },
        "path_permissions": {
            "folders": {
                path: [folder("/"), folder(path)]
                for path in (roots.software, roots.config, roots.state, roots.models, "/var/cache/rigwright/instances")
            },
            "real": {},
            "mounts": [mount("/")],
            "waiting": [],
        },
        "python_shadowing": {"foreign": [], "other": []},
        "managed_files": {
            **{
                name: []
                for name in (
                    "loose",
                    "ahead",
                    "folders",
                    "secrets",
                    "secrets_listed",
                    "secrets_stuck",
                    "needed",
                    "config",
                )
            },
            "certificates": {},
            "keys_version": "",
            "files": {},
            "ledger": {
                "entry": {"path": RIG.roots.ledger, "kind": "file", "uid": 0, "mode": 0o644, "gid": 0, "mtime": 0.0},
                "lines": [f"dir {path}" for path in (roots.software, RIG.roots.installations)],
                "whole": True,
            },
        },
        "programs": {f"version of {MADE.name}": {"status": 0, "text": "version: 1 (0123456)"}},
    }


def tree_row(found: Answers, path: str) -> dict[str, Any]:
    """The row of a tree."""
    return next(one for one in found["trees"]["trees"] if one["path"] == path)


def way(found: Answers, root: str) -> dict[str, Any]:
    """The row of a root."""
    row: dict[str, Any] = found["path_permissions"]["folders"][root][-1]
    return row


def reds(found: Answers) -> dict[str, Drift]:
    """The red ones, by id."""
    survey = SurveyAnswers({name: {"told": told} for name, told in found.items()})
    given: dict[str, Any] = {"survey": survey, "rig": RIG, "desired": DESIRED, "target_generation": DESIRED.generation}
    given |= {"installation": MADE, "record_property": lambda *_: None, "pytestconfig": PytestOptions()}
    given |= {
        name: fixture(RIG)
        for name, fixture in RIG_FIXTURES.items()
        if [*inspect.signature(fixture).parameters] == ["rig"]
    }
    red = {}
    for module in MODULES:
        for name, function in vars(module).items():
            if not name.startswith("test_"):
                continue
            (mark,) = (one for one in function.pytestmark if one.name == "check")
            if mark.kwargs["identifier"] == "G02":  # it is of units
                continue
            try:
                function(**{one: given[one] for one in inspect.signature(function).parameters})
            except Drift as drift:
                red[mark.kwargs["identifier"]] = drift
            except pytest.skip.Exception:
                continue
    return red


class PytestOptions:
    """pytest's."""

    def getoption(self, name: str) -> bool:
        """Not deep."""
        return False


def test_a_host_as_it_should_be_is_green() -> None:
    assert reds(answers()) == {}


def test_a_generation_that_did_not_serve_may_be_looked_at() -> None:
    found = answers()
    found["managed_files"]["ledger"]["lines"].append(f"dir {RIG.roots.generations}")
    found["trees"].update(beside=[f"{RIG.roots.generations}/failed"])
    assert reds(found) == {}


CASES: dict[str, tuple[Callable[[Answers], object], set[str]]] = {
    "a changed engine": (lambda a: tree_row(a, ENGINE).update(change("other")), {"L02"}),
    "an engine that lacks a file": (lambda a: tree_row(a, ENGINE).update(change("missing")), {"L02"}),
    "an engine without a record": (lambda a: tree_row(a, ENGINE).update(unrecorded="no record of it"), {"L02"}),
    "no engine": (lambda a: tree_row(a, ENGINE).update(there=False, marker=""), {"L01", "L02"}),
    "an engine of other options": (lambda a: tree_row(a, ENGINE).update(marker='{"inputs": {"x": 1}}'), {"L01"}),
    "a marker that is invalid": (lambda a: tree_row(a, ENGINE).update(marker="[" * 9000), {"L01"}),
    "an engine that does not start": (
        lambda a: a["programs"].update({f"version of {MADE.name}": {"status": 127, "text": "version: 1 (0123456)"}}),
        {"L03"},
    ),
    "changed tools": (lambda a: tree_row(a, DESIRED.tools.folder).update(change("other")), {"T02"}),
    "tools without packages": (lambda a: a["trees"].update(distributions={DESIRED.tools.folder: []}), {"T01"}),
    "something added": (lambda a: tree_row(a, ENGINE).update(change("added")), {"F07"}),
    "something added to an earlier generation": (lambda a: tree_row(a, EARLIER).update(change("added")), {"F07"}),
    "another owner": (lambda a: tree_row(a, OLD).update(change("loose")), {"F08"}),
    "a changed engine of earlier": (lambda a: tree_row(a, OLD).update(change("other")), {"F09"}),
    "a folder nobody knows": (lambda a: tree_row(a, OLD).update(unrecorded="no record of it"), {"F10"}),
    "a file beside": (lambda a: a["trees"].update(beside=["/opt/rigwright/x"]), {"F10"}),
    "changed programs": (lambda a: tree_row(a, WEIGHTS).update(change("other")), {"F11"}),
    "a writable parent": (
        lambda a: a["path_permissions"]["folders"][RIG.roots.software][0].update(mode=0o777),
        {"F01"},
    ),
    "somebody's root": (lambda a: way(a, RIG.roots.config).update(uid=1000), {"F01"}),
    "an access list": (lambda a: way(a, RIG.roots.state).update(rights=["system.posix_acl_access"]), {"F01"}),
    "a root that is a link": (lambda a: way(a, RIG.roots.software).update(kind="link", mode=0o777), {"F01"}),
    "a closed root": (lambda a: way(a, RIG.roots.software).update(mode=0o750), {"F02"}),
    "a closed root of state": (lambda a: way(a, RIG.roots.state).update(mode=0o700), {"F02"}),
    "a bind mount below": (
        lambda a: a["path_permissions"]["mounts"].append(mount(f"{ENGINE}/bin", root="/root")),
        {"F03"},
    ),
    "a bind mount of a root": (
        lambda a: a["path_permissions"]["mounts"].append(mount("/opt", root="/tmp/opt")),
        {"F03"},
    ),
    "an empty file system": (
        lambda a: a["path_permissions"]["mounts"].append(mount("/opt/rigwright", kind="tmpfs")),
        {"F03"},
    ),
    "a mount that waits": (lambda a: a["path_permissions"].update(waiting=["/opt"]), {"F05"}),
    "a disk without programs": (
        lambda a: a["path_permissions"]["mounts"].append(mount("/opt", options=["rw", "noexec"])),
        {"F06"},
    ),
    "another current": (lambda a: a["generations"].update(current="generations/1"), {"G01"}),
    "no current": (lambda a: a["generations"].update(current=""), {"G01"}),
    "a changed file": (lambda a: a["generations"]["kept"][1]["files"].update(ready="0"), {"G01"}),
    "a file too many": (lambda a: a["generations"]["kept"][1]["files"].update(more="0"), {"G01"}),
    "a file too few": (lambda a: a["generations"]["kept"][1]["files"].pop("ready"), {"G01"}),
    "an activation that was cut off": (lambda a: a["generations"].update(activating=True), {"G01"}),
    "an earlier one that was changed": (lambda a: tree_row(a, EARLIER).update(change("other")), {"G03"}),
    "an earlier one that nobody wrote": (lambda a: tree_row(a, EARLIER).update(unrecorded="no record of it"), {"G03"}),
    "an earlier one that leads nowhere": (lambda a: a["generations"]["kept"][0].update(lost=["/opt/x"]), {"G04"}),
    "a module that comes first": (lambda a: a["python_shadowing"]["foreign"].append("/usr/lib/python3.zip"), {"F12"}),
    "a module that was compiled from another text": (
        lambda a: a["python_shadowing"]["other"].append("/usr/lib/x.pyc"),
        {"F12"},
    ),
    "an unknown setting": (lambda a: a["generations"]["beside"].append("override.conf"), {"G05"}),
    "a record of a stop, while all instances run": (lambda a: a["generations"]["beside"].append("stopped"), {"G05"}),
}


@pytest.mark.parametrize("what", CASES)
def test_each_cause_turns_its_own_check_red(what: str) -> None:
    spoil, expected = CASES[what]
    found = answers()
    spoil(found)
    red = reds(found)
    assert set(red) == expected
    for drift in red.values():
        assert drift.cure
        assert drift.expected != drift.found
        assert not {"True", "False", "None"} & set(f"{drift.expected} {drift.found}".split())


GREEN: dict[str, Callable[[Answers], object]] = {
    "a disk of its own": lambda a: a["path_permissions"]["mounts"].append(mount("/opt/rigwright")),
    "a sub-volume": lambda a: a["path_permissions"]["mounts"].append(mount("/opt", kind="btrfs", root="/@opt")),
    "a disk for a model": lambda a: a["path_permissions"]["mounts"].append(mount("/srv/models")),
    "an own disk's folder": lambda a: (
        a["trees"]["beside"].append("/opt/rigwright/lost+found"),
        a["generations"]["beside"].append("lost+found"),
    ),
    "no cache yet": lambda a: way(a, "/var/cache/rigwright/instances").update(kind="nothing", mode=0),
    "a link above that is root's": lambda a: a["path_permissions"]["folders"][RIG.roots.software].insert(
        1, folder("/opt", kind="link", mode=0o777)
    ),
    "noexec elsewhere": lambda a: a["path_permissions"]["mounts"].append(mount("/var", options=["rw", "noexec"])),
}


@pytest.mark.parametrize("what", GREEN)
def test_the_operators_own_files_are_green(what: str) -> None:
    found = answers()
    GREEN[what](found)
    assert reds(found) == {}


@pytest.mark.parametrize("section", ["trees", "path_permissions", "generations", "programs"])
def test_a_section_without_an_answer_is_red(section: str) -> None:
    found = answers()
    del found[section]
    assert reds(found)


def test_when_it_was_changed_is_reported() -> None:
    found = answers()
    tree_row(found, ENGINE).update(change("other"))
    assert "since 2026-11-23 03:10 UTC" in str(reds(found)["L02"])
