"""`bench throughput` and `latency`: by whose program, in which sandbox, and that the instance serves again after it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from bench import alternating_runs
from bench.alternating_runs import GUARD_UNIT, LOAD_UNIT, MeasurementFailed
from bench.offline_job import offline_command, parse_result, transient_properties
from checks.connections import ConnectedHost
from cli import instance_access, main
from cli.instance_access import InterruptHandler
from rigwright.engines import kind_of
from rigwright.engines.offline_bench import OfflineBenchSpec
from rigwright.engines.vllm.offline_bench import PROGRAM
from rigwright.engines.vllm.offline_bench_program import SAID, known
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED
from rigwright.serving.instance_units import OWNED_HEADER, build_listener, build_unit
from roles.root_shell import RootCommandFailed
from tests.unit import samples
from tests.unit.test_bench_contest import ContestHost
from tests.unit.vllm_samples import vllm_environment, vllm_instance, vllm_rig

CHAT = vllm_instance(max_model_len=4096, max_num_seqs=4, tool_call_parser="hermes")
RIG = vllm_rig(CHAT)
MADE = vllm_environment(RIG)
UNIT = build_unit(RIG, CHAT, MADE)
WANTED = OfflineBenchSpec("throughput", 20, 64, 16)
FIGURES = {"elapsed_time": 2.0, "num_requests": 20, "total_num_tokens": 1600}
FIGURES |= {"requests_per_second": 10.0, "tokens_per_second": 800.0}


def test_the_bench_has_all_of_the_instances_unit_but_what_is_of_serving() -> None:
    made = transient_properties(UNIT.text)
    kept = {one.removeprefix("--property=") for one in made}
    for line in (
        *("PrivateNetwork=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "SystemCallFilter=@system-service"),
        *(f"User={UNIT.user}", "EnvironmentFile=/etc/rigwright/current/env/chat", "TemporaryFileSystem=/run:ro"),
        *("DeviceAllow=char-nvidia rw", f"Slice={UNIT.slice}", f"MemoryMax={CHAT.memory_max}"),
    ):
        assert line in kept, line
    # all of the unit's own, but these
    lines = UNIT.text.partition("[Service]\n")[2].partition("\n[Install]")[0].splitlines()
    gone = {line.partition("=")[0] for line in lines if line and not line.startswith("#")} - {
        one.partition("=")[0] for one in kept
    }
    assert gone == {
        *("Type", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecStopPost", "LoadCredential"),
        *("RuntimeDirectory", "RuntimeDirectoryMode", "Restart", "RestartSec", "TimeoutStartSec"),
    }
    # it finds its compiled code; the folder of its socket is not there while it does not run
    assert [one for one in kept if one.startswith("BindPaths=")] == [f"BindPaths={UNIT.cache}:{COMPILED}"]


def test_it_gets_the_served_and_the_wanted_state() -> None:
    made = kind_of(CHAT).offline(RIG, CHAT, MADE, WANTED)
    assert made is not None
    assert made.command[1:4] == ("-I", "-", "throughput")
    for word in ("--max-model-len=4096", "--random-input-len=64", "--random-output-len=16", "--num-prompts=20"):
        assert word in made.command
    assert f"--model={RIG.roots.models}/{CHAT.parts[0].files[0].weight_folder}" in made.command
    # where it listens and by which key is no matter of a bench's
    assert not [word for word in made.command if word.startswith("--uds") or "credentials" in word.lower()]
    made = kind_of(CHAT).offline(RIG, CHAT, MADE, OfflineBenchSpec("latency", 8, 64, 16, 5))
    assert made is not None
    assert {"--batch-size=8", "--num-iters=5", "--num-iters-warmup=3"} <= set(made.command)
    said = offline_command(UNIT.text, made)
    assert f" --unit={LOAD_UNIT} " in said
    assert "$" not in said.replace("$$", "")


def test_engines_without_such_a_bench_have_none() -> None:
    one = samples.sample_instance()
    assert kind_of(one).offline(samples.sample_rig(one), one, samples.sample_installation(), WANTED) is None


def test_a_bench_knows_fewer_options_than_a_server() -> None:
    words = ["--max-model-len=1", "--tool-call-parser=hermes", "--lora-modules", "a", "b", "--enforce-eager"]
    words += ["--speculative-config.method=ngram", "--allowed-origins=[]", "--cuda-sizes", "1", "2"]
    options = {"--max-model-len", "--enforce-eager", "--speculative-config", "--cuda-sizes"}
    assert known(words, options) == [
        *("--max-model-len=1", "--enforce-eager", "--speculative-config.method=ngram", "--cuda-sizes", "1", "2")
    ]


VLLM = {
    "vllm/__init__.py": "",
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
    "vllm/benchmarks/__init__.py": "",
    "vllm/benchmarks/throughput.py": """
