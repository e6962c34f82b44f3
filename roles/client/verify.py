"""What an instance has to be able to do, asked of it on its host and judged here (rigwright.operate.verify)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rigwright.engines import kind_of
from rigwright.engines.kind import Service
from rigwright.engines.metrics import Metrics, read
from rigwright.engines.request import ONE_TOKEN, Request
from rigwright.host.unit_states import UnitState
from rigwright.model.rig import Instance
from rigwright.operate import prompts
from rigwright.operate.verify import CHECKS, PATCHES, SERVER, WARM, Check, Finding, Seen, judged
from rigwright.serving.live import Served
from roles.client import BUSY, Client

ROOM = 512  # tokens of an instance's context that an answer does not get: its question takes them
SOON = 5.0  # seconds for what an engine has counted


def metrics(client: Client, instance: Instance, service: Service) -> Metrics | None:
    """What an engine has counted; None where it does not tell.

    Raises:
        roles.client.Lost: the job is gone.
    """
    if service.metrics is None:
        return None
    reply = client.ask(Request(service.metrics), SOON)
    return read(reply.body, kind_of(instance).counts) if reply.status == 200 and not reply.error else None


def patched(found: Served, instance: Instance, wanted: UnitState, patches: tuple[str, ...]) -> Finding:
    """Whether what runs was started from what has its patches: their bytes are in the name of what it runs from."""
    if not patches:
        return Finding(*PATCHES, "n/a", "it declares none")
    process = found.processes.get(wanted.unit)
    if process and process.fits(wanted):
        return Finding(*PATCHES, "ok", f"runs from what was made with {', '.join(patches)}")
    return Finding(*PATCHES, "fail", f"{wanted.unit} was not started from what has {', '.join(patches)}: deploy")


def verify(
    client: Client,
    instance: Instance,
    service: Service,
    patches: Finding,
    say: Callable[[str], None],
    counting: Client | None = None,
) -> Iterator[Finding]:
    """Ask an instance for all that it is declared to be able to; yields what came of each check, as it comes.

    Args:
        client: A client of it.
        instance: The instance.
        service: How it is run.
        patches: What `patched` says of it.
        say: Told what is under way.
        counting: A client that its engine tells what it counts, where `client` comes through a gateway.

    Raises:
        roles.client.Lost: the job or the connection is gone; what was yielded stays true.
    """
    seen = Seen(instance, client.place.model)
    say(SERVER.title)
    first = judged(SERVER, client.ask(SERVER.request, SERVER.limit, again=BUSY, model=False), seen)
    yield first
    yield patches
    able = kind_of(instance).abilities(instance)
    why = f"not asked: {first.detail}" if first.verdict != "ok" else ""
    if not why:
        say("its first answer, which counts for nothing")
        warm = client.ask(ONE_TOKEN, WARM, again=BUSY)
        why = "" if warm.status == 200 and not warm.error else f"not asked: no answer to one token: {warm.said}"
    for check in CHECKS[1:]:
        if check.needs and check.needs not in able:
            yield Finding(check.name, check.title, "n/a", "not declared")
        elif why:
            yield Finding(check.name, check.title, "skip", why)
        else:
            say(check.title)
            yield _one(client, check, seen, service, counting or client)


def _one(client: Client, check: Check, seen: Seen, service: Service, counting: Client) -> Finding:
    instance = seen.instance
    before = metrics(counting, instance, service) if check.counted else None
    request = check.request
    if capacity := instance.variant.capacity:
        request = prompts.shorter(request, max(16, capacity[1] - ROOM))
    reply = client.ask(request, check.limit, again=BUSY)
    after = metrics(counting, instance, service) if check.counted else None
    return judged(check, reply, replace(seen, before=before, after=after))
