"""The digest of lock and bundle that comes another way: what changes it, and that a deploy is held to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import hosts, main
from rigwright.inventory import load
from rigwright.paths import ROOT
from rigwright.supply.bundle import Bundle
from rigwright.supply.expected import digest, heard, refusal, spoken
from rigwright.supply.lock import Lock
from tests.unit.lock_world import World
from tests.unit.samples import Box, artefact, chat, entry, wheel

ONE, OTHER = "0123456789abcdef" * 4, "f" * 64
LOCK = Lock({"one": artefact(name="one"), "two": artefact(name="two")}, {"tools": (wheel(),)})
BUNDLE = Bundle(Path("/bundle"), (), (), digest=ONE)


@pytest.mark.parametrize(
    ("lock", "bundle"),
    [
        (LOCK, None),
        (LOCK, replace(BUNDLE, digest=OTHER)),
        (Lock({"one": artefact(name="one")}, LOCK.groups), BUNDLE),
        (Lock(LOCK.artefacts | {"two": artefact(name="two", sha256="0" * 64)}, LOCK.groups), BUNDLE),
        (Lock(LOCK.artefacts), BUNDLE),
    ],
    ids=["no bundle", "another bundle", "a row less", "another hash", "no tools"],
)
def test_whatever_is_another_thing_has_another_digest(lock: Lock, bundle: Bundle | None) -> None:
    assert digest(lock, bundle) != digest(LOCK, BUNDLE)


def test_neither_an_order_nor_a_place_counts() -> None:
    turned = Lock(dict(reversed(LOCK.artefacts.items())), LOCK.groups)
    assert digest(turned, replace(BUNDLE, folder=Path("/elsewhere"))) == digest(LOCK, BUNDLE)


def test_what_is_read_out_is_heard_as_it_was() -> None:
    assert spoken(ONE) == "-".join(["01234567", "89abcdef"] * 4)
    assert {heard(said) for said in (ONE, spoken(ONE), spoken(ONE).upper(), spoken(ONE).replace("-", " "))} == {ONE}


@pytest.mark.parametrize("said", ["", ONE[1:], f"{ONE}0", f"g{ONE[1:]}", f"{ONE}\n", 5, True, None, [ONE]])
def test_what_is_no_digest_is_not_heard(said: object) -> None:
    assert heard(said) is None


def test_a_mismatch_is_said_with_both() -> None:
    assert refusal(ONE, "") == refusal(ONE, ONE) == ""
    assert f"digest {spoken(ONE)}, but {spoken(OTHER)} is expected" in refusal(ONE, OTHER)


def write(box: Box) -> str:
    """An inventory of two rigs; their digest."""
    declared = {
        name: entry(ssh_hostname=f"192.0.2.{n}", instances=chat()) for n, name in enumerate(("a", "b"), start=1)
    }
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({declared!r})\n")
    return load(box.group(declared)[0][1]["rig"]).digest


@pytest.mark.parametrize("verb", ["deploy", "upgrade"])
def test_a_deploy_is_held_to_it_before_it_begins(box: Box, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, begun = write(box), list[tuple[str, ...]]()
    monkeypatch.setattr(hosts, "pyinfra_here", lambda inventory, *options: begun.append(options) or 0)
    done = CliRunner().invoke(main, [verb, str(box.inventory), "-v", "--expect", spoken(OTHER)])
    assert done.exit_code == 2
    assert f"Error: a: lock and bundle have the digest {spoken(found)}, but {spoken(OTHER)} is expected" in done.output
    assert begun == []
    done = CliRunner().invoke(main, [verb, str(box.inventory), "-v", "--expect", spoken(found)])
    assert done.exit_code == 0, done.output
    # what is deployed is held to it once more: files are read again
    assert f"expect={spoken(found)}" in begun[0]
    assert CliRunner().invoke(main, [verb, str(box.inventory), "-v"]).exit_code == 0
    assert not [word for word in begun[1] if word.startswith("expect")]


def test_what_is_no_digest_is_refused_by_the_command_line(box: Box) -> None:
    write(box)
    done = CliRunner().invoke(main, ["deploy", str(box.inventory), "--expect", "abc"])
    assert done.exit_code == 2
    assert "'abc' is refused: must be the 64 hexadecimal digits printed by `rigwright plan`" in done.output


def test_a_lock_that_was_written_says_its_digest(world: World) -> None:
    said = world.lock().stderr.splitlines()[-1]
    assert heard(said.rpartition(" ")[2]) == digest(Lock.load([ROOT / "locks", world.folder / "locks"]), None), said
