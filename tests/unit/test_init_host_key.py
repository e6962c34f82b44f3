"""`rigwright init`, the first contact: the owner of a key, its voucher, and what becomes of it."""

import sys

import pytest
from click.testing import CliRunner, Result

import roles.first_contact
from cli import main
from rigwright.declaration.connection import HostKey, parse_host_key
from rigwright.inventory import load_for
from roles.first_contact import ProbedHostKey
from tests.unit.samples import OperatorFolder
from tests.unit.test_init import KEY, load_written
from tests.unit.test_survey import capture

OTHER = parse_host_key("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8eHRwbGhkYFxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA")
COMPARE = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
init_module = sys.modules["cli.init"]


@pytest.fixture
def accepted_keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the hosts that were logged in to."""
    seen: list[str] = []

    def look(name: str, connection: dict[str, str], **options: bool) -> object:
        seen.append(connection["ssh_host_key"])
        return capture("two-sockets")

    monkeypatch.setattr(roles.first_contact, "survey_host", look)
    return seen


def init(
    box: OperatorFolder,
    monkeypatch: pytest.MonkeyPatch,
    expected: HostKey | None,
    *words: str,
    answer: str | None = None,
) -> Result:
    """Run it where the host has KEY, and known_hosts what is expected."""
    monkeypatch.chdir(box.folder)
    monkeypatch.setattr(init_module, "_is_interactive", lambda: answer is not None)
    monkeypatch.setattr(roles.first_contact, "probe_host_key", lambda name, data: ProbedHostKey(KEY, expected))
    return CliRunner().invoke(main, ["init", "root@box", *words], input=answer, env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("expected", "words", "answer"),
    [
        (KEY, [], None),
        (KEY, ["--host-key", KEY.fingerprint], None),
        (None, [], "y\n\n\n\n\n"),
        (None, ["--host-key", KEY.fingerprint], None),
        (None, ["--host-key", KEY.fingerprint], "\n\n\n\n"),
        # a box that was installed anew: its console vouches for it
        (OTHER, ["--host-key", KEY.fingerprint], None),
    ],
)
def test_the_key_that_was_found_is_shown_written_and_held_to(box, monkeypatch, accepted_keys, expected, words, answer):
    done = init(box, monkeypatch, expected, *words, answer=answer)
    assert done.exit_code == 0, done.output
    assert f"Host key of root@box: {KEY.fingerprint} (ssh-ed25519)" in done.output
    assert (COMPARE in done.output) == (expected is None and not words)
    assert accepted_keys == [str(KEY)]
    with load_for("lock"):
        assert load_written(box.folder / "box.py")["ssh_host_key"] == str(KEY)
    assert f"# The only accepted key: {KEY.fingerprint}" in (box.folder / "box.py").read_text()


@pytest.mark.parametrize(
    ("expected", "words", "answer", "said"),
    [
        (
            OTHER,
            [],
            None,
            f"than known_hosts says: expected {OTHER.fingerprint}, found {KEY.fingerprint} (ssh-ed25519)",
        ),
        (OTHER, [], "y\n", f"than known_hosts says: expected {OTHER.fingerprint}, found {KEY.fingerprint}"),
        (KEY, ["--host-key", OTHER.fingerprint], None, f"than --host-key says: expected {OTHER.fingerprint}, found"),
        (None, ["--host-key", OTHER.fingerprint], "y\n", f"than --host-key says: expected {OTHER.fingerprint}, found"),
        (None, [], "n\n", "Aborted!"),
        (None, [], None, "pass the fingerprint that the box's console prints as --host-key"),
        (None, [], None, f"if it is this one: --host-key {KEY.fingerprint}"),
        (None, [], "", "Aborted"),
        (KEY, ["--host-key", str(KEY)], None, "is refused: must be as `ssh-keygen -lf` prints it"),
        (KEY, ["--host-key", KEY.fingerprint + "="], None, "is refused: must be as `ssh-keygen -lf` prints it"),
    ],
)
def test_a_host_with_another_or_an_unknown_key_is_sent_nothing(
    box, monkeypatch, accepted_keys, expected, words, answer, said
):
    done = init(box, monkeypatch, expected, *words, answer=answer)
    assert (done.exit_code, accepted_keys) == (2 if said.startswith("is refused") else 1, []), done.output
    assert said in done.output
    assert not (box.folder / "box.py").exists()
