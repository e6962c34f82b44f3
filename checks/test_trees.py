"""Installed trees, the links that lead to them, and their neighbours."""

from __future__ import annotations

from pathlib import PurePosixPath

from checks import DEPLOY, ItemText, check, expect
from checks.remedy import Remedy, host_command, instruction, remove_access_lists, remove_paths
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import PYTHON
from checks.survey.managed_files import OURS
from checks.survey.trees import ADDED, LOOSE, MISSING, OTHER, TREES, WAYS, InstalledTree, ParentFolder, Trees
from checks.tree_expectations import expect_as_recorded, expect_no_changes
from rigwright.model.instance import CACHES, Instance, loaded_weights
from rigwright.model.roots import Roots
from rigwright.plan import plan_inputs
from rigwright.plan.plan_inputs import TargetState
from rigwright.weights.verification import PACKAGE, weights_program_folder

LOST = "lost+found"
"""The top of a file system of its own."""
FAILED = "failed"
"""The folder of the last generation that did not serve, which is kept to be looked at (docs/design/decisions/0008)."""

# file systems that hold nothing, or what another one has
FLEETING = ("tmpfs", "ramfs", "overlay", "aufs")


@check(
    "F01",
    "only root can change the directories above Rigwright's files",
    severity="critical",
    why="a renamed parent directory can be replaced with all of its contents",
)
def test_the_way_is_roots(survey: SurveyAnswers, roots: Roots) -> None:
    found = [folder for way in survey.read(WAYS).folders.values() for folder in way]
    own = {roots.software, roots.config, roots.state}
    bad = {one.path: one for one in found if _loose(one) or (one.path in own and one.kind != "folder")}
    wrong = list(bad.values())
    cure = sum(map(_closing, wrong), Remedy(()))
    folders = ItemText.from_items([*map(_describe_folder, wrong)], "; ", 3)
    expect(folders, "directories that only root can change", cure, holds=not wrong)


@check(
    "F02",
    "services can access the files that they run and read",
    severity="critical",
    why="the next start fails before the first line of its log",
)
def test_the_way_is_open(survey: SurveyAnswers, roots: Roots) -> None:
    ways = survey.read(WAYS).folders
    # below the state: the file by which a rollout takes the box out of other boxes' gateways
    read = (roots.software, roots.config, roots.models, roots.state)
    passed = {one.path: one for root in read for one in ways[root]}
    shut = [one.path for one in passed.values() if one.kind == "folder" and not one.mode & 0o001]
    cure = host_command("chmod o+x -- {}", shut)
    expect(", ".join(shut), "directories that everyone can traverse", cure, holds=not shut)


@check(
    "F03",
    "no mount covers Rigwright's files",
    severity="critical",
    why="services see the mounted files, while records and deploys describe the files below them",
)
def test_nothing_is_mounted(survey: SurveyAnswers, roots: Roots) -> None:
    inside = (roots.software, roots.config, roots.state, CACHES)
    points = [one for one in survey.read(WAYS).mounts if one.point != "/"]
    below = [one for one in points if any(one.point.startswith(f"{root}/") for root in inside)]
    above = [one for one in points if any(one.holds(root) for root in (*inside, roots.models))]
    # a disk of its own is its operator's, a folder of another one shown there is not
    bound = [one for one in above if one.kind != "btrfs" and one.root != "/"]
    over = [one for one in above if one.kind in FLEETING]
    wrong = {one.point: one for one in (*below, *bound, *over)}
    said = "; ".join(f"{one.source}{one.root.rstrip('/')} ({one.kind}) at {one.point}" for one in wrong.values())
    cure = host_command("umount -- {}", [*reversed(wrong)]) + DEPLOY
    expect(said, "no mount", cure, holds=not wrong)


@check(
    "F05",
    "no mount will cover Rigwright's files at the next boot",
    severity="critical",
    why="after a boot services see the mounted files",
)
def test_nothing_waits(survey: SurveyAnswers) -> None:
    waiting = survey.read(WAYS).waiting
    cure = instruction("remove it from /etc/fstab and the mount units, or mount it now") + DEPLOY
    expect(", ".join(waiting), "no mount that is not active now", cure, holds=not waiting)


@check(
    "F06",
    "programs can be executed where they are installed",
    severity="critical",
    why="the next start of every instance fails",
)
def test_programs_can_be_run(survey: SurveyAnswers, roots: Roots) -> None:
    last = survey.read(WAYS).mount_of(roots.software)
    point = last.point if last else "/"
    barred = bool(last and "noexec" in last.options)
    cure = host_command("mount -o remount,exec {}", point)
    expect(f"{point} with noexec", "a file system without noexec", cure, holds=not barred)


