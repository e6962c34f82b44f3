"""Host tools."""

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from checks import DEPLOY, Drift, check, expect
from checks.remedy import remove_paths
from checks.survey.answers import SurveyAnswers
from checks.survey.trees import TREES
from checks.tree_expectations import expect_as_recorded
from rigwright.plan.plan_inputs import TargetState


@check(
    "T01", "host tools are the locked versions", severity="low", why="another version may fetch or verify differently"
)
def test_tools_are_the_locked_ones(survey: SurveyAnswers, desired: TargetState) -> None:
    folder = desired.tools.folder
    described = survey.read(TREES).distributions[folder]
    if not described:
        raise Drift(folder, "no working environment", DEPLOY)
    rows = (name.removesuffix(".dist-info").rpartition("-") for name in described)
    found = {f"{canonicalize_name(name)}=={version}" for name, _, version in rows}
    lines = (line.rstrip(" \\") for line in desired.tools.requirements.splitlines())
    wanted = {pin(line) for line in lines if "==" in line and ";" not in line}
    missing = ", ".join(sorted(wanted - found))
    expect(f"none of {missing}", f"{missing} in {folder}", remove_paths(folder) + DEPLOY, holds=not missing)


@check(
    "T02",
    "host tools are unmodified",
    severity="critical",
    why="root builds and fetches with them: a changed one runs as root",
)
def test_files_are_unchanged(survey: SurveyAnswers, desired: TargetState) -> None:
    folder = desired.tools.folder
    expect_as_recorded(survey.read(TREES).tree(folder), remove_paths(folder) + DEPLOY)


def pin(line: str) -> str:
    """`name==version` with the name as an index spells it."""
    requirement = Requirement(line)
    return f"{canonicalize_name(requirement.name)}{requirement.specifier}"
