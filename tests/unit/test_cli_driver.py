"""The verbs about drivers: pyinfra's arguments, and words that do not go together."""

from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

from cli import deploy_run, deploy_verbs, main
from rigwright.run_options import parse_run_options
from tests.unit.samples import OperatorFolder

RIG = 'from rigwright.inventory import hosts\n\nrigs = hosts({"box": {"ssh_hostname": "127.0.0.1"}})\n'


@pytest.fixture
def pyinfra_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The arguments of pyinfra's command line, without the inventory."""
    given: list[tuple[str, ...]] = []

    def run(inventory: str, *options: str) -> int:
        given.append(options)
        return 0

    monkeypatch.setattr(deploy_verbs, "run_pyinfra", run)
    return given


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, object], bool, bool]]:
    """The arguments of a run of ours: its verb, orders, and whether it is dry and shows lines."""
    given: list[tuple[str, Mapping[str, object], bool, bool]] = []

    def run(_: str, verb: str, __: object, data: Mapping[str, object], *, dry: bool, diff: bool) -> None:
        given.append((verb, data, dry, diff))

    monkeypatch.setattr(deploy_run, "run_deploy", run)
    return given


def invoke(box: OperatorFolder, verb: str, *options: str) -> Result:
    box.write("rig.py", RIG)
    return CliRunner().invoke(main, [verb, str(box.inventory), *options])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deploy", "--yes"),
        ("deploy --reboot", "--yes --data reboot=true"),
        ("deploy --dry --diff --reboot", "--dry --diff --data reboot=true"),
        ("deploy --upgrade-driver", "--yes --data verb=upgrade"),
        ("deploy --upgrade-driver --dry --diff", "--dry --diff --data verb=upgrade"),
        ("deploy --upgrade-driver --reboot --limit box", "--yes --data verb=upgrade --data reboot=true --limit box"),
        ("rollback", "--yes --data verb=rollback"),
        ("rollback --to 3", "--yes --data verb=rollback --data to=3"),
        ("rollback --driver", "--yes --data verb=rollback --data driver=true"),
        ("rollback --driver --dry", "--dry --data verb=rollback --data driver=true"),
        ("rollback --driver --reboot", "--yes --data verb=rollback --data driver=true --data reboot=true"),
        ("remove --yes", "--yes --data verb=remove"),
        ("deploy -v", "--yes -v"),
    ],
)
def test_pyinfra_learns_of_it(
    box: OperatorFolder, pyinfra_calls: list[tuple[str, ...]], words: str, expected: str
) -> None:
    verb, *options = words.split()
    done = invoke(box, verb, "-v", *options)
    assert done.exit_code == 0, done.output
    assert pyinfra_calls == [tuple(expected.split())]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("deploy", ("deploy", {}, False, False)),
        ("deploy --dry --diff --reboot", ("deploy", {"reboot": True}, True, True)),
        (
            "deploy --upgrade-driver --reboot --limit box",
            ("upgrade", {"verb": "upgrade", "reboot": True}, False, False),
        ),
        ("rollback --to 3", ("rollback", {"verb": "rollback", "to": 3}, False, False)),
        ("rollback --driver --dry", ("rollback", {"verb": "rollback", "driver": True}, True, False)),
        ("remove --yes --keep-weights", ("remove", {"verb": "remove", "keep_weights": True}, False, False)),
    ],
)
def test_a_run_of_ours_gets_the_same(box, performed, words, expected):
    verb, *options = words.split()
    done = invoke(box, verb, *options)
    assert done.exit_code == 0, done.output
    assert (performed, parse_run_options(performed[0][1]).verb) == ([expected], expected[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rollback --driver --to 3", "--to takes a generation's number and conflicts with --driver"),
        ("rollback --reboot", "--reboot needs --driver"),
        ("rollback --to 3 --reboot", "--reboot needs --driver"),
        ("rollback --to 0", "must be a whole number from 1 to 1000000000"),
        ("deploy --to 3", "No such option"),
        ("deploy --driver", "No such option"),
        ("remove --reboot", "No such option"),
        ("check --reboot", "No such option"),
    ],
)
def test_words_that_do_not_go_together_are_refused_before_a_host_is_asked(box, pyinfra_calls, words, said):
    verb, *options = words.split()
    done = invoke(box, verb, *options)
    assert (done.exit_code, pyinfra_calls) == (2, [])
    assert said in done.output


@pytest.mark.parametrize("verb", ["deploy", "deploy --upgrade-driver"])
def test_a_rig_whose_bundle_is_not_whole_is_not_begun(box, pyinfra_calls, verb):
    box.write("rig.py", RIG.replace('"127.0.0.1"', '"127.0.0.1", "bundle": "gone"'))
    assert (CliRunner().invoke(main, [*verb.split(), str(box.inventory)]).exit_code, pyinfra_calls) == (2, [])
