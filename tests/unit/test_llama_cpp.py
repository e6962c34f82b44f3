"""llama.cpp's build: options from cards and flags, and a digest of every input and of nothing else."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.test_engines import _same
from rigwright.engines.llama_cpp.build import cuda_architectures, flash_attention_pairs, plan_build
from rigwright.model import installation
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.fact_types import HostFacts
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from roles.engines import render_install_script, render_installed_test
from tests.unit.rendered_scripts import TOOLS
from tests.unit.samples import (
    SOURCE,
    changed_rig,
    sample_artefact,
    sample_build,
    sample_card,
    sample_engine,
    sample_facts,
    sample_instance,
    sample_rig,
)

TURING, AMPERE, ADA, BLACKWELL = sample_card("7.5"), sample_card("8.6"), sample_card("8.9"), sample_card("12.0")


@pytest.mark.parametrize(
    ("cards", "used", "architectures"),
    [
        ((), (), ()),
        ((TURING,), (0,), ("75-real",)),
        ((AMPERE, AMPERE), (0, 1), ("86-real",)),
        ((BLACKWELL,), (0,), ("120a-real",)),
        ((BLACKWELL, TURING, AMPERE), (0, 1, 2), ("75-real", "86-real", "120a-real")),
        ((AMPERE, BLACKWELL), (1,), ("120a-real",)),
        ((AMPERE, BLACKWELL), (), ()),
        ((sample_card("10.0"), sample_card("9.0")), (0, 1), ("90-real", "100-real")),
    ],
)
def test_machine_code_is_built_for_exactly_the_cards_that_are_used(cards, used, architectures):
    made = sample_rig(sample_instance(cards=used), cards=cards)
    assert cuda_architectures(made.cards, made.instances, made.also_build_for, "plain") == architectures
    assert plan_build(made, "plain", sample_engine(), sample_facts()).cuda == bool(architectures)


@pytest.mark.parametrize(
    ("also", "architectures"),
    [
        ((), ("86-real",)),
        (("9.0", "7.5"), ("75-real", "86-real", "90-real")),
        (("10.0", "8.6", "9.0"), ("86-real", "90-real", "100-real")),
        (("8.6", "8.6"), ("86-real",)),
    ],
)
def test_builds_for_further_cards_come_in_the_order_of_capability(also, architectures):
    made = sample_rig(sample_instance(cards=(0,)), cards=(AMPERE,), also_build_for=also)
    assert cuda_architectures(made.cards, made.instances, made.also_build_for, "plain") == architectures
    orders = {
        plan_build(replace(made, also_build_for=order), "plain", sample_engine(), sample_facts()).digest
        for order in (also, also[::-1])
    }
    assert len(orders) == 1


def test_a_rig_that_serves_on_the_cpu_builds_for_no_card_whatever_is_named_beside() -> None:
    made = sample_rig(sample_instance(), cards=(AMPERE,), also_build_for=("9.0",))
    assert cuda_architectures(made.cards, made.instances, made.also_build_for, "plain") == ()
    plain = replace(made, also_build_for=())
    assert (
        plan_build(made, "plain", sample_engine(), sample_facts()).digest
        == plan_build(plain, "plain", sample_engine(), sample_facts()).digest
    )


@pytest.mark.parametrize(
    ("options", "cuda"),
    [
        ({}, False),
        ({"GGML_CUDA": "ON"}, False),
        ({"GGML_CUDA_F16": "ON"}, False),
        ({"CMAKE_CUDA_ARCHITECTURES": "86-real"}, True),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_a_build_is_for_cards_when_it_has_machine_code_for_one(options: dict[str, str], cuda: bool) -> None:
    assert sample_build(options=options).cuda == cuda


def test_cards_of_another_engine_do_not_count() -> None:
    made = sample_rig(
        sample_instance("a", cards=(0,)),
        replace(sample_instance("b", cards=(1,)), engine_name="other"),
        cards=(TURING, ADA),
    )
    assert cuda_architectures(made.cards, made.instances, made.also_build_for, "plain") == ("75-real",)
    assert cuda_architectures(made.cards, made.instances, made.also_build_for, "other") == ("89-real",)


@pytest.mark.parametrize(
    ("kinds", "pairs"),
    [
        ([], ("f16-f16",)),
        ([("f16", "f16")], ("f16-f16",)),
        ([("q8_0", "q8_0")], ("f16-f16", "q8_0-q8_0")),
        ([("q4_0", "q8_0"), ("q8_0", "q4_0")], ("f16-f16", "q4_0-q8_0", "q8_0-q4_0")),
        ([("q8_0", "f16"), ("q8_0", "f16")], ("f16-f16", "q8_0-f16")),
    ],
)
def test_a_flash_attention_kernel_is_built_for_each_pair_of_cache_types(kinds, pairs):
    instances = [
        sample_instance(f"i{n}", cards=(0,), cache_type_k=key, cache_type_v=value)
        for n, (key, value) in enumerate(kinds)
    ]
    box_rig = sample_rig(*instances, cards=(TURING,))
    assert flash_attention_pairs(box_rig.instances, box_rig.variants, "plain") == pairs


def test_the_build_is_the_same_for_each_variant_of_the_catalogue() -> None:
    one = sample_instance(cards=(0,))
    small = sample_instance(cards=(0,), cache_type_k="q4_0", cache_type_v="q8_0")
    on_the_cpu = sample_instance(cache_type_k="q5_0").variant
    of_another = sample_instance(cards=(0,), cache_type_k="q5_1").variant.model_copy(update={"engine": "other"})
    recipes = (one.variant, small.variant, on_the_cpu, of_another)
    made = {
        flash_attention_pairs(
            (box_rig := sample_rig(served, cards=(TURING,), variants=recipes)).instances, box_rig.variants, "plain"
        )
        for served in (one, small)
    }
    assert made == {("f16-f16", "q4_0-q8_0")}


def test_an_instance_on_the_cpu_needs_no_flash_attention_kernel() -> None:
    made = sample_rig(sample_instance(cache_type_k="q4_0"), sample_instance("b", cards=(0,)), cards=(TURING,))
    assert flash_attention_pairs(made.instances, made.variants, "plain") == ("f16-f16",)


def test_a_cpu_build_has_no_cuda_option_although_the_rig_has_cards() -> None:
    made = plan_build(
        sample_rig(sample_instance(), cards=(TURING,)),
        "plain",
        sample_engine(options={"GGML_NATIVE": "OFF"}),
        sample_facts(),
    )
    assert [name for name in made.options if "CUDA" in name] == []
    assert made.options["GGML_NATIVE"] == "OFF"


def test_a_cuda_build_is_for_the_rigs_toolkit_cards_and_cache_types() -> None:
    instances = (sample_instance(cards=(0, 1), cache_type_k="q8_0"), sample_instance("cpu"))
    made = sample_rig(*instances, cards=(BLACKWELL, TURING), cuda_root="/opt/cuda-13")
    options = plan_build(made, "plain", sample_engine(), sample_facts()).options
    assert options["GGML_CUDA"] == "ON"
    assert options["CMAKE_CUDA_ARCHITECTURES"] == "75-real;120a-real"
    assert options["CMAKE_CUDA_COMPILER"] == "/opt/cuda-13/bin/nvcc"
    assert options["CUDAToolkit_ROOT"] == "/opt/cuda-13"
    assert options["GGML_CUDA_FA_QUANTS"] == "f16-f16;q8_0-f16"


def test_the_version_that_is_compiled_in_is_the_engines_commit() -> None:
    made = plan_build(sample_rig(sample_instance()), "plain", sample_engine(commit="fedcba98" * 5), sample_facts())
    assert made.options["LLAMA_BUILD_COMMIT"] == "fedcba9"


GPU = sample_rig(sample_instance(cards=(0,)), cards=(AMPERE,))
CPU = sample_rig(sample_instance())


def digest(made: Rig = GPU, host: HostFacts | None = None, **engine_changes: object) -> str:
    return plan_build(made, "plain", sample_engine(**engine_changes), host or sample_facts()).digest


def test_a_folder_is_called_what_it_has_always_been_called() -> None:
    """Another name compiles every engine of every box anew."""
    assert (
        plan_build(CPU, "plain", sample_engine(options={"GGML_NATIVE": "OFF"}), sample_facts()).folder
        == "plain-1.0-28168ede409c"
    )
    assert plan_build(GPU, "plain", sample_engine(), sample_facts()).folder == "plain-1.0-5583c918448d"


@pytest.mark.parametrize(
    "other",
    [
        lambda: digest(replace(GPU, engine_artefacts={"plain": (sample_artefact(sha256="c" * 64),)})),
        lambda: digest(subtree="vendor/llama.cpp"),
        lambda: digest(commit="f" * 40),
        lambda: digest(options={"GGML_NATIVE": "OFF"}),
        lambda: digest(sample_rig(sample_instance(cards=(0,)), cards=(TURING,))),
        lambda: digest(sample_rig(sample_instance(cards=(0, 1)), cards=(AMPERE, TURING))),
        lambda: digest(sample_rig(sample_instance(cards=(0,), cache_type_k="q8_0"), cards=(AMPERE,))),
        lambda: digest(changed_rig(GPU, cuda_root="/opt/cuda")),
        lambda: digest(CPU),
        lambda: digest(host=sample_facts(os_id="ubuntu")),
        lambda: digest(host=sample_facts(os_version="13")),
        lambda: digest(host=sample_facts(architecture="aarch64")),
        lambda: digest(host=sample_facts(cuda_version="13.1")),
    ],
)
def test_a_changed_input_is_another_build(other: Any) -> None:
    assert other() != digest()


@pytest.mark.parametrize(
    "same",
    [
        lambda: digest(replace(GPU, name="another")),
        lambda: digest(replace(GPU, accounts=ServiceAccounts("svc"))),
        lambda: digest(changed_rig(GPU, mirrors={})),
        lambda: digest(replace(GPU, cards=(AMPERE, TURING))),
        lambda: digest(sample_rig(sample_instance("b", cards=(0,), context=1, parallel=8, port=9000), cards=(AMPERE,))),
        lambda: digest(
            sample_rig(sample_instance("a", cards=(0,)), sample_instance("b", cards=(1,)), cards=(AMPERE, AMPERE))
        ),
        lambda: digest(
            sample_rig(sample_instance("a", cards=(0,)), sample_instance("b", cache_type_k="q4_0"), cards=(AMPERE,))
        ),
        lambda: digest(replace(GPU, engine_artefacts={"plain": (replace_sources(["http://elsewhere/x"]),)})),
        lambda: digest(host=sample_facts(kernel="6.12", memory_kib=1, systemd=257, uid=1000)),
        lambda: digest(host=sample_facts(built_engines=frozenset({"x"}), apt_lock_holder="apt")),
    ],
)
def test_irrelevant_keys_leave_the_build_as_it_is(same: Any) -> None:
    assert same() == digest()


def replace_sources(sources: list[str]) -> Any:
    return SOURCE.model_copy(update={"sources": tuple(sources)})


def test_the_toolkit_is_no_input_of_a_cpu_build() -> None:
    assert digest(CPU, sample_facts(cuda_version="")) == digest(CPU, sample_facts(cuda_version="13.0"))


def test_the_order_of_options_is_no_input() -> None:
    first, second = {"A": "1", "B": "2"}, {"B": "2", "A": "1"}
    assert digest(options=first) == digest(options=second)


def test_a_builds_folder_tells_engine_version_and_digest() -> None:
    made = plan_build(GPU, "plain", sample_engine(), sample_facts())
    assert (made.folder, len(made.digest)) == (f"plain-1.0-{made.digest}", 12)


def test_the_record_of_a_build_can_be_printed_and_names_every_byte() -> None:
    made = plan_build(CPU, "plain", sample_engine(options={"A": "a;b"}), sample_facts())
    told = json.loads(json.dumps(made.record))
    assert (told["engine"], told["digest"]) == ("plain", made.digest)
    assert (told["options"], told["options"]["A"]) == (made.options, "a;b")
    assert told["source"] == {"name": SOURCE.name, "version": SOURCE.version, "sha256": SOURCE.sha256}


def test_a_record_of_what_is_wanted_is_the_same_whatever_more_it_says_of_the_source() -> None:
    """Earlier ones have the whole row of the lock in them, with the places that it can be fetched from."""
    wanted = json.loads(json.dumps(plan_build(CPU, "plain", sample_engine(options={"A": "1"}), sample_facts()).record))
    earlier = {**wanted, "source": SOURCE.model_dump(mode="json")}
    assert _same(wanted, wanted)
    assert _same(wanted, earlier)
    others = [
        {**earlier, "source": {**earlier["source"], "sha256": "c" * 64}},
        {**earlier, "options": {**wanted["options"], "B": "2"}},
        {**earlier, "options": {}},
        {**earlier, "more": 1},
        {key: value for key, value in earlier.items() if key != "digest"},
        "nothing is installed",
    ]
    assert [_same(wanted, other) for other in others] == [False] * len(others)


@pytest.mark.parametrize("modes", [(0o700, 0o755), (0o777, 0o755), (0o755, 0o600), (0o755, 0o775)])
def test_an_engine_that_is_there_gets_its_modes_back_and_is_not_compiled_again(tmp_path, modes):
    roots = {"software": str(tmp_path), "state": str(tmp_path / "state")}
    made = replace(CPU, roots=Roots.model_construct(**Roots().model_dump() | roots))
    folder = tmp_path / "engines" / sample_build().folder
    server = folder / "bin/llama-server"
    server.parent.mkdir(parents=True)
    server.write_text("compiled")
    (folder / "build.json").write_text("{}")
    server.chmod(modes[1])
    folder.chmod(modes[0])
    recorded = Path(installation.record_path(made.roots, str(folder)))
    recorded.parent.mkdir(parents=True)
    recorded.write_text("{}")

    def built() -> bool:
        return subprocess.run(["sh", "-c", render_installed_test(made, sample_build())], check=False).returncode == 0

    assert not built()
    script = render_install_script(made, sample_build(), TOOLS, "rw-job-x")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert built()
    assert [path.stat().st_mode & 0o777 for path in (folder, server)] == [0o755, 0o755]
    assert server.read_text() == "compiled"


def test_an_engine_whose_lists_others_could_change_is_refused_where_root_has_no_record_of_it(tmp_path: Path) -> None:
    roots = {"software": str(tmp_path), "state": str(tmp_path / "state")}
    made = replace(CPU, roots=Roots.model_construct(**Roots().model_dump() | roots))
    folder = tmp_path / "engines" / sample_build().folder
    folder.mkdir(parents=True)
    (folder / "build.json").write_text("{}")
    folder.chmod(0o777)
    script = render_install_script(made, sample_build(), TOOLS, "rw-job-x")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"others could change the lists of files in {folder}: remove it" in done.stdout
    assert folder.stat().st_mode & 0o777 == 0o777
