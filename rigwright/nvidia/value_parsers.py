"""Types of what hosts tell of cards, packages and kernels (rigwright/host/script_output.py)."""

from __future__ import annotations

import re
from typing import Literal

from rigwright.host.script_output import matching, optional, word

package = matching(r"[a-z0-9][a-z0-9+.-]{0,254}(?::[a-z0-9-]{1,32})?", "the name of a package")
version = matching(r"[A-Za-z0-9.+:~_-]{1,255}", "a version")
sysctl_name = matching(r"[A-Za-z0-9_./-]{1,255}", "the name of a setting of the kernel's")
maybe = optional(word)


def tool_output(value: str) -> str:
    """The output of a vendor's tool, whole, for the one reader of its format."""
    return value


def numa_node_list(value: str) -> frozenset[int]:
    """NUMA nodes, as the kernel lists them: 0-1,4."""
    if not re.fullmatch(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?){0,99}", value):
        raise ValueError("a list of NUMA nodes")
    spans = [span.partition("-") for span in value.split(",")]
    return frozenset(one for first, _, last in spans for one in range(int(first), int(last or first) + 1))


def secure_boot_state(value: str) -> Literal["on", "off", "unknown"]:
    """Whether Secure Boot is on, as far as the firmware says."""
    if value == "on":
        return "on"
    if value == "off":
        return "off"
    if value == "unknown":
        return "unknown"
    raise ValueError("on, off or unknown")


def mask_state(value: str) -> Literal["", "masked", "masked-runtime"]:
    """How a unit is masked, in systemd's word; nothing where it is not."""
    if value == "masked":
        return "masked"
    if value == "masked-runtime":
        return "masked-runtime"
    if not value:
        return ""
    raise ValueError("masked, masked-runtime or nothing")
