"""Questions of operations are asked in one command before they run; an answer counts until something is done on its
host."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from paramiko import SSHException
from pyinfra.api import FunctionCommand, QuoteString, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine

from roles.operations import facts, generations
from roles.operations.facts import ChannelFact, FactUnavailable, PrefetchConnector, ReadOnlyScript
from roles.root_shell import HostTooSlow
from tests.unit.channel_records import channel_lines


class ShellConnector:
    """A connector whose host is a shell of this machine."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.stdins: list[str] = []
        self.client = object()

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        self.commands.append(command.get_raw_value())
        stdin = "".join(arguments.get("_stdin") or [])
        self.stdins.append(stdin)
        done = subprocess.run(
            ["sh", "-c", command.get_raw_value()], input=stdin, capture_output=True, text=True, check=False
        )
        return done.returncode == 0, CommandOutput([OutputLine("stdout", line) for line in done.stdout.splitlines()])


@pytest.fixture
def shell() -> ShellConnector:
    return ShellConnector()


@pytest.fixture
def connector(shell: ShellConnector) -> PrefetchConnector:
    return PrefetchConnector(shell)


def test_a_look_that_reads_nothing_is_refused_before_a_host_is_asked() -> None:
    class Blind(ChannelFact[str]):
        def command(self) -> StringCommand:
            return self.render_command("look/use.sh.j2")

    with pytest.raises(TypeError, match="read"):
        Blind()  # type: ignore[abstract]


def answer(connector: PrefetchConnector, script: str, **arguments: Any) -> list[str]:
    return connector.run_shell_command(ReadOnlyScript(script), **arguments)[1].stdout_lines


def asking_operation(
    connector: PrefetchConnector, *scripts: str, **arguments: Any
) -> Callable[[], Iterator[StringCommand]]:
    """An operation that asks, and then has commands to run."""

    def operation() -> Iterator[StringCommand]:
        for script in scripts:
            answer(connector, script, **arguments)
        yield StringCommand("false")

    return operation


@pytest.mark.parametrize(
    ("command", "bound"), [(ReadOnlyScript("echo one"), "ASKING"), (StringCommand("rm -f x"), "LIMIT")]
)
def test_a_command_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, command: StringCommand, bound: str
) -> None:
    monkeypatch.setattr(facts if bound == "ASKING" else facts.root_shell, bound, 0.1)
    endless = SimpleNamespace(run_shell_command=lambda *_, **__: gevent.sleep(20))
    with pytest.raises(HostTooSlow, match=r"^`(sh -c|rm -f) .*` has not ended within 0 s, given up"):
        PrefetchConnector(endless).run_shell_command(command)


def test_first_questions_of_operations_are_asked_in_one_command(
    connector: PrefetchConnector, shell: ShellConnector
) -> None:
    connector.prefetch(
        [asking_operation(connector, "echo 'one'; echo more"), asking_operation(connector, "echo two", "echo three")]
    )
    assert len(shell.commands) == 1
    found = [answer(connector, script) for script in ("echo 'one'; echo more", "echo two", "echo three")]
    assert found == [["one", "more"], ["two"], ["three"]]
    assert len(shell.commands) == 1


def test_facts_for_decisions_are_asked_in_one_command_and_not_again_by_operations(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "host", SimpleNamespace(connector=connector))
    facts.prefetch_facts(lambda: answer(connector, "echo one"), lambda: answer(connector, "echo two"), lambda: None)
    assert [answer(connector, "echo one"), answer(connector, "echo two")] == [["one"], ["two"]]
    assert len(shell.commands) == 1
    connector.prefetch([asking_operation(connector, "echo one", "echo three")])
    assert [answer(connector, "echo one"), answer(connector, "echo three")] == [["one"], ["three"]]
    assert len(shell.commands) == 2
    assert "echo one" not in shell.stdins[1]


