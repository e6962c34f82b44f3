"""A verb refuses wrong words and inventories before any host is reached."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from checks import connections
from checks.survey_run import SurveyRun
from cli import main
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

LAN = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
Refusal = Callable[..., str]


@pytest.fixture
def refusal(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """The message of a refused verb, for an unreachable host."""
    monkeypatch.setattr(connections, "connect_targets", lambda *_: pytest.fail("a host was reached"))
    monkeypatch.setattr(SurveyRun, "__init__", lambda *_: pytest.fail("a host was looked at"))

    def run(words: str, **changes: object) -> str:
        declared = sample_entry(cards=[], instances=chat_instances()) | changes
        box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {declared!r}}})\n")
        done = CliRunner().invoke(main, words.format(box.inventory).split())
        assert done.exit_code == 2, done.output
        return " ".join(done.output.split())

    return run


@pytest.mark.parametrize(
    "words",
    [
        *(
            f"{verb} {{}} --instance"
            for verb in ("status", "check --serving", "bench stress", "bench load", "doctor", "logs")
        ),
        "bench speed {} --instance",
        "bench serving {} --instance",
        "bench serving {} --beside",
        "bench throughput {} --stop --instance",
        "bench latency {} --stop --instance",
        "restart {}",
        "start {}",
        "stop {}",
        "ssh {} --tunnel",
        "chat {}",
        "ssh {} --as-instance --in",
    ],
)
def test_an_instance_that_is_not_there(refusal: Refusal, words: str) -> None:
    assert 'there is no instance "caht"; did you mean "chat"?' in refusal(f"{words} caht")


@pytest.mark.parametrize(
    "verb",
    [
        *("plan", "deploy", "rollback", "remove", "key list", "status", "check --serving", "bench stress"),
        *("bench load", "logs", "show generations", "show models", "doctor", "ssh", "bench speed", "bench serving"),
    ],
)
def test_a_host_that_is_not_there(refusal: Refusal, verb: str) -> None:
    said = refusal(f"{verb} --limit bix {{}}")
    assert 'there is no host or group "bix"; did you mean "box"?' in said


def test_a_check_that_is_not_there(refusal: Refusal, box: OperatorFolder) -> None:
    assert '--only: there is no check "S999"' in refusal("check {} --only S01,S999")
    box.write("checks/own/test_mine.py", "# has the id X01\n")
    with pytest.raises(pytest.fail.Exception, match="looked at"):
        CliRunner().invoke(main, ["check", str(box.inventory), "--only", "X01"], catch_exceptions=False)


@pytest.mark.parametrize("verb", ["check --serving", "bench load"])
@pytest.mark.parametrize(
    ("option", "keys", "said"),
    [
        ("", False, ""),
        ("--listener lann", False, 'there is no listener "lann"; did you mean "lan"?'),
        ("", True, "listener lan needs a client's key"),
        ("--key-file /nope", True, "/nope: No such file or directory"),
    ],
)
def test_a_door_that_is_not_there(refusal: Refusal, verb: str, option: str, keys: bool, said: str) -> None:
    gateway = {"listeners": {"lan": LAN["lan"] | {"keys": keys}}} if said else None
    declared = {"gateway": gateway} if gateway else {}
    assert (said or "instance chat is behind no gateway") in refusal(f"{verb} {{}} --gateway {option}", **declared)


def test_variants_that_do_not_fit(refusal: Refusal) -> None:
    said = refusal("bench throughput {} --instance chat --stop --input-tokens 1000000")
    assert "has room for" in said
    assert "has no offline bench" in refusal("bench latency {} --instance chat")
