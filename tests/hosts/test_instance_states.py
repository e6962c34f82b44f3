"""One state of an instance, by every verb that names it: the same word, the command that comes next, and the exit
status.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.support import CHAT, is_serving, wait_until, write_inventory

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
UNIT = "rigwright-chat.service"
VERBS = {
    "status": (),
    "doctor": ("--no-checks",),
    "check --serving": (),
    "plan": (),
    "check": ("--only", "S01"),
    "chat": ("chat", "-m", "Are you there?"),
}
WEIGHTS = "$(tail -n 1 /etc/rigwright/current/weights/chat)"


def run_verbs(inventory: Path) -> dict[str, tuple[int, str]]:
    """Verb -> its exit status and all that it prints."""

    def run(verb: str) -> tuple[int, str]:
        done = run_rigwright(*verb.split(), str(inventory), *VERBS[verb])
        # check breaks its lines for a terminal
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(VERBS, pool.map(run, VERBS), strict=True))


def assert_state(inventory: Path, state: str, said: str, command: str) -> None:
    """All verbs name the state, and all but `plan` fail."""
    found = run_verbs(inventory)
    # doctor prints the reason as evidence
    named = dict.fromkeys(found, f"chat {said}") | {"doctor": f"chat {said.partition(state)[0]}{state}", "check": state}
    wrong = {verb: text for verb, (_, text) in found.items() if named[verb] not in text}
    assert not wrong
    assert {verb: status for verb, (status, _) in found.items() if status != 1} == {"plan": 0}
    lacking = {verb for verb in ("status", "doctor", "check --serving", "chat") if command not in found[verb][1]}
    assert not lacking, found


def test_all_verbs_name_the_same_state(lab: ThrowawayLab, converged: LabHost, inventory: Path, tmp_path: Path) -> None:
    found = run_verbs(inventory)
    assert {verb: status for verb, (status, _) in found.items() if status} == {}, found
    assert " ready " in found["status"][1]
    assert not any("chat is" in text for _, text in found.values()), found

    assert run_rigwright("stop", str(inventory), "chat").returncode == 0
    assert_state(inventory, "stopped by hand", "is stopped by hand since 20", "rigwright start ")
    assert run_rigwright("start", str(inventory), "chat").returncode == 0

    other = write_inventory(tmp_path / "other", lab, converged, instances={"chat": {**CHAT["chat"], "tasks_max": 4000}})
    found = run_verbs(other)
    assert "chat runs another generation: the host runs generation 1" in found["status"][1]
    assert {verb for verb, (status, _) in found.items() if status} == {"status", "doctor", "check --serving"}

    # an engine that does not come to its first answer
    stopped = (
        f"pkill -CONT -x llama-server; systemctl stop {UNIT}; systemctl start --no-block {UNIT}; "
        f"until P=$(pgrep -x llama-server); do :; done; kill -STOP $P; systemctl is-active {UNIT}"
    )
    # one that has answered before it was stopped is started again
    wait_until(lambda: converged.run(stopped, check=False).strip() == "activating", "starting", every=0.02)
    assert_state(inventory, "starting", "is starting", "rigwright status ")
    converged.run("kill -CONT $(pgrep -x llama-server)")
    wait_until(lambda: is_serving(converged), "it serves again")

    converged.run(f"systemctl stop {UNIT}; mv {WEIGHTS} /srv/kept.gguf; printf broken > {WEIGHTS}")
    failed = f"systemctl start --no-block {UNIT}; systemctl is-failed {UNIT}"
    wait_until(lambda: converged.run(failed, check=False).strip() == "failed", "failed", every=0.5)
    assert_state(inventory, "failed", "has failed: systemd gave up", "rigwright logs ")

    (blank,) = lab.up([HostSpec("blank", "debian-13")])
    try:
        bare = write_inventory(tmp_path / "blank", lab, blank)
        assert_state(bare, "not deployed", "is not deployed: the host has no generation", "rigwright deploy ")
    finally:
        blank.destroy()
