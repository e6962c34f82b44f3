"""A trial: predictions are written to a file before each start, then real engines start; errors by class of record.

The predictor learns from the trial's own earlier starts only: the first launches of all have none.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.memory_fit.checkpoints import write_checkpoint
from benchmarks.memory_fit.launches import LaunchFailed, LaunchResult, measure_launch
from benchmarks.memory_fit.random_models import RandomModel, write_gguf
from benchmarks.memory_fit.trial_plan import TrialLaunch
from rigwright.engines.memory_prediction import MIB, ComputedMemory, MeasuredMemory, MemoryPrediction, predict
from roles.memory_records.host.process_memory import DriverLibrary

CLASSES = {
    "same variant": "same variant again",
    "neighbour": "other context or parallelism",
    "learned bias": "never started",
    "floor": "no record",
}


@dataclass(frozen=True)
class TrialRow:
    """One launch: the prediction and the measured bytes."""

    name: str
    basis: str
    predicted: int
    least: int
    safe: int
    measured: int
    seconds: float
    failure: str = ""

    @property
    def error(self) -> float:
        """Of the prediction, in terms of the measured bytes."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


@dataclass
class EngineSettings:
    """The engine of a trial."""

    server: str = ""
    """llama-server."""
    python: str = ""
    """The interpreter that has vLLM."""
    arguments: list[str] = field(default_factory=list)
    patience: float = 600.0


