"""README shows what a host says: a way back, a rollback, and a refusal beside another run's deploy lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from lab.hosts import Host
from lab.labs import Lab
from tests.hosts.support import command, deploy, until
from tests.hosts.test_deploy_lock import HELD, keep_waiting
from tests.hosts.test_generations import declare
from tests.shown import alike, everywhere
from tests.unit.terminal import on_terminal

# what is said is of this machine, and of scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)


def said(verb: str, inventory: Path, *options: str) -> str:
    """All that the command says on a terminal of 80 columns."""
    _, told = on_terminal([sys.executable, "-m", "cli", verb, str(inventory), *options], os.environ)
    return alike(click.unstyle(told))


@pytest.mark.all_only
def test_a_host_says_what_readme_shows(lab: Lab, converged: Host, tmp_path: Path) -> None:
    def box1(folder: str, variant: str, **rig: object) -> Path:
        path = declare(tmp_path / folder, lab, converged, variant, **rig)
        path.write_text(path.read_text().replace("'box':", "'box1':"))
        return path

    shown = everywhere()
    bad = box1("bad", "llamacpp/bad", allow=["flags.grammar-file"])
    told = said("deploy", bad)
    for line in shown["way-back"].splitlines():
        assert alike(line) in told, told

    wide = box1("wide", "llamacpp/wide")
    run = deploy(wide)
    assert run.status == 0, run.said
    said("rollback", wide, "--to", "1")
    told = f"{said('status', wide)} {said('generations', wide)}"
    # a throwaway host does not count what an instance holds of its memory
    assert told == alike(shown["rolled-back"]).replace(" memory", "").replace(" SIZE", "")

    keep_waiting(converged)
    with subprocess.Popen(
        command(wide, "--yes"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    ) as first:
        until(lambda: "held" in converged.run(HELD), "the first run holds the lease")
        told = said("deploy", wide)
        os.killpg(first.pid, signal.SIGKILL)
    assert alike(shown["refused"]) in told
