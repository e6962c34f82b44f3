"""Accepted entries of a host: the file, comparison with a host's answer, review, and groups of equal changes."""

import time
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from checks import test_host_changes
from checks.change_review.accepted_comparison import review_host
from checks.change_review.accepted_entries import HostAcceptance, accept_entries, load_accepted, save_accepted
from checks.change_review.class_checks import CLASS_CHECKS, PACKAGES
from checks.change_review.fingerprint_diff import HostChange, UnacceptedChanges, compare_entries
from checks.change_review.identical_changes import group_changes
from checks.survey.fingerprint import EntryPackage, FingerprintEntry, HostFingerprint
from checks.survey.fingerprint_classes import ENTRY_CLASSES
from rigwright.problems import Invalid

SUDO = FingerprintEntry("sudo", "/etc/sudoers.d/ops", "file 440 root root " + "a" * 32, "r1")
NGINX = EntryPackage("nginx", "1.22-1", "debian", {"sudo": 1, "pam": 2})
FILE = PurePath("/boxes/accepted/box1.json")


def make_answer(
    *entries: FingerprintEntry, packages: tuple[EntryPackage, ...] = (NGINX,), serial: int = 0
) -> HostFingerprint:
    return HostFingerprint([*entries], [*packages], {}, {}, serial, "")


def accept(*entries: FingerprintEntry, packages: tuple[EntryPackage, ...] = (NGINX,)) -> HostAcceptance:
    return accept_entries(make_answer(*entries, packages=packages), "box1", 0, "ana", "2026-11-28T06:12:00Z")


def store(of: HostAcceptance, *entries: FingerprintEntry) -> HostFingerprint:
    """The answer of a host that has stored accepted entries."""
    return replace(make_answer(*entries, serial=of.serial), accepted_digest=of.digest)


OTHER = replace(SUDO, value="file 440 root root " + "b" * 32, since=1.0e9, author="while alice was logged in")
OPENED = replace(SUDO, value="file 666 root root " + "a" * 32)
PACKAGED = replace(SUDO, key="/etc/sudoers", expected_from="sudo 1.9")
LOGIN = FingerprintEntry("accounts", "user bob", "uid 1001, shell /bin/bash", "r2")
TIMER = EntryPackage("sneaky", "2.0", "debian", {"sudo": 1})
MORE = replace(NGINX, version="1.23-1", classes={"sudo": 1, "pam": 3, "accounts": 1})


@pytest.mark.parametrize(
    ("before", "now", "described"),
    [
        ((SUDO,), (SUDO,), []),
        ((), (SUDO,), ["/etc/sudoers.d/ops: new (file 440 root root)"]),
        (
            (SUDO,),
            (OTHER,),
            [
                "/etc/sudoers.d/ops: other content (file 440 root root, since 2001-09-09 01:46, while alice "
                "was logged in)"
            ],
        ),
        ((SUDO,), (OPENED,), ["/etc/sudoers.d/ops: file 440 root root -> file 666 root root"]),
        (
            (),
            (replace(SUDO, value="link to /opt/0123456789abcdef0123/x"),),
            ["/etc/sudoers.d/ops: new (link to /opt/0123456789abcdef0123/x)"],
        ),
        ((SUDO,), (), ["/etc/sudoers.d/ops: gone (was file 440 root root)"]),
        ((), (PACKAGED,), ["/etc/sudoers: differs from that of sudo 1.9 (file 440 root root)"]),
        ((), (replace(PACKAGED, value=""),), ["/etc/sudoers: gone, sudo 1.9 has it"]),
        # entries that can never be accepted are failures
        ((), (replace(SUDO, problem="others can write it"),), []),
        ((SUDO,), (replace(OPENED, problem="others can write it"),), []),
    ],
)
def test_entries_are_compared_with_accepted_ones(
    before: tuple[FingerprintEntry, ...], now: tuple[FingerprintEntry, ...], described: list[str]
) -> None:
    assert [one.describe() for one in compare_entries(accept(*before), make_answer(*now))] == described


def test_an_accepted_entry_that_a_package_has_taken_over_is_no_change() -> None:
    answer = replace(make_answer(), accepted_explained=[(SUDO.kind, SUDO.key)])
    assert compare_entries(accept(SUDO), answer) == []


