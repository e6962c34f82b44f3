"""`rigwright test`: all that has to hold before a change lands, and proofs that not every machine can give."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import click

from cli import test_durations
from cli.inventory_loading import SuggestingChoice
from cli.test_durations import DurationRecord
from lab import base_images, gpu_passthrough
from lab.machine_requirements import CACHE, STATE
from rigwright.project_root import IS_CLONE, ROOT
from rigwright.safe_text import wrap_words

Commands = list[list[str]]
"""Commands that run at the same time."""


@dataclass(frozen=True)
class SuiteStage:
    """One part of the tests. Its commands are run one set after the other."""

    what: str
    long: str
    needs: str
    commands: tuple[Commands, ...] = ()
    folder: str = ""
    """Tests that are shared out among processes, instead of commands."""


STAGES = {
    "lint": SuiteStage(
        "ruff, its format, imports between folders, shellcheck, and the site of docs/ with its links",
        "15 s",
        "nothing",
        (
            [["ruff", "check", "."]],
            [["ruff", "format", "--check", "."]],
            [["lint-imports", "--no-cache", "--no-logo"]],
            [["shellcheck", "rig", ".ci/run"]],
            # `--quiet` hides warnings from `--strict`, too
            [["mkdocs", "build", "--strict"]],
        ),
    ),
    "types": SuiteStage("mypy, strict", "seconds", "nothing", ([["mypy"]],)),
    "unit": SuiteStage(
        "decisions: each file of tests/unit that takes at most 3 s", "2.5 min", "nothing", folder="tests/unit"
    ),
    "programs": SuiteStage(
        "the other files of tests/unit: programs, servers and whole commands", "3.5 min", "nothing", folder="tests/unit"
    ),
    "hosts": SuiteStage(
        "throwaway hosts: one end-to-end test of each feature; some faults, drifts and cut-off deploys",
        "7 min; 5 more to compile an engine",
        "root",
        folder="tests/hosts",
    ),
}
# For tests that fetch gigabytes or compile for cards: seconds, beside those of pyproject.toml
LONG = ["--timeout=7200", "-o", "faulthandler_timeout=9000"]
# Asked for by name alone.
PROOFS = {
    "gpu": SuiteStage(
        "a machine with a card, broken in each way that a check must detect",
        "10 min",
        "a card, its driver and a CUDA toolkit; or --host",
        ([["pytest", "-s", "-v", "--no-header", *LONG, "tests/gpu"]],),
    ),
    "dkms": SuiteStage(
        "Debian's own driver, compiled by DKMS, and a kernel that it does not support",
        "10 min",
        "root, 350 MB from Debian's archive",
        ([["pytest", "-v", "--no-header", *LONG, "tests/dkms"]],),
    ),
    "vllm": SuiteStage(
        "vLLM's locked packages: an environment on a throwaway host; command lines, judged by each locked version",
        "10 min, and the download of 4 GB",
        "root, 18 GB of disk, a CPython 3.10, cc and nm",
        ([["pytest", "-s", "-v", "--no-header", *LONG, "tests/vllm"]],),
    ),
    "nvcc": SuiteStage(
        "the locked CUDA toolkit with the newest C library: kernels, llama.cpp and FlashInfer in Debian testing",
        "6 min, and the download of 800 MB",
        "root, debootstrap, gcc, Debian's archive, 4 GB of disk",
        ([["pytest", "-v", "--no-header", *LONG, "tests/nvcc"]],),
    ),
}
ALL = SuiteStage(
    "all stages, with all other tests on hosts, compilations, both releases",
    "three hours",
    "root",
)
EVERY = {**STAGES, "all": ALL, **PROOFS}


_PROOFS = f"{', '.join([*PROOFS][:-1])} and {[*PROOFS][-1]}"


def stage_rows() -> list[tuple[str, str, str, str]]:
    """The stages: name, contents, duration on two cores, and needs. A page has the same."""
    return [(name, stage.what, stage.long, stage.needs) for name, stage in EVERY.items()]


_ROWS = "\n".join(
    line
    for name, what, long, needs in stage_rows()
    for text, lead in ((what, f"{name:8}  "), (f"{long}; needs {needs}", " " * 10))
    for line in wrap_words(text, 78, lead, " " * 10)  # the help indents them by two
)
HELP = f"""Run Rigwright's own tests.

Without STAGES: lint, types, unit, programs and hosts. `all` runs every test of these; `all unit`, every test of one.
{_PROOFS} run only by name. CONTRIBUTING.md describes the stages. Times are for two cores, with base images and
engines in {CACHE}.