def test_a_look_that_fails_leaves_the_others_their_answers(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "host", SimpleNamespace(connector=connector))

    def confused() -> None:
        raise ValueError(answer(connector, "exit 3"))

    facts.prefetch_facts(confused, lambda: answer(connector, "echo two"))
    assert answer(connector, "echo two") == ["two"]
    assert len(shell.commands) == 1


def test_an_operation_after_a_change_asks_anew(
    connector: PrefetchConnector, shell: ShellConnector, tmp_path: Any
) -> None:
    script = f"ls {tmp_path} | wc -l"
    connector.prefetch([asking_operation(connector, script)])
    assert answer(connector, script) == ["0"]
    connector.run_shell_command(StringCommand("touch", QuoteString(str(tmp_path / "new"))))
    assert answer(connector, script) == ["1"]


def test_a_verb_with_its_own_connection_may_change_the_host(
    connector: PrefetchConnector, shell: ShellConnector
) -> None:
    connector.prefetch([asking_operation(connector, "echo one")])
    assert connector.client is shell.client
    answer(connector, "echo one")
    assert len(shell.commands) == 2


def test_two_hosts_do_not_share_answers(connector: PrefetchConnector, shell: ShellConnector) -> None:
    other = ShellConnector()
    connector.prefetch([asking_operation(connector, "echo one")])
    assert answer(PrefetchConnector(other), "echo one") == ["one"]
    assert len(other.commands) == 1


def test_a_change_of_one_host_leaves_what_another_has_answered(
    connector: PrefetchConnector, shell: ShellConnector
) -> None:
    connector.prefetch([asking_operation(connector, "echo one")])
    PrefetchConnector(ShellConnector()).run_shell_command(StringCommand("true"))
    answer(connector, "echo one")
    assert len(shell.commands) == 1


