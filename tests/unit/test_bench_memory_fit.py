"""The trial of memory predictions, with a stand-in for the engine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.memory_fit.__main__ import format_summary, plan_trial
from benchmarks.memory_fit.checkpoints import checkpoint_bytes, write_checkpoint
from benchmarks.memory_fit.random_models import RandomModel, list_tensors, write_gguf
from benchmarks.memory_fit.trial import EngineSettings, TrialRow, as_report, percentile, run_trial
from benchmarks.memory_fit.trial_plan import TrialLaunch
from rigwright.engines.memory_prediction import MIB
from rigwright.project_root import ROOT
from rigwright.weights.gguf import parse_header
from rigwright.weights.safetensors import check_header

ENGINE = ROOT / "tests/stand_ins/allocating_engine.py"
SMALL = RandomModel("small", 4, 256, 4, 2, 512, 1000)


@pytest.mark.parametrize(
    "model",
    [
        SMALL,
        replace(SMALL, weights="q8_0"),
        replace(SMALL, layers=12, weights="q4_0", window=512),
        replace(SMALL, kv_heads=4),
    ],
)
def test_sizes_of_a_model_are_those_of_its_header(tmp_path: Path, model: RandomModel) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, model)
    header = parse_header(path.read_bytes(), path.stat().st_size)
    launch = TrialLaunch("llama.cpp", model, 8192, 2)
    computed = launch.compute((), "")
    assert header.cache and header.work
    assert (header.work.width, header.work.feed_forward, header.work.heads) == (256, 512, 4)
    assert header.off_card == list_tensors(model)[0].size
    assert 0 < path.stat().st_size - computed.weights < MIB
    full = 8192 * (header.cache.keys + header.cache.values) * 2
    windowed = 2 * min(4096, 1024) * (header.cache.window_keys + header.cache.window_values) * 2
    assert computed.cache == full + windowed
    matrices = header.work.repacked
    assert computed.work - matrices == 512 * 4 * (3 * 512 + 4 * 256)
    assert matrices > 0 if model.weights == "q4_0" else matrices == 0


def test_a_checkpoint_is_whole(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, SMALL)
    weights = (tmp_path / "model.safetensors").read_bytes()
    check_header(weights, len(weights))
    assert 0 < len(weights) - checkpoint_bytes(SMALL) < MIB
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 4
    words = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(words.values()) == [*range(1000)]


def run(folder: Path, launches: list[TrialLaunch]) -> list[TrialRow]:
    """Run launches in a folder."""
    settings = EngineSettings(server=str(ENGINE), patience=30)
    return run_trial(launches, folder, settings, folder / "predictions.jsonl", 60, lambda line: None)


def test_each_prediction_is_written_before_its_start(tmp_path: Path) -> None:
    first = TrialLaunch("llama.cpp", SMALL, 4096)
    failing = replace(first, context=666)
    rows = run(tmp_path, [first, replace(first, context=16384), failing])
    assert [row.basis for row in rows] == ["floor", "neighbour", "neighbour"]
    assert "out of memory" in rows[2].failure
    assert rows[1].measured - rows[0].measured == pytest.approx(12288 * 1024, abs=4 * MIB)
    more = run(tmp_path, [first, replace(first, context=16384), failing, first])
    assert more[:3] == rows
    assert (more[3].basis, more[3].error) == ("same variant", pytest.approx(0, abs=0.1))
    written = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [one["number"] for one in written] == [1, 2, 3, 4]
    assert [one["need"] for one in written] == [row.predicted for row in more]
    report = as_report(more)
    assert (report["variants"], report["starts"], report["failed"]) == (3, 4, 1)
    assert "3 variants, 4 starts, 1 failed" in format_summary(more)


@pytest.mark.parametrize(("engine", "cards"), [("llama.cpp", 0), ("llama.cpp", 1), ("vllm", 1)])
def test_models_have_heads_that_engines_take(engine: str, cards: int) -> None:
    for model in {one.model for one in plan_trial(engine, cards, 99)}:
        assert model.head_width in (64, 128, 256), model
        assert model.width == model.heads * model.head_width
        assert model.heads % model.kv_heads == 0
        assert model.width % 32 == model.feed_forward % 32 == 0


def test_plans_have_enough_variants() -> None:
    for engine, cards, fewest in (("llama.cpp", 0, 50), ("llama.cpp", 1, 50), ("vllm", 1, 10)):
        launches = plan_trial(engine, cards, 99)
        assert len({one.name for one in launches}) >= fewest
        assert len({one.name for one in launches}) < len(launches)
    large = {one.model for one in plan_trial("llama.cpp", 1, 99)}
    assert sum(sum(tensor.size for tensor in list_tensors(model)) > 10**9 for model in large) >= 12


@pytest.mark.parametrize(("part", "value"), [(0.5, 5), (0.95, 10), (1.0, 10), (0.01, 1)])
def test_a_percentile_is_of_the_nearest_rank(part: float, value: float) -> None:
    assert percentile([*range(10, 0, -1)], part) == value
