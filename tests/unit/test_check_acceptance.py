"""`check --accept`: its list, its questions, its refusals, its file next to the inventory and its copies on hosts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from checks.change_review.accepted_comparison import review_host
from checks.change_review.accepted_entries import (
    HostAcceptance,
    accept_entries,
    accepted_path,
    load_accepted,
    save_accepted,
)
from checks.change_review.host_copies import EntriesChanged
from checks.survey.answers import SurveyAnswers
from checks.survey.fingerprint import EntryPackage, FingerprintEntry, HostFingerprint
from cli import check_acceptance, main
from roles import root_shell

SUDO = FingerprintEntry("sudo", "/etc/sudoers.d/ops", "file 440 root root " + "a" * 32, "r1")
SECOND = FingerprintEntry("accounts", "user toor", "uid 0", "r2", problem="a second user with root's number")
NGINX = EntryPackage("nginx", "1.22-1", "debian", {"sudo": 1})
Accept = Callable[..., Result]


class FakeHosts:
    """Hosts that are reviewed, and what they have stored."""

    def __init__(self, folder: Path) -> None:
        self.inventory = folder / "rig.py"
        self.inventory.touch()
        self.answers: dict[str, HostFingerprint] = {}
        self.stored: dict[str, HostAcceptance] = {}
        self.error: Exception | None = None

    def connect(self, inventory: str, limit: str | None, deep: bool, _show_reading: object) -> SimpleNamespace:
        """A run of the survey."""
        hosts = {}
        for name, answer in self.answers.items():
            file = accepted_path(inventory, name)
            accepted = load_accepted(file, name)
            survey = SurveyAnswers({}, _read={"fingerprint": answer})
            review = review_host(accepted, answer, file)
            hosts[name] = SimpleNamespace(
                target=name, rig=None, review=review, survey=survey, accepted=accepted, why="no route"
            )
        return SimpleNamespace(
            hosts=hosts,
            several=len(hosts) > 1,
            is_out_of_reach=lambda name: name == "gone",
            end_host=lambda name: None,
            end=lambda: None,
        )

    def store(self, target: str, rig: None, accepted: HostAcceptance) -> None:
        """A host stores what was accepted."""
        if self.error:
            raise self.error
        self.stored[target] = accepted

    def load(self, name: str) -> HostAcceptance | None:
        """The file of a host."""
        return load_accepted(accepted_path(str(self.inventory), name), name)


def answer(*entries: FingerprintEntry, of: HostAcceptance | None = None) -> HostFingerprint:
    return HostFingerprint([*entries], [NGINX], {}, {}, of.serial if of else 0, of.digest if of else "")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHosts:
    """Hosts beside an inventory."""
    made = FakeHosts(tmp_path)
    monkeypatch.setattr(check_acceptance, "SurveyRun", made.connect)
    monkeypatch.setattr(check_acceptance, "store_accepted", made.store)
    return made


def run(hosts: FakeHosts, *options: str) -> Result:
    return CliRunner().invoke(main, ["check", str(hosts.inventory), "--accept", *options])


def test_equal_entries_of_hosts_are_listed_once_and_accepted_on_each(hosts: FakeHosts) -> None:
    hosts.answers = {"box1": answer(SUDO), "box2": answer(SUDO)}
    ran = run(hosts, "--yes", "--author", "ana")
    assert ran.exit_code == 0, ran.output
    assert ran.output.count("/etc/sudoers.d/ops") == 1
    assert "  /etc/sudoers.d/ops: new (file 440 root root) [all hosts]\n" in ran.output
    for name in ("box1", "box2"):
        made = hosts.load(name)
        assert made == hosts.stored[name]
        assert (made.serial, made.author, made.entries) == (1, "ana", {"sudo": {SUDO.key: SUDO.value}})
    hosts.answers = {name: answer(SUDO, of=made) for name, made in hosts.stored.items()}
    again = run(hosts, "--yes")
    assert (again.exit_code, again.output) == (0, "box1: nothing to accept\nbox2: nothing to accept\n")


def test_unacceptable_entries_are_refused_by_name_and_the_rest_is_accepted(hosts: FakeHosts) -> None:
    hosts.answers = {"box1": answer(SUDO, SECOND)}
    ran = run(hosts, "--yes")
    assert ran.exit_code == 1
    assert "box1: refused, is never accepted: user toor: a second user with root's number" in ran.output
    assert {*hosts.stored["box1"].entries} == {"sudo"}


def test_without_a_terminal_nothing_is_accepted_unless_the_review_is_confirmed(hosts: FakeHosts) -> None:
    hosts.answers = {"box1": answer(SUDO)}
    ran = run(hosts)
    assert ran.exit_code == 2
    assert "--accept asks on a terminal; without one, it needs --yes after a review" in ran.output
    assert hosts.stored == {}


@pytest.mark.parametrize("has_file", [True, False])
def test_an_older_file_is_refused_and_a_missing_one_is_a_review_anew(hosts: FakeHosts, has_file: bool) -> None:
    first = accept_entries(answer(), "box1", 0, "ana", "2026-11-28T06:12:00Z")
    later = accept_entries(answer(of=first), "box1", 1, "ben", "2026-11-29T06:12:00Z")
    if has_file:
        save_accepted(accepted_path(str(hosts.inventory), "box1"), first)
    hosts.answers = {"box1": answer(SUDO, of=later)}
    ran = run(hosts, "--yes")
    if has_file:
        assert (ran.exit_code, hosts.stored, hosts.load("box1")) == (1, {}, first)
        assert "box1: refused: the host has recorded accepted entries 2; accepted/box1.json has 1: fetch" in ran.output
    else:
        assert (ran.exit_code, hosts.stored["box1"].serial) == (0, 3)
        assert "the file accepted/box1.json is missing: all entries need a new review" in ran.output


@pytest.mark.parametrize(
    ("error", "kept"),
    [(EntriesChanged("sudo /etc/sudoers.d/ops"), False), (root_shell.ConnectionGone("gone"), True)],
)
def test_a_host_that_does_not_store_them_is_named(hosts: FakeHosts, error: Exception, kept: bool) -> None:
    """A file stays where the host may have stored it: the next check tells. Where it has not, the file is as before."""
    hosts.answers, hosts.error = {"box1": answer(SUDO)}, error
    ran = run(hosts, "--yes")
    assert ran.exit_code == 1
    assert ran.output.splitlines()[-1].startswith("box1: ")
    assert (hosts.load("box1") is not None) == kept


def test_hosts_out_of_reach_are_named_and_others_accepted(hosts: FakeHosts) -> None:
    hosts.answers = {"box1": answer(SUDO), "gone": answer(SUDO)}
    ran = run(hosts, "--yes")
    assert (ran.exit_code, {*hosts.stored}) == (3, {"box1"})
    assert "gone: no route\n" in ran.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--accept", "--strict"], "--accept allows only --limit"),
        (["--yes"], "--author and --yes need --accept."),
        (["--accept", "--yes", "--author", "a\nb"], "--author: 'a\\nb' is refused: must be a name of 1 to 200"),
        (["--ignore", "sudo,sudoo"], '--ignore: there is no class "sudoo"; did you mean "sudo"?'),
    ],
)
def test_words_that_do_not_go_together_are_refused(hosts: FakeHosts, words: list[str], text: str) -> None:
    hosts.answers = {"box1": replace(answer(SUDO))}
    ran = CliRunner().invoke(main, ["check", str(hosts.inventory), *words])
    assert ran.exit_code == 2
    assert text in " ".join(ran.output.split())
    assert hosts.stored == {}
