"""The verbs about drivers: what pyinfra is told, and words that do not go together."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from cli import hosts, main
from tests.unit.samples import Box

RIG = 'from rigwright.inventory import hosts\n\nrigs = hosts({"box": {"ssh_hostname": "127.0.0.1"}})\n'


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What pyinfra was given, without the inventory."""
    given: list[tuple[str, ...]] = []

    def run(inventory: str, *options: str) -> int:
        given.append(options)
        return 0

    monkeypatch.setattr(hosts, "pyinfra_here", run)
    return given


def invoke(box: Box, verb: str, *options: str) -> Result:
    box.write("rig.py", RIG)
    return CliRunner().invoke(main, [verb, str(box.inventory), *options])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deploy", "--yes"),
        ("deploy --reboot", "--yes --data reboot=true"),
        ("deploy --dry --diff --reboot", "--dry --diff --data reboot=true"),
        ("upgrade", "--yes --data verb=upgrade"),
        ("upgrade --dry", "--dry --data verb=upgrade"),
        ("upgrade --reboot --limit box", "--yes --data verb=upgrade --data reboot=true --limit box"),
        ("rollback", "--yes --data verb=rollback"),
        ("rollback --to 3", "--yes --data verb=rollback --data to=3"),
        ("rollback --driver", "--yes --data verb=rollback --data driver=true"),
        ("rollback --driver --dry", "--dry --data verb=rollback --data driver=true"),
        ("rollback --driver --reboot", "--yes --data verb=rollback --data driver=true --data reboot=true"),
        ("remove --yes", "--yes --data verb=remove"),
    ],
)
def test_pyinfra_is_told(box: Box, told: list[tuple[str, ...]], words: str, expected: str) -> None:
    verb, *options = words.split()
    done = invoke(box, verb, *options)
    assert done.exit_code == 0, done.output
    assert told == [tuple(expected.split())]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rollback --driver --to 3", "--to is a generation's number: it does not go with --driver"),
        ("rollback --reboot", "--reboot goes with --driver"),
        ("rollback --to 3 --reboot", "--reboot goes with --driver"),
        ("rollback --to 0", "0 is not in the range"),
        ("upgrade --to 3", "No such option"),
        ("upgrade --driver", "No such option"),
        ("upgrade --diff", "No such option"),
        ("remove --reboot", "No such option"),
        ("check --reboot", "No such option"),
    ],
)
def test_words_that_do_not_go_together_are_refused_before_a_host_is_asked(
    box: Box, told: list[tuple[str, ...]], words: str, said: str
) -> None:
    verb, *options = words.split()
    done = invoke(box, verb, *options)
    assert (done.exit_code, told) == (2, [])
    assert said in done.output


def test_a_host_that_is_not_what_was_asked_for_is_a_failure(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "pyinfra_here", lambda *_: 1)
    done = invoke(box, "upgrade")
    assert done.exit_code == 1
    assert "Running it again goes on from here" in done.output


@pytest.mark.parametrize("verb", ["deploy", "upgrade"])
def test_a_rig_whose_bundle_is_not_whole_is_not_begun(box: Box, told: list[tuple[str, ...]], verb: str) -> None:
    box.write("rig.py", RIG.replace('"127.0.0.1"', '"127.0.0.1", "bundle": "gone"'))
    done = CliRunner().invoke(main, [verb, str(box.inventory)])
    assert done.exit_code == 1
    assert told == []
