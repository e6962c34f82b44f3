"""`rigwright check --sign`: a signed verdict for each host, linked to the one before it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.exit_codes import InvalidRequest
from cli.option_types import describe_write_fault
from cli.tables import print_prose
from rigwright.host.script_output import free_text
from rigwright.problems import format_value
from rigwright.signing.public_keys import PublicKey, parse_public_key
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_payload
from roles import root_shell

if TYPE_CHECKING:
    from checks.pytest_frame import ChecksPlugin
    from checks.results import HostReport
    from checks.signed_verdict import VerdictLink

FOLDER = "verdicts"
"""The folder next to an inventory: BOX/NUMBER.jsonl."""
QUOTE_LIMIT = 90.0
"""Seconds for a host's TPM."""
DEFAULT_KEY = "~/.ssh/id_ed25519"
NONCE = re.compile("(?:[0-9a-f]{2}){8,64}")
NUMBER = re.compile("([0-9]{6,9})[.]jsonl")


@dataclass(frozen=True)
class SigningRequest:
    """The key and the challenge of a run."""

    inventory: str
    key_file: Path
    key: PublicKey
    nonce: str | None


def parse_signing_request(inventory: str, key_file: str | None, nonce: str | None) -> SigningRequest:
    """Check everything that signing needs, before a host is reached.

    Raises:
        InvalidRequest: with every problem.
    """
    problems = []
    path = Path(key_file or DEFAULT_KEY).expanduser()
    public = path if path.suffix == ".pub" else path.with_name(f"{path.name}.pub")
    key = None
    try:
        key = parse_public_key(public.read_text().rstrip("\n"))
        path.stat()
    except OSError as error:
        missing = error.filename or public
        problems.append(f"--key: {missing}: {error.strerror}; `ssh-keygen -t ed25519 -f FILE` makes FILE and FILE.pub")
    except (SignatureRefused, UnicodeDecodeError) as error:
        problems.append(f"--key: {public}: {error}")
    if nonce is not None and not NONCE.fullmatch(nonce):
        rule = "must be 16 to 128 hexadecimal digits in lower case, an even number of them"
        problems.append(f"--nonce: {format_value(nonce)} is refused: {rule}")
    folder = Path(inventory).absolute().parent / FOLDER
    if fault := describe_write_fault(folder / "box" / "1", creates_folder=True):
        problems.append(f"{folder} cannot be written: {fault}")
    if problems or key is None:
        raise InvalidRequest("\n".join(problems))
    return SigningRequest(inventory, path, key, nonce)


def sign_verdicts(request: SigningRequest, frame: ChecksPlugin, *, is_quiet: bool) -> None:
    """Write a signed verdict for each host that was reached.

    Args:
        request: The key and the challenge.
        frame: The complete run of all checks.
        is_quiet: Whether standard output has a JSON report.

    Raises:
        InvalidRequest: verdicts cannot be signed or written; those of all other hosts are.
    """
    faults = []
    for report in frame.build_report().hosts:
        if report.verdict == "not reached":
            print_prose(f"{report.name}: no verdict: it was not reached", err=True)
            continue
        try:
            path, number = _write_verdict(request, frame, report)
        except (SignatureRefused, ValueError, OSError) as error:
            faults.append(f"{report.name}: no verdict: {error}")
            continue
        print_prose(f"{report.name}: signed verdict {number}: {path}", err=is_quiet)
    if faults:
        raise InvalidRequest("\n".join(faults))


def _write_verdict(request: SigningRequest, frame: ChecksPlugin, report: HostReport) -> tuple[Path, int]:
    from checks.signed_verdict import build_details
    from checks.verdict_verifier import build_statement, render_canonical

    folder = Path(request.inventory).absolute().parent / FOLDER / report.name
    folder.mkdir(parents=True, exist_ok=True)
    link = find_link(folder)
    details = build_details(frame, report, link, request.key.fingerprint, request.nonce)
    if quote := read_quote(report, frame.look.hosts[report.name].target, details):
        details["tpm"] = quote
    line = render_canonical(details)
    statement = render_canonical(build_statement(details, hashlib.sha256(line).hexdigest()))
    envelope = sign_payload(statement, "verdict", request.key_file)
    if envelope.key_id != request.key.fingerprint:
        raise ValueError(f"ssh-keygen signs with {envelope.key_id}, and the public key is {request.key.fingerprint}")
    path = folder / f"{link.sequence:06}.jsonl"
    _write_new(path, envelope.render() + line + b"\n")
    return path, link.sequence


def read_quote(report: HostReport, target: Any, details: Mapping[str, Any]) -> dict[str, str] | None:
    """The quote of a host's TPM over the details; None without a TPM, or one that makes no quote, which is printed."""
    from checks.tpm_quote import QuoteFailed, digest_quoted_details, parse_quote, render_quote_script

    script = render_quote_script(digest_quoted_details(details))
    try:
        return parse_quote(root_shell.run_command(target, script, "", QUOTE_LIMIT).lines)
    except (root_shell.RootDenied, root_shell.ConnectionGone, QuoteFailed, ValueError) as error:
        print_prose(f"{report.name}: no quote of its TPM: {free_text(str(error))}", err=True)
    return None


def find_link(folder: Path) -> VerdictLink:
    """The place of the next verdict after those of a folder."""
    from checks.signed_verdict import VerdictLink

    numbers = {int(found[1]): path for path in folder.iterdir() if (found := NUMBER.fullmatch(path.name))}
    if not numbers:
        return VerdictLink(1, None)
    last = max(numbers)
    lines = numbers[last].read_bytes().split(b"\n")
    if len(lines) != 3:
        raise ValueError(f"{numbers[last]} does not have two lines: restore it, or move the chain elsewhere")
    return VerdictLink(last + 1, hashlib.sha256(lines[1]).hexdigest())


def _write_new(path: Path, data: bytes, link: Callable[[Path, Path], None] = os.link) -> None:
    """Write a file that does not exist yet; another run with the same number is refused."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    try:
        link(temporary, path)
    except FileExistsError:
        raise ValueError(f"{path} is there already: another run has written it") from None
    finally:
        temporary.unlink()
