"""`rigwright check --accept`: lists what nothing explains on hosts, and accepts it once its operator has answered."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from checks import Drift, strip_control_characters
from checks.change_review.accepted_entries import (
    HostAcceptance,
    accept_entries,
    accepted_path,
    restore_accepted,
    save_accepted,
)
from checks.change_review.class_checks import PACKAGES
from checks.change_review.fingerprint_diff import ACCEPTANCE, HostChange, compare_entries
from checks.change_review.host_copies import EntriesChanged, store_accepted
from checks.change_review.identical_changes import ChangeGroup, group_changes
from checks.results import STATUS
from checks.runner import ChecksRejected
from checks.survey.fingerprint import FINGERPRINT, HostFingerprint
from checks.survey.fingerprint_classes import ENTRY_CLASSES
from checks.survey_run import SurveyedHost, SurveyRun
from checks.testinfra_backend import UnknownHost
from cli.deep_reading import show_deep_reading
from cli.exit_codes import InvalidRequest
from cli.tables import print_paragraph, print_prose, style_text
from rigwright.problems import format_count, format_value
from roles import root_shell

LONGEST_AUTHOR = 200  # characters
TITLES = {one.name: one.title for one in ENTRY_CLASSES} | {
    PACKAGES: "packages that add entries",
    ACCEPTANCE: "accepted entries",
}


@dataclass(frozen=True)
class Proposal:
    """The changes of a host that the operator may accept."""

    seen: SurveyedHost
    found: HostFingerprint
    changes: tuple[HostChange, ...]
    packages: int
    """Packages of a first acceptance, which are counted."""
    unacceptable: tuple[str, ...]
    """Entries that are never accepted, with the reasons."""


def find_author(inventory: str) -> str:
    """The name that git has for the inventory's folder, or else user and machine."""
    words = ["git", "-C", str(Path(inventory).absolute().parent), "config", "user.name"]
    try:
        name = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        name = ""
    return name if _is_author(name) else f"{getpass.getuser()}@{os.uname().nodename}"


def _is_author(name: str) -> bool:
    return 0 < len(name) <= LONGEST_AUTHOR and name.isprintable()


def accept_changes(inventory: str, limit: str | None, author: str, *, yes: bool, deep: bool, verbose: bool) -> int:
    """Show all that is not accepted, ask, and accept it; returns the exit status.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        author: The reviewer; empty for `find_author`.
        yes: Whether nothing is asked.
        deep: Whether hosts read every byte.
        verbose: Whether differences are shown.

    Raises:
        InvalidRequest: there is no terminal to answer at, or the author is refused.
        ChecksRejected: the inventory or a file of accepted entries is refused.
    """
    if author and not _is_author(author):
        allowed = f"a name of 1 to {LONGEST_AUTHOR} printable characters"
        raise InvalidRequest(f"--author: {format_value(author)} is refused: must be {allowed}")
    if not yes and not sys.stdin.isatty():
        raise InvalidRequest("--accept asks on a terminal; without one, it needs --yes after a review")
    author = author or find_author(inventory)
    try:
        run = SurveyRun(inventory, limit, deep, show_deep_reading)
    except (UnknownHost, SystemExit) as error:
        raise ChecksRejected(str(error)) from None
    status, proposals = STATUS["as declared"], dict[str, Proposal]()
    try:
        for name, seen in run.hosts.items():
            is_away = run.is_out_of_reach(name)
            run.end_host(name)
            if is_away:
                print_prose(f"{name}: {seen.why}", err=True)
                status = STATUS["not reached"]
                continue
            made = _propose(name, seen)
            status = status or int(made is None or bool(made.unacceptable))
            if made:
                proposals[name] = made
    finally:
        run.end()
    _print_proposals(proposals, several=run.several, verbose=verbose)
    if not (pending := {name: one for name, one in proposals.items() if one.changes or one.packages}):
        return status
    number = len({(one.entry_class, one.key, one.run_value) for made in pending.values() for one in made.changes})
    if not yes:
        click.confirm(f"Accept {format_count(number, 'change')} of {', '.join(pending)}?", abort=True)
    for name, one in pending.items():
        status = max(status, int(not _accept(name, one, inventory, author)))
    return status


