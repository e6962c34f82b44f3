"""A reboot: no stranger's work is ended by it, and it is over when another boot answers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from pyinfra.api.exceptions import ConnectError

from roles import root_shell
from roles.operations import drivers, reconnecting_shell
from roles.operations.drivers import BOOT, DRAIN, PATIENCE, describe_needed_reboot, reboot_host
from roles.operations.reconnecting_shell import LOST, HostLost, ReconnectingShell
from tests.unit.channel_records import card_record, channel_lines

BEFORE, AFTER = "UserspaceTimestamp=one ", "UserspaceTimestamp=two "
STRANGER = "7\ttrain \t/user.slice/x\t/dev/nvidia0"
DAEMON = "8\tnvidia-persiste \t/system.slice/nvidia-persistenced.service\t/dev/nvidia0"
OURS = "9\tllama-server \t/rigwright.slice/rigwright-chat.service\t/dev/nvidia0"


class RebootingHost:
    """pyinfra's view of a host, which goes down some seconds after its order, and comes back."""

    name, print_prefix = "box", "[box] "

    def __init__(
        self,
        *holders: str,
        cards: tuple[tuple[str, ...], ...] = (),
        down: float = 3,
        back: float = 100,
        silent: float = 0,
    ) -> None:
        self.data: dict[str, object] = {}
        self.cards = cards
        self.holders, self.down, self.back, self.silent = list(holders), down, back, silent
        self.commands: list[str] = []
        self.now, self.told = 1000.0, float("inf")
        self.connector = self.client = self
        self.connected, self.connections = True, 0

    @property
    def phase(self) -> str:
        """before, silent (it answers, and has nothing to say), away or after."""
        since = self.now - self.told
        if since < self.down:
            return "before"
        if since < self.down + self.silent:
            return "silent"
        return "away" if since < self.back else "after"

    def get_transport(self) -> RebootingHost:
        return self

    def is_active(self) -> bool:
        return self.connected

    def connect(self) -> None:
        self.connections += 1
        if self.phase == "away":
            raise ConnectError("refused")
        self.connected = True

    def run(self, text: str) -> root_shell.RootCommandResult:
        """As root."""
        if self.phase == "away":
            self.connected = False
        if not self.connected:
            raise root_shell.ConnectionGone("Socket is closed")
        self.commands.append(text)
        if "systemctl reboot" in text:
            self.told = self.now
        held = [("holder", *line.split("\t")) for line in self.holders]
        lines = channel_lines(*self.cards, *held) if "/proc/" in text else []
        if text == BOOT:
            lines = {"before": [BEFORE], "silent": [], "after": [AFTER]}[self.phase]
        return root_shell.RootCommandResult(0, "".join(f"{line}\n" for line in lines).encode(), b"")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def output_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(
        drivers, "logger", SimpleNamespace(error=lines.append, warning=lines.append, info=lambda _: None)
    )
    return lines


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[RebootingHost], RebootingHost]:
    """Have a host's clock be everybody's."""

    def clocked(host: RebootingHost) -> RebootingHost:
        for module in (drivers, reconnecting_shell):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: host.now))
            monkeypatch.setattr(module, "gevent", SimpleNamespace(sleep=host.sleep))
        monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
        monkeypatch.setattr(reconnecting_shell.root_shell, "run_command", lambda target, text, *_: target.run(text))
        return host

    return clocked


@pytest.mark.parametrize("holders", [[], [DAEMON], [OURS, DAEMON]], ids=["nobody", "the daemon", "what we serve"])
def test_our_services_are_stopped_and_the_host_is_waited_for(on, output_lines, holders):
    host = on(RebootingHost(*holders))
    assert reboot_host(host, "nouveau is bound to the cards", ()) is True
    assert output_lines == ["[box] rebooting: nouveau is bound to the cards"]
    before, drained, told, *polls, last = host.commands[1:]
    assert (before, drained) == (BOOT, DRAIN)
    assert told.endswith(" systemctl reboot")
    assert set(polls) == {BOOT}
    assert "is-system-running --wait" in last
    assert host.phase == "after"


def test_while_a_stranger_holds_a_card_nothing_is_stopped(on, output_lines):
    host = on(RebootingHost(STRANGER, DAEMON))
    assert reboot_host(host, "why", ()) is False
    assert output_lines == [
        "[box] no reboot: pid 7 (train, in /user.slice/x) holds /dev/nvidia0",
        "[box] stop these, or wait for them, then run it again",
    ]
    assert len(host.commands) == 1


LENT = tuple(card_record(f"0000:0{slot}:00.0", "10de:2204", "nvidia", str(slot)) for slot in range(2))
BORROWED = "pid 7 (train, in /user.slice/x) uses card 0, which is reserved; the reboot ends it"


def test_processes_on_reserved_cards_are_named_before_they_end(on, output_lines):
    assert reboot_host(on(RebootingHost(STRANGER, cards=LENT)), "why", (0,)) is True
    assert output_lines == [f"[box] {BORROWED}", "[box] rebooting: why"]


def test_a_process_on_another_card_stops_a_reboot_with_any_reserved_cards(on, output_lines):
    assert reboot_host(on(RebootingHost(STRANGER, cards=LENT)), "why", (1,)) is False
    assert output_lines[0] == "[box] no reboot: pid 7 (train, in /user.slice/x) holds /dev/nvidia0"


def test_users_of_reserved_cards_are_named_where_consent_is_missing(
    on: Callable[[RebootingHost], RebootingHost],
) -> None:
    asked, *ended = describe_needed_reboot(ReconnectingShell(on(RebootingHost(STRANGER, cards=LENT))), "why", (0,))
    assert asked.startswith("needs a reboot: why. Re-run deploy with --reboot")
    assert ended == [BORROWED]
    unasked = on(RebootingHost(STRANGER))
    assert describe_needed_reboot(ReconnectingShell(unasked), "why", ()) == [asked]
    assert unasked.commands == []


@pytest.mark.parametrize("back", [4, 300, PATIENCE - 10], ids=["at once", "some minutes", "just in time"])
def test_a_host_may_be_away_as_long_as_boards_with_many_cards_take(on, output_lines, back):
    assert reboot_host(on(RebootingHost(back=back)), "why", ()) is True


def test_a_host_that_goes_down_and_has_no_answer_is_not_back(on, output_lines):
    host = on(RebootingHost(silent=20))
    assert reboot_host(host, "why", ()) is True
    assert host.phase == "after"


def test_a_host_that_does_not_go_down_is_given_up(on, output_lines):
    host = on(RebootingHost(down=2 * PATIENCE))
    with pytest.raises(HostLost, match=f"it did not go down within {PATIENCE} s"):
        reboot_host(host, "why", ())
    assert PATIENCE < host.now - host.told < PATIENCE + 5


def test_a_host_that_stays_away_is_given_up(on, output_lines):
    host = on(RebootingHost(back=3 * PATIENCE))
    with pytest.raises(HostLost, match=f"no connection for {PATIENCE} s"):
        reboot_host(host, "why", ())
    assert PATIENCE < host.now - host.told < PATIENCE + 10


@pytest.mark.parametrize(("patience", "expected"), [(None, LOST), (7, 7)])
def test_a_shell_has_the_patience_that_it_is_given(on, patience, expected):
    host = on(RebootingHost(down=0, back=10 * PATIENCE))
    host.told = host.now
    with pytest.raises(HostLost, match=f"no connection for {expected} s"):
        (ReconnectingShell(host) if patience is None else ReconnectingShell(host, patience)).run("true")
    assert expected < host.now - host.told < expected + 5
