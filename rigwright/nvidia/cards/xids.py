"""Xids, the driver's error messages in the kernel's log: their form, and those that are faults of the card itself."""

from __future__ import annotations

import re

# Others are a program's mistakes (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)
FATAL_XIDS = {
    48: "a memory error that ECC could not correct",
    62: "its power controller halted",
    63: "a row of its memory is due for remapping at the next reset",
    64: "a row of its memory could not be remapped",
    74: "an NVLink error",
    79: "it fell off the bus",
    95: "an uncontained memory error",
    119: "its firmware did not respond",
    120: "its firmware failed",
    154: "it needs a reset or a reboot",
}
# A card with a row that is due for remapping computes correctly until its next reset.
UNUSABLE_XIDS = {code: text for code, text in FATAL_XIDS.items() if code != 63}
XID = re.compile(
    # a partition of a card has its numbers behind the address (kernel-open: nvErrorLog2_va)
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?(?: GPU-I:[0-9]+)?(?: GPU-CI:[0-9]+)?\): "
    r"([0-9]+)(.*)",
    re.IGNORECASE,
)
# 154 tells of the way back as well
RECOVERED = re.compile(r"changed from .* to 0x0 ")
