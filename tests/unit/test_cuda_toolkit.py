"""The CUDA toolkit: its owner, its place, and its dependents."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from checks import Drift, test_cuda_toolkit
from checks.survey.answers import SurveyAnswers
from checks.survey.programs import COMPILER as COMPILED_BY
from checks.survey.programs import PROGRAMS
from checks.survey.section import SurveyScope
from checks.survey.trees import PATCHED, InstalledTree
from cli.lock_resolver.patch_validation import collect_patched
from rigwright.engines.llama_cpp.build import Build, plan_build
from rigwright.model.instance import PATCHED_TOOLKIT, patches_by_target
from rigwright.model.nvidia_tables import Toolkit
from rigwright.model.rig import Rig
from rigwright.nvidia.cuda_toolkit import COMPILER, glibc_refusals, plan_toolkit
from rigwright.patches.patch import Patch, PatchKeys, PatchTarget, load_patches
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import find_refusals
from rigwright.plan.stages import plan_deploy
from rigwright.project_root import ROOT
from rigwright.serving.activation import find_surplus
from rigwright.serving.generation import build_generation
from rigwright.serving.serving_state import ObservedServing
from rigwright.supply.lock import Artefact, Lock
from tests.unit.check_runner import collect_answers, red_checks
from tests.unit.patch_samples import AFTER, text_sha256
from tests.unit.rendered_scripts import TOOLS
from tests.unit.samples import (
    GIB,
    NOW,
    changed_rig,
    sample_card,
    sample_engine,
    sample_facts,
    sample_instance,
    sample_rig,
    sample_wheel,
)

WHEELS: tuple[Artefact, ...] = (
    sample_wheel(COMPILER, version="13.0.88", group="cuda"),
    sample_wheel("nvidia-cublas", version="13.1.0.3", group="cuda", size=400_000_000),
)


def single_card_rig(
    *, root: str | None = None, cuda: tuple[Artefact, ...] = WHEELS, cards: tuple[int, ...] = (0,)
) -> Rig:
    """A rig with one card."""
    return sample_rig(sample_instance(cards=cards), cards=(sample_card("8.6"),), cuda_root=root, cuda=cuda)


def locked_toolkit(cuda: tuple[Artefact, ...] = WHEELS) -> Toolkit:
    box_rig = single_card_rig(cuda=cuda)
    found = plan_toolkit(box_rig.roots, box_rig.cards, box_rig.instances, box_rig.envs, box_rig.toolkit, sample_facts())
    assert found is not None
    return found


def builds(one: Rig) -> dict[str, Build]:
    return {"plain": plan_build(one, "plain", sample_engine(), sample_facts())}


def test_without_an_instance_on_a_card_there_is_no_limit() -> None:
    box_rig = single_card_rig(cards=())
    assert (
        plan_toolkit(box_rig.roots, box_rig.cards, box_rig.instances, box_rig.envs, box_rig.toolkit, sample_facts())
        is None
    )
    assert plan_build(single_card_rig(cards=()), "plain", sample_engine(), sample_facts()).toolkit is None


def test_an_operators_own_is_used_as_it_is() -> None:
    box_rig = single_card_rig(root="/opt/cuda")
    assert plan_toolkit(
        box_rig.roots,
        box_rig.cards,
        box_rig.instances,
        box_rig.envs,
        box_rig.toolkit,
        sample_facts(cuda_version="12.9"),
    ) == Toolkit("/opt/cuda", "12.9")


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
    one = single_card_rig(root="/opt/cuda")
    host = sample_facts(cuda_version="13.2", nvcc=nvcc, pci_cards=(("0000:01:00.0", "10de:2204"),))
    found = find_refusals(build_target_state(one, host), NOW)
    assert [reason.startswith(refusal) for reason in found] == [True] * bool(refusal)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Cuda compilation tools, release 13.0, V13.0.88\n", ""),
        ("Cuda compilation tools, release 13.2, V13.2.78\n", "found nvcc 13.2.78 at /opt/cuda miscompiles"),
        ("", "found no answer; install a suitable toolkit at /opt/cuda"),
    ],
)
def test_a_check_asks_the_compiler_that_is_there(said: str, found: str) -> None:
    """K02."""
    one = single_card_rig(root="/opt/cuda")
    wanted = build_target_state(one, sample_facts())
    question = PROGRAMS.asks(SurveyScope(one, wanted))
    assert isinstance(question, dict) and question[COMPILED_BY][-2:] == ["/opt/cuda/bin/nvcc", "--version"]
    survey = SurveyAnswers({"programs": {"told": {COMPILED_BY: {"status": 0, "text": said}}}})
    if found:
        with pytest.raises(Drift, match=re.escape(found)):
            test_cuda_toolkit.test_compiler(survey, one.cards, one.toolkit, wanted)
    else:
        test_cuda_toolkit.test_compiler(survey, one.cards, one.toolkit, wanted)
    none = single_card_rig(cards=())
    with pytest.raises(pytest.skip.Exception, match="no instance uses a card"):
        test_cuda_toolkit.test_compiler(survey, none.cards, none.toolkit, build_target_state(none, sample_facts()))


def test_the_locks_compiler_is_held_to_the_same() -> None:
    one = single_card_rig(cuda=(sample_wheel(COMPILER, version="13.2.78", group="cuda"), WHEELS[1]))
    host = sample_facts(pci_cards=(("0000:01:00.0", "10de:2204"),))
    (found,) = find_refusals(build_target_state(one, host), NOW)
    assert found.startswith("the lock's nvcc 13.2.78 miscompiles low-bit quants")


def test_ours_lies_in_a_folder_named_by_its_compilers_version_and_the_digest_of_its_wheels() -> None:
    found = locked_toolkit()
    assert found.version == "13.0"
    assert found.folder.startswith("/opt/rigwright/cuda-13.0-")
    assert found.root == f"{found.folder}/site/nvidia/cu13"
    assert "nvidia-cublas==13.1.0.3 \\\n    --hash=sha256:" in found.requirements


@pytest.mark.parametrize("change", [{"sha256": "d" * 64}, {"version": "13.1.0.4"}])
def test_another_wheel_is_another_toolkit_and_another_build(change: dict[str, str]) -> None:
    other = (WHEELS[0], WHEELS[1].model_copy(update=change))
    assert locked_toolkit(other).folder != locked_toolkit().folder
    assert builds(single_card_rig(cuda=other))["plain"].digest != builds(single_card_rig())["plain"].digest


def test_a_build_finds_it_there_and_nowhere_else() -> None:
    options = builds(single_card_rig())["plain"].options
    root = locked_toolkit().root
    assert options["CMAKE_CUDA_COMPILER"] == f"{root}/bin/nvcc"
    assert (options["CUDAToolkit_ROOT"], options["CMAKE_BUILD_RPATH"]) == (root, f"{root}/lib64")


def test_it_stays_as_long_as_a_generation_that_stands_on_it() -> None:
    one = single_card_rig()
    wanted = build_generation(one, builds(one), TOOLS)
    assert locked_toolkit().folder in wanted.files["references"].splitlines()
    there = ObservedServing(folders=frozenset([locked_toolkit().folder, "/opt/rigwright/cuda-12.9-0123456789ab"]))
    assert find_surplus(there, one, wanted, []).paths == ("/opt/rigwright/cuda-12.9-0123456789ab",)
    # an operator's own is never among them
    theirs = single_card_rig(root="/opt/cuda")
    assert "cuda" not in build_generation(theirs, builds(theirs), TOOLS).files["references"]


def test_the_plan_says_what_is_fetched_for_it_once() -> None:
    one = single_card_rig()
    steps = plan_deploy(build_target_state(one, sample_facts()), ObservedServing()).steps
    (step,) = [step for step in steps if step.role == "cuda_toolkit"]
    assert step.fetched_bytes == sum(wheel.size for wheel in WHEELS)
    there = ObservedServing(folders=frozenset([locked_toolkit().folder]))
    assert "cuda_toolkit" not in [
        step.role for step in plan_deploy(build_target_state(one, sample_facts()), there).steps
    ]


def test_a_host_needs_room_for_ours_and_no_toolkit_of_its_own() -> None:
    one = single_card_rig()
    host = sample_facts(cuda_version="", pci_cards=(("0000:01:00.0", "10de:2204"),))
    assert find_refusals(build_target_state(one, host), NOW) == []
    full = replace(host, disk_free_kib={**host.disk_free_kib, "/opt/rigwright": 2 * GIB})
    (line,) = find_refusals(build_target_state(one, full), NOW)
    assert line.startswith("/opt/rigwright has 2.0 GiB free, 3.0 GiB are required")


HEADER = "nvidia/cu13/include/crt/math_functions.h"


def patch(path: str = HEADER, name: str = "louder", version: str = "13.0.88", file: str = "") -> Patch:
    """A patch of the toolkit's headers."""
    keys = PatchKeys(
        target_distribution="nvidia-cuda-crt",
        versions=(version,),
        purpose="to be heard",
        source="written here",
        licence="Apache-2.0",
        obsolete_when="13.2.2",
        diff="change.diff",
        targets=(PatchTarget(path=path, before="a" * 64, after=text_sha256(AFTER)),),
    )
    return Patch(name, keys, file)