def _propose(name: str, seen: SurveyedHost) -> Proposal | None:
    """The changes of a host; None where its answer or its file is refused, which is printed."""
    try:
        review = seen.review
        found = seen.survey.read(FINGERPRINT) if seen.survey else None
    except Drift as error:
        print_prose(strip_control_characters(f"{name}: refused: {error}"), err=True)
        return None
    if found is None or (review.state == "refused" and seen.accepted):
        fetch = "fetch the newer file, or remove this one to review all entries anew"
        print_prose(f"{name}: refused: {review.problem}: {fetch}", err=True)
        return None
    if review.problem:
        print_prose(f"{name}: {review.problem}: all entries need a new review")
    unacceptable = tuple(strip_control_characters(f"{one.key}: {one.problem}") for one in review.unacceptable)
    if review.state == "reviewed":
        return Proposal(seen, found, tuple(one.printable() for one in review.changes), 0, unacceptable)
    changes = [one.printable() for one in compare_entries(HostAcceptance(name, 0, "", "", {}, {}), found)]
    entries = tuple(one for one in changes if one.entry_class != PACKAGES)
    return Proposal(seen, found, entries, max(1, len(changes) - len(entries)), unacceptable)


def _print_proposals(proposals: Mapping[str, Proposal], *, several: bool, verbose: bool) -> None:
    """Print what is to be accepted, a line for each change, equal ones of several hosts once."""
    title = ""
    for group in group_changes({name: one.changes for name, one in proposals.items()}):
        if (kind := group.change.entry_class) != title:
            click.echo(style_text(TITLES.get(kind, kind), bold=True))
            title = kind
        _print_group(group, len(proposals), several=several, verbose=verbose)
    for name, one in proposals.items():
        if one.packages:
            print_prose(f"{name}: {format_count(one.packages, 'package')} of declared, signed archives add entries")
        elif not one.changes:
            print_prose(f"{name}: nothing to accept")
        for problem in one.unacceptable:
            print_prose(f"{name}: refused, is never accepted: {problem}", err=True)


def _print_group(group: ChangeGroup, number: int, *, several: bool, verbose: bool) -> None:
    where = f" [{'all hosts' if number > 1 and len(group.hosts) == number else ', '.join(group.hosts)}]"
    print_paragraph(group.change.describe() + (where if several else ""), lead="  ", hang=6)
    if verbose:
        for line in group.change.difference:
            click.echo(f"      {line}")


def _accept(name: str, proposal: Proposal, inventory: str, author: str) -> bool:
    """Write the file and store it on the host; returns whether both is done."""
    file = accepted_path(inventory, name)
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    previous = proposal.seen.accepted.serial if proposal.seen.accepted else 0
    accepted = accept_entries(proposal.found, name, previous, author, date)
    try:
        save_accepted(file, accepted)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{file} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    try:
        store_accepted(proposal.seen.target, proposal.seen.rig, accepted)
    except EntriesChanged as error:
        restore_accepted(file, proposal.seen.accepted)
        text = f"nothing is accepted, because the host has changed meanwhile: {error}; review it again"
    except (Drift, ValueError, root_shell.ConnectionGone) as error:
        # the host may have stored the entries, or not: the file stays, and the next check tells
        text = f"the host did not confirm that it stored them: {error}; run the same command again"
    else:
        text = ""
    if text:
        print_prose(strip_control_characters(f"{name}: {text}"), err=True)
        return False
    number = sum(map(len, accepted.entries.values()))
    print_prose(
        f"{name}: accepted entries {accepted.serial} by {author} in {file.parent.name}/{file.name}: "
        f"{number} entries, {format_count(len(accepted.packages), 'package')}"
    )
    return True
