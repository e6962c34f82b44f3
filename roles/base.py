"""Role base: the roots, the instances' users and the packages that all other roles stand on."""

from __future__ import annotations

from rigwright import nginx_package
from rigwright.gateway.gateway_units import KEEPALIVED_PACKAGED_UNIT
from rigwright.model import installation
from rigwright.model.rig import account_names
from rigwright.monitoring.monitoring_units import PACKAGED_PROGRAMS, PACKAGED_USER
from rigwright.plan.host_probe import required_packages
from rigwright.plan.preflight import HOME
from rigwright.supply.supply_signatures import render_accepted_serials
from rigwright.weights.verification import records_folder
from roles.operations.files import TextFile, make_directories, repair_last_line, write_text_files
from roles.operations.packages import install_distribution_packages
from roles.operations.users import ensure_service_users
from roles.rig_lookup import DeployContext, role


@role("Base")
def base(context: DeployContext) -> None:
    """Bring folders, users and packages to their state. Roots that were there before us stay as they are."""
    rig, facts = context.rig, context.facts
    roots = rig.roots
    ours = ("755", "root", "root")
    foreign = {path for path, _, _ in facts.foreign_roots}
    folders = {
        # the ledger's own folder comes first
        **dict.fromkeys(
            (
                roots.state,
                rig.roots.jobs,
                rig.roots.builds,
                records_folder(rig.roots),
                installation.records_folder(rig.roots),
                rig.roots.startup_records,
                rig.roots.memory_records,
            ),
            ours,
        ),
        **dict.fromkeys((roots.software, rig.roots.installations, roots.models), ours),
        **dict.fromkeys((roots.config, rig.roots.generations), ours),
        rig.roots.credentials: ("700", "root", "root"),
    }
    if not facts.ledger_whole:
        known = [*(f"user {name}" for name in account_names(rig)), *(f"dir {path}" for path in folders)]
        repair_last_line(name="End the ledger's last line", path=rig.roots.ledger, known=known)
    make_directories(
        name="Folders",
        paths={path: wanted for path, wanted in folders.items() if path not in foreign},
        ledger=rig.roots.ledger,
    )
    if rig.signatures:
        text = render_accepted_serials(rig.signatures, facts.accepted_serials)
        write_text_files(name="Accepted serials", files=[TextFile(roots.accepted_serials, text)])
    watching = [
        one
        for one in map(PACKAGED_PROGRAMS.__getitem__, rig.accounts.exporters(rig.monitoring, cards=bool(rig.cards)))
        if one.package
    ]
    ensure_service_users(name="Users", users=list(account_names(rig)), home=HOME, ledger=rig.roots.ledger)
    install_distribution_packages(
        name="Packages",
        names=required_packages(rig, facts.system),
        rig=rig,
        system=facts.system,
        masked=({nginx_package.PACKAGED_UNIT: nginx_package.LEFTOVER_FILES} if rig.share or rig.gateway else {})
        | ({KEEPALIVED_PACKAGED_UNIT: ()} if rig.gateway and rig.gateway.fleet.pair else {})
        | {one.packaged_unit: () for one in watching},
        accounts={one.package: PACKAGED_USER for one in watching},
    )
