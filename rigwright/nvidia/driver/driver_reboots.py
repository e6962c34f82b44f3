"""Reasons why a driver needs a reboot, and what an operator does at the console."""

from __future__ import annotations

from rigwright.nvidia.driver.driver_facts import (
    DriverFacts,
)
from rigwright.validated_types import Flavour


def describe_enrolment(facts: DriverFacts) -> str:
    """https://wiki.debian.org/SecureBoot, and Ubuntu's page of the same name."""
    key = "/var/lib/dkms/mok.pub" if facts.os_id == "debian" else "/var/lib/shim-signed/mok/MOK.der"
    make = "dkms generate_mok" if facts.os_id == "debian" else "update-secureboot-policy --new-key"
    return (
        "Secure Boot is on, and the firmware does not trust modules built on this host: disable it in the "
        f"firmware, or install dkms and mokutil, run `{make}` and `mokutil --import {key}`, reboot, and enrol "
        "the key at the console"
    )


def describe_reboot(facts: DriverFacts, *, flavour: Flavour, version: str = "", brought: str = "") -> str:
    """Why the driver works only after a reboot.

    Args:
        facts: The host.
        flavour: Of the modules that will be there.
        version: Theirs, where it is known.
        brought: The kernel that they are made for; empty where that is any.
    """
    if facts.nouveau or any(card.bound == "nouveau" for card in facts.cards):
        return "nouveau is bound to the cards"
    if facts.module and (facts.module != version or facts.module_open != (flavour == "open")):
        loaded = "open" if facts.module_open else "proprietary"
        return f"the {loaded} module {facts.module} stays loaded until then"
    if brought and brought != facts.kernel:
        return f"the modules are for kernel {brought} or later, the running one is {facts.kernel}"
    return ""
