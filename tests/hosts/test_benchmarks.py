"""Each benchmark and bench once, run as its users run it, with as little as it takes. No figure is judged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import LabHost
from rigwright.project_root import ROOT
from tests.hosts.support import is_serving, main_pid
from tests.stand_ins import conda_python


def benchmark(*words: str | Path) -> str:
    """Run `python -m benchmarks` to its end and return its output."""
    return run("benchmarks", *words)


def run(module: str, *words: str | Path) -> str:
    """Run a module of the checkout to its end and return its output."""
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"\n{done.stdout}")
    return done.stdout


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_an_instance_is_timed_bare_in_its_unit_and_through_its_port_and_serves_again(
    converged: LabHost, inventory: Path, tmp_path: Path
) -> None:
    before = main_pid(converged)
    file = tmp_path / "figures.json"
    small = ("--streams", "1,2", "--requests", "1", "--tokens", "8", "--loads", "2", "--rounds", "2")
    said = run("cli", "bench", "serving", inventory, *small, "--json", file)
    assert "socket unit and proxy, at worst: TTFT" in said
    figures = json.loads(file.read_text())
    for beside in ("unit_by_bare", "port_by_unit"):
        counted = {streams: len(pairs["first_later_s"]["loads"]) for streams, pairs in figures[beside].items()}
        assert counted == {"1": 4, "2": 4}
    assert is_serving(converged)
    assert main_pid(converged) != before
    assert converged.run("find /run -maxdepth 1 -name 'rw-bench*'") == ""


def test_verbs_that_change_nothing_are_timed(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    benchmark("start", "--hosts", "1", "--runs", "1", "--json", file)
    rows = json.loads(file.read_text())["rows"]
    assert [row["verb"] for row in rows] == [
        "--help",
        "validate",
        "status",
        "plan",
        "deploy",
        "check",
        "status, frozen",
    ]
    assert all(min(row["seconds"]) > 0 and row["peak_bytes"] > 1e6 for row in rows)
    assert [row["sessions"] > 0 for row in rows] == [False, False, *[True] * 5]


@pytest.fixture
def nginx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution's nginx, unpacked where this machine has none: installed, it would be started."""
    if not shutil.which("nginx"):
        lists = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"]
        for command in (lists, ["apt-get", "-qq", "download", "nginx"]):
            subprocess.run(command, cwd=tmp_path, check=True)
        (package,) = tmp_path.glob("nginx_*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), str(tmp_path / "nginx")], check=True)
        monkeypatch.setenv("PATH", f"{tmp_path}/nginx/usr/sbin:{os.environ['PATH']}")


@pytest.mark.usefixtures("nginx")
def test_weights_are_timed_beside_other_programs_and_nothing_is_left(tmp_path: Path) -> None:
    scratch, file = tmp_path / "scratch", tmp_path / "figures.json"
    scratch.mkdir()
    benchmark("weights", "--mebibytes", "64", "--runs", "1", "--folder", scratch, "--json", file)
    figures = json.loads(file.read_text())
    compared = [row for row in figures["rows"] if row["against"]]
    assert len(compared) == 6
    assert all(row["ratio"] > 0 for row in compared)
    assert figures["uplink"] >= 1
    assert list(scratch.iterdir()) == []


def test_an_inventory_of_many_boxes_is_timed_beside_one_of_one(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    benchmark("inventory", "--runs", "1", "--boxes", "50", "--json", file)
    assert {row["hosts"] for row in json.loads(file.read_text())["rows"]} == {1, 50}


def test_connections_to_many_simulated_hosts_are_timed(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    benchmark("fleet", "--hosts", "12", "--faulty", "0", "--json", file)
    assert {row["hosts"] for row in json.loads(file.read_text())["rows"]} == {1, 12}


@pytest.mark.all_only
def test_a_deploy_that_changes_nothing_is_timed_beside_the_peer(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    said = benchmark("converge", "--runs", "1", "--json", file)
    assert "ansible takes" in said
    rows = json.loads(file.read_text())["rows"]
    assert {(row["verb"], row["hosts"]) for row in rows} == {
        (verb, hosts) for verb in ("ansible-playbook", "rig deploy") for hosts in (1, 4)
    }
    assert all(row["ratio"] > 0 and row["sessions"] > 0 for row in rows)


@pytest.mark.all_only
def test_environments_are_timed_beside_uv_and_drawn_once(tmp_path: Path) -> None:
    if not (found := conda_python.find_interpreter()).wanted:
        pytest.skip(f"{found} is the only interpreter here")
    file = tmp_path / "figures.json"
    benchmark("envs", "--which", "small", "--json", file)
    figures = json.loads(file.read_text())
    assert {row["what"]: len(row["theirs"]) > 0 for row in figures["rows"]} == {
        "deploy that brings it": True,
        "of it putting together, judging, trying": False,
        "deploy that changes nothing": True,
        "files compared with root's record": False,
    }
    assert all(min(row["ours"]) > 0 for row in figures["rows"])
    assert figures["uplink"] >= 1


@pytest.mark.all_only
def test_another_box_is_timed_beside_the_gateways_own(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    said = benchmark("boxes", "--rounds", "1", "--seconds", "1", "--streams", "1,4", "--json", file)
    assert "P99 of the first token of another box" in said
    loads = [load for row in json.loads(file.read_text())["rows"] for one in row["loads"].values() for load in one]
    assert len(loads) == 4
    assert all(load["requests"] for load in loads)


@pytest.mark.all_only
def test_a_deploy_and_a_check_of_many_simulated_hosts_are_timed(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    benchmark("fleet-verbs", "--hosts", "1,6", "--faulty", "1", "--json", file)
    rows = json.loads(file.read_text())["rows"]
    assert {(row["verb"], row["hosts"], row["faulty"]) for row in rows} == {
        (verb, *fleet) for verb in ("deploy", "check") for fleet in ((1, 0), (6, 0), (6, 1))
    }


@pytest.mark.all_only
def test_a_gateway_is_timed_beside_the_instance_and_another_proxy(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    small = ("--rounds", "1", "--seconds", "0.5", "--streams", "1,4", "--crowd", "16")
    said = benchmark("gateway", *small, "--json", file)
    assert "gateway: TTFT P99 with 4 streams" in said
    figures = json.loads(file.read_text())
    ways = {"socket", "port", "gateway", "gateway, TLS"} | (set() if figures["skipped"] else {"LiteLLM"})
    assert {row["way"] for row in figures["rows"]} == set(figures["short"]) == ways
    assert all(len(load["requests"]) > 0 for row in figures["rows"] for load in row["loads"])
    assert {crowd["streams"] for crowd in figures["crowds"]} == {16}
    assert [one["bodies"] > 0 for one in figures["large"]] == [True, True]


@pytest.mark.all_only
def test_each_state_is_timed_and_the_first_lines_of_check_state_its_cause(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    output = benchmark("states", "--hosts", "1", "--runs", "1", "--json", file)
    rows = json.loads(file.read_text())["rows"]
    causes = {
        "healthy": "conforms (",
        "stopped": "chat was stopped by hand on ",
        "loading": "chat is starting since ",
        "failed": "the weight file ",
        "edited": "the box runs generation 1; the inventory declares another",
        "undeployed": "not deployed",
        "unreachable": "cannot be reached",
    }
    assert [row["verb"] for row in rows] == [f"{what}, {state}" for state in causes for what in ("questions", "check")]
    assert all(min(row["seconds"]) > 0 for row in rows)
    for state, cause in causes.items():
        first = f"\n{output}".partition(f"\n{state}:\n")[2].partition("\n\n")[0].splitlines()
        assert len(first) <= 3
        assert max(map(len, first)) <= 80
        # the folder of an inventory can make a line of its own of what a terminal breaks
        assert cause in " ".join(line.strip() for line in first)


def test_memory_of_engines(tmp_path: Path) -> None:
    engine = ROOT / "tests/stand_ins/allocating_engine.py"
    said = run("benchmarks.memory_fit", "--server", engine, "--models", tmp_path, "--count", "1")
    assert "5 variants, 6 starts, 0 failed" in said


@pytest.mark.all_only
def test_many_boxes_pull_from_one_web_server(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    benchmark("pullers", "--boxes", "8", "--json", file)
    assert [(row["boxes"], row["verified"]) for row in json.loads(file.read_text())["rows"]] == [(8, 8), (8, 8)]


@pytest.mark.all_only
def test_models_on_demand(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    said = benchmark("on-demand", "--pairs", "1", "--seconds", "10", "--models", "2", "--clients", "2", "--json", file)
    assert "median ratio" in said
    loads = json.loads(file.read_text())["loads"]
    assert [row["server"] for row in loads] == ["Rigwright", "llama-server's router"]
    assert [one["problem"] for row in loads for one in row["requests"] if one["problem"]] == []