def patched_toolkit(**changes: object) -> Rig:
    crt = sample_wheel("nvidia-cuda-crt", version="13.0.88", group="cuda")
    return changed_rig(single_card_rig(cuda=(*WHEELS, crt)), toolkit_patches=(patch(),), **changes)  # type: ignore[arg-type]


OPERATORS = Toolkit("/opt/cuda", "13.0", nvcc="13.0.88")
LOCKED = Toolkit("/opt/x/site/nvidia/cu13", "13.0", "/opt/x", nvcc="13.0.88")


@pytest.mark.parametrize(
    ("one", "host", "refusal"),
    [
        (OPERATORS, sample_facts(glibc="2.41", bare_functions=frozenset({"rsqrt"})), ""),
        (
            OPERATORS,
            sample_facts(glibc="2.42", bare_functions=frozenset({"rsqrt"})),
            "nvcc 13.0.88 at /opt/cuda cannot compile",
        ),
        (
            OPERATORS,
            sample_facts(glibc="2.43", bare_functions=frozenset({"rsqrt", "sinpi"})),
            "declares rsqrt and sinpi without",
        ),
        (OPERATORS, sample_facts(glibc="2.41", bare_functions=frozenset({"rsqrt", "sinpi"})), "declares sinpi without"),
        (
            OPERATORS,
            sample_facts(glibc="2.43", bare_functions=frozenset({"rsqrt"})),
            "or omit cuda_root to install a patched one",
        ),
        # an operator's header that has been mended, of whatever version
        (OPERATORS, sample_facts(glibc="2.43"), ""),
        # another C library has no such version
        (OPERATORS, sample_facts(glibc="", bare_functions=frozenset({"rsqrt"})), ""),
        (LOCKED, sample_facts(glibc="2.43"), "the lock's nvcc 13.0.88 cannot compile with glibc 2.43"),
        (LOCKED, sample_facts(glibc="2.41"), ""),
        (replace(LOCKED, nvcc="13.1.115"), sample_facts(glibc="2.43"), "declares rsqrt without"),
        (replace(LOCKED, nvcc="12.9.86"), sample_facts(glibc="2.41"), "declares sinpi without"),
        (replace(LOCKED, nvcc="13.2.86"), sample_facts(glibc="2.43"), ""),
        (replace(LOCKED, patches=(patch(),)), sample_facts(glibc="2.43"), ""),
        (
            replace(LOCKED, patches=(patch("nvidia/cu13/include/crt/mma.h"),)),
            sample_facts(glibc="2.43"),
            "declares rsqrt",
        ),
    ],
)
def test_a_toolkit_that_compiles_nothing_with_this_c_library_is_refused(one, host, refusal):
    found = glibc_refusals(one, host)
    assert [refusal in line for line in found] == [True] * bool(refusal)


