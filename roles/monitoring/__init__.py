"""Role monitoring: what a box tells of itself, and on one box what asks them all, keeps what they tell, and alerts."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.host.systemd import UNITS
from rigwright.model.rig import Rig
from rigwright.monitoring.figures import textfiles
from rigwright.monitoring.service import KEEPING, data, exporter, folder, secrets, services, told_targets
from rigwright.supply.root_programs import GPU_EXPORTER
from roles.operations.credentials import credentials
from roles.operations.files import Text, directories, texts
from roles.operations.monitoring import watching
from roles.tools import environment


@deploy("Monitoring")
def monitoring(rig: Rig) -> None:
    """Bring settings, units and processes to their state; what is not declared any more goes, with what it has kept.

    Packages are among those of the role base.
    """
    declared = services(rig)
    if rig.monitoring:
        paths = {textfiles(rig): ("755", "root", "root"), f"{rig.roots.state}/monitoring": ("755", "root", "root")}
        paths |= {folder(rig): ("755", "root", "root")}
        if rig.monitoring.server:
            paths |= {f"{folder(rig)}/targets": ("755", "root", "root")}
            paths |= {data(rig, name): ("700", rig.watching[name], rig.watching[name]) for name in KEEPING}
        directories(name="Folders", paths=paths, ledger=rig.ledger)
        if rig.cards:
            made = exporter(rig)
            works = f"{made.folder}/bin/python -I -c 'import pynvml'"
            environment(rig, made, rig.gpu_exporter, "what tells of cards", alone=f"{GPU_EXPORTER}-", works=works)
        if held := secrets(rig):
            credentials(name="Secrets of receivers", keys=held)
        files = [Text(path, text) for path, text in told_targets(rig).items()]
        for one in declared:
            files += [Text(path, text) for path, text in list(one.files.items())[:-1]]
            files += [Text(path, text, proof=one.kind.proof) for path, text in list(one.files.items())[-1:]]
            files.append(Text(f"{UNITS}/{one.unit_name}", one.unit))
        texts(name="Settings", files=files)
    watching(name="Watch" if declared else "Stop watching", rig=rig)
