"""The command line of the trial, for machines that have Python and an engine only."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.memory_fit.trial import EngineSettings, TrialRow, as_report, run_trial, summarize
from benchmarks.memory_fit.trial_plan import (
    CARD_MODELS,
    CPU_MODELS,
    VLLM_MODELS,
    TrialLaunch,
    make_models,
    plan_llama,
    plan_vllm,
)


def plan_trial(engine: str, cards: int, most: int) -> list[TrialLaunch]:
    """The launches of an engine's trial, of so many models at most."""
    if engine == "vllm":
        return plan_vllm(make_models(VLLM_MODELS, "v")[:most], cards or 1)
    rows = CARD_MODELS if cards else CPU_MODELS
    return plan_llama(make_models(rows, "g" if cards else "c")[:most], cards)


def format_summary(rows: Sequence[TrialRow]) -> str:
    """The table of errors."""
    head = f"{'class':30} {'starts':>6} {'P50 %':>7} {'P95 %':>7} {'max %':>7} {'P95 MiB':>8} {'max MiB':>8} above safe"
    lines = [
        f"{one['class']:30} {one['starts']:6} {one['p50_percent']:7} {one['p95_percent']:7} "
        f"{one['largest_percent']:7} {one['p95_mib']:8} {one['largest_mib']:8} {one['above_safe']:10}"
        for one in summarize(rows)
    ]
    failed = sum(bool(row.failure) for row in rows)
    return "\n".join([head, *lines, f"{len({row.name for row in rows})} variants, {len(rows)} starts, {failed} failed"])


def run_folder(
    launches: Sequence[TrialLaunch],
    folder: Path,
    settings: EngineSettings,
    cards: int,
    limit: float,
    show: Callable[[str], object],
) -> list[TrialRow]:
    """Run a trial in a folder, and show its lines and its table."""
    if cards:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(cards)))
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    folder.mkdir(parents=True, exist_ok=True)
    rows = run_trial(launches, folder, settings, folder / "predictions.jsonl", limit, show)
    show(format_summary(rows))
    return rows


def main() -> None:
    """Predict, start, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_fit", description=__doc__)
    parser.add_argument("--engine", choices=("llama.cpp", "vllm"), default="llama.cpp")
    parser.add_argument("--server", default="", help="llama-server")
    parser.add_argument("--python", default="", help="the interpreter that has vLLM")
    parser.add_argument("--models", type=Path, required=True, help="folder for models and logs; its models are removed")
    parser.add_argument("--cards", type=int, default=0, help="cards that a launch uses; 0: the processor")
    parser.add_argument("--count", type=int, default=99, help="models at most")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which no launch begins")
    parser.add_argument("--patience", type=float, default=600, help="seconds until an engine has to answer")
    parser.add_argument("--report", type=Path, help="file for all rows, JSON")
    parser.add_argument("arguments", nargs="*", help="further arguments of the engine, after --")
    asked = parser.parse_args()
    if not (asked.python if asked.engine == "vllm" else asked.server):
        parser.error("--python is missing" if asked.engine == "vllm" else "--server is missing")
    settings = EngineSettings(asked.server, asked.python, asked.arguments, asked.patience)
    launches = plan_trial(asked.engine, asked.cards, asked.count)
    rows = run_folder(launches, asked.models, settings, asked.cards, asked.limit, lambda line: print(line, flush=True))
    if asked.report:
        asked.report.write_text(json.dumps(as_report(rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
