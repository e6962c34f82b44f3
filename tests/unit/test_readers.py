"""Nothing leaves a reader of others' words but its own refusal, which a terminal can be shown; and none is left out."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.unit.example_counts import example_count
from tests.unit.fuzzing import fuzz_inputs
from tests.unit.reader_table import READERS, ReaderRow

# 10^5 inputs over all of them in `rigwright test all`
EACH = 100_000 // len(READERS)
QUICK = 60
# Calls that make something of bytes or text that has a form.
READS = re.compile(
    r"\b(?:loads|raw_decode|b64decode|fromhex|from_bytes|parsestr|model_validate_json|ZipFile|unpack|unpack_from|iter_unpack)\("
)
# Those that read what is ours, or the operator's, or are held against anything elsewhere: why, or the test.
ELSEWHERE = {
    "rigwright/engines/llama_cpp_wheel/launcher.py": "tests/unit/test_llama_cpp_wheel_launcher.py: its unit's words",
    "rigwright/engines/llama_cpp_wheel/option_fields.py": "tests/unit/test_llama_cpp_wheel.py: values of flags",
    "bench/": "benches: what they started themselves has printed it",
    "cli/bench_speed.py": "what it has written itself",
    "cli/chat.py": "tests/unit/test_operate_hostile.py and test_client_hostile.py: answers of an engine",
    "cli/rollout_steps.py": "tests/unit/test_rollout_steps.py: the report of our own check",
    "cli/test_durations.py": "the checkout's own file",
    "cli/measurement_refusals.py": "tests/unit/test_baseline.py: what a bench of ours prints",
    "cli/test.py": "the checkout's own file",
    "cli/bundle_builder.py": "tests/unit/test_cli_bundle.py: an index that was fetched by hash",
    "cli/lock_resolver/conda.py": "tests/unit/test_cli_lock_conda.py: what the solver beside it prints",
    "cli/lock_resolver/package_index.py": "tests/unit/test_lock_hostile_answers.py: whatever a server answers",
    "cli/lock_resolver/wheels.py": "tests/unit/test_downloads.py and test_wheels.py: wheels that lie",
    "cli/lock_resolver/range_requests.py": "tests/unit/test_downloads.py and test_wheels.py: wheels that lie",
    "cli/lock_resolver/image_registry.py": "tests/unit/test_lock_hostile_answers.py: whatever a server answers",
    "roles/gateway/host/rotation/card_faults.py": "tests/unit/test_rotation.py: the journal in any pieces",
    "roles/memory_records/host/record.py": "tests/unit/test_memory_records.py: a file of root's, damaged",
    "cli/fit_accept.py": "what it decodes goes to rigwright/memory_records.py",
    "roles/gateway/host/rotation/run.py": "tests/unit/test_rotation.py: an engine's answer, and files of root's",
    "roles/residency/host/observation.py": "tests/unit/test_residency_observation.py: output of any form",
    "roles/residency/host/service.py": "tests/unit/test_residency_service.py: lines of any form, and a ledger cut off",
    "roles/gateway/host/router/answers.py": "tests/unit/test_gateway_router_lifecycle.py: a file of root's",
    "roles/step_durations.py": "tests/unit/test_progress.py: a record of any text",
    "rigwright/model/containers/entry.py": "the operator's inventory",
    "rigwright/containers/container_facts.py": "tests/unit/test_parsers.py",
    "rigwright/engines/image/bundle.py": "tests/unit/test_image.py: an OCI specification of crun's own",
    "rigwright/engines/image/originals.py": "tests/unit/test_image_patches.py: a store of containers' own",
    "rigwright/engines/vllm/launch_spec.py": "the catalogue's options, judged before",
    "rigwright/engines/vllm/option_validation.py": "the catalogue's options: tests/unit/test_vllm_flags.py",
    "rigwright/engines/vllm/offline_bench_program.py": "test_bench_offline.py: what a bench has written",
    "rigwright/engines/vllm/forbidden_keys.py": "the catalogue's options: tests/unit/test_vllm_flags.py",
    "rigwright/advisories/osv_records.py": "tests/unit/test_advisory_data.py: exports of any bytes",
    "rigwright/advisories/sarif.py": "what it has made itself",
    "rigwright/advisories/debian_tracker.py": "tests/unit/test_advisory_data.py: files of any bytes",
    "rigwright/gateway/deployed_keys.py": "tests/unit/test_parsers.py",
    "rigwright/host/script_output.py": "tests/unit/test_channel.py: every bytes",
    "rigwright/nvidia/cards/card_setting_files.py": "its own plan",
    "rigwright/operate/capability_probes.py": "tests/unit/test_operate_hostile.py: an answer of any shape",
    "rigwright/serving/unit_diff.py": "tests/unit/test_instance_changes.py: settings of any JSON",
    "rigwright/survey/box_survey.py": "tests/unit/test_parsers.py",
    "rigwright/validated_types.py": "a value of the catalogue: tests/unit/test_text_types.py",
    "rigwright/weights/checkpoint.py": "tests/unit/test_checkpoint.py: rows of a lock",
    "rigwright/template_cache.py": "what it has compiled itself, in a folder of the operator's",
    "roles/client/__init__.py": "tests/unit/test_client_hostile.py: a host that lies",
    "roles/client/host/json_orders.py": "what the controller asks",
    "roles/envs/host/judge.py": "its own plan",
    "roles/envs/host/make.py": "its own plan",
    "roles/envs/host/plugins.py": "tests/unit/test_plugin_wheels.py: wheels that lie",
    "rigwright/plan/generation_publication.py": "tests/unit/test_publication.py: files that this machine has signed",
    "rigwright/pull/pull_facts.py": "tests/unit/test_publication.py: a record of any text",
    "roles/pull/host/run.py": "tests/unit/test_pull_steps.py: a report of any text",
    "roles/self_check/host/full_read.py": "tests/unit/test_self_check.py: root's own records",
    "roles/self_check/host/judgements.py": "tests/unit/test_self_check.py: root's own records",
    "roles/self_check/host/observed_host.py": "tests/unit/test_self_check.py: root's own records",
    "roles/self_check/host/run.py": "tests/unit/test_self_check.py: root's own records",
    "roles/envs/host/wheels.py": "tests/unit/test_wheel_verification.py: wheels that lie",
    "roles/gateway/host/router/routing.py": "tests/unit/test_gateway_router_body.py: bodies of any bytes",
    "roles/gateway/host/router/body.py": "tests/unit/test_gateway_router_body.py: bodies of any bytes",
    "roles/gateway/host/router/admin.py": "what the router beside it answers",
    "roles/nvidia_cards/host/power.py": "tests/unit/test_driver_power.py: root's own record",
    "roles/host_probe.py": "its own program",
    "roles/owned_state/host/state_fingerprint.py": "tests/unit/test_owned_state.py: root's own record",
    "roles/pull/host/root_jobs.py": "tests/unit/test_pull_limits.py: any progress of a job",
    "roles/trees/host/tree_records.py": "tests/unit/test_trees.py: root's own record",
    "roles/trees/host/reconcile.py": "its own plan",
    "roles/weights/host/client.py": "tests/unit/test_weights_hub.py: what the hub's client logs",
    "roles/weights/host/hub.py": "what the fetcher beside it asks",
    "roles/weights/host/packages.py": "tests/unit/test_packages.py and test_wheels.py: an index of any kind",
    "roles/weights/host/registry.py": "tests/unit/test_weights_hostile_answers.py: whatever a server answers",
    "roles/weights/host/spec.py": "its own plan",
}


@cache
def reading() -> tuple[str, ...]:
    return tuple(_reading())


def _reading() -> Iterator[str]:
    """Every module of the controller's, and of what it sends to hosts, that does so."""
    for top in ("rigwright", "roles", "cli", "bench"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if READS.search(path.read_text()):
                yield str(path.relative_to(ROOT))


def test_none_is_left_out() -> None:
    listed = {name.split()[0] for name in READERS} | set(ELSEWHERE)
    missing = [name for name in reading() if name not in listed and f"{name.split('/')[0]}/" not in listed]
    assert missing == [], (
        "give it a row in tests/unit/reader_table.py, or say in ELSEWHERE what holds it against anything"
    )


def test_parsers_listed_as_elsewhere_are_there() -> None:
    there = {*reading()} | {f"{name.split('/')[0]}/" for name in reading()}
    assert [name for name in ELSEWHERE if name not in there] == []
    tests = {part.strip(",:") for why in ELSEWHERE.values() for part in why.split() if "test_" in part}
    assert [name for name in tests if not (ROOT / "tests/unit" / Path(name).name).exists()] == []


@pytest.mark.parametrize("name", READERS)
def test_nothing_leaves_it_but_its_own_refusal(name: str, tmp_path: Path) -> None:
    one: ReaderRow = READERS[name]
    file = tmp_path / "file"
    for content in fuzz_inputs(one.good, (EACH if example_count(5) == 5 else QUICK) // one.costs, name):
        try:
            one.read(content, file)
        except one.refuses as error:
            assert str(error).replace("\n", "").isprintable(), (content[:300], str(error))


@pytest.mark.parametrize("name", [name for name, one in READERS.items() if one.taken])
def test_fixtures_of_inputs_are_valid(name: str, tmp_path: Path) -> None:
    for content in READERS[name].good:
        READERS[name].read(content, tmp_path / "file")
