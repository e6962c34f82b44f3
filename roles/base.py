"""Role base: the roots, the instances' users and the packages that all other roles stand on."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright import nginx
from rigwright.model import trees
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.monitoring.service import KINDS, PACKAGED_USER
from rigwright.plan.facts import packages as packages_of
from rigwright.plan.preflight import HOME
from rigwright.weights.records import records_folder
from roles.operations.files import directories, ended
from roles.operations.packages import packages
from roles.operations.users import service_users


@deploy("Base")
def base(rig: Rig, facts: HostFacts) -> None:
    """Bring folders, users and packages to their state. Roots that were there before us stay as they are."""
    roots = rig.roots
    ours = ("755", "root", "root")
    foreign = {path for path, _, _ in facts.foreign_roots}
    folders = {
        # the ledger's own folder comes first
        **dict.fromkeys((roots.state, rig.jobs, rig.builds, records_folder(rig), trees.records(rig), rig.starts), ours),
        **dict.fromkeys((roots.software, rig.installations, roots.models), ours),
        **dict.fromkeys((roots.config, rig.generations), ours),
        rig.credentials: ("700", "root", "root"),
    }
    if not facts.ledger_whole:
        known = [*(f"user {name}" for name in rig.users), *(f"dir {path}" for path in folders)]
        ended(name="End the ledger's last line", path=rig.ledger, known=known)
    directories(
        name="Folders",
        paths={path: wanted for path, wanted in folders.items() if path not in foreign},
        ledger=rig.ledger,
    )
    watching = [one for one in map(KINDS.__getitem__, rig.watching) if one.package]
    service_users(name="Users", users=list(rig.users), home=HOME, ledger=rig.ledger)
    packages(
        name="Packages",
        names=packages_of(rig, facts.system),
        rig=rig,
        system=facts.system,
        masked=({nginx.PACKAGED_UNIT: nginx.LEFT} if rig.share or rig.gateway else {})
        | {one.packaged_unit: () for one in watching},
        accounts={one.package: PACKAGED_USER for one in watching},
    )
