"""Installed engines, of every kind."""

import json
import re
from collections.abc import Callable

import pytest

from checks import DEPLOY, Drift, ItemText, check, digest_text, expect
from checks.remedy import Remedy, remove_paths
from checks.survey.answers import SurveyAnswers
from checks.survey.programs import PROGRAMS, machine_code_question, version_question
from checks.survey.trees import TREES
from checks.tree_expectations import expect_as_recorded
from rigwright.engines.environment_installer import find_installer
from rigwright.model.installation import Installation
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots

SHOWN = 200  # characters of an output


@check(
    "L01",
    "the engine was built from the locked inputs with the declared options",
    severity="critical",
    why="another source or option makes another program",
)
def test_build_record(survey: SurveyAnswers, roots: Roots, installation: Installation) -> None:
    marker = survey.read(TREES).tree(roots.installation_path(installation.folder)).marker
    cure = describe_engine_reinstall(roots, installation)
    try:
        found = json.loads(marker)["inputs"] if marker else None
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if found is None:
        raise Drift(f"a build record of {installation.folder}", "none that is readable", cure)
    wanted = json.loads(json.dumps(installation.record))
    differ = sorted(key for key in {**wanted, **found} if not _same({key: wanted.get(key)}, {key: found.get(key)}))
    expect(_some(found, differ), _some(wanted, differ), cure, holds=_same(wanted, found))


@check(
    "L02",
    "the engine's files are unmodified",
    severity="critical",
    why="a changed binary means damage or tampering",
)
def test_files_are_unchanged(
    survey: SurveyAnswers,
    roots: Roots,
    installation: Installation,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    expect_as_recorded(
        survey.read(TREES).tree(roots.installation_path(installation.folder)),
        describe_engine_reinstall(roots, installation),
    )
    if not pytestconfig.getoption("--deep"):
        record_property("how", "verified earlier and unchanged since; --deep reads it again")


@check(
    "L03", "the engine starts and reports its version", severity="critical", why="a missing library shows here first"
)
def test_it_starts(survey: SurveyAnswers, rig: Rig, installation: Installation) -> None:
    command, wanted = find_installer(rig.instances, installation).version(rig, installation)
    if not command:
        pytest.skip("has no command to report its version")
    said = survey.read(PROGRAMS)[version_question(installation.name)]
    holds = said.status == 0 and wanted in said.text
    expect(_end(said.text) or f"exit status {said.status}", f"a version with {wanted}", DEPLOY, holds=holds)


@check(
    "L05",
    "the engine has machine code for exactly the rig's cards",
    severity="critical",
    why="a card without native code fails at the first request, or compiles for minutes at every start",
)
def test_machine_code(survey: SurveyAnswers, rig: Rig, installation: Installation) -> None:
    command, wanted = find_installer(rig.instances, installation).machine_code(rig, installation)
    if not command:
        pytest.skip("it has no machine code for the rig's cards")
    said = survey.read(PROGRAMS)[machine_code_question(installation.name)]
    cure = describe_engine_reinstall(rig.roots, installation)
    expect(_end(said.text), "a list of its GPU architectures", cure, holds=said.status == 0)
    listed = set(re.findall(r"\bsm_[0-9]+[a-z]?\b", said.text))
    expect(", ".join(sorted(listed)) or "none", ", ".join(sorted(wanted)), cure)


def _end(text: str) -> ItemText:
    """The end of a program's output, with a digest of it all."""
    shown = text.strip()[-SHOWN:]
    return ItemText(shown, shown if shown == text.strip() else f"{shown} (SHA-256 {digest_text(text)})")


def _some(record: dict[str, object], keys: list[str]) -> str:
    """The differences of a build's record, for people."""
    texts = [ItemText.shorten(str(record.get(key, "none")), 120, f"{key}: ") for key in keys]
    return ItemText.from_items(texts, shown=3, counts=False)


def _same(wanted: object, found: object) -> bool:
    """Whether the same was found: of an artefact also what does not say more of it, such as where it was from."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        exact = "sha256" in wanted or wanted.keys() == found.keys()
        return exact and all(key in found and _same(value, found[key]) for key, value in wanted.items())
    return wanted == found


def describe_engine_reinstall(roots: Roots, installation: Installation) -> Remedy:
    """A folder with its marker is never installed again by itself."""
    return remove_paths(roots.installation_path(installation.folder)) + DEPLOY
