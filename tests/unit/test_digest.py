"""The digest of lock and bundle that comes another way: the changes that change it, and that a deploy is compared with
it."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import deploy_verbs, main
from rigwright.inventory import load_rig
from rigwright.project_root import ROOT
from rigwright.supply.bundle import Bundle, describe_digest_mismatch, format_digest, parse_digest, supply_digest
from rigwright.supply.lock import Lock
from tests.unit.lock_world import LockFixture
from tests.unit.samples import OperatorFolder, chat_instances, sample_artefact, sample_entry, sample_wheel

ONE, OTHER = "0123456789abcdef" * 4, "f" * 64
LOCK = Lock({"one": sample_artefact(name="one"), "two": sample_artefact(name="two")}, {"tools": (sample_wheel(),)})
BUNDLE = Bundle(Path("/bundle"), (), (), digest=ONE)


@pytest.mark.parametrize(
    ("lock", "bundle"),
    [
        (LOCK, None),
        (LOCK, replace(BUNDLE, digest=OTHER)),
        (Lock({"one": sample_artefact(name="one")}, LOCK.groups), BUNDLE),
        (Lock(LOCK.artefacts | {"two": sample_artefact(name="two", sha256="0" * 64)}, LOCK.groups), BUNDLE),
        (Lock(LOCK.artefacts), BUNDLE),
    ],
    ids=["no bundle", "another bundle", "a row less", "another hash", "no tools"],
)
def test_whatever_is_another_thing_has_another_digest(lock: Lock, bundle: Bundle | None) -> None:
    assert supply_digest(lock, bundle) != supply_digest(LOCK, BUNDLE)


def test_neither_an_order_nor_a_place_counts() -> None:
    turned = Lock(dict(reversed(LOCK.artefacts.items())), LOCK.groups)
    assert supply_digest(turned, replace(BUNDLE, folder=Path("/elsewhere"))) == supply_digest(LOCK, BUNDLE)


def test_spoken_lines_are_unchanged() -> None:
    assert format_digest(ONE) == "-".join(["01234567", "89abcdef"] * 4)
    assert {
        parse_digest(said)
        for said in (ONE, format_digest(ONE), format_digest(ONE).upper(), format_digest(ONE).replace("-", " "))
    } == {ONE}


@pytest.mark.parametrize("said", ["", ONE[1:], f"{ONE}0", f"g{ONE[1:]}", f"{ONE}\n", 5, True, None, [ONE]])
def test_an_invalid_digest_is_ignored(said: object) -> None:
    assert parse_digest(said) is None


def test_a_mismatch_is_reported_with_both() -> None:
    assert describe_digest_mismatch(ONE, "") == describe_digest_mismatch(ONE, ONE) == ""
    assert f"digest {format_digest(ONE)}, but {format_digest(OTHER)} is expected" in describe_digest_mismatch(
        ONE, OTHER
    )


def write(box: OperatorFolder) -> str:
    """An inventory of two rigs; their digest."""
    declared = {
        name: sample_entry(ssh_hostname=f"192.0.2.{n}", instances=chat_instances())
        for n, name in enumerate(("a", "b"), start=1)
    }
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({declared!r})\n")
    return load_rig(box.load_group(declared)[0][1]["rig"]).digest


@pytest.mark.parametrize("verb", ["deploy", "deploy --upgrade-driver"])
def test_a_deploy_is_held_to_it_before_it_begins(box, verb, monkeypatch):
    found, begun = write(box), list[tuple[str, ...]]()
    monkeypatch.setattr(deploy_verbs, "run_pyinfra", lambda inventory, *options: begun.append(options) or 0)
    done = CliRunner().invoke(main, [*verb.split(), str(box.inventory), "-v", "--expect", format_digest(OTHER)])
    assert done.exit_code == 2
    assert (
        f"Error: a: lock and bundle have the digest {format_digest(found)}, but {format_digest(OTHER)} is expected"
        in done.output
    )
    assert begun == []
    done = CliRunner().invoke(main, [*verb.split(), str(box.inventory), "-v", "--expect", format_digest(found)])
    assert done.exit_code == 0, done.output
    # a deploy is compared with it once more: files are read again
    assert f"expected_digest={format_digest(found)}" in begun[0]
    assert CliRunner().invoke(main, [*verb.split(), str(box.inventory), "-v"]).exit_code == 0
    assert not [word for word in begun[1] if word.startswith("expected_digest")]


def test_an_invalid_digest_is_refused_by_the_command_line(box: OperatorFolder) -> None:
    write(box)
    done = CliRunner().invoke(main, ["deploy", str(box.inventory), "--expect", "abc"])
    assert done.exit_code == 2
    assert (
        "'abc' is refused: must be the 64 hexadecimal digits printed by `rigwright lock`, `bundle` or `plan --json`"
        in done.output
    )


def test_a_lock_that_was_written_says_its_digest(world: LockFixture) -> None:
    said = world.run_lock().stderr.splitlines()[-1]
    assert parse_digest(said.rpartition(" ")[2]) == supply_digest(
        Lock.load([ROOT / "locks", world.folder / "locks"]), None
    ), said