@pytest.mark.parametrize(
    ("packages", "described"),
    [
        ((NGINX,), []),
        ((replace(NGINX, version="1.23-1"),), []),
        ((NGINX, TIMER), [("sneaky: new (2.0 of debian: sudo 1)", True)]),
        ((MORE,), [("nginx: new (1.23-1 of debian: accounts 1)", True)]),
        ((), [("nginx: gone", False)]),
        # without a signed archive, its entries are listed
        ((NGINX, replace(TIMER, archive="")), []),
    ],
)
def test_a_package_is_a_line_where_it_adds_entries_to_a_class(
    packages: tuple[EntryPackage, ...], described: list[tuple[str, bool]]
) -> None:
    changes = compare_entries(accept(), make_answer(packages=packages))
    assert [(one.describe(), one.counts) for one in changes] == described


def test_a_file_is_read_as_it_was_written_an_entry_a_line(tmp_path: Path) -> None:
    made = accept(SUDO, LOGIN)
    place = tmp_path / "accepted" / "box1.json"
    save_accepted(place, made)
    assert load_accepted(place, "box1") == made
    lines = place.read_text().splitlines()
    assert [line.split(":")[0].strip() for line in lines[8:16]] == [
        '"accounts"',
        '"user bob"',
        "},",
        '"sudo"',
        '"/etc/sudoers.d/ops"',
        "}",
        "},",
        '"packages"',
    ]
    assert load_accepted(tmp_path / "accepted" / "box2.json", "box2") is None


def test_made_up_output_of_a_host_spoils_no_file(tmp_path: Path) -> None:
    place = tmp_path / "accepted" / "box1.json"
    unknown = replace(SUDO, kind="answer"), replace(SUDO, key='"\n\x1b[2J')
    save_accepted(place, accept(*unknown, packages=(replace(NGINX, name="a\nb", classes={"sudo": 1, "none": 2}),)))
    made = load_accepted(place, "box1")
    assert made is not None
    assert ({*made.entries}, made.packages) == ({"sudo"}, {"a\nb": ("sudo",)})
    with pytest.raises(ValueError, match="more than 4 MiB"):
        save_accepted(place, accept(replace(SUDO, value="x" * (5 << 20))))
    assert load_accepted(place, "box1") == made


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"serial": 1', '"serial": 2', "digest: is not that of this file: it was edited or merged"),
        ("440", "400", "digest: is not that of this file"),
        ('"serial": 1', '"serial": 0', "serial: 0 is refused: must be a whole number from 1"),
        ('"schema": 1', '"schema": 9', "schema: 9 is refused: must be 1"),
        ('"sudo": {', '"sudoo": {', 'entries.sudoo: there is no class of entries "sudoo"; did you mean "sudo"?'),
        ('"nginx": "pam', '"nginx": "pma', 'packages.nginx: there is no class of entries "pma"; did you mean "pam"?'),
        ('"serial"', '"seriel"', 'seriel: unknown key; did you mean "serial"?'),
        ('"host": "box1"', '"host": "box2"', "host: 'box2' is refused: must be \"box1\""),
        ('"author": "ana"', '"author": "ana", "author": "bob"', "is refused: must be there once"),
        ("{", "", "Extra data"),
        ("{", "[" * 99999, "recursion depth"),
        ('"author": "ana"', '"author": 7', "author: 7 is refused: must be text on one line"),
    ],
)
def test_a_file_that_was_edited_is_refused_with_the_reason(tmp_path: Path, old: str, new: str, text: str) -> None:
    place = tmp_path / "accepted" / "box1.json"
    save_accepted(place, accept(SUDO))
    place.write_text(place.read_text().replace(old, new, 1))
    with pytest.raises(Invalid) as error:
        load_accepted(place, "box1")
    assert str(error.value).startswith(f"{place}: ")
    assert text in str(error.value)


LATER = accept_entries(make_answer(SUDO, serial=1), "box1", 1, "ana", "2026-11-29T06:12:00Z")
FIRST = accept(SUDO)


