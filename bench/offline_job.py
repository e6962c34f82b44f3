"""An engine's own offline benches on a host, with an instance's environment, cards, options and sandbox.

There is no server: the instance is stopped meanwhile, for a card's memory does not hold both, and serves again whatever
becomes of it. Only the engine is measured: no request, no stream, no queue.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.alternating_runs import LOAD_UNIT, Contest, Deployed, MeasurementFailed, contest
from checks.connections import ConnectedHost
from rigwright.engines import kind_of
from rigwright.engines.offline_bench import OfflineBench, OfflineBenchSpec
from rigwright.model.instance import Instance
from rigwright.problems import printable

# The parts of a unit that belong to its life as a server: its folder in /run is there while it runs, and its key is for
# clients.
OF_SERVING = (
    *("Type", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecStop", "ExecStopPost", "Restart", "RestartSec"),
    *("RuntimeDirectory", "RuntimeDirectoryMode", "LoadCredential", "TimeoutStartSec"),
)
Seconds = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]


class _OfflineResult(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class ThroughputResult(_OfflineResult):
    """The record of `vllm bench throughput`."""

    kind: ClassVar[Literal["throughput"]] = "throughput"
    elapsed_time: Seconds
    num_requests: Annotated[int, Field(gt=0, le=10**9)]
    total_num_tokens: Annotated[int, Field(gt=0, le=10**12)]
    """Of prompts and answers together."""
    requests_per_second: Seconds
    tokens_per_second: Seconds


class LatencyResult(_OfflineResult):
    """The record of `vllm bench latency`: seconds of a whole batch."""

    kind: ClassVar[Literal["latency"]] = "latency"
    avg_latency: Seconds
    latencies: Annotated[list[Seconds], Field(min_length=1, max_length=10_000)]


FIGURES: dict[str, type[ThroughputResult | LatencyResult]] = {"throughput": ThroughputResult, "latency": LatencyResult}


def transient_properties(unit: str) -> list[str]:
    """The properties that give a transient unit an instance's user, environment, cards, limits and sandbox.

    Args:
        unit: The text of the instance's unit.
    """
    found, section = [], ""
    for line in unit.splitlines():
        if line.startswith("["):
            section = line
            continue
        key, _, value = line.partition("=")
        if section != "[Service]" or (not value and "=" not in line) or line.startswith("#") or key in OF_SERVING:
            continue
        if key == "BindPaths" and value.startswith("/run/"):
            continue
        found.append(f"--property={key}={value}")
    return found


def offline_command(unit: str, offline: OfflineBench) -> str:
    """The shell command that runs a bench, whose program comes on standard input.

    Args:
        unit: The text of the instance's unit.
        offline: The bench.
    """
    options = ("--quiet", "--collect", "--pipe", "--wait", "--service-type=exec", f"--unit={LOAD_UNIT}")
    program, *words = offline.command
    # systemd expands variables in what it is given, in a program's name none
    return shlex.join(
        (
            "systemd-run",
            *options,
            *transient_properties(unit),
            "--",
            program,
            *(word.replace("$", "$$") for word in words),
        )
    )


@dataclass
class OfflineJob:
    """The program on the host; closing it ends that."""

    found: Contest

    def close(self) -> None:
        """End it: the waiting client gets a failure."""
        self.found.stop(LOAD_UNIT)


def measure_offline(
    box: ConnectedHost,
    instance: Instance,
    wanted: OfflineBenchSpec,
    say: Callable[[str], None],
    until: Callable[[OfflineJob], AbstractContextManager[Any]],
) -> ThroughputResult | LatencyResult:
    """Stop an instance, run the bench in its place, and have it serve again.

    Args:
        box: The host.
        instance: One of its, deployed and running.
        wanted: The measurement.
        say: Told what is under way.
        until: The object that may close the job while it runs.

    Raises:
        MeasurementFailed: its engine has no such bench, the instance does not run or does not come up again, or the
            bench fails.
    """
    made = box.resolve_desired()
    installation = made.installations[instance.installed_as]
    offline = kind_of(instance).offline(box.rig, instance, installation, wanted)
    if offline is None:
        raise MeasurementFailed(f"{instance.name}: there is no offline bench of {instance.engine.kind} for it")
    text = made.generation.files[f"units/{instance.unit}"]
    deployed = Deployed(box.rig, instance, installation)
    doing = f"bench {wanted.what} of {instance.name} of {box.rig.inventory}"
    with contest(box.target, deployed, doing, say) as found:
        say(f"stopping {instance.unit}")
        found.stop(instance.unit)
        say(f"{wanted.what}: {wanted.description}")
        with until(OfflineJob(found)):
            said = found.run_instead(offline_command(text, offline), offline.program)
    return parse_result(wanted.what, said, offline.marker)


def parse_result(what: str, said: str, marker: str) -> ThroughputResult | LatencyResult:
    """The result at the end of a bench.

    Raises:
        MeasurementFailed: something else.
    """
    lines: Iterator[str] = (line for line in reversed(said.splitlines()) if line.startswith(marker))
    try:
        return FIGURES[what].model_validate_json(next(lines, "").removeprefix(marker))
    except ValidationError as error:
        last = printable(said.strip().rpartition("\n")[2])[:200]
        raise MeasurementFailed(
            f"it ended without figures ({error.error_count()} of them are invalid): {last}"
        ) from None