@check(
    "F07",
    "installed trees have no added files",
    severity="critical",
    why="programs load files next to them: a library, module, .pth or sitecustomize is code in the service",
)
def test_nothing_was_added(survey: SurveyAnswers) -> None:
    _expect_no_changes_of(survey, ADDED)


@check(
    "F08",
    "owners, modes and access lists of installed files are unchanged",
    severity="critical",
    why="a file written there runs as the service; a service cannot start from files that it may not read",
)
def test_owner_and_modes(survey: SurveyAnswers) -> None:
    _expect_no_changes_of(survey, LOOSE)


@check(
    "F09",
    "files of earlier generations are unmodified",
    severity="high",
    why="a rollback would run changed files",
)
def test_earlier_trees(survey: SurveyAnswers, roots: Roots, desired: TargetState) -> None:
    for tree in _others(survey.read(TREES), roots, desired):
        if not tree.unrecorded:
            cure = remove_paths(tree.path) + DEPLOY
            expect_no_changes([(tree, change) for change in tree.changes if change.what in (OTHER, MISSING)], cure)


@check(
    "F10",
    "the installation directories contain no unknown files",
    severity="low",
    why="no lock or inventory lists an unknown file, and no deploy maintains or removes it",
)
def test_nothing_lies_beside(survey: SurveyAnswers, roots: Roots, desired: TargetState) -> None:
    found, ledger = survey.read(TREES), survey.read(OURS).ledger
    unknown = [tree.path for tree in _others(found, roots, desired) if tree.unrecorded]
    # a folder that lay there before us keeps what it had
    lying = [path for path in [*found.beside, *unknown] if f"dir {PurePosixPath(path).parent}" in ledger.lines]
    # unfinished installations, which the next run continues; and a disk of its own has LOST
    ours = {line.partition(" ")[2] for line in ledger.lines if line.startswith("tree ")} | {
        f"{roots.generations}/{FAILED}"
    }
    beside = [path for path in sorted(lying) if path not in ours and PurePosixPath(path).name != LOST]
    cure = remove_paths(*beside) + DEPLOY
    expect(ItemText.from_items(beside, shown=3), "only files that a deploy wrote", cure, holds=not beside)


@check(
    "F11",
    "the programs that manage weights are unmodified",
    severity="critical",
    why="root runs these programs",
)
def test_programs_for_weights(survey: SurveyAnswers, roots: Roots, declared_instances: tuple[Instance, ...]) -> None:
    if loaded_weights(declared_instances):
        expect_as_recorded(survey.read(TREES).tree(f"{weights_program_folder(roots)}/{PACKAGE}"), DEPLOY)


@check(
    "F12",
    "the host's Python runs no unpackaged startup code",
    severity="critical",
    why="root runs Python for weights and deploys: a sitecustomize, .pth or shadowing module would run as root",
)
def test_python_starts_with_its_own(survey: SurveyAnswers) -> None:
    foreign = survey.read(PYTHON).foreign
    cure = remove_paths(*foreign)
    expect(ItemText.from_items(foreign, shown=3), "only packaged files", cure, holds=not foreign)
    other = survey.read(PYTHON).other
    cure = remove_paths(*other)
    expect(ItemText.from_items(other, shown=3), "bytecode of its own modules", cure, holds=not other)


def _expect_no_changes_of(survey: SurveyAnswers, what: str) -> None:
    found = [(tree, one) for tree in survey.read(TREES).trees for one in tree.changes if one.what == what]
    expect_no_changes(found, DEPLOY)


def _others(found: Trees, roots: Roots, desired: TargetState) -> list[InstalledTree]:
    """Those of earlier generations: neither declared nor generations themselves."""
    ours = {*plan_inputs.declared_trees(desired), f"{weights_program_folder(roots)}/{PACKAGE}"}
    return [tree for tree in found.trees if tree.path not in ours and not tree.path.startswith(f"{roots.generations}/")]


def _loose(one: ParentFolder) -> bool:
    if one.kind == "nothing":
        return False
    return one.uid != 0 or (one.kind != "link" and bool(one.mode & 0o022)) or bool(one.rights)


def _describe_folder(one: ParentFolder) -> str:
    given = f" and {', '.join(one.rights)}" if one.rights else ""
    kind = "" if one.kind == "folder" else f" ({one.kind})"
    return f"{one.path}{kind} of user {one.uid} with mode {one.mode:o}{given}"


def _closing(one: ParentFolder) -> Remedy:
    if one.kind != "folder":
        return instruction(f"make {one.path} a folder of root's")
    owner = host_command("chown root {0}; chmod go-w {0}", one.path)
    return remove_access_lists(one.path) + owner if one.rights else owner