@pytest.mark.parametrize(
    ("file", "host", "state", "problem"),
    [
        (None, make_answer(SUDO), "unreviewed", ""),
        (FIRST, store(FIRST, SUDO), "reviewed", ""),
        (
            None,
            store(FIRST, SUDO),
            "refused",
            "the host has recorded accepted entries 1; the file accepted/box1.json is missing",
        ),
        (FIRST, store(LATER, SUDO), "refused", "the host has recorded accepted entries 2; accepted/box1.json has 1"),
        (
            replace(FIRST, digest="0" * 64),
            store(FIRST, SUDO),
            "refused",
            "the host knows other accepted entries 1 than accepted/box1.json has",
        ),
        (LATER, make_answer(SUDO), "renewed", ""),
        (LATER, store(FIRST, SUDO), "reviewed", ""),
    ],
)
def test_older_and_other_entries_than_the_host_knows_are_refused(
    file: HostAcceptance | None, host: HostFingerprint, state: str, problem: str
) -> None:
    review = review_host(file, host, FILE)
    assert (review.state, review.problem) == (state, problem)


def test_entries_that_the_host_did_not_store_are_a_change() -> None:
    stored = replace(SUDO, before=SUDO.value)
    for host in (make_answer(SUDO), store(FIRST, stored)):
        (change,) = review_host(LATER, host, FILE).changes
        assert change.describe().startswith(f"{host.accepted_serial or 'none'} on the host, 2 in ")


def test_an_entry_that_only_the_file_has_is_a_change() -> None:
    stored = replace(SUDO, before=SUDO.value)
    edited = accept_entries(make_answer(SUDO, LOGIN, serial=1), "box1", 1, "ana", "2026-11-29T06:12:00Z")
    _, change = review_host(edited, store(FIRST, stored, LOGIN), FILE).changes
    assert (change.key, change.change) == ("user bob", "new")


def test_a_host_with_another_key_tells_what_is_new_but_contents() -> None:
    other_key = replace(SUDO, value=SUDO.value.replace("a" * 32, "c" * 32))
    _, change = review_host(FIRST, make_answer(other_key, LOGIN), FILE).changes
    assert (change.key, change.change) == ("user bob", "new")


def test_options_leave_classes_out_and_make_all_count() -> None:
    review = review_host(FIRST, store(FIRST, LOGIN), FILE)
    assert [one.entry_class for one in review.changes] == ["accounts", "sudo"]
    assert [one.entry_class for one in review.with_options(strict=False, ignored=["sudo"]).changes] == ["accounts"]
    listed = replace(review, changes=(replace(review.changes[0], counts=False),))
    assert [one.counts for one in listed.with_options(strict=True, ignored=()).changes] == [True]


def test_equal_changes_of_hosts_are_one_group() -> None:
    same, other = HostChange("sudo", "a", "new", run_value="r"), HostChange("sudo", "a", "new", run_value="s")
    groups = group_changes({"box2": [same], "box1": [same], "box3": [other]})
    assert [(one.change.run_value, one.hosts) for one in groups] == [("r", ("box1", "box2")), ("s", ("box3",))]


def test_every_class_has_one_check_and_ids_are_unique() -> None:
    ids = {one.name: one.id for one in CLASS_CHECKS}
    assert {PACKAGES, *(one.name for one in ENTRY_CLASSES)} <= ids.keys()
    assert [*ids.values()] == [f"X{number:02}" for number in range(3, len(CLASS_CHECKS) + 3)]


ACCOUNTS, PAM = (one for one in CLASS_CHECKS if one.name in ("accounts", "pam"))


@pytest.mark.parametrize(("state", "outcome"), [("unreviewed", "skip"), ("reviewed", "changed"), ("refused", "skip")])
def test_a_check_of_a_class_reports_changes_of_a_reviewed_host(state: str, outcome: str) -> None:
    review = replace(review_host(FIRST, store(FIRST, LOGIN), FILE), state=state)
    with pytest.raises((UnacceptedChanges, pytest.skip.Exception)) as error:
        test_host_changes.report_changes(review, ACCOUNTS)
    assert (error.type is UnacceptedChanges) == (outcome == "changed")
    test_host_changes.report_changes(replace(review, state="reviewed"), PAM)


def test_three_thousand_entries_take_thirty_milliseconds(tmp_path: Path) -> None:
    entries = [replace(SUDO, key=f"/etc/sudoers.d/{number}") for number in range(3000)]
    place = tmp_path / "accepted" / "box1.json"
    save_accepted(place, accept(*entries))
    took = []
    for _ in range(3):
        began = time.process_time()
        file = load_accepted(place, "box1")
        assert file is not None
        assert review_host(file, store(file, *entries), FILE).changes == ()
        took.append(time.process_time() - began)
    assert min(took) < 0.03
    assert len(place.read_text()) < 500_000
