"""What clients notice of an instance that is stopped before the one in its place starts."""

from __future__ import annotations

from collections.abc import Iterator

from rigwright.declaration.rig import Instance, Rig


def sentences(rig: Rig, instance: Instance, start_seconds: float | None) -> Iterator[str]:
    """How long nobody answers, why, and what clients are told, a line each.

    Args:
        rig: The rig as it is to be.
        instance: The instance of it that changes.
        start_seconds: What the one that runs took from its start to its first answer; None where it is not known, or
            none runs.
    """
    last = "nobody knows how long its start takes"
    if start_seconds is not None:
        last = f"about {start_seconds:.0f} s, as long as what it serves now took to its first answer"
    yield f"{instance.name} answers nobody from the end of the old process to the new one's first answer: {last}"
    if rig.gateway:
        yield f"what is under way has {rig.gateway.drain} s to end before that (gateway.drain)"
        yield "clients of the gateway are told 503 meanwhile, and when to come again"
    else:
        yield f"clients of port {instance.port} wait, and what is under way ends: without a gateway nobody tells them"
