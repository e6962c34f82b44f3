"""What clients notice of a switch: nothing, or how long nobody answers, and why."""

from __future__ import annotations

from collections.abc import Iterator

from rigwright.model.gateway.entry import Gateway
from rigwright.model.instance import Instance


def describe_downtime(
    gateway: Gateway | None, instance: Instance, start_seconds: float | None, refused: str
) -> Iterator[str]:
    """What they notice, a line each.

    Args:
        gateway: The declared gateway.
        instance: The instance of it that changes.
        start_seconds: What the one that runs took from its start to its first answer; None where it is not known, or
            none runs.
        refused: Why the new one cannot be started beside it (`rigwright.serving.standby.describe_standby_refusal`);
        empty where it can.
    """
    drained = f"what is under way has {gateway.drain} s to end before that (gateway.drain)" if gateway else ""
    if not refused:
        yield f"{instance.name}: one more is started beside it, and asked once it has answered: nobody is kept waiting"
        yield f"then the old one is stopped: {drained}"
        yield f"its own port, {instance.port}, answers nobody from then until the new one does"
        return
    last = "nobody knows how long its start takes"
    if start_seconds is not None:
        last = f"about {start_seconds:.0f} s, as long as what it serves now took to its first answer"
    yield f"{instance.name} answers nobody from the end of the old process to the new one's first answer: {last}"
    yield f"for both do not run at once: {refused}"
    if gateway:
        yield drained
        yield "clients of the gateway are told 503 meanwhile, and when to come again"
    else:
        yield f"clients of port {instance.port} wait, and what is under way ends: without a gateway nobody tells them"
