"""`rigwright bench throughput` and `latency`: an engine's own offline benches, in the place of an instance."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import click

from cli.bench_options import JSON_OPTION
from cli.exit_codes import INTERRUPTED_STATUS, HostUnreached, InvalidRequest, NotAsDeclared
from cli.instance_access import InterruptHandler, connect_boxes, select_instances
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.measurement_refusals import refuse_context_overflow
from cli.option_types import WholeNumber
from cli.output_file import write_output
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_paragraph
from rigwright.engines import kind_of
from rigwright.engines.offline_bench import OfflineBenchSpec
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.problems import printable
from roles.connection_failures import describe_unreachable_host
from roles.progress import progress

if TYPE_CHECKING:
    from bench.offline_job import LatencyResult, OfflineJob, ThroughputResult

SCHEMA = 1
LAST = 6
"""Lines of a bench's output that a failure shows: of vLLM, the end of a traceback."""
DecoratedVerb = Callable[..., Any]


def _shared_options(verb: DecoratedVerb) -> DecoratedVerb:
    """Options that both have."""
    for option in (
        JSON_OPTION,
        click.option("--output-tokens", type=WholeNumber(1, 1 << 20), default=128, show_default=True),
        click.option("--input-tokens", type=WholeNumber(1, 1 << 20), default=512, show_default=True),
        click.option(
            "--stop",
            is_flag=True,
            help="Agree to stop the instance: it cuts off requests, and clients get no answer meanwhile.",
        ),
        click.option("--instance", metavar="NAME", required=True, help="Which one."),
        LIMIT_OPTION,
        INVENTORY_ARGUMENT,
    ):
        verb = option(verb)
    return verb


@click.command()
@_shared_options
@click.option(
    "--prompts", type=WholeNumber(1, 100_000), default=200, show_default=True, help="Number of prompts, sent at once."
)
def throughput(
    inventory: str,
    limit: str | None,
    instance: str,
    stop: bool,
    input_tokens: int,
    output_tokens: int,
    file: str | None,
    prompts: int,
) -> None:
    """Measure throughput with vLLM's own offline bench.

    Stops the instance (--stop) and starts it again at the end. Deploys wait. The bench has the instance's environment,
    cards, options and sandbox. Only for vLLM in an environment: `rigwright bench load` measures other engines.
    Example: rigwright bench throughput rig.py --limit box1 --instance chat --stop
    """
    _run_offline_bench(
        inventory, limit, instance, stop, OfflineBenchSpec("throughput", prompts, input_tokens, output_tokens), file
    )


@click.command()
@_shared_options
@click.option("--batch", type=WholeNumber(1, 4096), default=8, show_default=True, help="Requests at once.")
@click.option("--batches", type=WholeNumber(1, 1000), default=10, show_default=True, help="Measured batches.")
def latency(
    inventory: str,
    limit: str | None,
    instance: str,
    stop: bool,
    input_tokens: int,
    output_tokens: int,
    file: str | None,
    batch: int,
    batches: int,
) -> None:
    """Measure latency with vLLM's own offline bench.

    Stops the instance (--stop) and starts it again at the end, like `bench throughput`. Needs a model with at least
    10,000 tokens in its vocabulary.
    Example: rigwright bench latency rig.py --limit box1 --instance chat --stop
    """
    _run_offline_bench(
        inventory, limit, instance, stop, OfflineBenchSpec("latency", batch, input_tokens, output_tokens, batches), file
    )


def _run_offline_bench(
    inventory: str, limit: str | None, name: str, stop: bool, wanted: OfflineBenchSpec, file: str | None
) -> None:

    def judge(host: str, rig: Rig, one: Instance) -> None:
        if one.variant.capacity and wanted.input_tokens + wanted.output_tokens > one.variant.capacity[1]:
            refuse_context_overflow(host, one, wanted.input_tokens + wanted.output_tokens)
        if not kind_of(one).has_offline_bench:
            raise InvalidRequest(
                f"{host}: {one.name} ({one.engine.kind}) has no offline bench, only vLLM has one: use "
                "`rigwright bench load`"
            )
        if not stop:
            raise InvalidRequest(
                f"{host}: {one.name} must stop for it, and clients get no answer meanwhile: agree with --stop"
            )

    found, gone = connect_boxes(inventory, limit, (name,), judge)
    pairs = select_instances(found, (name,))
    if not pairs:
        raise HostUnreached(f"{', '.join(gone)}: {describe_unreachable_host('')}")
    if len(pairs) > 1:
        raise InvalidRequest(
            f"{', '.join(box.name for box, _ in pairs)} have an instance of that name: choose one with --limit"
        )
    ((box, one),) = pairs
    # a module that it imports waits for threads: pyinfra's gevent has to be there before
    from bench import offline_job
    from bench.alternating_runs import MeasurementFailed

    interrupt = InterruptHandler()
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    @contextmanager
    def until(job: OfflineJob) -> Iterator[None]:
        with interrupt.closes_on_interrupt(job):
            yield

    try:
        with progress.task(box.name, one.name) as task:
            made = offline_job.measure_offline(
                box, one, wanted, lambda text: task.start_step(f"{one.name}: {text}"), until
            )
    except MeasurementFailed as error:
        if interrupt.asked:
            sys.exit(INTERRUPTED_STATUS)
        text = "\n".join(map(printable, str(error).strip().splitlines()[-LAST:]))
        raise (InvalidRequest if text.startswith("refused: ") else NotAsDeclared)(f"{box.name}: {text}") from None
    click.echo(f"{box.name}: {one.name} ({one.variant_name}), {now}, without a server: {wanted.description}")
    print_paragraph(_describe_result(made, wanted), hang=2)
    if file:
        told = {"schema": SCHEMA, "date": now, "host": box.name, "instance": one.name, "variant": one.variant_name}
        told |= {"asked": vars(wanted), "told": made.model_dump()}
        write_output(file, json.dumps(told, indent=2) + "\n")


def _describe_result(made: ThroughputResult | LatencyResult, wanted: OfflineBenchSpec) -> str:
    if made.kind == "throughput":
        out = made.requests_per_second * wanted.output_tokens
        return (
            f"{made.requests_per_second:.2f} requests/s, {out:.1f} tokens/s of answers, "
            f"{made.tokens_per_second:.1f} with those of prompts, in {made.elapsed_time:.1f} s"
        )
    many = len(made.latencies) > 1
    late = quantiles(made.latencies, n=10, method="inclusive")[8] if many else made.latencies[0]
    middle = median(made.latencies)
    rate = wanted.requests * wanted.output_tokens / middle
    return f"a batch takes {middle:.3f} s (P50), {late:.3f} s (P90): {rate:.1f} tokens/s of answers"
