"""The record of a start's memory on a host: written, accepted next to the inventory, and used by `fit`."""

import json
import subprocess
import sys
from pathlib import Path

from checks.survey.host.entry_live import RECORDING
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.support import PORT, is_serving, red_check_lines, run_deploy, wait_until, write_inventory
from tests.stand_ins.demo_lock import write_lock_with_header

CHAT = {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT}}
RECORD = "/var/lib/rigwright/memory/chat.json"
MANIFEST = "/etc/rigwright/current/manifest.json"
RECORDERS = "systemctl list-units --no-legend --plain 'rigwright_memory-*'"


def fit(inventory: Path, *options: str) -> tuple[int, dict[str, object], str]:
    """`rigwright fit`: its status, the answer for the first instance, and its remarks."""
    words = [sys.executable, "-m", "cli", "fit", str(inventory), "--json", *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["instances"][0], done.stderr


def read_record(host: LabHost) -> dict[str, object]:
    """The record; empty where there is none."""
    text = host.run(f"cat {RECORD} 2>/dev/null || true")
    return json.loads(text) if text.strip() else {}


def test_a_start_is_recorded_accepted_and_used(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    inventory = write_inventory(tmp_path, lab, host, instances=CHAT)
    write_lock_with_header(tmp_path)
    run = run_deploy(inventory)
    assert run.status == 0, run.said
    assert is_serving(host)
    record = wait_until(lambda: read_record(host), "a record")
    unit = json.loads(host.run(f"cat {MANIFEST}"))["instances"]["chat"]["units"]["rigwright-chat.service"]
    assert record["fingerprint"] == unit
    assert host.run(f"stat -c '%U %a' {RECORD}").split() == ["root", "644"]
    assert 0 < record["host"]["peak"] < 1 << 30
    assert any("n_ctx_slot" in line for line in record["lines"])
    assert "rigwright_memory-chat" in host.run(RECORDERS)
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
    assert [one["invocation"] for one in read_record(host)["history"]] == [first]
    wait_until(lambda: host.run(RECORDERS).count("rigwright_memory-chat") <= 1, "the first recorder's end")

    host.run(f"""printf '%s' '{{"fingerprint": "$(reboot)"}}' > {RECORD}""")
    _, kept, said = fit(inventory, "--accept")
    assert "is refused: " in said
    assert kept["basis"] == "same variant"
