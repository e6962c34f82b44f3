"""Files below the models' root, brought by one job each time: weights, and what environments are installed from."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from pyinfra import host
from pyinfra.api import StringCommand

from rigwright.fetch_job_spec import (
    fetch_credentials,
    fetch_unit_name,
    job_network,
    render_fetch_spec,
    render_wheels_spec,
)
from rigwright.host import script_output
from rigwright.local_files import read_program
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import (
    PACKAGE,
    VERIFIED,
    recorded_file,
    records_folder,
    render_verified_test,
    weights_program_folder,
)
from roles.operations.facts import ChannelFact
from roles.operations.files import TextFile, make_directories, write_text_files
from roles.operations.jobs import JobDoneFact, ensure_job, sent_files_folder

# The programs for hosts; they import only each other and the standard library.
PROGRAMS = Path(__file__).with_name("weights") / "host"


class VerifiedRecordsFact(ChannelFact[frozenset[str]]):
    """The records that hold, of those that are asked for."""

    default = frozenset

    def command(self, folder: str, records: Sequence[str]) -> StringCommand:
        """templates/weights/verified.sh.j2."""
        return self.render_command("weights/verified.sh.j2", folder=folder, records=records)

    def read(self, output: list[str]) -> frozenset[str]:
        """Read what it tells."""
        return frozenset(script_output.parse_output(output, VERIFIED).all("verified"))


def install_fetch_programs(rig: Rig) -> None:
    """Place the programs that bring files on the host."""
    folder = weights_program_folder(rig.roots)
    make_directories(
        name="Directory of programs that manage weights",
        paths=dict.fromkeys((folder, f"{folder}/{PACKAGE}"), ("755", "root", "root")),
        ledger=rig.roots.ledger,
    )
    sources = [
        TextFile(f"{folder}/{PACKAGE}/{path.name}", read_program(path)) for path in sorted(PROGRAMS.glob("*.py"))
    ]
    write_text_files(name="Programs that manage weights", files=sources)


def render_artefacts_test(rig: Rig, artefacts: Sequence[Artefact]) -> str:
    """A shell condition: all of them lie there as they were verified."""
    return render_verified_test(
        records_folder(rig.roots), [recorded_file(rig.roots, artefact) for artefact in artefacts]
    )


def are_artefacts_verified(rig: Rig, artefacts: Sequence[Artefact]) -> bool:
    """Whether that holds on the host of the running deploy."""
    return not artefacts or bool(host.get_fact(JobDoneFact, test=render_artefacts_test(rig, artefacts)))


def ensure_fetched(
    rig: Rig,
    artefacts: Sequence[Artefact],
    title: str,
    *,
    unless: str = "",
    client: str = "",
    python: str = "",
    present: str = "",
) -> None:
    """Have files verified below the models' root; the programs are there.

    Args:
        rig: The rig.
        artefacts: Weights, wheels or conda packages.
        title: The job's work, in the operator's words.
        unless: Shell condition under which they are not needed.
        client: The folder of the hub's own client on the host; empty where none is needed.
        python: A Python on the host that has pip and py-rattler, for what has no mirror.
        present: Shell condition under which nothing is sent from a bundle.
    """
    test = render_artefacts_test(rig, artefacts)
    ensure_job(
        name=title,
        unit=fetch_unit_name(artefacts),
        script=render_fetch_script(rig, artefacts, client, python),
        test=f"{{ {unless}; }} || {test}" if unless else test,
        folder=rig.roots.jobs,
        watch=f"files {rig.roots.models}/.progress.json",
        files=rig.bundle.files(_unverified_artefacts(rig, artefacts)) if rig.bundle else (),
        present=present,
        secrets=fetch_credentials(rig.network, rig.bundle, artefacts),
    )


def render_wheel_values(rig: Rig, wheels: Sequence[Artefact], unit: str, tools: str) -> dict[str, object]:
    """The values of templates/jobs/wheels.sh.j2 in a job that installs wheels.

    Args:
        rig: The rig; the programs are on its host.
        wheels: The wheels that pip installs.
        unit: The job's.
        tools: The folder of an environment on the host that has pip.
    """
    fetched = job_wheels_folder(rig, unit)
    return {
        "network": job_network(rig.roots, rig.network),
        "sent": sent_files_folder(rig.roots.jobs, unit) if rig.bundle else "",
        "fetched": fetched,
        "spec": render_wheels_spec(rig.network, wheels, fetched, f"{tools}/bin/python"),
        "programs": weights_program_folder(rig.roots),
        "package": PACKAGE,
    }


def job_wheels_folder(rig: Rig, unit: str) -> str:
    """Where a job keeps its wheels until they are installed."""
    return f"{rig.roots.jobs}/{unit}/wheels"


def drop_artefacts(rig: Rig, artefacts: Sequence[Artefact], title: str, unlocked: Sequence[str] = ()) -> None:
    """Have packages of ours away from below the models' root; the programs are there.

    Args:
        rig: The rig.
        artefacts: Wheels or conda packages.
        title: The job's work, in the operator's words.
        unlocked: Paths of those that no lock has any more.
    """
    paths = [f"{rig.roots.models}/{path}" for path in (*(one.package_path for one in artefacts), *unlocked)]
    lines = "".join(f"file {path}\nfile {path}.part\n" for path in paths)
    made = render_fetch_spec(rig.roots, rig.accounts, rig.network, rig.fs_verity, artefacts, unlocked=unlocked)
    ensure_job(
        name=title,
        unit=f"rw-job-drop-{hashlib.sha256(made.encode()).hexdigest()[:12]}",
        script=render("weights/drop.sh.j2", programs=weights_program_folder(rig.roots), package=PACKAGE, spec=made),
        # foreign files there stay
        test=f"! printf %s {shlex.quote(lines)} | grep -qxF -f - {shlex.quote(rig.roots.ledger)} 2>/dev/null",
        folder=rig.roots.jobs,
    )


def _unverified_artefacts(rig: Rig, artefacts: Sequence[Artefact]) -> list[Artefact]:
    """The files that a bundle has to send: a job that was ended may have verified some of many files before."""
    if len(artefacts) == 1:
        return list(artefacts)
    names = [recorded_file(rig.roots, artefact).record for artefact in artefacts]
    there = host.get_fact(VerifiedRecordsFact, folder=records_folder(rig.roots), records=names)
    return [artefact for artefact, name in zip(artefacts, names, strict=True) if name not in there]


def render_fetch_script(rig: Rig, artefacts: Sequence[Artefact], client: str = "", python: str = "") -> str:
    """The job's script.

    Args:
        rig: The rig.
        artefacts: The artefacts that it brings.
        client: As `ensure_fetched` is given it.
        python: As `ensure_fetched` is given it.
    """
    given = sent_files_folder(rig.roots.jobs, fetch_unit_name(artefacts)) if rig.bundle else ""
    return render(
        "weights/fetch.sh.j2",
        network=job_network(rig.roots, rig.network),
        sent=given,
        programs=weights_program_folder(rig.roots),
        package=PACKAGE,
        spec=render_fetch_spec(
            rig.roots,
            rig.accounts,
            rig.network,
            rig.fs_verity,
            artefacts,
            f"{client}/bin/python" if client else "",
            given,
            "" if given else python,
        ),
    )
