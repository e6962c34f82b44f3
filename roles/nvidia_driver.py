"""Role nvidia_driver: the driver that a rig's cards need, from a signed archive, running, held, and kept for the way
back."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from rigwright.driver.facts import DriverFacts
from rigwright.driver.locked import archive_addresses, locked
from rigwright.driver.plan import DriverPlan
from rigwright.driver.settings import PERSISTENCED, paths, settings
from rigwright.driver.wanted import Wanted, wanted
from rigwright.rig import Rig
from roles.operations.drivers import brought, running
from roles.operations.files import Text, absent, directories, texts


@deploy("NVIDIA driver")
def nvidia_driver(rig: Rig, plan: DriverPlan, facts: DriverFacts, upgrading: bool) -> None:
    """Bring settings, packages, the running module and the cards' own settings to their state."""
    kept = locked(rig, facts.system)
    one = wanted(plan, facts, kept, upgrading=upgrading)
    nvidia = plan.source == "nvidia" and kept is not None
    files = settings(
        rig,
        plan,
        archive=archive_addresses(rig, facts.system) if nvidia else (),
        key=kept.key if nvidia else "",
    )
    directories(name="Driver's folders", paths={PERSISTENCED.rpartition("/")[0]: ("755", "root", "root")}, ledger=rig.ledger)
    texts(name="Driver's settings", files=[Text(file.path, file.text, file.mode) for file in files])
    absent(name="Settings of no driver", paths=sorted(set(paths(rig)) - {file.path for file in files}))
    brought(name=f"Driver {one.version or plan.branch}", rig=rig, wanted=one, facts=facts)
    consent = rig.driver.reboot or bool(host.data.get("reboot"))
    running(name="Driver's module", rig=rig, wanted=one, facts=facts, consent=consent)