import json
def add_cli_args(parser):
    for name in ("--model", "--num-prompts", "--output-json"):
        parser.add_argument(name)
def main(args):
    print("INFO: as noisy as engines are")
    open(args.output_json, "w").write(json.dumps({"model": args.model, "n": args.num_prompts}, indent=4))
""",
}


@pytest.mark.parametrize("lacks", ["", "vllm/benchmarks/throughput.py"])
def test_the_program_runs_vllms_own(tmp_path: Path, lacks: str) -> None:
    for name, text in VLLM.items():
        if name != lacks:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    words = ["throughput", "--model=/m", "--tool-call-parser=x", "--num-prompts=3"]
    done = subprocess.run(
        [sys.executable, "-S", "-", *words],
        env={"PYTHONPATH": str(tmp_path)},
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=False,
    )
    if lacks:
        assert (done.returncode, "this vLLM has no throughput bench" in done.stderr) == (1, True)
    else:
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1].removeprefix(SAID)) == {"model": "/m", "n": "3"}


@pytest.mark.parametrize(
    "said",
    [
        "",
        "no figures",
        f"{SAID}{{}}",
        f"{SAID}{json.dumps(FIGURES | {'tokens_per_second': 1e400})}",
        f"{SAID}{json.dumps(FIGURES | {'num_requests': True})}",
        f"{SAID}{json.dumps(FIGURES | {'elapsed_time': '2'})}",
        f"{SAID}{'[' * 100_000}",
    ],
)
def test_metrics_of_an_engine_are_figures_or_nothing(said: str) -> None:
    with pytest.raises(MeasurementFailed, match="without figures"):
        parse_result("throughput", f"{said}\n\x1b[2J gone", SAID)


class OfflineBenchHost(ContestHost):
    """A host on which the bench says something."""

    said: str = f"loading\n{SAID}{json.dumps(FIGURES)}\n"
    on_run: Callable[[], None] | None = None

    def run(self, script: str, stdin: str = "") -> str:
        answer = super().run(script, stdin)
        if f"--unit={LOAD_UNIT}" not in script:
            return answer
        assert stdin == PROGRAM
        if self.on_run:
            self.on_run()
        return self.said


Measuring = Callable[..., Result]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> OfflineBenchHost:
    states = (UNIT.unit_state, build_listener(RIG.roots, RIG.accounts, RIG.gateway, CHAT, OWNED_HEADER).unit_state)
    made = OfflineBenchHost(started_from={one.unit: one.started_from for one in states})
    monkeypatch.setattr(alternating_runs, "RootShell", lambda target: made)
    monkeypatch.setattr(alternating_runs, "DeployLock", lambda target, doing: made)
    return made


@pytest.fixture
def measuring(host: OfflineBenchHost, monkeypatch: pytest.MonkeyPatch) -> Measuring:
    """Run a verb over that host."""
    desired = SimpleNamespace(
        installations={CHAT.installed_as: MADE}, generation=SimpleNamespace(files={f"units/{CHAT.unit}": UNIT.text})
    )

    class MeasuredHost(ConnectedHost):
        def resolve_desired(self) -> object:  # type: ignore[override]
            return desired

    def run(*words: str) -> Result:
        found = [MeasuredHost("box1", RIG, SimpleNamespace())]
        monkeypatch.setattr(
            instance_access, "connect_inventory", lambda _, __, judge: judge({"box1": RIG}) or (found, {})
        )
        return CliRunner().invoke(main, ["bench", *words, __file__, "--instance=chat"])

    return run


def serves_again(host: OfflineBenchHost) -> bool:
    """Whether it was stopped, and after all of it started again, and the host's own way back was taken away last."""
    stopped = next(n for n, one in enumerate(host.told) if f"systemctl stop {CHAT.unit}" in one)
    return stopped < host.index(f"systemctl start {CHAT.unit}") < host.index(f"systemctl stop {GUARD_UNIT}")


