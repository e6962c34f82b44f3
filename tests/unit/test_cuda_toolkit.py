"""The CUDA toolkit: whose it is, where it lies, and what depends on it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from checks import Drift
from checks.survey.programs import COMPILER as COMPILED_BY
from checks.survey.programs import PROGRAMS
from checks.survey.section import Scene
from checks.survey.taken import Survey
from checks.test_cuda_toolkit import test_compiler as check_compiler
from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build, build
from rigwright.host.desired import desired
from rigwright.host.plan import plan
from rigwright.host.preflight import refusals
from rigwright.nvidia.cuda.toolkit import COMPILER, Toolkit, toolkit
from rigwright.serving.activation import surplus
from rigwright.serving.generation import generation
from rigwright.serving.live import Served
from rigwright.supply.lock import Artefact
from tests.unit.samples import GIB, NOW, card, engine, facts, instance, rig, wheel
from tests.unit.scripts import TOOLS

WHEELS: tuple[Artefact, ...] = (
    wheel(COMPILER, version="13.0.88", group="cuda"),
    wheel("nvidia-cublas", version="13.1.0.3", group="cuda", size=400_000_000),
)


def made(*, root: str | None = None, cuda: tuple[Artefact, ...] = WHEELS, cards: tuple[int, ...] = (0,)) -> Rig:
    """A rig with one card."""
    return rig(instance(cards=cards), cards=(card("8.6"),), cuda_root=root, cuda=cuda)


def ours(cuda: tuple[Artefact, ...] = WHEELS) -> Toolkit:
    found = toolkit(made(cuda=cuda), facts())
    assert found is not None
    return found


def builds(one: Rig) -> dict[str, Build]:
    return {"plain": build(one, "plain", engine(), facts())}


def test_without_an_instance_on_a_card_there_is_none() -> None:
    assert toolkit(made(cards=()), facts()) is None
    assert build(made(cards=()), "plain", engine(), facts()).toolkit is None


def test_an_operators_own_is_used_as_it_is() -> None:
    assert toolkit(made(root="/opt/cuda"), facts(cuda_version="12.9")) == Toolkit("/opt/cuda", "12.9")


@pytest.mark.parametrize(
    ("nvcc", "refusal"),
    [
        ("13.1.115", ""),
        ("13.2.51", "nvcc 13.2.51 at /opt/cuda miscompiles low-bit quants"),
        ("13.2.78", "nvcc 13.2.78 at /opt/cuda miscompiles low-bit quants"),
        ("13.2.86", ""),
        ("", ""),
    ],
)
def test_a_compiler_that_is_known_to_be_broken_builds_nothing(nvcc: str, refusal: str) -> None:
    one = made(root="/opt/cuda")
    host = facts(cuda_version="13.2", nvcc=nvcc, pci_cards=(("0000:01:00.0", "10de:2204"),))
    found = refusals(desired(one, host), NOW)
    assert [reason.startswith(refusal) for reason in found] == [True] * bool(refusal)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Cuda compilation tools, release 13.0, V13.0.88\n", ""),
        ("Cuda compilation tools, release 13.2, V13.2.78\n", "found nvcc 13.2.78 at /opt/cuda miscompiles"),
        ("", "found no answer; install a toolkit at /opt/cuda"),
    ],
)
def test_a_check_asks_the_compiler_that_is_there(said: str, found: str) -> None:
    """K02."""
    one = made(root="/opt/cuda")
    wanted = desired(one, facts())
    question = PROGRAMS.asks(Scene(one, wanted))
    assert isinstance(question, dict) and question[COMPILED_BY][-2:] == ["/opt/cuda/bin/nvcc", "--version"]
    survey = Survey({"programs": {"told": {COMPILED_BY: {"status": 0, "text": said}}}})
    if found:
        with pytest.raises(Drift, match=re.escape(found)):
            check_compiler(survey, one, wanted)
    else:
        check_compiler(survey, one, wanted)
    none = made(cards=())
    with pytest.raises(pytest.skip.Exception, match="no instance uses a card"):
        check_compiler(survey, none, desired(none, facts()))


def test_the_locks_compiler_is_held_to_the_same() -> None:
    one = made(cuda=(wheel(COMPILER, version="13.2.78", group="cuda"), WHEELS[1]))
    host = facts(pci_cards=(("0000:01:00.0", "10de:2204"),))
    (found,) = refusals(desired(one, host), NOW)
    assert found.startswith("the lock's nvcc 13.2.78 miscompiles low-bit quants")


def test_ours_lies_in_a_folder_named_by_its_compilers_version_and_the_digest_of_its_wheels() -> None:
    found = ours()
    assert found.version == "13.0"
    assert found.folder.startswith("/opt/rigwright/cuda-13.0-")
    assert found.root == f"{found.folder}/site/nvidia/cu13"
    assert "nvidia-cublas==13.1.0.3 \\\n    --hash=sha256:" in found.requirements


@pytest.mark.parametrize("change", [{"sha256": "d" * 64}, {"version": "13.1.0.4"}])
def test_another_wheel_is_another_toolkit_and_another_build(change: dict[str, str]) -> None:
    other = (WHEELS[0], WHEELS[1].model_copy(update=change))
    assert ours(other).folder != ours().folder
    assert builds(made(cuda=other))["plain"].digest != builds(made())["plain"].digest


def test_what_is_compiled_finds_it_there_and_nowhere_else() -> None:
    options = builds(made())["plain"].options
    root = ours().root
    assert options["CMAKE_CUDA_COMPILER"] == f"{root}/bin/nvcc"
    assert (options["CUDAToolkit_ROOT"], options["CMAKE_BUILD_RPATH"]) == (root, f"{root}/lib64")


def test_it_stays_as_long_as_a_generation_that_stands_on_it() -> None:
    one = made()
    wanted = generation(one, builds(one), TOOLS)
    assert ours().folder in wanted.files["references"].splitlines()
    there = Served(folders=frozenset([ours().folder, "/opt/rigwright/cuda-12.9-0123456789ab"]))
    assert surplus(there, one, wanted, []).paths == ("/opt/rigwright/cuda-12.9-0123456789ab",)
    # an operator's own is never among them
    theirs = made(root="/opt/cuda")
    assert "cuda" not in generation(theirs, builds(theirs), TOOLS).files["references"]


def test_the_plan_says_what_is_fetched_for_it_once() -> None:
    one = made()
    steps = plan(desired(one, facts()), Served()).steps
    (step,) = [step for step in steps if step.role == "cuda_toolkit"]
    assert step.fetched_bytes == sum(wheel.size for wheel in WHEELS)
    there = Served(folders=frozenset([ours().folder]))
    assert "cuda_toolkit" not in [step.role for step in plan(desired(one, facts()), there).steps]


def test_a_host_needs_room_for_ours_and_no_toolkit_of_its_own() -> None:
    one = made()
    host = facts(cuda_version="", pci_cards=(("0000:01:00.0", "10de:2204"),))
    assert refusals(desired(one, host), NOW) == []
    full = replace(host, disk_free_kib={**host.disk_free_kib, "/opt/rigwright": 2 * GIB})
    (line,) = refusals(desired(one, full), NOW)
    assert line.startswith("/opt/rigwright has 2.0 GiB free, 3.0 GiB are required")
