"""Keys of verdicts that are lost, rotated or expire in the middle of a chain, and those of an inventory."""

# ruff: noqa: F811 (fixtures of another file)

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checks.verdict_verifier import NAMESPACE
from cli import main
from tests.unit.samples import OperatorFolder, sample_entry
from tests.unit.signing_keys import public_key
from tests.unit.test_signed_verdict import NOW, Verdicts, at, digest, keys, verdicts  # noqa: F401 (fixtures)

DAY = timedelta(days=1)


def link(verdicts: Verdicts, name: str, key: str, age: timedelta, *previous: Path) -> Path:
    """A verdict of some age after others, signed by a key."""
    details = verdicts.details(
        len(previous) + 1,
        digest(previous[-1]) if previous else None,
        verifier__controller_key=public_key(verdicts.keys[key]).fingerprint,
        time__surveyed=at(NOW - age),
        time__signed=at(NOW - age),
        time__expires=at(NOW - age + 7 * DAY),
    )
    return verdicts.write(name, details, key)


def trust(verdicts: Verdicts, ana: str = "", eve: str = "") -> None:
    """Both keys may sign, with further options."""
    lines = [
        f'{name} namespaces="{NAMESPACE}"{options} {public_key(verdicts.keys[name])}\n'
        for name, options in (("ana", ana), ("eve", eve))
    ]
    (verdicts.folder / "signers").write_text("".join(lines))


def until(age: timedelta) -> str:
    return f',valid-before="{NOW - age:%Y%m%d%H%M%S}"'


def test_a_key_that_expires_in_the_middle_of_a_chain_counts_until_then(verdicts: Verdicts) -> None:
    first = link(verdicts, "1", "ana", 4 * DAY)
    late = link(verdicts, "late", "ana", 1 * DAY, first)
    other = link(verdicts, "2", "eve", 1 * DAY, first)
    trust(verdicts, until(2 * DAY))
    assert verdicts.refusal(first, other) == ""
    assert verdicts.refusal(first, late) == "key_not_valid"
    # nothing shows that the key signed in its time, and not today: the newest one has to have a valid key
    assert verdicts.refusal(first) == "key_not_valid"


def test_a_rotated_key_signs_no_link_after_its_successor(verdicts: Verdicts) -> None:
    first = link(verdicts, "1", "ana", 4 * DAY)
    second = link(verdicts, "2", "eve", 3 * DAY, first)
    back = link(verdicts, "3", "ana", 1 * DAY, first, second)
    trust(verdicts)
    assert verdicts.refusal(first, second, back) == ""  # both may sign during a rotation
    trust(verdicts, until(2 * DAY))
    assert verdicts.refusal(first, second) == ""
    assert verdicts.refusal(first, second, back) == "key_not_valid"


def test_a_lost_key_ends_with_a_day_and_its_links_remain(verdicts: Verdicts) -> None:
    first = link(verdicts, "1", "ana", 4 * DAY)
    second = link(verdicts, "2", "eve", 1 * DAY, first)
    trust(verdicts, until(3 * DAY))
    assert verdicts.refusal(first, second, options=("--complete",)) == ""
    # its finder dates a link back, and hangs it to the first one: the chain has a fork
    forged = link(verdicts, "forged", "ana", 7 * DAY // 2, first)
    assert verdicts.refusal(first, forged, second) == "fork"
    assert verdicts.refusal(first, forged) == "key_not_valid"


def test_links_of_a_stolen_key_count_no_more_and_the_chain_begins_after_them(verdicts: Verdicts) -> None:
    first = link(verdicts, "1", "ana", 4 * DAY)
    second = link(verdicts, "2", "eve", 1 * DAY, first)
    trust(verdicts)
    (verdicts.folder / "revoked").write_text(f"{public_key(verdicts.keys['ana']).fingerprint}\n")
    revoked = f"--revoked={verdicts.folder / 'revoked'}"
    assert verdicts.refusal(first, second, options=(revoked,)) == "revoked"
    assert verdicts.refusal(second, options=(revoked,)) == ""
    assert verdicts.refusal(second, options=(revoked, "--complete")) == "missing"


class InventoryVerifier:
    """`verify-verdict --inventory`, with the signers of an inventory."""

    def __init__(self, box: OperatorFolder, verdicts: Verdicts) -> None:
        self.box, self.verdicts = box, verdicts

    def run(self, *words: str | Path, **declared: Any) -> tuple[int, str]:
        """Exit status and output."""
        entry = sample_entry(instances={}, **declared)
        inventory = self.box.write(
            "rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box1': {entry!r}}})\n"
        )
        done = CliRunner().invoke(main, ["verify-verdict", "--inventory", str(inventory), *map(str, words)])
        return done.exit_code, done.output

    def signer(self, name: str, **more: object) -> dict[str, dict[str, object]]:
        """A signer as an inventory declares it."""
        return {name: {"key": str(public_key(self.verdicts.keys[name])), **more}}


@pytest.fixture
def declared(box: OperatorFolder, verdicts: Verdicts) -> InventoryVerifier:
    return InventoryVerifier(box, verdicts)


def test_the_signers_of_an_inventory_verify(declared: InventoryVerifier) -> None:
    (path,) = declared.verdicts.chain(1)
    ana, eve = declared.signer("ana"), declared.signer("eve")
    status, output = declared.run(path, signers=ana)
    assert (status, "signed " in output, "by ana" in output) == (0, True, True), output
    for signers, more, reason in (
        (eve, {}, "unknown_signer"),
        (declared.signer("ana", signs=["lock"]) | eve, {}, "unknown_signer"),
        (declared.signer("ana", valid_before="2026-01-01") | eve, {}, "key_not_valid"),
        (ana | eve, {"revoked_keys": [public_key(declared.verdicts.keys["ana"]).fingerprint]}, "revoked"),
        (ana | eve, {"revoked_keys": [str(public_key(declared.verdicts.keys["ana"]))]}, "revoked"),
    ):
        status, output = declared.run(path, signers=signers, **more)
        assert (status, f"refused ({reason})" in output) == (2, True), output
    (declared.verdicts.folder / "more").write_text(f"{public_key(declared.verdicts.keys['ana'])}\n")
    status, output = declared.run("--revoked", declared.verdicts.folder / "more", path, signers=ana)
    assert (status, "refused (revoked)" in output) == (2, True), output


def test_keys_come_from_one_place(declared: InventoryVerifier) -> None:
    (path,) = declared.verdicts.chain(1)
    status, output = declared.run(path)
    assert (status, "no rig has signers" in output) == (2, True), output
    status, output = declared.run(
        "--signers", declared.verdicts.folder / "signers", path, signers=declared.signer("ana")
    )
    assert (status, "either --inventory or --signers" in output) == (2, True), output
