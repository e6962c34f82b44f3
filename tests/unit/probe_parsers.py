"""Parsers in shell: stand-ins print samples to a script, and what that tells over the channel is read."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rigwright.containers import container_facts as container_facts
from rigwright.nvidia.driver import driver_facts as driver_facts
from rigwright.plan import host_probe as host_probe
from rigwright.render import render
from rigwright.serving import serving_state
from tests.unit import short_programs
from tests.unit.container_samples import container_rig
from tests.unit.parser_table import DATA, KILLED, ParserRow
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_probe_values, sample_rig

# Without a package's name apt-cache tells of its sources; about one folder alone df is asked where it has failed
FIRST = {"apt-cache": f'[ "$*" != policy ] || exec cat {DATA}/policy-all.txt; ', "df": "[ $# -gt 4 ] || exit 1; "}
FAILS = frozenset({0, 1})
"""Exit statuses of dpkg-query without a failure: it ends with 1 where it does not know a package."""


def fact_fields(found: Any, *names: str) -> dict[str, object]:
    """Some fields of what a host tells, with lists for what is in no order."""
    rows = asdict(found)
    return {
        name: sorted(rows[name], key=repr) if isinstance(rows[name], (tuple, frozenset)) else rows[name]
        for name in names
    }


def script_parser(
    script: str, read: Callable[[list[str]], Any], program: str, **others: str
) -> Callable[[str, int], Any]:
    """A script's reader: the program prints the text, and the others print samples; empty texts stand for nothing."""

    def parse(text: str, status: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder, "said")
            said.write_bytes(text.encode(errors="replace"))
            for name, sample in others.items():
                write_stand_in(
                    Path(folder, "bin"), name.replace("_", "-"), f"cat {DATA / sample}" if sample else "true"
                )
            first = FIRST.get(program, "")
            ends = "kill -9 $$" if status == KILLED else f"exit {status}"
            write_stand_in(Path(folder, "bin"), program, f"{first}cat {said}; {ends}")
            done = short_programs.run_program(["sh", "-c", script], env={"PATH": f"{folder}/bin:{os.environ['PATH']}"})
        return read(done.stdout.splitlines())

    return parse


def _read_driver(output: list[str]) -> dict[str, object]:
    found = driver_facts.parse(output)
    if found.apt_failure:
        raise ValueError(found.apt_failure)
    return fact_fields(found, "packages", "half", "held")


def _read_containers(output: list[str]) -> dict[str, object]:
    found = container_facts.parse(output)
    if found.apt_failure:
        raise ValueError(found.apt_failure)
    return {"packages": {**found.packages}, "candidates": {**found.candidates}, "held": sorted(found.held)}


def _read_host(output: list[str]) -> dict[str, object]:
    found = host_probe.parse(output)
    listeners = [asdict(one) for one in found.listeners]
    disks = {**found.disk_free_kib}
    there = sorted({"podman", "curl"} - {*found.missing_packages})
    return {"listeners": listeners, "addresses": sorted(found.addresses), "disks": disks, "there": there}


def _read_serving(output: list[str]) -> dict[str, object]:
    found = serving_state.parse(output)
    return {"processes": {name: str(one) for name, one in found.processes.items()}, "holders": [*found.sockets]}


PROBE = render(
    "probe/probe.sh.j2", **sample_probe_values(folders=["/srv", "/opt", "/usr"], packages=["podman", "curl"])
)
STATE = serving_state.render_state_query(
    "/nowhere/etc", "/nowhere/opt", "/nowhere/starts", "/nowhere/build", "/nowhere/owned"
)
first_rig = sample_rig()
box_rig = container_rig()
DRIVER, CONTAINERS = (
    driver_facts.render_probe(first_rig.roots, first_rig.toolkit),
    container_facts.render_probe(box_rig.roots, box_rig.cards, box_rig.containers, box_rig.container_supply),
)
OTHERS = {"apt_cache": "policy.txt", "dpkg_query": "dpkg-versions.txt"}
APT = {"systemctl": "", "nvidia_smi": "", "modinfo": ""}


def _other_samples(program: str) -> dict[str, str]:
    return {name: sample for name, sample in (OTHERS | APT).items() if name != program}


EVERY = frozenset({0, 1, 2, 124, KILLED})


def _probe_parser(program: str, **others: str) -> Callable[[str, int], Any]:
    samples = {"df": "df.txt", "ip": "ip-addr.txt"} | others
    samples.pop(program, None)
    return script_parser(PROBE, _read_host, program, **samples)


PROBES: dict[str, ParserRow] = {
    **{
        f"{name}: {program}": ParserRow(
            OTHERS[program],
            script_parser(script, read, program.replace("_", "-"), **_other_samples(program)),
            ValueError,
            allowed=FAILS if program == "dpkg_query" else frozenset({0}),
            moves=None if program == "apt_cache" else "\n",
            costs=40,
        )
        for name, script, read in (
            ("driver probe", DRIVER, _read_driver),
            ("containers probe", CONTAINERS, _read_containers),
        )
        for program in OTHERS
    },
    "probe: ss": ParserRow("ss.txt", _probe_parser("ss", systemctl=""), ValueError, costs=40),
    "probe: ip": ParserRow(
        "ip-addr.txt", _probe_parser("ip", ss=""), ValueError, allowed=frozenset({0, 127}), costs=40
    ),
    "probe: df": ParserRow(
        "df.txt",
        _probe_parser("df", ss=""),
        ValueError,
        allowed=frozenset({0, 1, 2, 124, KILLED}),
        moves=None,
        costs=40,
    ),
    "probe: dpkg-query": ParserRow(
        "dpkg-present.txt", _probe_parser("dpkg-query", ss=""), ValueError, allowed=FAILS, costs=40
    ),
    "state: units": ParserRow(
        "show-served.txt", script_parser(STATE, _read_serving, "systemctl", ss=""), ValueError, moves="\n\n", costs=40
    ),
    "use": ParserRow(
        "show-use.txt",
        script_parser(
            render("look/use.sh.j2"),
            lambda output: {
                k: (v.since, v.memory, v.start_seconds) for k, v in serving_state.parse_unit_usage(output).items()
            },
            "systemctl",
        ),
        ValueError,
        moves="\n\n",
        costs=20,
    ),
}