def test_a_throughput_is_reported_and_the_instance_serves_again(measuring, host, tmp_path):
    done = measuring("throughput", "--stop", f"--json={tmp_path / 'f.json'}", "--output-tokens=100")
    assert done.exit_code == 0, done.output
    assert "10.00 requests/s, 1000.0 tokens/s of answers, 800.0 with those of prompts, in 2.0 s" in done.output
    assert json.loads((tmp_path / "f.json").read_text())["told"]["num_requests"] == 20
    assert serves_again(host)
    # the host would have had it serve again by itself, had the connection gone
    assert host.index(f"--unit={GUARD_UNIT}") < host.index(f"--unit={LOAD_UNIT} ")


def test_a_latency_is_of_a_whole_batch(measuring: Measuring, host: OfflineBenchHost) -> None:
    told = {"avg_latency": 2.0, "latencies": [2.0, 2.0, 4.0], "percentiles": {"50": 2.0}}
    host.said = f"{SAID}{json.dumps(told)}\n"
    done = measuring("latency", "--stop", "--batch=4", "--output-tokens=10")
    assert done.exit_code == 0, done.output
    assert "a batch takes 2.000 s (P50), 3.600 s (P90): 20.0 tokens/s of answers" in done.output


def test_it_is_not_stopped_without_consent(measuring: Measuring, host: OfflineBenchHost) -> None:
    done = measuring("throughput")
    assert (done.exit_code, host.told) == (2, [])
    assert "chat must stop for it" in done.output


def test_a_variant_that_does_not_fit_is_refused_before_anything_is_stopped(
    measuring: Measuring, host: OfflineBenchHost
) -> None:
    done = measuring("throughput", "--stop", "--input-tokens=4090")
    assert (done.exit_code, host.told) == (2, [])
    assert "has room for 4096 tokens" in done.output


def test_an_engine_without_a_bench_is_refused_before_anything_is_stopped(
    measuring: Measuring, host: OfflineBenchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(kind_of(CHAT)), "has_offline_bench", False)
    done = measuring("throughput")
    assert (done.exit_code, host.told) == (2, [])
    assert "chat (vllm) has no offline bench" in done.output


def test_a_bench_that_fails_leaves_an_instance_that_serves(measuring: Measuring, host: OfflineBenchHost) -> None:
    host.fails = {f"--unit={LOAD_UNIT} ": RootCommandFailed("CUDA \x1b[2J out of memory")}
    done = measuring("throughput", "--stop")
    assert done.exit_code == 1
    assert "box1: CUDA \\x1b[2J out of memory" in done.output
    assert serves_again(host)


def test_an_interrupt_ends_it_and_the_instance_serves_again(measuring, host, monkeypatch):
    made: list[InterruptHandler] = []
    begin = InterruptHandler.__init__
    monkeypatch.setattr(InterruptHandler, "__init__", lambda self: (begin(self), made.append(self))[0])

    def interrupted() -> None:
        made[0]._handle_interrupt()
        raise RootCommandFailed("the job was ended")

    host.on_run = interrupted
    done = measuring("throughput", "--stop")
    assert done.exit_code == 130, done.output
    job = host.index(f"--unit={LOAD_UNIT} ")
    assert any(f"systemctl stop {LOAD_UNIT}" in one for one in host.told[job:])
    assert serves_again(host)


def test_another_run_is_not_disturbed(measuring: Measuring, host: OfflineBenchHost) -> None:
    host.refused = "somebody deploys"
    done = measuring("throughput", "--stop")
    assert done.exit_code == 2
    assert "refused: somebody deploys" in done.output
    assert not [one for one in host.told if "systemctl stop" in one]


def test_an_installation_without_a_bench_is_reported(measuring: Measuring, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Installation | None:
        return None

    monkeypatch.setattr(type(kind_of(CHAT)), "offline", none)
    done = measuring("throughput", "--stop")
    assert done.exit_code == 1
    assert "chat: there is no offline bench of vllm for it" in done.output
