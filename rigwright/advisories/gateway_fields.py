"""Which fields of a request the gateway refuses: the one place where advisories ask its table of request rules."""

from __future__ import annotations

from rigwright.gateway.request_rules import load_request_rules
from rigwright.model.gateway.entry import Gateway

PROMPT_LISTS = "prompt_list"
"""The name by which advisories ask about the bound on lists of prompts."""


def is_refused_field(gateway: Gateway, field: str) -> bool:
    """Whether a gateway refuses every request that has a field, on every path that it opens.

    Args:
        gateway: As the inventory declares it: its `allow_fields`, and those of its models, open a rule deliberately.
        field: The field's name, such as `chat_template` or `mm_processor_kwargs`, or `prompt_list`. A rule that only
            bounds a field's size does not close it.
    """
    allowed = {*gateway.allow_fields, *(name for one in gateway.models.values() for name in one.allow_fields or ())}
    closing = (rule for rule in load_request_rules() if rule.name not in allowed)
    if field == PROMPT_LISTS:
        return any(rule.name == "prompts" for rule in closing)
    return any(field in rule.location and rule.kind in ("absent", "scalars") and not rule.paths for rule in closing)
