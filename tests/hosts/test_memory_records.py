"""The record of a start's memory on a host: written, accepted next to the inventory, and used by `fit`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from checks.survey.host.entry_live import RECORDING
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import LAN
from tests.hosts.support import PORT, deploy, is_serving, red_check_lines, wait_until, write_inventory

CHAT = {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT}}
RECORD = "/var/lib/rigwright/memory/chat.json"
MANIFEST = "/etc/rigwright/current/manifest.json"
LIMIT = "/run/systemd/system/rigwright-chat.service.d"
RECORDERS = "systemctl list-units --no-legend --plain 'rigwright_memory-*'"


def fit(inventory: Path, *options: str) -> tuple[int, dict[str, object], str]:
    """`rigwright fit`: its status, the answer for the first instance, and its remarks."""
    words = [sys.executable, "-m", "cli", "fit", str(inventory), "--json", *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["instances"][0], done.stderr


def read_record(host: LabHost) -> dict[str, Any]:
    """The record; empty where there is none."""
    text = host.run(f"cat {RECORD} 2>/dev/null || true")
    return json.loads(text) if text.strip() else {}


def test_a_start_is_recorded_accepted_and_used(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    inventory = write_inventory(tmp_path, lab, host, instances=CHAT)
    deploy(inventory)
    assert is_serving(host)
    record = wait_until(lambda: read_record(host), "a record")
    unit = json.loads(host.run(f"cat {MANIFEST}"))["instances"]["chat"]["units"]["rigwright-chat.service"]
    assert record["fingerprint"] == unit
    assert host.run(f"stat -c '%U %a' {RECORD}").split() == ["root", "644"]
    assert 0 < record["host"]["peak"] < 1 << 30
    assert any("n_ctx_slot" in line for line in record["lines"])
    assert "rigwright_memory-chat" in host.run(RECORDERS)
    # of the start, without that of its last minute, nanoseconds
    used = int(host.run("systemctl show --property=CPUUsageNSec --value 'rigwright_memory-chat-*'").split()[0])
    assert used < 500_000_000, used
    lines = host.run("cat /run/systemd/transient/rigwright_memory-chat-*.service").replace('"', "").splitlines()
    assert len([line for line in lines if RECORDING.fullmatch(line)]) == 1, lines
    assert red_check_lines(inventory) == {}

    status, before, _ = fit(inventory)
    assert (status, before["basis"]) == (0, "floor")
    status, after, said = fit(inventory, "--accept")
    assert (after["basis"], after["need"]) == ("same variant", record["host"]["peak"]), said
    assert (status, after["verdict"]) == (0, "fits")
    assert (tmp_path / "memory" / "box.json").is_file()
    _, other, _ = fit(inventory, "--context", "65536")
    assert other["basis"] == "neighbour"

    first = record["invocation"]
    host.run("systemctl restart rigwright-chat")
    wait_until(lambda: read_record(host).get("invocation") != first, "a second record")
    second = read_record(host)["invocation"]
    assert [one["invocation"] for one in read_record(host)["history"]] == [first]
    wait_until(lambda: host.run(RECORDERS).count("rigwright_memory-chat") <= 1, "the first recorder's end")

    # the next starts get too little memory: one is recorded, and the variant does not fit until a start is ready
    host.run(f"mkdir {LIMIT} && printf '[Service]\\nLimitDATA=32M\\nLimitSTACK=1M\\n' > {LIMIT}/limit.conf")
    host.run("systemctl daemon-reload; systemctl restart rigwright-chat", check=False)
    failures = wait_until(lambda: read_record(host).get("failures"), "a failed start's record")
    assert failures[0]["outcome"] == "failed", failures
    assert any("insufficient memory" in line for line in failures[0]["failure_lines"]), failures
    status, failed, said = fit(inventory, "--accept")
    assert (status, failed["verdict"], failed["basis"]) == (1, "may not fit", "same variant"), said
    assert "the engine did not get a buffer" in failed["failure"]
    words = [sys.executable, "-m", "cli", "validate", inventory]
    validated = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert "its last start failed: the engine did not get a buffer" in " ".join(validated.stdout.split())
    host.run(f"rm -r {LIMIT}; systemctl daemon-reload")
    wait_until(lambda: is_serving(host), "the next start")
    wait_until(lambda: read_record(host).get("invocation") not in (first, second), "the record of the next start")
    assert fit(inventory, "--accept")[1]["verdict"] == "fits"

    host.run(f"""printf '%s' '{{"fingerprint": "$(reboot)"}}' > {RECORD}""")
    _, kept, said = fit(inventory, "--accept")
    assert "is refused: " in said
    assert kept["basis"] == "same variant"


ON_DEMAND = {"chat": {**CHAT["chat"], "start": "on-demand"}}
GATEWAY = {
    "listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}},
    "models": {"chat": {"instances": ["chat"]}},
}
PROVE = "cd /etc/rigwright/current && python3 -I -S -B residency residency.json prove chat"


def test_each_proof_of_a_model_on_demand_leaves_a_record(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    inventory = write_inventory(tmp_path, lab, host, instances=ON_DEMAND, gateway=GATEWAY)
    deploy(inventory)
    for _ in range(4):
        host.run(PROVE)
    assert host.run("systemctl is-active rigwright-chat", check=False).strip() == "inactive"

    def all_records() -> list[dict[str, Any]]:
        found = read_record(host)
        every = [*found.pop("history", ()), found]
        return every if len(every) == 5 else []

    # the first one is the deploy's own proof
    records = wait_until(all_records, "five records")
    assert "failures" not in read_record(host)
    assert len({str(one["invocation"]) for one in records}) == 5
    assert [one["moment"] for one in records] == sorted(one["moment"] for one in records)
    peaks = [int(one["host"]["peak"]) for one in records]
    assert max(peaks) - min(peaks) < 8 << 20, peaks
    assert all(one["computed"] for one in records)
