"""What an instance has to be able to do, asked of it on its host and judged here (rigwright.operate.verify)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rigwright.engines import kind_of
from rigwright.engines.kind import ServiceSpec
from rigwright.engines.metrics import EngineMetrics, parse_metrics
from rigwright.engines.request import ONE_TOKEN, InstanceRequest
from rigwright.host.unit_states import UnitState
from rigwright.model.instance import Instance
from rigwright.operate import prompts
from rigwright.operate.verify import (
    CHECKS,
    PATCHES,
    SERVER,
    WARM,
    AnswerCheck,
    AnswerContext,
    ProbeFinding,
    assess_answer,
)
from rigwright.serving.observed import ObservedServing
from roles.client import BUSY, HostClient

ROOM = 512  # tokens of an instance's context that an answer does not get: its question takes them
SOON = 5.0  # seconds for what an engine has counted


def collect_metrics(client: HostClient, instance: Instance, service: ServiceSpec) -> EngineMetrics | None:
    """What an engine has counted; None where it does not tell.

    Raises:
        roles.client.ClientJobLost: the job is gone.
    """
    if service.metrics is None:
        return None
    reply = client.send_request(InstanceRequest(service.metrics), SOON)
    return (
        parse_metrics(reply.body, kind_of(instance).metric_names) if reply.status == 200 and not reply.error else None
    )


def check_patches(
    found: ObservedServing, instance: Instance, wanted: UnitState, patches: tuple[str, ...]
) -> ProbeFinding:
    """Whether what runs was started from what has its patches: their bytes are in the name of what it runs from."""
    if not patches:
        return ProbeFinding(*PATCHES, "n/a", "it declares none")
    process = found.processes.get(wanted.unit)
    if process and process.is_running_from(wanted):
        return ProbeFinding(*PATCHES, "ok", f"runs from what was made with {', '.join(patches)}")
    return ProbeFinding(*PATCHES, "fail", f"{wanted.unit} was not started from what has {', '.join(patches)}: deploy")


def verify_instance(
    client: HostClient,
    instance: Instance,
    service: ServiceSpec,
    patches: ProbeFinding,
    say: Callable[[str], None],
    counting: HostClient | None = None,
) -> Iterator[ProbeFinding]:
    """Ask an instance for all that it is declared to be able to; yields what came of each check, as it comes.

    Args:
        client: A client of it.
        instance: The instance.
        service: How it is run.
        patches: What `patched` says of it.
        say: Told what is under way.
        counting: A client that its engine tells what it counts, where `client` comes through a gateway.

    Raises:
        roles.client.ClientJobLost: the job or the connection is gone; what was yielded stays true.
    """
    seen = AnswerContext(instance, client.place.model)
    say(SERVER.title)
    first = assess_answer(SERVER, client.send_request(SERVER.request, SERVER.limit, again=BUSY, model=False), seen)
    yield first
    yield patches
    able = kind_of(instance).abilities(instance)
    why = f"not asked: {first.detail}" if first.verdict != "ok" else ""
    if not why:
        say("its first answer, which counts for nothing")
        warm = client.send_request(ONE_TOKEN, WARM, again=BUSY)
        why = "" if warm.status == 200 and not warm.error else f"not asked: no answer to one token: {warm.description}"
    for check in CHECKS[1:]:
        if check.needs and check.needs not in able:
            yield ProbeFinding(check.name, check.title, "n/a", "not declared")
        elif why:
            yield ProbeFinding(check.name, check.title, "skip", why)
        else:
            say(check.title)
            yield _run_instance_check(client, check, seen, service, counting or client)


def _run_instance_check(
    client: HostClient, check: AnswerCheck, seen: AnswerContext, service: ServiceSpec, counting: HostClient
) -> ProbeFinding:
    instance = seen.instance
    before = collect_metrics(counting, instance, service) if check.counted else None
    request = check.request
    if capacity := instance.variant.capacity:
        request = prompts.limit_tokens(request, max(16, capacity[1] - ROOM))
    reply = client.send_request(request, check.limit, again=BUSY)
    after = collect_metrics(counting, instance, service) if check.counted else None
    return assess_answer(check, reply, replace(seen, before=before, after=after))
