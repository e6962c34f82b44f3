"""README shows what a host says: a way back, a rollback, and a refusal beside another run's deploy lock."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.documented_output import all_outputs, normalise_output
from tests.hosts.support import deploy, deploy_command, wait_until
from tests.hosts.test_deploy_lock import HELD, keep_waiting
from tests.hosts.test_generations import declare
from tests.unit.pseudo_terminal import run_on_terminal

# the output is of this machine, and of scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)


def terminal_output(verb: str, inventory: Path, *options: str) -> str:
    """All that the command says on a terminal of 80 columns."""
    _, told = run_on_terminal([sys.executable, "-m", "cli", verb, str(inventory), *options], os.environ)
    return normalise_output(click.unstyle(told))


@pytest.mark.all_only
def test_a_host_says_what_readme_shows(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    def box1(folder: str, variant: str, **rig: object) -> Path:
        path = declare(tmp_path / folder, lab, converged, variant, **rig)
        path.write_text(path.read_text().replace("'box':", "'box1':"))
        return path

    shown = all_outputs()
    bad = box1("bad", "llamacpp/bad", allow=["flags.grammar-file"])
    told = terminal_output("deploy", bad)
    for line in shown["way-back"].splitlines():
        assert normalise_output(line) in told, told

    wide = box1("wide", "llamacpp/wide")
    deploy(wide)
    terminal_output("rollback", wide, "--to", "1")
    told = f"{terminal_output('status', wide)} {terminal_output('generations', wide)}"
    # a throwaway host does not count what an instance holds of its memory
    assert told == normalise_output(shown["rolled-back"]).replace(" memory", "").replace(" SIZE", "")

    keep_waiting(converged)
    with subprocess.Popen(
        deploy_command(wide, "--yes"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    ) as first:
        wait_until(lambda: "held" in converged.run(HELD), "the first run holds the lease")
        told = terminal_output("deploy", wide)
        os.killpg(first.pid, signal.SIGKILL)
    assert normalise_output(shown["refused"]) in told