def build_command(launch: TrialLaunch, path: Path, settings: EngineSettings, port: int) -> list[str]:
    """The command line of a launch."""
    if launch.engine == "vllm":
        return [
            *(settings.python, "-m", "vllm.entrypoints.cli.main", "serve", str(path)),
            *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", launch.model.name),
            *("--max-model-len", str(launch.context // launch.parallel), "--kv-cache-memory-bytes"),
            *(str(launch.kv_bytes + 16 * MIB), "--gpu-memory-utilization", "0.9"),
            *settings.arguments,
        ]
    return [
        *(settings.server, "--model", str(path), "--host", "127.0.0.1", "--port", str(port)),
        *("--ctx-size", str(launch.context), "--parallel", str(launch.parallel), "--fit", "off"),
        *("--cache-type-k", launch.kv_type, "--cache-type-v", launch.kv_type, "--verbosity", "4"),
        *("--flash-attn", "on" if launch.flash else "off", "--n-gpu-layers", "all" if launch.cards else "0"),
        *settings.arguments,
    ]


def _prepare_model(folder: Path, launch: TrialLaunch) -> Path:
    """The model's file or folder; every other model's is removed, for a disk that has no room for all."""
    vllm = launch.engine == "vllm"
    path = folder / (launch.model.name if vllm else f"{launch.model.name}.gguf")
    if not path.exists():
        for other in folder.glob("*.gguf"):
            other.unlink()
        for other in folder.glob("*/model.safetensors"):
            other.unlink()
        write: Callable[[Path, RandomModel], None] = write_checkpoint if vllm else write_gguf
        write(path, launch.model)
    elif vllm and not (path / "model.safetensors").exists():
        write_checkpoint(path, launch.model)
    return path


def run_trial(
    launches: Sequence[TrialLaunch],
    folder: Path,
    settings: EngineSettings,
    predictions: Path,
    limit: float,
    show: Callable[[str], object],
) -> list[TrialRow]:
    """Predict and start each launch; a trial that ended early goes on in the same folder.

    Args:
        launches: In their order.
        folder: For models and logs.
        settings: The engine.
        predictions: The file for predictions; a line is written and flushed to the disk before the start.
        limit: Seconds after which no further launch begins.
        show: Called with a line for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = DriverLibrary()
    names = tuple(card.name for card in library.read_cards(()))
    rows, records = _load_earlier(folder / "measured.jsonl")
    began = time.monotonic()
    with predictions.open("a", encoding="utf-8") as out:
        for number, launch in enumerate(launches[len(rows) :], start=len(rows) + 1):
            if time.monotonic() - began > limit:
                show(f"the time limit ends the trial before launch {number}")
                break
            path = _prepare_model(folder, launch)
            computed = launch.compute(names, library.driver)
            made = predict(computed, records)
            _write_prediction(out.fileno(), number, launch, made)
            row, result = _start(launch, path, settings, made, folder)
            rows.append(row)
            if result is not None:
                cards = tuple(result.cards[uuid] for uuid in sorted(result.cards))
                computed = replace(computed, cards=computed.cards[: len(cards)] or computed.cards)
                record = MeasuredMemory(computed, f"{number:04}", cards, result.ram)
                records.append(record)
                kept = {"row": asdict(row), "record": asdict(record), "lines": result.lines}
            else:
                kept = {"row": asdict(row)}
            _write_line(folder / "measured.jsonl", kept)
            show(describe_row(number, row))
    return rows


def _load_earlier(path: Path) -> tuple[list[TrialRow], list[MeasuredMemory]]:
    """The rows and records of an earlier part of the trial in the same folder."""
    rows, records = [], []
    for line in path.read_text().splitlines() if path.exists() else []:
        found = json.loads(line)
        rows.append(TrialRow(**found["row"]))
        if record := found.get("record"):
            computed = {**record["computed"], "cards": tuple(record["computed"]["cards"])}
            values = {**record, "computed": ComputedMemory(**computed), "cards": tuple(record["cards"])}
            records.append(MeasuredMemory(**values))
    return rows, records


def _write_prediction(file: int, number: int, launch: TrialLaunch, made: MemoryPrediction) -> None:
    line = {"number": number, "launch": launch.name, "at": time.time(), **asdict(made)}
    os.write(file, (json.dumps(line) + "\n").encode())
    os.fsync(file)


def _write_line(path: Path, values: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(values) + "\n")


def _start(
    launch: TrialLaunch, path: Path, settings: EngineSettings, made: MemoryPrediction, folder: Path
) -> tuple[TrialRow, LaunchResult | None]:
    base = TrialRow(launch.name, made.basis, made.need, made.least, made.safe, 0, 0.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        result = measure_launch(
            build_command(launch, path, settings, port),
            port,
            launch.context // launch.parallel,
            folder / "engine.log",
            patience=settings.patience,
            model=launch.model.name,
            cards=launch.cards,
        )
    except LaunchFailed as failure:
        return replace(base, failure=str(failure)[-300:] or "no output"), None
    measured = sum(result.cards.values()) if launch.cards else result.ram
    return replace(base, measured=measured, seconds=result.seconds), result


def describe_row(number: int, row: TrialRow) -> str:
    """A line about a launch."""
    if row.failure:
        return f"{number:3} {row.name}: FAILED: {row.failure.splitlines()[-1][:160]}"
    held = "" if row.measured <= row.safe else "  ABOVE SAFE"
    return (
        f"{number:3} {row.name:48} {row.basis:13} predicted {row.predicted / MIB:9.1f} measured "
        f"{row.measured / MIB:9.1f} MiB {100 * row.error:+6.2f} % {row.seconds:5.1f} s{held}"
    )


def percentile(values: Sequence[float], part: float) -> float:
    """The value that so large a part of the values does not exceed, of the nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -(-int(len(ordered) * part * 1000) // 1000) - 1))] if ordered else 0.0


def summarize(rows: Sequence[TrialRow]) -> list[dict[str, Any]]:
    """Errors of each class of record."""
    made = []
    for basis, title in CLASSES.items():
        mine = [row for row in rows if row.basis == basis and not row.failure]
        if not mine:
            continue
        parts = [abs(row.error) * 100 for row in mine]
        sizes = [abs(row.predicted - row.measured) / MIB for row in mine]
        made.append(
            {
                "class": title,
                "starts": len(mine),
                "p50_percent": round(median(parts), 2),
                "p95_percent": round(percentile(parts, 0.95), 2),
                "largest_percent": round(max(parts), 2),
                "p95_mib": round(percentile(sizes, 0.95), 1),
                "largest_mib": round(max(sizes), 1),
                "above_safe": sum(row.measured > row.safe for row in mine),
                "below_least": sum(row.measured < row.least for row in mine),
            }
        )
    return made


def as_report(rows: Sequence[TrialRow]) -> dict[str, Any]:
    """All of it, for a file."""
    return {
        "schema": 1,
        "variants": len({row.name for row in rows}),
        "starts": len(rows),
        "failed": sum(bool(row.failure) for row in rows),
        "classes": summarize(rows),
        "rows": [{**asdict(row), "error": round(row.error, 5)} for row in rows],
    }
