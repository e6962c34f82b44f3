"""Ladders and speed of real engines, as an operator asks for them, and `vllm bench serve` beside."""

import csv
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.load_generator import CHAT
from bench.load_ladder_results import LadderStep, LoadResult
from lab.hosts import LabHost
from rigwright import speed_baselines
from rigwright.project_root import ROOT
from tests.hosts import vllm_box
from tests.hosts.support import is_serving, main_pid, wait_until
from tests.hosts.vllm_box import VllmServers
from tests.unit import chat_engine

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
JOBS = "systemctl list-units --all --plain --no-legend 'rw-*'"
STREAMS, TOKENS, TURNS = 4, 150, 6


def rigwright(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    command = [sys.executable, "-m", "cli", *map(str, words)]
    done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    return done


def ladders(file: Path) -> Any:
    return json.loads(file.read_text())["ladders"][0]


def test_real_llama_cpp_is_loaded_measured_and_left_as_it_was(inventory: Path, converged: LabHost) -> None:
    folder = inventory.parent
    before = main_pid(converged)
    files = ("--json", folder / "l.json", "--csv", folder / "l.csv")
    done = rigwright("bench", "load", inventory, "--streams=1,4,8", "--seconds=4", "--workload=short", *files)
    assert done.returncode == 0, done.stderr
    steps = ladders(folder / "l.json")["instances"][0]["steps"]
    assert [step["max_concurrency"] for step in steps] == [1, 4, 8]
    assert all(step["completed"] and not step["failed"] and not step["contaminated"] for step in steps)
    # four slots: the others wait, and the output tells so
    assert max(step["running"] for step in steps) == 4
    assert steps[2]["waiting"] >= 1
    assert "8 streams on 4 slots: up to" in done.stdout
    assert len(list(csv.DictReader((folder / "l.csv").open()))) == 3

    # 500 tokens of a model of 0.8 MB take 0.1 s: whether rates of that can be compared follows from the machine
    done = rigwright("bench", "speed", inventory, "--accept")
    assert done.returncode == 0, done.stderr
    history = speed_baselines.load_history(speed_baselines.history_path(str(inventory), "box")).for_instance("chat")
    (run,) = history.runs
    assert ("accepted: 1 run of 1 start of the engine" in done.stdout) is run.is_comparable is bool(history.accepted)
    assert ("baseline not saved" in done.stdout) != run.is_comparable
    assert (run.fingerprint.driver, run.fingerprint.cards) == ("", ())

    # nothing was restarted, and no job is left
    assert main_pid(converged) == before
    assert converged.run(JOBS) == ""


def test_an_interrupt_ends_the_job_on_the_host_and_keeps_what_came(inventory: Path, converged: LabHost) -> None:
    file = inventory.parent / "l.json"
    words = ["bench", "load", str(inventory), "--streams=1,2", "--seconds=60", "--json", str(file)]
    with subprocess.Popen(
        [sys.executable, "-m", "cli", *words], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as verb:
        assert verb.stderr
        for line in verb.stderr:
            if "step 1 of 2" in line:
                break
        wait_until(lambda: "rw-client-chat" in converged.run(JOBS), "loading")
        verb.send_signal(signal.SIGINT)
        said = verb.communicate(timeout=60)[0]
    assert verb.returncode == 130, said
    assert "not complete: interrupted, after 0 of 2 steps" in said
    assert (ladders(file)["complete"], ladders(file)["ended"]) == (False, "interrupted")
    wait_until(lambda: converged.run(JOBS) == "", "without a job")
    assert is_serving(converged)
    # and the deploy lock is free again
    assert rigwright("bench", "load", inventory, "--streams=1", "--seconds=1").returncode == 0


def test_real_vllm_tells_what_it_uses_while_it_is_loaded(vllm_host: LabHost, vllm: VllmServers, tmp_path: Path) -> None:
    inventory = vllm_box.write_vllm_inventory(tmp_path, vllm_host, vllm, instances=vllm_box.TWO)
    done = rigwright(
        "bench", "load", inventory, "--streams=1,8", "--seconds=5", "--workload=short", "--json", tmp_path / "l.json"
    )
    assert done.returncode == 0, done.stderr
    (one,) = ladders(tmp_path / "l.json")["instances"]
    assert one["max_num_seqs"] == 4
    # looked at once a second, it may never be seen with all of them
    assert 1 < max(step["running"] for step in one["steps"]) <= 4
    assert 0 < max(step["kv"] for step in one["steps"]) < 1
    assert one["steps"][1]["waiting"] >= 1
    assert not any(step["contaminated"] or step["failed"] for step in one["steps"])


def test_vllms_own_bench_runs_in_the_place_of_its_instance(
    vllm_host: LabHost, vllm: VllmServers, tmp_path: Path
) -> None:
    inventory = vllm_box.write_vllm_inventory(tmp_path, vllm_host, vllm, instances=vllm_box.TWO)
    before = main_pid(vllm_host)
    refused = rigwright("bench", "throughput", inventory, "--instance=chat")
    assert (refused.returncode, main_pid(vllm_host)) == (2, before), refused.stderr
    words = ("--instance=chat", "--stop", "--input-tokens=32", "--output-tokens=16", "--json", tmp_path / "f.json")
    done = rigwright("bench", "throughput", inventory, "--prompts=20", *words)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "f.json").read_text())["told"]
    assert told["num_requests"] == 20
    # a random prompt is read back as a token more or less
    assert told["total_num_tokens"] == pytest.approx(20 * (32 + 16), rel=0.05)
    assert is_serving(vllm_host)
    assert main_pid(vllm_host) != before
    assert vllm_host.run(JOBS) == ""
    # a vocabulary of bytes has no token 9,999, which vLLM picks from: it fails, and the instance serves all the same
    done = rigwright("bench", "latency", inventory, "--batch=2", "--batches=2", *words)
    assert done.returncode == 1, done.stdout
    assert is_serving(vllm_host)
    assert vllm_host.run(JOBS) == ""