\b
{_ROWS}
"""


@click.command(help=HELP)
@click.argument("stages", nargs=-1, type=SuggestingChoice([*EVERY]))
@click.option("--record", is_flag=True, help="Write durations of passed tests to tests/durations.json.")
@click.option("--host", metavar="[USER@]ADDRESS", help="gpu: a real machine instead of a throwaway host.")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="gpu: its bundle.",
)
@click.option(
    "--vllm",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="gpu: vLLM's bundle, as tests/gpu/vllm_bundle.py makes it.",
)
@click.option("--also-build-for", metavar="LIST", help="gpu: more compute capabilities, such as 7.5,8.6,12.0.")
@click.option(
    "--release", type=SuggestingChoice(sorted(base_images.RELEASES)), help="gpu: release of the throwaway host."
)
@click.option("--leave-up", is_flag=True, help="gpu: keep the throwaway host, for `rigwright bench`.")
def test(stages: tuple[str, ...], record: bool, **options: str | bool | None) -> None:
    """Run Rigwright's own tests."""
    if not IS_CLONE:
        raise click.ClickException("the tests are in a clone of the repository, and this Rigwright is installed")
    given = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in options.items()
        if value
    ]
    if given and set(stages) != {"gpu"}:
        raise click.UsageError(f"{', '.join(given)}: only `rigwright test gpu` takes that")
    if record and set(stages) & set(PROOFS):
        raise click.UsageError(f"--record: {_PROOFS} have no time budget")
    names, whole = select_stages(stages)
    red = False
    for name in names:
        if name == "gpu" and not options["host"] and not gpu_passthrough.has_card():
            lacks = "; ".join(gpu_passthrough.missing_requirements())
            click.echo(f"==> gpu: skipped: {lacks}; give a machine that has one with --host")
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found, failed = run_stage(name, whole, given, Path(folder))
        red = red or failed
        if record:
            test_durations.DurationRecord.load().with_measured(name, found, whole, failed).save()
        elif red and not whole:
            break  # `all` goes on: one failure does not cost the results of the other stages
    if record:
        _print_budgets(DurationRecord.load())
    if red:
        sys.exit(1)


def select_stages(stages: Sequence[str]) -> tuple[list[str], bool]:
    """The stages to run, and whether as a part of `all`."""
    whole = "all" in stages
    named = [name for name in stages if name != "all"]
    return named or [*STAGES], whole


def run_stage(name: str, whole: bool, given: list[str], folder: Path) -> tuple[dict[str, tuple[float, bool]], bool]:
    """Run a stage; returns what that took which passed, as Record.with_measured takes it, and whether it failed."""
    stage, failed, took = EVERY[name], False, dict[str, tuple[float, bool]]()
    layers = STATE / f"layers-{os.getpid()}"
    for commands in [stage_commands(name, whole, folder, layers)] if stage.folder else stage.commands:
        started = time.monotonic()
        try:
            failed = _run_commands([[*command, *given] for command in commands])
        finally:
            shutil.rmtree(layers, ignore_errors=True)
        seconds = time.monotonic() - started
        click.echo(f"==> {name}: {'failed' if failed else 'ok'} after {seconds:.0f} s")
        if failed:
            break
        if not stage.folder:
            took[" ".join(commands[0])] = (seconds, False)
    for file in folder.glob("took-*"):
        for what, (seconds, all_only) in json.loads(file.read_text()).items():
            known = took.get(what, (0.0, True))
            took[what] = (max(seconds, known[0]), all_only and known[1])
    return took, failed


def stage_commands(name: str, whole: bool, folder: Path, layers: Path) -> Commands:
    """The processes of a stage, which share out its tests, and what its hosts boot from."""
    stage = STAGES[name]
    options = ["-v", f"--layers={layers}"] if name == "hosts" else ["-q", f"--stage={name}"]
    options += [] if whole else ["--quick"]
    number_of = test_durations.process_count(name)
    return [
        [
            "pytest",
            *options,
            f"--share={number}/{number_of}",
            f"--measure={folder / f'took-{number}'}",
            # of its own: processes that clean up after each other were seen to run out of file descriptors
            f"--basetemp={folder / f'files-{number}'}",
            stage.folder,
        ]
        for number in range(1, number_of + 1)
    ]


def _print_budgets(record: DurationRecord) -> None:
    for what, budget in test_durations.BUDGETS.items():
        total = record.budgeted(what)
        click.echo(f"==> {what}: {total / 60:.1f} of {budget / 60:g} min by recorded durations")
    if (added := record.added_seconds()) > test_durations.MAX_ADDED_SECONDS:
        click.echo(
            f"==> `rigwright test` takes {added:.0f} s more than before; a change may add "
            f"{test_durations.MAX_ADDED_SECONDS} s:"
        )
        for line in record.describe_growth(whole=False):
            click.echo(f"      {line}")


def _run_commands(commands: list[list[str]]) -> bool:
    """Run commands at the same time; whether one failed. Of several, each line has its command's number before it."""
    for command in commands:
        words = " ".join(command)
        click.echo(f"==> {words if len(words) < 120 else words[:120] + ' ...'}")
    programs = [[str(Path(sys.executable).with_name(command[0])), *command[1:]] for command in commands]
    # a line is printed when it is there, not when a pipe is full
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "NO_MKDOCS_2_WARNING": "1"}
    if len(programs) == 1:
        return subprocess.run(programs[0], cwd=ROOT, env=environment, check=False).returncode != 0
    running = [
        subprocess.Popen(
            program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for program in programs
    ]
    tellers = [Thread(target=_print_output, args=pair) for pair in enumerate(running, start=1)]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    return any(process.wait() for process in running)


def _print_output(number: int, process: subprocess.Popen[str]) -> None:
    for line in process.stdout or ():
        click.echo(f"{number}| {line}", nl=False)
