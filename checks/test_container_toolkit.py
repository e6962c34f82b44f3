"""The packages that containers stand on, and what may change them."""

import hashlib

import pytest

from checks import DEPLOY, Drift, check
from checks.containers import packages, planned
from checks.kept import wrong as of_kept
from checks.nvidia import no, none
from checks.nvidia.packages import archive
from checks.survey.containers import CONTAINER_ARCHIVES, CONTAINERS
from checks.survey.taken import Survey
from rigwright.containers.files import paths, settings
from rigwright.containers.found import source_path, store
from rigwright.model.debs.group import differing
from rigwright.model.rig import Rig


@check(
    "K03",
    "container toolkit and Docker have the locked versions, all of their packages",
    severity="high",
    why="the packages only work as a set: with mixed versions, containers start without cards or not at all",
)
def test_packages(survey: Survey, rig: Rig, containers: object) -> None:
    plan, there = planned(survey, rig), packages(survey)
    if not plan.groups:
        pytest.skip("all come from the distribution")
    wrong = [line for group in plan.groups for line in differing(group, there)]
    none(" and ".join(f"{group.name} {group.version}" for group in plan.groups), wrong, DEPLOY)


@check(
    "K04",
    "container packages are held",
    severity="high",
    why="an unattended upgrade restarts the Docker daemon and stops its containers",
)
def test_held(survey: Survey, rig: Rig, containers: object) -> None:
    plan = planned(survey, rig)
    if not plan.holds:
        pytest.skip("all come from the distribution")
    holds = set(survey.read(CONTAINERS).holds)
    none("all held", [f"{name} is not held" for name in plan.holds if name not in holds], DEPLOY)


@check(
    "K05",
    "apt can verify the container toolkit's and Docker's archives",
    severity="high",
    why="with a key that apt no longer accepts, neither can be installed or repaired",
)
def test_archives(survey: Survey, rig: Rig, containers: object) -> None:
    plan = planned(survey, rig)
    if not plan.groups or rig.bundle_folder:
        pytest.skip("no package comes from an archive that Rigwright set up")
    read = {one.source: one for one in survey.read(CONTAINER_ARCHIVES).read}
    unknown = []
    for group in plan.groups:
        one = read.get(source_path(group))
        if one is None:
            raise Drift(f"the source {source_path(group)}", "none", DEPLOY)
        away, drifts = archive(one.status, one.said)
        unknown += [away] if away else []
        no(drifts[:1])
    if unknown:
        pytest.skip(unknown[0])


@check(
    "K06",
    "no other apt source duplicates ours",
    severity="high",
    why="two sources with different keys for one archive make apt read no lists at all: no more updates",
)
def test_leftovers(survey: Survey, rig: Rig, containers: object) -> None:
    none("no other source of the same archives", planned(survey, rig).leftovers, f"{DEPLOY}: it moves them aside")


@check(
    "K07",
    "container configuration files are as deployed",
    severity="high",
    why="a missing pin, source or drop-in only shows weeks later, at an upgrade or a boot",
)
def test_settings(survey: Survey, rig: Rig, containers: object) -> None:
    seen = survey.read(CONTAINERS)
    files = settings(rig, planned(survey, rig), f"{seen.os_id}-{seen.os_version}")
    there = {one.path: one for one in seen.files}
    wrong = []
    for file in files:
        one = there.pop(file.path, None)
        if one is None or one.kind != "file":
            wrong.append(f"{file.path} is {one.kind if one else 'not there'}")
        elif one.sha256 != hashlib.sha256(file.text.encode()).hexdigest():
            wrong.append(f"{file.path} has different contents")
        elif (one.mode, one.uid, one.gid) != (file.mode, 0, 0):
            wrong.append(f"{file.path} has mode {one.mode} of {one.uid}:{one.gid}")
    wrong += [f"{path} is not declared" for path in paths(rig) if path in there]
    none("all as deployed", wrong, DEPLOY)


@check(
    "K08",
    "no other container toolkit or Docker is installed",
    severity="high",
    why="with two runtimes of the same name, the order of an upgrade decides which one a container gets",
)
def test_replaced(survey: Survey, rig: Rig, containers: object) -> None:
    seen, plan = survey.read(CONTAINERS), planned(survey, rig)
    half = [f"the installation of {name} was not completed" for name in seen.half]
    none("none", [*plan.removed, *half], f"{DEPLOY}; see `dpkg --audit`")


@check(
    "K09",
    "stored container packages are the locked ones",
    severity="high",
    why="they are reinstalled from once the archive has dropped them",
)
def test_kept(survey: Survey, rig: Rig, containers: object) -> None:
    """A file that has not changed since its list was written is judged by its size; `--deep` reads all."""
    found = survey.read(CONTAINERS).kept
    if not any(found.values()):
        pytest.skip("none are stored")
    folder, differing_files = f"{store(rig)}/kept", list[str]()
    for name, sets in found.items():
        group = rig.container_groups[name]
        rows = {row.sha256: row for row in group.packages.values()}
        differing_files += of_kept(f"{folder}/{name}", sets, rows, group.kept)
    cure = f"remove that directory in {folder}: installed packages stay, and the next version is stored again"
    none("stored packages as downloaded", differing_files, cure)
