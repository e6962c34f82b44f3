"""Role monitoring: the metrics of a box, and on one box the services that collect, keep and alert."""

from __future__ import annotations

from rigwright.host.systemd import UNIT_FOLDER
from rigwright.monitoring.monitoring_units import (
    STATEFUL_PROGRAMS,
    data_folder,
    gpu_exporter_tools,
    monitoring_folder,
    monitoring_services,
    render_targets,
    secrets_by_path,
)
from rigwright.monitoring.textfile import textfile_folder
from rigwright.supply.root_programs import GPU_EXPORTER
from roles.operations.files import TextFile, make_directories, write_text_files
from roles.operations.secrets import install_credentials
from roles.operations.units import ensure_monitoring
from roles.python_tools import install_environment
from roles.rig_lookup import DeployContext, role


@role("Monitoring")
def monitoring(context: DeployContext) -> None:
    """Bring settings, units and processes to their state; services that are not declared any more go, with their data.

    Packages are among those of the role base.
    """
    rig = context.rig
    declared = monitoring_services(rig)
    if rig.monitoring:
        paths = {
            textfile_folder(rig.roots): ("755", "root", "root"),
            f"{rig.roots.state}/monitoring": ("755", "root", "root"),
        }
        paths |= {monitoring_folder(rig.roots): ("755", "root", "root")}
        if rig.monitoring.server:
            paths |= {f"{monitoring_folder(rig.roots)}/targets": ("755", "root", "root")}
            paths |= {
                data_folder(rig.roots, name): (
                    "700",
                    rig.accounts.exporters(rig.monitoring, cards=bool(rig.cards))[name],
                    rig.accounts.exporters(rig.monitoring, cards=bool(rig.cards))[name],
                )
                for name in STATEFUL_PROGRAMS
            }
        make_directories(name="Folders", paths=paths, ledger=rig.roots.ledger)
        if rig.cards:
            made = gpu_exporter_tools(rig.roots, rig.gpu_exporter)
            works = f"{made.folder}/bin/python -I -c 'import pynvml'"
            install_environment(
                rig, made, rig.gpu_exporter, "what tells of cards", alone=f"{GPU_EXPORTER}-", works=works
            )
        if held := secrets_by_path(rig.inventory, rig.roots, rig.monitoring):
            install_credentials(name="Secrets of receivers", keys=held)
        files = [TextFile(path, text) for path, text in render_targets(rig.roots, rig.scrape_targets).items()]
        for one in declared:
            files += [TextFile(path, text) for path, text in list(one.files.items())[:-1]]
            files += [TextFile(path, text, proof=one.kind.proof) for path, text in list(one.files.items())[-1:]]
            files.append(TextFile(f"{UNIT_FOLDER}/{one.unit_name}", one.unit))
        write_text_files(name="Settings", files=files)
    ensure_monitoring(name="Watch" if declared else "Stop watching", rig=rig)
