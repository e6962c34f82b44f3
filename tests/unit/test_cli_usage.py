"""`rigwright usage`: tokens of all gateways of an inventory, read by a script on each host."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli import usage as verb
from rigwright.gateway import token_usage
from rigwright.gateway.token_usage import parse_host_usage, render_usage_query

Run = Callable[..., Result]
FILES = (
    {
        "2026-10-31": "alice big 9 9 9 9 9\nend\n",
        "2026-11-28": "- tiny 1 7 3 0 0\nalice tiny 2 14 6 4 1\nend\n",
        "2026-11-29.new": "alice",
    },
    {"2026-11-29": "alice big 1 100 50 0 0\nbob tiny 4 28 12 0 0\nend\n"},
    {"2026-11-29": "alice big 1 100 50 0 0\nbob ti"},
)


def ask(folder: Path, files: dict[str, str]) -> Callable[..., object]:
    """A host with these files: it runs the script that it is given."""
    folder.mkdir()
    words = "--reuid=rw-gateway --regid=rw-gateway --clear-groups --no-new-privs"
    (folder / "setpriv").write_text(f'#!/bin/sh\n[ "$1 $2 $3 $4" = "{words}" ] && shift 4 && exec "$@"\n')
    (folder / "setpriv").chmod(0o755)
    for day, text in files.items():
        (folder / f"usage-{day}").write_text(text)
    path = f"{folder}:{os.environ['PATH']}"

    def run(parse: Callable[[list[str]], object], script: str) -> object:
        script = script.replace(token_usage.USAGE, f"{folder}/usage-")
        done = subprocess.run(["sh"], input=script, capture_output=True, text=True, env={"PATH": path}, check=True)
        return parse(done.stdout.splitlines())

    return run


@pytest.fixture
def usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The verb, with the hosts of these numbers, and others that are out of reach."""
    (tmp_path / "rig.py").write_text("")
    rig = SimpleNamespace(gateway=object(), accounts=SimpleNamespace(gateway="rw-gateway"))

    def run(*words: str, hosts: tuple[int, ...] = (0, 1), gone: tuple[str, ...] = (), gateway: bool = True) -> Result:
        found = [
            SimpleNamespace(name=f"box{n}", rig=rig, run_and_parse=ask(tmp_path / f"box{n}", FILES[n])) for n in hosts
        ]

        def connect(inventory: str, limit: str | None, look: Any, judge: Callable[[object], object]) -> object:
            judge({"box": rig if gateway else SimpleNamespace(gateway=None)})
            return [(box, look(box)) for box in found], dict.fromkeys(gone, "no route")

        monkeypatch.setattr(verb, "map_inventory", connect)
        return CliRunner().invoke(verb.usage, [str(tmp_path / "rig.py"), *words])

    return run


def test_gateways_are_summed_by_key(usage: Run) -> None:
    done = usage("--since", "2026-11-01")
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["key", "requests", "input", "output", "cached", "unknown"],
        ["-", "1", "7", "3", "0", "0"],
        ["alice", "3", "114", "56", "4", "1"],
        ["bob", "4", "28", "12", "0", "0"],
        ["all", "8", "149", "71", "4", "1"],
    ]
    assert done.stderr.startswith("tokens since 2026-11-01 (UTC), of 2 gateways")


def test_no_tokens_are_reported_as_such(usage: Run) -> None:
    assert usage("--since", "2026-11-30").stderr.startswith("no tokens since 2026-11-30 (UTC)")


def test_programs_get_rows_by_model_or_day(usage: Run) -> None:
    done = usage("--since", "2026-10-01", "--by", "day", "--json")
    assert [row["day"] for row in json.loads(done.stdout)] == ["2026-10-31", "2026-11-28", "2026-11-29"]


def test_csv_has_a_line_for_each_row(usage: Run) -> None:
    done = usage("--since", "2026-11-01", "--by", "model", "--csv")
    assert done.stdout == "model,requests,input,output,cached,unknown\nbig,1,100,50,0,0\ntiny,7,49,21,4,1\n"


def test_a_damaged_count_and_a_host_out_of_reach_are_reported(usage: Run) -> None:
    done = usage("--since", "2026-11-01", "--json", hosts=(0, 2))
    assert (done.exit_code, "box2: 2026-11-29: the gateway's count is damaged" in done.stderr) == (1, True)
    assert [row["key"] for row in json.loads(done.stdout)] == ["-", "alice"]


def test_a_host_out_of_reach_is_a_row_and_a_status(usage: Run) -> None:
    done = usage("--since", "2026-11-01", "--json", gone=("box9",))
    assert (done.exit_code, json.loads(done.stdout)[-1]["host"]) == (3, "box9")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "yesterday"), "must be a day such as 2026-11-01"),
        (("--since", "2026-11-31"), "must be a day such as 2026-11-01"),
        (("--json", "--csv"), "choose --json or --csv"),
        (("--by", "host"), "is not one of"),
    ],
)
def test_wrong_options_are_refused(usage: Run, words: tuple[str, ...], said: str) -> None:
    done = usage(*words, hosts=())
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_an_inventory_without_a_gateway_is_refused(usage: Run) -> None:
    assert "no host has a gateway" in usage(hosts=(), gateway=False).output


def test_a_script_of_no_files_tells_no_days(tmp_path: Path) -> None:
    run = ask(tmp_path / "box", {})
    assert run(parse_host_usage, render_usage_query("rw-gateway", "2026-11-01")) == token_usage.HostUsage((), ())
