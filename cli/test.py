"""`rigwright test`: all that has to hold before a change lands, and proofs that not every machine can give."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import click

from lab import gpus, images
from lab.machine import Unsupported
from rigwright.inventory import ROOT

UNIT = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "unit").glob("test_*.py"))
# Each of a stage's lines is a set of commands that run at the same time. Host tests of a Debian release share a
# process: they boot from what the first of them has left.
STAGES = {
    "lint": [[["ruff", "check", "."]], [["ruff", "format", "--check", "."]], [["shellcheck", "rig", ".ci/run"]]],
    "types": [[["mypy"]]],
    "unit": [[["pytest", "-q", *UNIT[0::2]], ["pytest", "-q", *UNIT[1::2]]]],
    "hosts": [[["pytest", "-v", "tests/hosts", "-k", words] for words in ("debian-12", "not debian-12")]],
}
# Asked for by name alone.
PROOFS = {
    "gpu": [[["pytest", "-s", "-v", "--no-header", "tests/gpu"]]],
    "dkms": [[["pytest", "-v", "--no-header", "tests/dkms"]]],
}


def _no_card() -> str:
    """Why this machine cannot show anything of a card; "" if it can."""
    try:
        gpus.require()
    except Unsupported as error:
        return str(error)
    return ""


@click.command()
@click.argument("stages", nargs=-1, type=click.Choice([*STAGES, *PROOFS]))
@click.option("--host", metavar="[USER@]ADDRESS", help="gpu: a real machine, in place of a throwaway host.")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="gpu: its bundle.",
)
@click.option("--also-build-for", metavar="LIST", help="gpu: more compute capabilities, such as 7.5,8.6,12.0.")
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), help="gpu: what the throwaway host runs.")
@click.option("--leave-up", is_flag=True, help="gpu: leave the throwaway host up, as `rigwright bench` needs it.")
def test(stages: tuple[str, ...], **options: str | bool | None) -> None:
    """Run the project's own tests: lint, types, unit tests, and tests on throwaway hosts; those four without a name.

    Host tests need root and some 35 minutes on two cores, in which llama.cpp is compiled once a Debian release.

    `test gpu` deploys inventory/metal.py to a machine with an NVIDIA card and breaks it in every way that a check must
    notice: it stops and kills the service, hides device files, takes memory of the first card and leads the dynamic
    linker astray, and puts each right again. It needs a driver, a CUDA toolkit in /usr/local/cuda and root here; or a
    machine that has them and that nobody uses, as --host: the rig stays on that one, until `rigwright remove
    inventory/metal.py` takes it off. Without a card it says so and does nothing.

    `test dkms` has the driver's role install Debian's own NVIDIA driver, which DKMS really compiles, and brings a
    kernel that it does not compile for. It needs root, 350 MB from Debian's archive, and some ten minutes on two cores.
    """
    given = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in options.items()
        if value
    ]
    if given and set(stages) != {"gpu"}:
        raise click.UsageError(f"{', '.join(given)}: only `rigwright test gpu` takes that")
    for stage in stages or tuple(STAGES):
        if stage == "gpu" and not options["host"] and (without := _no_card()):
            click.echo(f"==> gpu: skipped: {without}; give a machine that has one with --host")
            continue
        for commands in {**STAGES, **PROOFS}[stage]:
            started = time.monotonic()
            failed = _run([[*command, *given] for command in commands])
            click.echo(f"==> {stage}: {'failed' if failed else 'ok'} after {time.monotonic() - started:.0f} s")
            if failed:
                sys.exit(1)


def _run(commands: list[list[str]]) -> bool:
    """Run commands at the same time; whether one failed. Of several, each line has its command's number before it."""
    for command in commands:
        words = " ".join(command)
        click.echo(f"==> {words if len(words) < 120 else words[:120] + ' ...'}")
    programs = [[str(Path(sys.executable).with_name(command[0])), *command[1:]] for command in commands]
    if len(programs) == 1:
        return subprocess.run(programs[0], cwd=ROOT, check=False).returncode != 0
    # a line is told when it is there, not when a pipe is full
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    running = [
        subprocess.Popen(
            program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for program in programs
    ]
    tellers = [Thread(target=_tell, args=pair) for pair in enumerate(running, start=1)]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    return any(process.wait() for process in running)


def _tell(number: int, process: subprocess.Popen[str]) -> None:
    for line in process.stdout or ():
        click.echo(f"{number}| {line}", nl=False)
