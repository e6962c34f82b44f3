"""Role weights: locked files, fetched with resumption, verified before they get their name, and verified for good."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pyinfra import host as connected  # the name `host` is this package's: the programs beside it
from pyinfra.api import deploy

from rigwright.declaration.rig import HUB_CLIENT, Rig
from rigwright.host.facts import HostFacts
from rigwright.render import render
from rigwright.supply.fetching import CREDENTIAL, run_name, spec
from rigwright.supply.lock import Artefact
from rigwright.supply.network import network
from rigwright.supply.tools import Tools, hub_client
from rigwright.weights.records import (
    PACKAGE,
    REHASH_STAMP,
    REHASH_UNITS,
    programs,
    recorded,
    records_folder,
    rehash_units,
    verified_test,
)
from roles.operations.files import Text, directories, texts
from roles.operations.jobs import Done, job, sent
from roles.operations.units import running, stopped
from roles.tools import environment
from roles.weights.host.records import WRONG

# What runs on hosts; it stands beside the role, and imports nothing but itself and the standard library.
PROGRAMS = Path(__file__).with_name("host")


@deploy("Weights")
def weights(rig: Rig, facts: HostFacts) -> None:
    """Fetch what is missing or no longer as it was verified, and have all of it hashed again as time passes."""
    units = rehash_units(rig)
    if not rig.weights:
        stopped(name="No weights to look after", paths=[*units, REHASH_STAMP])
        return
    folder = programs(rig)
    directories(
        name="Folder of programs for weights",
        paths=dict.fromkeys((folder, f"{folder}/{PACKAGE}"), ("755", "root", "root")),
        ledger=rig.ledger,
    )
    sources = [Text(f"{folder}/{PACKAGE}/{path.name}", path.read_text()) for path in sorted(PROGRAMS.glob("*.py"))]
    texts(name="Programs for weights", files=sources)
    if rig.bundle:
        for artefact in rig.weights:
            _fetch(rig, [artefact], None)
    else:
        client = _client(rig, facts)
        if client:
            environment(rig, client, rig.hub_client, "the hub's client", alone=f"{HUB_CLIENT}-")
        _fetch(rig, rig.weights, client)
    running(
        name="Weights are hashed again as time passes",
        unit=REHASH_UNITS[0],
        files=[Text(path, text) for path, text in units.items()],
    )


def whole(rig: Rig) -> bool:
    """Whether all files lie on the host of the running deploy as they were verified."""
    return not rig.weights or bool(connected.get_fact(Done, test=_verified(rig, rig.weights)))


def _verified(rig: Rig, artefacts: Sequence[Artefact]) -> str:
    return verified_test(records_folder(rig), [recorded(rig, artefact) for artefact in artefacts])


def _client(rig: Rig, facts: HostFacts) -> Tools | None:
    """The hub's own client, where it may be needed: a host that has all its files has no use for a package index."""
    return None if whole(rig) else hub_client(rig, facts)


def _fetch(rig: Rig, artefacts: Sequence[Artefact], client: Tools | None) -> None:
    unit, folder = run_name(artefacts), rig.jobs
    one = artefacts[0]
    wrong, place = f"{records_folder(rig)}/{WRONG}/{recorded(rig, one).record}", rig.weight_path(one)
    job(
        name=f"Fetch {one.file}" if len(artefacts) == 1 else f"Fetch {len(artefacts)} files of weights",
        unit=unit,
        script=fetch_script(rig, artefacts, client.folder if client else ""),
        test=_verified(rig, artefacts),
        folder=folder,
        watch=f"files {rig.roots.models}/.progress.json",
        files=rig.bundle.files(artefacts) if rig.bundle else (),
        # what is known to be wrong is sent at once: the job removes it where nothing was
        present=f'[ ! -e {shlex.quote(wrong)} ] && [ "$(stat -c %s {shlex.quote(place)} 2>/dev/null)" = {one.size} ]',
        secrets={CREDENTIAL: rig.hub_token_file} if rig.hub_token_file and not rig.bundle else {},
    )


def fetch_script(rig: Rig, artefacts: Sequence[Artefact], client: str = "") -> str:
    """The job's script.

    Args:
        rig: The rig.
        artefacts: What it brings.
        client: The folder of the hub's own client on the host; empty where none is needed.
    """
    unit, folder = run_name(artefacts), rig.jobs
    given = sent(folder, unit) if rig.bundle else ""
    return render(
        "weights/fetch.sh.j2",
        network=network(rig),
        sent=given,
        programs=programs(rig),
        package=PACKAGE,
        spec=spec(rig, artefacts, f"{client}/bin/python" if client else "", given),
    )
