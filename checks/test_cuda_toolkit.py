"""The CUDA toolkit that was brought."""

import re

import pytest

from checks import DEPLOY, check, expect
from checks.remedy import instruction, remove_paths
from checks.survey.answers import SurveyAnswers
from checks.survey.programs import COMPILER, PROGRAMS
from checks.survey.trees import PATCHED, TREES
from checks.tree_expectations import expect_as_recorded
from rigwright.model.catalog_schema import Card
from rigwright.model.nvidia_tables import ToolkitSpec
from rigwright.nvidia.cuda_toolkit import glibc_refusals, toolkit_refusals
from rigwright.plan.plan_inputs import TargetState


@check(
    "K01",
    "the CUDA toolkit is the locked one with its patches, otherwise unmodified",
    severity="critical",
    why="engines load its libraries at every start, and the next build uses its compiler",
)
def test_files_are_unchanged(survey: SurveyAnswers, desired: TargetState) -> None:
    wanted = desired.toolkit
    if wanted is None or not wanted.folder:
        pytest.skip("no instance uses a card" if wanted is None else "the toolkit at cuda_root is used")
    again = remove_paths(wanted.folder) + DEPLOY
    expect_as_recorded(survey.read(TREES).tree(wanted.folder), again)
    for path, digest in wanted.patched_files.items():
        found = survey.read(PATCHED).files[path].digest
        expect(f"{path}: {found or 'nothing'}", f"{path}: {digest}", again)


@check(
    "K02",
    "the CUDA toolkit compiles correctly, and for the rig's cards",
    severity="critical",
    why="nvcc 13.2.0 and 13.2.1 miscompile the unpacking of low-bit quants: the model answers with garbage",
)
def test_compiler(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], toolkit_spec: ToolkitSpec, desired: TargetState
) -> None:
    wanted = desired.toolkit
    if wanted is None:
        pytest.skip("no instance uses a card")
    version = re.search(r", V([0-9.]+)", survey.read(PROGRAMS)[COMPILER].text)
    own = instruction(f"install a suitable toolkit at {wanted.root}")
    step = remove_paths(wanted.folder) + DEPLOY if wanted.folder else own
    expect(version[1] if version else "no answer", f"the version of {wanted.root}/bin/nvcc", step, holds=bool(version))
    against = [
        *toolkit_refusals(declared_cards, toolkit_spec, version[1] if version else ""),
        *glibc_refusals(wanted, desired.facts),
    ]
    expect(
        "; ".join(against),
        "a suitable compiler",
        step,
        holds=not against,
    )
