"""Which fields of a request the gateway refuses: the one place where advisories ask its table of refused fields."""

from __future__ import annotations

from rigwright.gateway.entry import Gateway


def is_refused_field(gateway: Gateway, field: str) -> bool | None:
    """Whether a gateway refuses every request that has a field, on every path that it opens.

    Args:
        gateway: As the inventory declares it: its `allow_fields` opens a field deliberately.
        field: The field's name in the table of refused fields, such as `chat_template` or `mm_processor_kwargs`;
            a name with a bound, such as `prompt_list`, is refused above that bound.

    Returns:
        True where requests with the field never reach an engine, False where they do, None where the table does not
        know the field: an advisory is then unknown through the gateway.
    """
    # No gateway refuses fields yet: all of a body reaches the engine.
    return False
