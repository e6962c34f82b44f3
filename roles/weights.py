"""Role weights: locked files, resumed after a cut, verified before they get their name."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.lock import Artefact
from rigwright.network import network
from rigwright.render import render
from rigwright.rig import Rig
from roles.operations.jobs import job, sent


@deploy("Weights")
def weights(rig: Rig) -> None:
    """Fetch what is missing, one file after the other."""
    for artefact in rig.weights:
        path = rig.weight_path(artefact)
        job(
            name=f"Fetch {artefact.file}",
            unit=job_name(artefact),
            script=fetch_script(rig, artefact),
            test=verified(rig, artefact),
            folder=f"{rig.roots.state}/jobs",
            watch=f"{artefact.size} {path}.part",
            files=rig.bundle.files([artefact]) if rig.bundle else (),
            present=f'[ "$(stat -c %s {path} 2>/dev/null)" = {artefact.size} ]',
        )


def job_name(artefact: Artefact) -> str:
    """The unit that brings it."""
    return f"rw-job-weight-{artefact.name}-{artefact.version}-{artefact.sha256[:12]}"


def record_path(rig: Rig, artefact: Artefact) -> str:
    """Where it is written down which file was verified."""
    return f"{rig.roots.state}/weights/{artefact.name}-{artefact.version}-{artefact.sha256}"


def verified(rig: Rig, artefact: Artefact) -> str:
    """A shell condition: the file is there and no one has written to it since its bytes were verified.

    Reading 20 GB on every run would cost a minute; a change of size, mtime, ctime or inode asks for it.
    """
    path, record = rig.weight_path(artefact), record_path(rig, artefact)
    return f"[ -s {record} ] && stat -c '%s %y %z %i' {path} 2>/dev/null | cmp -s - {record}"


def fetch_script(rig: Rig, artefact: Artefact) -> str:
    """The job's script."""
    return render(
        "weights/fetch.sh.j2",
        artefact=artefact,
        network=network(rig),
        ledger=rig.ledger,
        path=rig.weight_path(artefact),
        urls=[] if rig.bundle else rig.urls(artefact),
        sent=sent(f"{rig.roots.state}/jobs", job_name(artefact)) if rig.bundle else "",
        record=record_path(rig, artefact),
    )