def test_it_is_refused_before_anything_is_fetched_and_a_check_finds_it_later() -> None:
    """A host whose C library was upgraded turns K02 red."""
    one = single_card_rig(root="/opt/cuda")
    cards = (("0000:01:00.0", "10de:2204"),)
    host = sample_facts(nvcc="13.0.88", glibc="2.43", bare_functions=frozenset({"rsqrt"}), pci_cards=cards)
    (line,) = find_refusals(build_target_state(one, host), NOW)
    assert line.startswith("nvcc 13.0.88 at /opt/cuda cannot compile with glibc 2.43: its crt/math_functions.h")
    said = "Cuda compilation tools, release 13.0, V13.0.88\n"
    survey = SurveyAnswers({"programs": {"told": {COMPILED_BY: {"status": 0, "text": said}}}})
    with pytest.raises(Drift, match="cannot compile with glibc"):
        test_cuda_toolkit.test_compiler(survey, one.cards, one.toolkit, build_target_state(one, host))


def test_the_shipped_toolkit_compiles_with_every_c_library() -> None:
    shipped = load_patches([ROOT / "patches"])["nvcc-rsqrt-glibc"]
    assert glibc_refusals(replace(LOCKED, patches=(shipped,)), sample_facts(glibc="2.43")) == []


def test_a_patch_makes_another_toolkit_and_other_builds_for_cards_alone() -> None:
    plain, one = changed_rig(patched_toolkit(), toolkit_patches=()), patched_toolkit()
    found, bare = (
        plan_toolkit(one.roots, one.cards, one.instances, one.envs, one.toolkit, sample_facts()),
        plan_toolkit(plain.roots, plain.cards, plain.instances, plain.envs, plain.toolkit, sample_facts()),
    )
    assert found is not None and bare is not None
    assert found.folder != bare.folder
    assert found.patched_files == {f"{found.folder}/site/{HEADER}": text_sha256(AFTER)}
    assert builds(one)["plain"].digest != builds(plain)["plain"].digest
    processors = [replace(each, instances=(sample_instance(cards=()),)) for each in (one, plain)]
    assert len({builds(each)["plain"].digest for each in processors}) == 1
    assert patches_by_target(one.instances, one.envs, one.toolkit.patches) == {PATCHED_TOOLKIT: (patch(),)}
    (step,) = [
        one_
        for one_ in plan_deploy(build_target_state(one, sample_facts()), ObservedServing()).steps
        if one_.role == "cuda_toolkit"
    ]
    assert "CUDA toolkit 13.0, patched by louder" in str(step)


