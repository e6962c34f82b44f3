"""`rigwright status`: a row an instance that fits, what no row says, and what is left of a refused inventory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks import connections
from cli.status import _with_served_variant, with_token_rates
from cli.status_table import (
    COLUMNS,
    HostStatus,
    InstanceStatus,
    _status_cells,
    describe_hosts,
    fit_columns,
    print_status_table,
)
from cli.tables import print_paragraph
from rigwright.engines.metrics import EngineMetrics
from rigwright.inventory import load_rig, tolerate_problems
from rigwright.operate.instance_health import CardUse, ResidencyObservation
from rigwright.operate.instance_state import InstanceState
from rigwright.problems import Invalid
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing
from tests.unit.documented_outputs import captured_terminal
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd

LIMIT = 60  # seconds, for a machine with much else to do
GPUS = (CardUse(0, 22528, 24576, 240, 250, 61, 99), CardUse(1, 22528, 24576, 230, 250, 66, 99))
ROW = InstanceStatus(
    *("chat", "ready", "", 93784.0),
    variant="vllm/dual",
    port=8020,
    cards=[0, 1],
    slots=4,
    context_per_sequence=32768,
    restarts=1,
    memory_bytes=9 << 30,
    metrics=EngineMetrics(kv_used=0.25, running=1, waiting=2),
    tokens_a_second=71.25,
    current=True,
)
WIDE = """
[variants."llamacpp/wide"]
engine = "plain"
model = "small"
context = 8192
"""
ELSE = "the inventory differs: `rigwright plan rig.py` lists the changes"
SERVES = HostStatus("box1", True, generation=4, declared=True, instances=[ROW], gpus=GPUS)


def wide(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> int:
    return sum(max(map(len, cells)) for cells in zip(columns, *rows, strict=True)) + 2 * (len(columns) - 1)


def test_a_row_says_all_where_there_is_room() -> None:
    columns, rows = fit_columns([_status_cells(SERVES, ROW)], 200)
    assert columns == COLUMNS
    assert _status_cells(SERVES, replace(ROW, current=False))["declared"] == "no"
    assert _status_cells(SERVES, replace(ROW, declared="vllm/turbo"))["declared"] == "no"
    assert _status_cells(SERVES, replace(ROW, state="failed"))["declared"] == ""
    assert dict(zip(columns, rows[0], strict=True)) == {
        "host": "box1",
        "instance": "chat",
        "variant": "vllm/dual",
        "state": "ready",
        "declared": "yes",
        "up": "1d 2h",
        "port": "8020",
        "GPUs": "0,1",
        "context": "4 x 32768",
        "GPU memory": "44.0/48.0 GiB",
        "temp": "66 C",
        "power": "470 W",
        "KV": "25%",
        "tokens/s": "71.2",
        "queue": "2",
        "restarts": "1",
        "memory": "9.7 GB",
    }


def test_eighty_columns_are_not_wrapped_and_what_matters_most_stays() -> None:
    columns, rows = fit_columns([_status_cells(SERVES, ROW)], 80)
    assert wide(columns, rows) <= 80
    assert {"host", "instance", "state", "up", "GPU memory", "KV", "tokens/s", "temp"} <= {*columns}
    long = replace(ROW, instance="i" * 48, variant="v" * 40)
    columns, rows = fit_columns([_status_cells(replace(SERVES, host="h" * 20), long)], 80)
    assert wide(columns, rows) <= 80
    assert columns[:2] == ("host", "instance")
    assert fit_columns([_status_cells(SERVES, ROW)], 1)[0] == ("host", "instance", "state")


def on_demand(name: str, state: InstanceState, note: str = "", since: float = 7200, **facts: object) -> InstanceStatus:
    entry = ResidencyObservation(**{"phase": "asleep", **facts})  # type: ignore[arg-type]
    return replace(ROW, instance=name, state=state, note=note, since_s=since, on_demand=entry, variant="llamacpp/65k")


def test_instances_on_demand_fit_on_a_screen_and_have_their_facts() -> None:
    rows = [
        on_demand("chat", "ready", phase="leaving"),
        on_demand("code", "asleep", "the next request loads its model", load_s=13.6),
        on_demand("draft", "failed", "its engine ended with status 1", failed="its engine ended with status 1"),
        on_demand("long", "stopped by hand", "since 2026-11-29 10:00 UTC"),
        on_demand("mini", "starting", phase="starting", load_s=13.6, waiting=2),
        on_demand("tiny", "asleep", "the next request loads its model"),
        on_demand("tool", "stopping", phase="stopping", waiting=1),
        on_demand("vote", "asleep", "the next request loads its model", waiting=3),
    ]
    host = replace(SERVES, instances=rows)
    lines = describe_hosts([host], "rig.py")
    with captured_terminal() as printed:
        print_status_table([host])
        table = printed().splitlines()
        for line in lines:
            print_paragraph(line)
        shown = printed().splitlines()
    ups = {line.split()[1]: "2h" in line for line in table[1:]}
    assert ups == {one.instance: one.instance == "chat" for one in rows}
    assert (len(shown) < 24, max(map(len, shown)) <= 80) == (True, True), shown
    assert [line for line in lines if "next: " not in line] == [
        "box1: generation 4, as declared",
        "box1: chat: it stops when its last request has ended",
        "box1: draft: requests start it again, with pauses of 5 s to 5 minutes",
        "box1: mini: its last load took 14 s; 2 clients wait for it",
        "box1: tool: 1 client waits for it",
        "box1: vote: asleep; 3 clients wait for it",
        "box1: asleep until a request loads them: code (14 s), tiny",
    ]
    (reason,) = [line for line in lines if "status 1" in line]
    assert reason.startswith("box1: draft has failed: its engine ended with status 1; next: `rigwright logs rig.py ")


def test_columns_without_anything_are_left_out() -> None:
    bare = InstanceStatus("chat", "starting", "", 5.0, variant="llamacpp/demo")
    columns, _ = fit_columns([_status_cells(HostStatus("box", True), bare)], 200)
    assert columns == ("host", "instance", "variant", "state")


@pytest.mark.parametrize(
    ("host", "said", "status"),
    [
        (SERVES, ["generation 4, as declared"], 0),
        (replace(SERVES, declared=False), [ELSE], 1),
        (
            replace(SERVES, activation_failed=True),
            ["generation 4, as declared", "the activation of generation 4 has failed: deploy again"],
            1,
        ),
        (
            replace(SERVES, declared=False, instances=[replace(ROW, declared="vllm/turbo")]),
            [ELSE, "chat serves vllm/dual until the next deploy: the inventory has vllm/turbo"],
            1,
        ),
        (replace(SERVES, instances=[]), ["serves nothing", "generation 4, as declared"], 0),
        (
            replace(SERVES, instances=[replace(ROW, state="other generation", note="another key", current=False)]),
            [
                "generation 4, as declared",
                "chat runs another generation: another key; next: `rigwright deploy rig.py --limit box1`",
            ],
            1,
        ),
        (
            replace(SERVES, instances=[replace(ROW, state="wedged", note="no step for 120 s", errors=("a: b",))]),
            [
                "generation 4, as declared",
                "chat is wedged: no step for 120 s; next: `rigwright restart rig.py chat --limit box1`",
                "chat: a: b",
            ],
            1,
        ),
        (replace(SERVES, reboot=True, jobs=("rw-job-x.service",)), ["rw-job-x.service runs", "a reboot is pending"], 0),
        (replace(SERVES, gpus_say="nvidia-smi says: a\x1b[2J"), ["nvidia-smi says: a\\x1b[2J"], 1),
        (
            replace(SERVES, instances=[replace(ROW, kv_tokens=300_000, backend="FLASHINFER", load_seconds=61.4)]),
            ["generation 4, as declared"],
            0,
        ),
        (HostStatus("box1", False, "cannot be reached"), ["cannot be reached"], 3),
        (
            replace(SERVES, gateway="not there, on 10.0.0.1:8000", gateway_down=True),
            ["gateway not there, on 10.0.0.1:8000: `rigwright deploy rig.py --limit box1` starts it"],
            0,
        ),
    ],
)
def test_facts_outside_of_the_rows_are_reported(host: HostStatus, said: list[str], status: int) -> None:
    told = describe_hosts([host], "rig.py")
    assert [
        line.removeprefix("box1: ") for line in told if said[0] in line or line.removeprefix("box1: ") in said
    ] == said
    assert host.exit_status == status


def test_verbose_lines_have_what_an_engine_reported_at_its_start() -> None:
    host = replace(SERVES, instances=[replace(ROW, kv_tokens=300_000, backend="FLASHINFER", load_seconds=61.4)])
    assert describe_hosts([host], "rig.py") == ["box1: generation 4, as declared"]
    assert describe_hosts([host], "rig.py", verbose=True)[1:] == [
        "box1: chat: room for 300000 tokens, 9.2 requests of 32768; attention by FLASHINFER; loaded in 61 s"
    ]


def test_a_rate_covers_the_time_since_the_previous_look() -> None:
    earlier: dict[tuple[str, str], tuple[float, float | None]] = {}
    rates = []
    # the last look is of an engine that has started anew
    for now, tokens in ((10.0, 100.0), (15.0, 150.0), (20.0, 1.0)):
        host = replace(SERVES, instances=[replace(ROW, metrics=EngineMetrics(tokens=tokens), tokens_a_second=9.0)])
        rates.append(with_token_rates(host, earlier, now).instances[0].tokens_a_second)
    assert rates == [9.0, 10.0, None]


@pytest.mark.parametrize(
    ("serves", "variant", "context"),
    [
        ({"chat": "llamacpp/wide"}, "llamacpp/wide", 8192),
        # that the catalogue had once
        ({"chat": "llamacpp/gone"}, "llamacpp/gone", 4096),
        ({}, "llamacpp/cpu", 4096),
    ],
)
def test_the_variant_of_a_row_is_the_one_that_is_served(box, serves, variant, context):
    box.write("catalog/box.toml", CATALOG + WIDE)
    ((_, data),) = box.load_group({"box": sample_entry(instances=chat_instances(), cards=[])})
    rig = load_rig(data["rig"])
    kept = ObservedGeneration(1, "0" * 64, "0" * 64, "", variants=serves)
    here = connections.ConnectedHost("box", rig, SimpleNamespace(data=data))
    one = _with_served_variant(here, rig.instances[0], ObservedServing(generations=(kept,), current=1))
    assert (one.name, one.variant_name, one.variant.context) == ("chat", variant, context)


def test_the_cards_of_a_row_are_those_that_are_served(box: OperatorFolder) -> None:
    entry = sample_entry(instances={"chat": {"variant": "llamacpp/two", "cards": [0, 1], "port": 8020}})
    ((_, data),) = box.load_group({"box": entry})
    rig = load_rig(data["rig"])
    served = {"variants": {"chat": "llamacpp/two"}, "cards": {"chat": (1, 0)}}
    kept = ObservedGeneration(1, "0" * 64, "0" * 64, "", **served)  # type: ignore[arg-type]
    here = connections.ConnectedHost("box", rig, SimpleNamespace(data=data))
    one = _with_served_variant(here, rig.instances[0], ObservedServing(generations=(kept,), current=1))
    assert (rig.instances[0].cards, one.cards) == ((0, 1), (1, 0))


@pytest.fixture
def host(box: OperatorFolder) -> Iterator[StandInSshd]:
    with run_sshd(box.folder / "h") as made:
        yield made


def declare(box: OperatorFolder, host: StandInSshd, **changes: object) -> None:
    declared = sample_entry(cards=[], **{"instances": chat_instances(), **host.connection, **changes})
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {declared!r}}})\n")


def status(inventory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "status", str(inventory), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_a_host_out_of_reach_is_in_json_too(box: OperatorFolder, host: StandInSshd) -> None:
    declare(box, host)
    os.kill(host.pid, signal.SIGKILL)
    done = status(box.inventory, "--json")
    assert done.returncode == 3, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["host"], found["reached"], found["why"], found["instances"]) == (
        "box",
        False,
        f"cannot be reached: Connection refused (port {host.port} of 127.0.0.1): "
        "check the port (inventory: ssh_port; init: HOST:PORT), and that sshd runs there",
        [],
    )


def test_a_host_that_answers_none_of_the_questions_is_not_reached(box: OperatorFolder, host: StandInSshd) -> None:
    declare(box, host)
    # its Python finds no systemd: the look fails
    done = status(box.inventory, "--json", "--instance", "chat")
    assert done.returncode == 3, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["host"], found["reached"], found["instances"], bool(found["why"])) == ("box", False, [], True)


def test_an_unknown_instance_is_refused_before_a_host_is_reached(box: OperatorFolder, host: StandInSshd) -> None:
    declare(box, host)
    done = status(box.inventory, "--instance", "chta")
    assert (done.returncode, 'did you mean "chat"' in done.stderr, host.login_count) == (2, True, 0)


def test_a_host_of_a_refused_inventory_is_reached_all_the_same(box: OperatorFolder, host: StandInSshd) -> None:
    declare(box, host, instances=chat_instances(variant="llamacpp/none"))
    done = status(box.inventory, "--json")
    assert "box.instances.chat.variant" in done.stderr
    assert [one["host"] for one in json.loads(done.stdout)] == ["box"]
    assert any("python3" in told for told in host.run_commands)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rigs = (\n", "was never closed"),
        ("from rigwright.inventory import hosts\nrigs = hosts({})\n", "must be a table"),
        (
            "from rigwright.inventory import hosts\nrigs = hosts({'box': {'ssh_hostname': '-x', 'cards': 1}})\n",
            "box.ssh_hostname",
        ),
    ],
)
def test_without_hosts_nothing_is_looked_at(box: OperatorFolder, text: str, words: str) -> None:
    box.write("rig.py", text)
    done = status(box.inventory)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_tolerated_problem_is_refused_by_verbs_that_need_the_rig(box: OperatorFolder) -> None:
    with tolerate_problems() as wrong:
        ((_, data),) = box.load_group(
            {"box": sample_entry(instances=chat_instances(variant="llamacpp/none"), cards=[])}
        )
    assert [problem.key for problem in wrong] == ["box.instances.chat.variant"]
    with pytest.raises(Invalid):
        load_rig(data["rig"])
    assert box.refusal_lines(instances=chat_instances(variant="llamacpp/none"), cards=[])
