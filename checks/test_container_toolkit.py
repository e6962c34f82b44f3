"""The packages that containers stand on, and what may change them."""

import hashlib

import pytest

from checks import DEPLOY, Drift, ItemText, check, report_drift
from checks.container_check_helpers import expected_container_plan, installed_packages
from checks.nvidia import expect_no_differences, expect_no_items
from checks.nvidia.package_state import find_archive_differences
from checks.remedy import remove_paths
from checks.stored_packages import find_stored_package_problems
from checks.survey.answers import SurveyAnswers
from checks.survey.containers import CONTAINER_ARCHIVES, CONTAINERS
from rigwright.containers.container_facts import source_path, store_folder
from rigwright.containers.container_files import managed_paths, render_settings
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.deb_package_groups import find_version_differences
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots


@check(
    "K03",
    "container toolkit and Docker have the locked versions, all of their packages",
    severity="high",
    why="the packages only work as a set: with mixed versions, containers start without cards or not at all",
)
def test_packages(survey: SurveyAnswers, rig: Rig, containers: object) -> None:
    plan, there = expected_container_plan(survey, rig), installed_packages(survey)
    if not plan.groups:
        pytest.skip("all come from the distribution")
    wrong = [line for group in plan.groups for line in find_version_differences(group, there)]
    expect_no_items(" and ".join(f"{group.name} {group.version}" for group in plan.groups), wrong, DEPLOY)


@check(
    "K04",
    "container packages are held",
    severity="high",
    why="an unattended upgrade restarts the Docker daemon and stops its containers",
)
def test_held(survey: SurveyAnswers, rig: Rig, containers: object) -> None:
    plan = expected_container_plan(survey, rig)
    if not plan.holds:
        pytest.skip("all come from the distribution")
    holds = survey.read(CONTAINERS).packages.held
    expect_no_items("all held", [f"{name} is not held" for name in plan.holds if name not in holds], DEPLOY)


@check(
    "K05",
    "apt can verify the container toolkit's and Docker's archives",
    severity="high",
    why="with a key that apt no longer accepts, neither can be installed or repaired",
)
def test_archives(survey: SurveyAnswers, rig: Rig, containers: object) -> None:
    plan = expected_container_plan(survey, rig)
    if not plan.groups or rig.bundle_folder:
        pytest.skip("no package comes from an archive that Rigwright set up")
    read = {one.source: one for one in survey.read(CONTAINER_ARCHIVES).read}
    unknown = []
    for group in plan.groups:
        one = read.get(source_path(group))
        if one is None:
            report_drift(Drift(f"the source {source_path(group)}", "none", DEPLOY))
            continue
        away, drifts = find_archive_differences(one.status, one.said)
        unknown += [away] if away else []
        expect_no_differences(drifts)
    if unknown:
        pytest.skip(unknown[0])


@check(
    "K06",
    "no other apt source duplicates Rigwright's",
    severity="high",
    why="with two keys for one archive apt reads no package lists: no more updates",
)
def test_leftovers(survey: SurveyAnswers, rig: Rig, containers: object) -> None:
    expect_no_items(
        "no other source of the same archives",
        expected_container_plan(survey, rig).leftovers,
        DEPLOY,
    )


@check(
    "K07",
    "container configuration files are as deployed",
    severity="high",
    why="a missing pin, source or drop-in only shows weeks later, at an upgrade or a boot",
)
def test_settings(survey: SurveyAnswers, rig: Rig, containers: object) -> None:
    seen = survey.read(CONTAINERS)
    files = render_settings(
        rig.roots,
        rig.container_supply,
        rig.network,
        rig.bundle_folder,
        expected_container_plan(survey, rig),
        f"{seen.os_id}-{seen.os_version}",
    )
    there = {one.path: one for one in seen.files}
    wrong = []
    for file in files:
        one = there.pop(file.path, None)
        if one is None or one.kind != "file":
            wrong.append(f"{file.path} is {one.kind if one else 'not there'}")
            continue
        if one.sha256 != hashlib.sha256(file.text.encode()).hexdigest():
            shown = f"{file.path} has different contents"
            wrong.append(ItemText(shown, f"{shown}: {one.sha256}"))
        if (one.mode, one.uid, one.gid) != (file.mode, 0, 0):
            wrong.append(f"{file.path} has mode {one.mode} of {one.uid}:{one.gid}")
    wrong += [f"{path} is not declared" for path in managed_paths(rig.roots) if path in there]
    expect_no_items("all as deployed", wrong, DEPLOY)


@check(
    "K08",
    "no other container toolkit or Docker is installed",
    severity="high",
    why="with two runtimes of the same name, the order of an upgrade decides which one a container gets",
)
def test_replaced(survey: SurveyAnswers, rig: Rig, containers: object) -> None:
    seen, plan = survey.read(CONTAINERS), expected_container_plan(survey, rig)
    half = [f"the installation of {name} was not completed" for name in seen.packages.half]
    expect_no_items("none", [*plan.removed, *half], DEPLOY)


@check(
    "K09",
    "stored container packages are the locked ones",
    severity="high",
    why="a deploy reinstalls from them after the archive has removed them",
)
def test_kept(survey: SurveyAnswers, roots: Roots, container_supply: ContainerSupply, containers: object) -> None:
    """A file that has not changed since its list was written is judged by its size; `--deep` reads all."""
    found = survey.read(CONTAINERS).kept
    if not any(found.values()):
        pytest.skip("none are stored")
    folder, differing_files = f"{store_folder(roots)}/kept", list[str]()
    for name, sets in found.items():
        group = container_supply.groups[name]
        rows = {row.sha256: row for row in group.packages.values()}
        differing_files += find_stored_package_problems(f"{folder}/{name}", sets, rows, group.store_name)
    # installed packages stay, and the next version is stored again
    expect_no_items("stored packages as downloaded", differing_files, remove_paths(folder))
