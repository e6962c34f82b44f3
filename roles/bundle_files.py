"""Packages of a rig's bundle that a host is to be sent, compared with the bundle's index before anything changes."""

from __future__ import annotations

from functools import cache

import gevent

from rigwright.containers.container_plan import find_missing_packages
from rigwright.model.nvidia_tables import bundled_debs
from rigwright.nvidia.packages.bundled_driver import is_driver_sent
from rigwright.plan.host_probe import find_missing_host_packages
from rigwright.plan.plan_inputs import TargetState
from rigwright.supply.bundle import LocalFile


def find_changed_packages(wanted: TargetState, *, upgrading: bool = False) -> list[str]:
    """The package files that differ from the index, of those that the host would be sent; none without a bundle.

    Other files, such as weights, are compared when they are sent. An upgrade of the driver sends its packages, too.
    """
    rig, facts = wanted.rig, wanted.facts
    if rig.bundle is None:
        return []
    files = list[LocalFile]()
    if wanted.driver and is_driver_sent(rig.driver_supply, *wanted.driver, upgrading=upgrading):
        files += rig.bundle.files(bundled_debs(rig.driver_supply, facts.system))
    if wanted.containers and find_missing_packages(wanted.containers[1], wanted.containers[0]):
        groups = wanted.containers[1].groups
        files += rig.bundle.files(row for one in groups for row in one.packages.values())
    if files or find_missing_host_packages(rig, facts):
        files += rig.bundle.packages(facts.system).files
    # in a thread: the deploy lock needs its signs of life
    return list(filter(None, gevent.get_hub().threadpool.apply(lambda: [_describe_change(file) for file in files])))


@cache  # boxes of an inventory mostly share a bundle
def _describe_change(file: LocalFile) -> str:
    return file.refusal()