def test_a_check_compares_what_is_patched_with_what_its_patch_makes(tmp_path: Path) -> None:
    """K01, where root's record has the changed file, too."""
    one = patched_toolkit()
    one = replace(one, roots=one.roots.model_copy(update={"software": str(tmp_path)}))
    wanted = build_target_state(one, sample_facts())
    assert wanted.toolkit is not None
    file = Path(*wanted.toolkit.patched_files)
    file.parent.mkdir(parents=True)
    tree = vars(InstalledTree(wanted.toolkit.folder, True, "", [], 0, ""))
    trees = {"trees": [tree], "beside": [], "gone": [], "distributions": {}}

    def red() -> str:
        answer = collect_answers({"patched_files": (20.0, PATCHED.asks(SurveyScope(one, wanted)))})
        answer["trees"] = {"told": trees}
        return red_checks(test_cuda_toolkit, SurveyAnswers(answer), desired=wanted, unsupplied=["K02"]).get("K01", "")

    file.write_text(AFTER)
    assert red() == ""
    file.write_text("other")
    assert f"expected {file}: {text_sha256(AFTER)}" in red()
    file.unlink()
    assert f"found {file}: nothing" in red()


def test_a_lock_judges_an_operators_toolkit_and_asks_no_index_for_the_shipped_one() -> None:
    shipped = tuple(Lock.load([ROOT / "locks"]).groups["cuda"])
    own = load_patches([ROOT / "patches"])["nvcc-rsqrt-glibc"]
    one = changed_rig(patched_toolkit(), toolkit_patches=(own,))
    assert collect_patched([one], {"cuda": shipped}) == []
    (other,) = collect_patched([one], {"cuda": one.toolkit.wheels})
    assert (other.what, other.versions["nvidia-cuda-crt"]) == (PATCHED_TOOLKIT, "13.0.88")
    (mine,) = collect_patched([patched_toolkit()], {"cuda": shipped})
    row = mine.locked_row(mine.patches[0])
    assert row is not None and row.name == "nvidia-cuda-crt"
