"""Users of instances: their names, and how a deploy has them there."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigwright.model.accounts import ServiceAccounts
from rigwright.model.rig import account_names
from rigwright.serving.activation import Surplus
from roles.operations import generations, users
from tests.unit.channel_records import channel_lines_of
from tests.unit.example_counts import example_count
from tests.unit.host_states import target_generation
from tests.unit.samples import sample_instance, sample_rig

HOME, LEDGER = "/nonexistent", "/var/lib/rigwright/owned"
RIGHT = "svc-a:x:999:999::/nonexistent:/usr/sbin/nologin"
NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,47}", fullmatch=True)
PREFIXES = st.from_regex(r"[a-z_][a-z0-9_-]{0,30}", fullmatch=True)


def user(name: str, prefix: str = "rigwright") -> str:
    one = sample_instance(name)
    return sample_rig(one, accounts=ServiceAccounts(prefix)).accounts.of_instance(one)


@pytest.mark.parametrize(
    ("prefix", "name", "expected"),
    [
        ("rigwright", "chat", "rigwright-chat"),
        ("svc", "a", "svc-a"),
        # as long as one may be that is not cut
        ("rigwright", "a" * 21, "rigwright-" + "a" * 21),
    ],
)
def test_a_user_is_called_after_its_instance(prefix: str, name: str, expected: str) -> None:
    assert user(name, prefix) == expected


def test_long_names_that_only_differ_at_their_ends_have_users_of_their_own() -> None:
    long = "a" * 47
    made = {user(f"{long}{end}") for end in "abc"}
    assert len(made) == 3
    assert all(name.startswith("rigwright-aaa") for name in made)


def test_no_instance_can_be_called_like_a_long_ones_user() -> None:
    taken = user("translate-documents-for-the-archive")
    assert user(taken.removeprefix("rigwright-")) != taken


def test_a_rigs_users_are_its_instances() -> None:
    made = sample_rig(sample_instance("b"), sample_instance("a"))
    assert account_names(made) == ("rigwright-b", "rigwright-a")
    assert account_names(sample_rig()) == ()


@settings(max_examples=example_count(300), deadline=None, derandomize=True, database=None)
@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), PREFIXES)
def test_any_instances_have_different_users_that_useradd_takes(names: list[str], prefix: str) -> None:
    found = [user(name, prefix) for name in names]
    assert len(set(found)) == len(names)
    assert prefix not in found
    # useradd(8): no longer, and of such letters
    assert all(len(name) <= 32 and name[0] in "_abcdefghijklmnopqrstuvwxyz" for name in found)
    assert found == [user(name, prefix) for name in names]


def commands(monkeypatch: pytest.MonkeyPatch, lines: list[str], names: list[str]) -> list[str]:
    """The commands for these users on a host with these lines of passwd."""
    found = users.PasswdFact().read(
        channel_lines_of([("passwd", line) if ":" in line else (*line.split(),) for line in lines])
    )

    def fact(kind: type, users: list[str]) -> object:
        return {name: found[name] for name in users if name in found}

    monkeypatch.setattr(users, "host", SimpleNamespace(get_fact=fact, noop=lambda _: None))
    operation: Any = users.ensure_service_users
    return [command.get_raw_value() for command in operation._inner(users=names, home=HOME, ledger=LEDGER)]


MADE = [
    f"echo 'user svc-a' >> {LEDGER}",
    "useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin svc-a",
]
CHANGED = ["usermod --home /nonexistent --shell /usr/sbin/nologin --groups '' --password '!' svc-a"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], MADE),
        ([RIGHT], []),
        ([RIGHT.replace("/nonexistent", "/srv/x")], CHANGED),
        ([RIGHT.replace("/usr/sbin/nologin", "/bin/sh")], CHANGED),
        ([RIGHT.replace("svc-a", "svc-ab")], MADE),
        ([RIGHT, "joined svc-a"], CHANGED),
        ([RIGHT, "open svc-a"], CHANGED),
    ],
)
def test_a_user_that_is_not_as_it_should_be_is_made_so(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], expected: list[str]
) -> None:
    assert commands(monkeypatch, lines, ["svc-a"]) == expected
    # whatever there is to do for another one
    other = RIGHT.replace("svc-a", "svc-b")
    assert commands(monkeypatch, [other, *lines], ["svc-b", "svc-a"]) == expected


def test_it_is_written_down_as_ours_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deploy that is cut off in between finds it again as its own."""
    made = commands(monkeypatch, [], ["svc-a", "svc-b"])
    assert [command.split()[0] for command in made] == ["echo", "useradd"] * 2
    assert commands(monkeypatch, [], []) == []


def test_rows_of_passwd_are_read_by_user() -> None:
    look = users.PasswdFact()
    assert look.read(channel_lines_of([("passwd", RIGHT), ("passwd", "")])) == {
        "svc-a": users.LoginAccount("/nonexistent", "/usr/sbin/nologin")
    }
    with pytest.raises(ValueError, match="passwd"):
        look.read(channel_lines_of([("passwd", f"{RIGHT}\nroot:x:0:0::/:/bin/sh")]))


def test_an_unneeded_user_is_removed_and_no_longer_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "read_serving_state", lambda rig: None)
    monkeypatch.setattr(generations, "find_surplus", lambda *_: Surplus((), (), ("svc-a", "svc-b")))
    made = sample_rig(sample_instance())
    operation: Any = generations.prune_generations
    commands = operation._inner(rig=made, wanted=target_generation(made), users=["svc-a", "svc-b"])
    assert [command.get_raw_value() for command in commands] == [
        f"userdel svc-a && sed -i '/^user svc-a$/d' {made.roots.ledger}",
        f"userdel svc-b && sed -i '/^user svc-b$/d' {made.roots.ledger}",
    ]