def test_figures_are_those_of_vllm_bench_serve(vllm_host: LabHost) -> None:
    """Beside each other on a server of fixed timing, held within 5 %: both in the host, by its engine's environment."""
    put(vllm_host, "/root/engine.py", Path(chat_engine.__file__).read_text())
    put(vllm_host, "/root/load.py", (ROOT / "bench/load_generator.py").read_text())
    put(vllm_host, "/root/key", chat_engine.KEY)
    start = "systemd-run --quiet --unit=stand-in --property=StandardOutput=file:/root/port"
    vllm_host.run(f"{start} python3 -I /root/engine.py 1 0.02")
    port = wait_until(lambda: vllm_host.run("cat /root/port 2>/dev/null || true").strip(), "a stand-in that serves", 20)
    asked = {"at": f"127.0.0.1:{port}", "key_file": "/root/key", "slots": 0, "streams": STREAMS, "requests": TURNS}
    asked |= {"prompt_tokens": 0, "output_tokens": 0, "seed": 1, "path": CHAT, "model": "m"}
    told = json.dumps(asked | {"prompts": [["say it", TOKENS]]})
    ours = LoadResult.model_validate_json(vllm_host.run(f"python3 -I /root/load.py {shlex.quote(told)}"))
    python = vllm_host.run("ls -d /opt/rigwright/engines/vllm-*/env").strip() + "/bin/python"
    tokenizer = vllm_host.run("dirname $(find /srv/models -name tokenizer.json | head -n 1)").strip()
    words = f"bench serve --backend openai-chat --endpoint {CHAT} --base-url http://127.0.0.1:{port} --model m"
    words += f" --tokenizer {tokenizer} --dataset-name random --random-input-len 10 --random-output-len {TOKENS}"
    words += f" --num-prompts {STREAMS * TURNS} --max-concurrency {STREAMS} --num-warmups 0 --save-result"
    words += " --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 90,99"
    words += " --result-dir /root --result-filename theirs.json"
    environment = f"OPENAI_API_KEY={chat_engine.KEY} HF_HUB_OFFLINE=1 TORCHDYNAMO_DISABLE=1 VLLM_NO_USAGE_STATS=1"
    program = "from vllm.entrypoints.cli.main import main; main()"
    vllm_host.run(f"cd /root && {environment} {python} -c {shlex.quote(program)} {words}")
    theirs = json.loads(vllm_host.run("cat /root/theirs.json"))
    found = LadderStep.from_load(STREAMS, ours, ()).figures()
    names = ["duration", "completed", "total_output_tokens", "request_throughput", "output_throughput"]
    # percentiles of gaps are those of the machine's own jitter
    names += [f"{share}_{what}_ms" for what in ("ttft", "tpot", "e2el") for share in ("mean", "median", "p90", "p99")]
    names += ["mean_itl_ms", "median_itl_ms"]
    for name in names:
        print(f"{name}: {found[name]:.2f} {theirs[name]:.2f}")
    assert {name: found[name] for name in names} == pytest.approx({name: theirs[name] for name in names}, rel=0.05)


def put(host: LabHost, path: str, text: str) -> None:
    """Write a file on a host."""
    subprocess.run(host.ssh_command(f"cat > {shlex.quote(path)}"), input=text, text=True, check=True)
