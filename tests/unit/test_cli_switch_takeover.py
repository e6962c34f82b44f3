"""`rigwright switch --from`: its refusals, its messages and questions before anything changes, and its undoing."""

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cli.switch as verb
from cli import main
from cli.deploy_verbs import RunRequest
from cli.exit_codes import NotAsDeclared
from cli.verdict_report import InstanceVerdict
from rigwright.host.basic_facts import ListeningSocket
from rigwright.serving import takeover
from rigwright.serving.takeover import ExistingService, ExistingServiceFacts
from tests.unit.samples import OperatorFolder
from tests.unit.test_cli_switch import FAIL, ONE, SwitchBox, SwitchOperator

UNIT = ExistingServiceFacts(
    ExistingService("vllm.service"), unit=("vllm.service", "loaded", "active", "enabled"), ports=frozenset({8020, 9})
)


class TakeoverOperator(SwitchOperator):
    """One on whose box an operator's unit holds the port."""

    found = UNIT

    def take(self, *words: str, answer: str = "y\n", name: str = "vllm.service") -> Result:
        return CliRunner().invoke(
            main, ["switch", str(self.box.inventory), "chat", "--from", name, *ONE, *words], input=answer
        )


@pytest.fixture
def operator(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> TakeoverOperator:
    made = TakeoverOperator(box, monkeypatch)
    ordinary = SwitchBox.run_and_parse

    def read(self: SwitchBox, parse: Any, script: str) -> Any:
        return made.found if parse is takeover.parse_existing_facts else ordinary(self, parse, script)

    listening = (ListeningSocket(8020, "python3", "vllm.service"),)
    known = SwitchBox.read_facts
    monkeypatch.setattr(SwitchBox, "run_and_parse", read)
    monkeypatch.setattr(SwitchBox, "read_facts", lambda self: replace(known(self), listeners=listening))
    return made


def test_it_replaces_the_served_variant_after_consent(operator: TakeoverOperator) -> None:
    before = operator.text
    done = operator.take()
    assert done.exit_code == 0, done.output
    (ran,) = operator.ran
    assert ran.pyinfra_data == {"switch": "chat:llamacpp/cpu", "existing_service": "vllm.service"}
    assert operator.text == before
    said = done.output
    assert "one: vllm.service uses port 9 and port 8020: it stops, and chat replaces it" in said
    assert said.index("downtime, from its stop to the first answer of chat: about 12 s") < said.index(
        "Stop vllm.service on one for good, and have chat come in its place? [y/N]"
    )


def test_another_variant_may_come_with_it(operator: TakeoverOperator) -> None:
    assert operator.take("llamacpp/wide", "--yes").exit_code == 0
    assert operator.ran[0].pyinfra_data == {"switch": "chat:llamacpp/wide", "existing_service": "vllm.service"}
    assert "llamacpp/wide" in operator.text


def test_nothing_is_done_without_consent(operator: TakeoverOperator) -> None:
    before = operator.text
    done = operator.take("llamacpp/wide", answer="n\n")
    assert (done.exit_code, operator.ran, operator.text) == (1, [], before)
    assert (operator.take("--dry", answer="").exit_code, operator.ran) == (0, [])


def test_a_foreign_port_is_refused_as_ever(operator: TakeoverOperator) -> None:
    operator.found = replace(UNIT, ports=frozenset({9}))
    done = operator.take("--yes")
    assert "one: refused: port 8020 of instance chat is in use by python3 (vllm.service)" in done.output
    assert (done.exit_code, operator.ran) == (2, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "a;b"), "'a;b' is refused: must be a unit such as vllm.service"),
        (("--from", "rigwright-chat.service"), "none of Rigwright's own"),
        (("--from", "vllm.service", "--list"), "--list conflicts with all other arguments"),
        (("llamacpp/wide", "--yes"), "--yes goes with --from"),
    ],
)
def test_a_name_that_is_invalid_is_refused_before_a_host_is_touched(operator, words, said):
    done = operator.switch("chat", *words, *ONE)
    assert said in " ".join(done.output.replace("│", " ").split())
    assert (done.exit_code, operator.ran, operator.looked) == (2, [], 0)


def test_the_hosts_report_of_it_can_refuse_it(operator: TakeoverOperator) -> None:
    operator.found = replace(UNIT, triggers=("vllm.socket",))
    done = operator.take("--yes")
    assert "one: refused: vllm.socket starts vllm.service: stop and disable it first" in done.output
    assert (done.exit_code, operator.ran) == (2, [])


def test_one_that_answers_wrongly_gives_way_to_what_was_there(operator: TakeoverOperator) -> None:
    before = operator.text
    operator.judged = InstanceVerdict("chat", "llamacpp/wide", checks=[FAIL])
    done = operator.take("llamacpp/wide", "--yes")
    assert done.exit_code == 1
    assert [(one.verb, one.pyinfra_data) for one in operator.ran] == [
        ("deploy", {"switch": "chat:llamacpp/wide", "existing_service": "vllm.service"}),
        ("rollback", {"verb": "rollback", "existing_service": "vllm.service"}),
    ]
    assert "llamacpp/wide fails: it calls a tool; vllm.service is back" in done.output
    assert operator.text == before


def test_a_file_is_as_it_was_where_the_deploy_fails(operator, monkeypatch):
    before = operator.text

    def deploy(wanted: RunRequest) -> None:
        raise NotAsDeclared("deploy failed (see above)")

    monkeypatch.setattr(verb, "run_request", deploy)
    assert (operator.take("llamacpp/wide", "--yes").exit_code, operator.text) == (1, before)