def test_an_old_answer_counts_no_more(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(facts.time, "monotonic", lambda: now[0])
    connector.prefetch([asking_operation(connector, "echo one")])
    now[0] += facts.FRESH + 1
    answer(connector, "echo one")
    assert len(shell.commands) == 2


def test_old_answers_are_asked_again_together(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(facts.time, "monotonic", lambda: now[0])
    connector.prefetch([asking_operation(connector, f"echo {word}") for word in ("one", "two", "three")])
    now[0] += facts.FRESH + 1
    assert [answer(connector, f"echo {word}") for word in ("one", "two", "three")] == [["one"], ["two"], ["three"]]
    assert len(shell.commands) == 2
    # one that was asked by itself is asked by itself again
    answer(connector, "echo four")
    now[0] += facts.FRESH + 1
    answer(connector, "echo four")
    assert len(shell.commands) == 4


def test_a_failed_question_is_asked_again_by_its_operation(connector: PrefetchConnector, shell: ShellConnector) -> None:
    connector.prefetch([asking_operation(connector, "echo one; exit 3"), asking_operation(connector, "echo two")])
    assert connector.run_shell_command(ReadOnlyScript("echo one; exit 3"))[0] is False
    assert answer(connector, "echo two") == ["two"]
    assert len(shell.commands) == 2


def test_a_question_that_reads_its_input_takes_none_of_the_others(
    connector: PrefetchConnector, shell: ShellConnector
) -> None:
    connector.prefetch([asking_operation(connector, "echo two"), asking_operation(connector, "cat; echo one")])
    assert [answer(connector, "cat; echo one"), answer(connector, "echo two")] == [["one"], ["two"]]
    assert len(shell.commands) == 1


def test_nothing_is_done_while_questions_are_gathered(
    connector: PrefetchConnector, shell: ShellConnector, tmp_path: Any
) -> None:
    ended = []

    def impatient() -> Iterator[StringCommand]:
        try:
            connector.run_shell_command(StringCommand("touch", QuoteString(str(tmp_path / "new"))))
            yield StringCommand("true")
        finally:
            ended.append("impatient")

    def working() -> Iterator[FunctionCommand]:
        try:
            yield FunctionCommand(lambda state, host: ended.append("worked"), (), {})
        finally:
            ended.append("working")

    def lost() -> Iterator[StringCommand]:
        raise FactUnavailable("not known")
        yield

    connector.prefetch([impatient, working, lost])
    assert (ended, shell.commands, list(tmp_path.iterdir())) == (["impatient", "working"], [], [])


def test_an_answer_to_one_user_is_hidden_from_another(connector: PrefetchConnector, shell: ShellConnector) -> None:
    connector.prefetch(
        [asking_operation(connector, "echo one", _sudo=True), asking_operation(connector, "echo one", _sudo=False)]
    )
    assert len(shell.commands) == 2
    answer(connector, "echo one", _sudo=True)
    answer(connector, "echo one", _sudo=False)
    answer(connector, "echo one", _sudo=True, _sudo_user="nobody")
    assert len(shell.commands) == 3


@pytest.mark.parametrize(
    "told", [["bm9uc2Vuc2U="], channel_lines(("answer", "1", "two")), channel_lines(("answer", "-1", "two"))]
)
def test_a_host_that_tells_something_else_is_asked_one_by_one(
    connector: PrefetchConnector, shell: ShellConnector, told: list[str]
) -> None:
    honest = shell.run_shell_command

    def liar(command: StringCommand, *rest: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        if arguments.get("_stdin"):
            shell.commands.append("lied")
            return True, CommandOutput([OutputLine("stdout", line) for line in told])
        return honest(command, *rest, **arguments)

    shell.run_shell_command = liar  # type: ignore[method-assign,assignment]
    connector.prefetch([asking_operation(connector, "echo one")])
    assert answer(connector, "echo one") == ["one"]


@pytest.mark.parametrize("error", [OSError("Socket is closed"), SSHException("session not active"), TimeoutError()])
def test_a_connection_that_breaks_is_left_to_its_user(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: Any, **__: Any) -> tuple[bool, CommandOutput]:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(shell, "run_shell_command", broken)
        connector.prefetch([asking_operation(connector, "echo one")])
    assert answer(connector, "echo one") == ["one"]


def test_an_operation_that_takes_no_empty_answer_ends_no_run(
    connector: PrefetchConnector, shell: ShellConnector
) -> None:
    def trusting() -> Iterator[StringCommand]:
        yield StringCommand(answer(connector, "echo one")[0])

    connector.prefetch([trusting, asking_operation(connector, "echo two")])
    assert [answer(connector, "echo one"), answer(connector, "echo two"), len(shell.commands)] == [["one"], ["two"], 1]


def test_answers_changed_by_time_are_asked_anew(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "host", SimpleNamespace(connector=connector))
    connector.prefetch([asking_operation(connector, "echo one")])
    facts.forget_prefetched()
    answer(connector, "echo one")
    assert len(shell.commands) == 2


def test_instances_that_are_loading_are_looked_at_anew(
    connector: PrefetchConnector, shell: ShellConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = f"echo x >> {tmp_path / 'looks'}; wc -l < {tmp_path / 'looks'}"

    def look(_: object) -> SimpleNamespace:
        return SimpleNamespace(looks=int(answer(connector, script)[0]), job=False)

    host = SimpleNamespace(connector=connector, name="box", noop=lambda _: None)
    for module in (facts, generations):
        monkeypatch.setattr(module, "host", host)
    monkeypatch.setattr(generations, "state", SimpleNamespace(is_executing=True))
    monkeypatch.setattr(generations, "read_serving_state", look)
    monkeypatch.setattr(generations, "POLL", 0.01)
    monkeypatch.setattr(generations, "plan_activation", lambda found, *_: "loading" if found.looks < 3 else None)
    monkeypatch.setattr(generations, "is_only_loading", lambda way: way == "loading")
    aim: Any = object
    rig: Any = SimpleNamespace(roots=SimpleNamespace(config="/etc/rigwright"))
    connector.prefetch([asking_operation(connector, script)])
    assert list(generations._switch_generation(rig, look(rig), lambda found: aim, 5)) == []
    assert len(shell.commands) == 3
