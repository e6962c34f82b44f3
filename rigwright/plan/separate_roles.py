"""Roles of a deploy that can run without the others, and the roles that each of them needs."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.problems import describe_unknown

NEEDS = {
    "base": (),
    "network": ("base",),
    "tools": ("base", "network"),
    "nvidia_driver": ("base", "network"),
    "nvidia_cards": ("base",),
    "container_toolkit": ("base", "network"),
    "cuda_toolkit": ("base", "network", "tools"),
    "sharing": ("base",),
    "monitoring": ("base", "network", "tools"),
    "engines": ("base", "network", "tools", "cuda_toolkit"),
    "weights": ("base", "network", "tools"),
}
"""Role -> the roles that run with it, in the order of a deploy. Their results are complete without a generation."""
INSEPARABLE = {
    "serving": "it activates a generation, which needs everything that it refers to: deploy without --only",
    "self_check": "it compares the host with the generation of the same deploy: deploy without --only",
}
"""Role -> the reason for which it runs in a complete deploy alone."""


def select_roles(text: str) -> tuple[str, ...]:
    """The roles of a deploy that is restricted to some, with all that they need, in the order of a deploy.

    Args:
        text: Names of roles, separated by commas.

    Raises:
        LookupError: a role does not exist, or cannot run without the others.
    """
    names = text.split(",")
    for name in names:
        if name in INSEPARABLE:
            raise LookupError(f"{name} cannot run separately: {INSEPARABLE[name]}")
        if name not in NEEDS:
            raise LookupError(describe_unknown("role", name, NEEDS))
    wanted = {*names, *(needed for name in names for needed in NEEDS[name])}
    return tuple(role for role in NEEDS if role in wanted)


def describe_selection(text: str, roles: Sequence[str]) -> str:
    """`only base, network and weights`, with the needed roles named as such.

    Args:
        text: As `select_roles` takes it.
        roles: As it returns them.
    """
    added = [role for role in roles if role not in text.split(",")]
    more = f" ({', '.join(added)}: needed by the others)" if added else ""
    return f"only {', '.join(roles)}{more}; no generation is activated, and the checks of a deploy do not run"
