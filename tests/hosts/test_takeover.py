"""An operator's own unit, and a container, that served before us: taken over, and back where ours does not serve."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import CHAT, red_checks, run_deploy, wait_until, write_inventory
from tests.hosts.test_generations import CATALOG, rigwright

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
PORT = 8033
# As people write them: it starts by itself, and again.
UNIT = f"""[Unit]
Description=What served before

[Service]
ExecStart=/usr/bin/python3 -m http.server {PORT} --bind 127.0.0.1 --directory /srv/theirs
Restart=always

[Install]
WantedBy=multi-user.target
"""
# A grammar that allows no word
EMPTY = """
[variants."llamacpp/empty"]
engine = "llama.cpp"
model = "tiny-rig"
context = 4096
flags.grammar = 'root ::= ""'
"""
NEW = {"variant": "llamacpp/demo", "port": PORT}
RECORD = "/var/lib/rigwright/theirs/vllm.service"


@pytest.fixture
def host(converged: LabHost) -> LabHost:
    """A host that serves `chat`, and on another port what an operator has set up."""
    converged.run(
        "mkdir /srv/theirs && echo mine > /srv/theirs/who && "
        f"cat > /etc/systemd/system/vllm.service <<'END'\n{UNIT}END\n"
        "systemctl daemon-reload && systemctl enable -q --now vllm"
    )
    wait_until(lambda: existing_service_answers(converged), "an answer of theirs")
    return converged


def existing_service_answers(host: LabHost) -> bool:
    """Whether what was there answers."""
    return host.run(f"curl -s http://127.0.0.1:{PORT}/who", check=False).strip() == "mine"


def rigwright_answers(host: LabHost) -> bool:
    """Whether an engine of ours answers on its port."""
    return "ok" in host.run(f"curl -s http://127.0.0.1:{PORT}/health", check=False)


def is_(host: LabHost, unit: str = "vllm") -> tuple[str, str]:
    """Whether a unit runs, and starts at boot."""
    return tuple(host.run(f"systemctl is-{one} {unit}", check=False).strip() for one in ("active", "enabled"))  # type: ignore[return-value]


def write_takeover_inventory(folder: Path, lab: ThrowawayLab, host: LabHost, variant: str = "llamacpp/demo") -> Path:
    (folder / "catalog").mkdir(parents=True, exist_ok=True)
    (folder / "catalog" / "mine.toml").write_text(CATALOG + EMPTY)
    instances = {**CHAT, "code": {**NEW, "variant": variant}}
    allow = ["flags.grammar-file"] if variant == "llamacpp/bad" else []
    return write_inventory(folder, lab, host, instances=instances, allow=allow)


def test_a_unit_is_taken_over_and_stays_away(lab: ThrowawayLab, host: LabHost, tmp_path: Path) -> None:
    inventory = write_takeover_inventory(tmp_path, lab, host)
    take = ("switch", str(inventory), "code", "--from", "vllm.service", "--unverified")
    # a deploy leaves what is not ours alone
    assert f"port {PORT} of instance code is in use by python3 (vllm.service)" in run_deploy(inventory).said
    dry = rigwright(*take, "--dry")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert f"vllm.service uses port {PORT}: it stops, and code replaces it" in " ".join(dry.stdout.split())
    assert rigwright(*take).returncode == 1
    other = rigwright("switch", str(inventory), "code", "--from", "ssh.service", "--yes")
    assert "ssh.service does not listen on any of the ports 8020, 8033" in other.stderr
    assert existing_service_answers(host)
    done = rigwright(*take, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rigwright_answers(host)
    assert is_(host) == ("inactive", "disabled")
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []
    host.reboot()
    wait_until(lambda: rigwright_answers(host), "an answer after a boot")
    assert is_(host) == ("inactive", "disabled")
    # once more is no more
    again = rigwright(*take, "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    removed = rigwright("remove", str(inventory), "--yes")
    assert "vllm.service was taken over: `systemctl enable --now vllm.service` restores it" in removed.stdout
    assert host.run("ls -d /var/lib/rigwright", check=False) == ""


def test_a_failing_variant_gives_way_to_the_earlier_one(lab: ThrowawayLab, host: LabHost, tmp_path: Path) -> None:
    inventory = write_takeover_inventory(tmp_path, lab, host, "llamacpp/bad")
    before = host.run("readlink /etc/rigwright/current")
    done = rigwright("switch", str(inventory), "code", "--from", "vllm.service", "--yes")
    assert done.returncode == 1
    assert "vllm.service is as it was found" in done.stdout + done.stderr
    wait_until(lambda: existing_service_answers(host), "an answer of theirs")
    assert is_(host) == ("active", "enabled")
    assert host.run("readlink /etc/rigwright/current") == before
    assert host.run(f"ls {RECORD}", check=False) == ""
    assert red_checks(write_inventory(tmp_path / "before", lab, host)) == set()


def test_one_that_answers_wrongly_gives_way_too(lab: ThrowawayLab, host: LabHost, tmp_path: Path) -> None:
    inventory = write_takeover_inventory(tmp_path, lab, host, "llamacpp/empty")
    before = host.run("readlink /etc/rigwright/current")
    done = rigwright("switch", str(inventory), "code", "--from", "vllm.service", "--yes")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "llamacpp/empty fails: it answers a question" in done.stderr
    assert "vllm.service is back" in done.stderr
    wait_until(lambda: existing_service_answers(host), "an answer of theirs")
    assert is_(host) == ("active", "enabled")
    assert host.run("readlink /etc/rigwright/current") == before


def test_where_nothing_of_ours_was_before_nothing_is_after(lab: ThrowawayLab, host: LabHost, tmp_path: Path) -> None:
    # as before the first deploy, but for packages and engine
    host.run(
        "systemctl stop 'rigwright*.service' 'rigwright*.socket' rigwright.target; "
        "rm -rf /etc/rigwright/current /etc/rigwright/generations/* /etc/systemd/system/rigwright* "
        "/etc/systemd/system/*/rigwright*; systemctl daemon-reload"
    )
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "mine.toml").write_text(CATALOG)
    bad = {"code": {**NEW, "variant": "llamacpp/bad"}}
    inventory = write_inventory(tmp_path, lab, host, instances=bad, allow=["flags.grammar-file"])
    done = rigwright("switch", str(inventory), "code", "--from", "vllm.service", "--yes")
    assert done.returncode == 1
    assert "nothing of ours runs" in done.stdout + done.stderr
    wait_until(lambda: existing_service_answers(host), "an answer of theirs")
    assert is_(host) == ("active", "enabled")
    assert host.run("ls -d /etc/rigwright/current /etc/systemd/system/rigwright-*", check=False) == ""
    host.reboot()
    wait_until(lambda: existing_service_answers(host), "an answer of theirs after a boot")


def test_one_whose_operator_is_gone_in_the_middle_goes_on(lab: ThrowawayLab, host: LabHost, tmp_path: Path) -> None:
    inventory = write_takeover_inventory(tmp_path, lab, host)
    words = ["switch", str(inventory), "code", "--from", "vllm.service", "--unverified", "--yes"]
    running = subprocess.Popen([sys.executable, "-m", "cli", *words], stdout=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: not existing_service_answers(host), "stopped")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    # nor does what is at work on the host come to its end
    host.run("systemctl kill --signal=KILL rw-job-activate", check=False)
    assert host.run(f"cat {RECORD}").startswith("before ")
    done = rigwright(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rigwright_answers(host)
    assert is_(host) == ("inactive", "disabled")
    assert red_checks(inventory) == set()
