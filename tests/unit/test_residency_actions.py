"""The residency service between a decision and what comes of it: stale counts, answers and the ledger, stale links."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from roles.residency.host import observation, service
from roles.residency.host.state import AWAKE, LEAVING, Action, Entry, LedgerState, UnitObserved, Waiter


class RecordingResidency(service.Residency):
    """The service without a systemd: notes its orders, saves and answers."""

    def __init__(self, folder: Path) -> None:
        instances = {
            name: {
                **{"unit": f"rigwright-{name}.service", "fingerprint": "", "floor": {}, "priority": 0, "idle": 0},
                **{"keep_warm": False, "residence": 0},
            }
            for name in ("chat", "code")
        }
        config = {"instances": instances, "admin": f"{folder}/admin", "folder": str(folder), "records": str(folder)}
        (folder / "config").write_text(json.dumps(config | {"links": f"{folder}/links"}))
        super().__init__(f"{folder}/config")
        self.did: list[str] = []
        self.has_asked = threading.Event()
        self.file.save = lambda state: self.did.append("save")  # type: ignore[method-assign]
        self.gateway.ask = self.note_question  # type: ignore[method-assign]
        self.seen = replace(self.seen, now=observation.monotonic())
        self.takes = 0.0

    def note_question(self, method: str, path: str) -> bytes:
        """A question to the gateway."""
        self.did.append(path)
        self.has_asked.set()
        return b"0"

    def order(self, verb: str, unit: str) -> None:  # type: ignore[override]
        """An order, which may wait for the next question to the gateway."""
        if self.takes:
            self.has_asked.wait(self.takes)
        self.did.append(f"{verb} {unit}")

    def answer(self, client: str, line: str) -> None:
        """An answer."""
        self.did.append(f"answer {client}")


@pytest.fixture
def made(tmp_path: Path) -> RecordingResidency:
    return RecordingResidency(tmp_path)


def test_a_stop_follows_a_recent_count_of_requests_alone(made: RecordingResidency) -> None:
    actions = [Action("start", "code"), Action("stop", "chat")]
    asyncio.run(made.carry_out_all(actions))
    assert made.did == ["save", "stop rigwright-chat.service", "start rigwright-code.service"]
    made.did.clear()
    # the disk, or an earlier order, took its time
    made.seen = replace(made.seen, now=made.seen.now - service.COUNT_S)
    asyncio.run(made.carry_out_all(actions))
    assert made.did == ["save", "start rigwright-code.service"]


def test_the_gateway_hears_that_an_instance_leaves_until_systemd_has_taken_the_order(
    made: RecordingResidency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "COUNT_S", 0.01)
    made.seen, made.takes = replace(made.seen, now=observation.monotonic() + 5), 10
    asyncio.run(made.carry_out_all([Action("stop", "chat")]))
    assert made.did[:2] == ["save", "/leave/chat"]
    assert "stop rigwright-chat.service" in made.did


def test_a_count_is_no_younger_than_the_announcement_that_goes_with_it(
    made: RecordingResidency, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[float] = []
    made.declared |= {"activating": "/none", "stopped": "/none"}
    made.state = LedgerState({"chat": Entry(LEAVING)})
    monkeypatch.setattr(observation, "show_units", lambda units: ({name: UnitObserved() for name in units}, {}))
    made.gateway.look = lambda leaving, names: (moments.append(observation.monotonic()), ({}, frozenset()))[1]  # type: ignore[method-assign,func-returns-value]
    seen = made.observe()
    assert seen.now <= moments[0]


@pytest.mark.parametrize(("is_proof", "order"), [(False, ["answer 1", "save"]), (True, ["save", "answer 1", "save"])])
def test_only_answers_to_proofs_wait_for_the_ledger(made: RecordingResidency, is_proof: bool, order: list[str]) -> None:
    made.state = LedgerState({"chat": Entry(AWAKE, sleep_next=is_proof)})
    asyncio.run(made.carry_out_all([Action("answer", "1", "ready")]))
    assert made.did == order


def test_a_link_of_an_earlier_start_makes_no_instance_ready(made: RecordingResidency, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/chat").symlink_to(tmp_path / "chat/api.sock")
    starting = {"chat": UnitObserved("activating")}
    assert made.with_links(starting) == starting
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat/api.sock").touch()
    assert made.with_links(starting) == {"chat": UnitObserved("active")}


def test_an_estimate_that_fails_ends_no_lines_to_clients(
    made: RecordingResidency, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []

    def fail(*_: object) -> dict[str, str]:
        raise RuntimeError

    async def inform() -> None:
        informing = asyncio.create_task(made.inform())
        while len(lines) < 3 and not informing.done():
            await asyncio.sleep(0)
        informing.cancel()

    monkeypatch.setattr(service, "estimates", fail)
    monkeypatch.setattr(service, "INFORM_S", 0.0)
    monkeypatch.setattr(service, "LINES_S", 0.0)
    monkeypatch.setattr(made, "tell", lambda client, line: lines.append(f"{client}: {line}"))
    made.state.waiters.append(Waiter("1", "chat", 0.0))
    asyncio.run(inform())
    assert lines == ["1: waiting 1 -"] * 3
    assert capsys.readouterr().out.count("RuntimeError") == 1, "the journal has it once"
