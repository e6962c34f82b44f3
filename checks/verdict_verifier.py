"""Verifies signed verdicts of `rigwright check --sign`, alone and as a chain, without Rigwright:

    python3 verdict_verifier.py --signers FILE VERDICT...

It needs Python's standard library and ssh-keygen (OpenSSH 8.9 or newer). A verdict has two lines: a DSSE envelope
(SSHSIG) of an in-toto statement with a Simple Verification Result; and its details, which that names by SHA-256.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

NAMESPACE = "verdict@rigwright"
PAYLOAD_TYPE, DETAILS_TYPE = "application/vnd.in-toto+json", "urn:rigwright:verdict:v1"
KEYS = ("schema", "nonce", "deep", "result", "checks", "cannot_see", "could_falsify")
TABLES = {
    "subject": ("name", "host_key", "machine", "cards", "lock", "generation"),
    "verifier": ("rigwright", "host_program", "host_code", "judging_code", "controller_key"),
    "time": ("surveyed", "host_clock", "signed", "expires"),
    "chain": ("sequence", "previous"),
}
RESULTS = ("conforms", "conforms with waivers", "does not conform")
VERDICTS = ("ok", "fail", "waived", "changed", "skip")
SKEW, LONGEST, LARGEST = timedelta(minutes=5), timedelta(days=31), 16 << 20
TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"
Trust = tuple[str, set[str]]  # the file of allowed signers; revoked public keys and fingerprints


class VerdictRefused(Exception):
    """A verdict or a chain that does not count."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class VerifiedVerdict(NamedTuple):
    """A verdict with a verified signature and valid content, at the time of its signature."""

    path: Path
    details: dict[str, Any]
    sha256: str  # of the line of details: a signature can be spelt in several ways
    signer: str
    sequence: int
    earlier: tuple[Any, ...] = ()  # those before it in its chain, the oldest first


def require(condition: object, reason: str, text: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise VerdictRefused(reason, text)


def render_canonical(value: object) -> bytes:
    """JSON in its one form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read_verdict(path: Path) -> list[bytes]:
    """The two lines of a file; a pipe would be read for ever."""
    require(path.is_file() and path.stat().st_size <= LARGEST, "malformed", f"it is no file of at most {LARGEST} bytes")
    lines = path.read_bytes().split(b"\n")
    require(len(lines) == 3 and not lines[2], "malformed", "it does not have two lines")
    return lines[:2]


def read_revoked(name: str | None) -> set[str]:
    """The words of a file with a public key, or its fingerprint, on each line."""
    text = Path(name or os.devnull).read_bytes().decode("ascii", "replace")
    lines = [words for line in text.splitlines() if (words := line.partition("#")[0].split())]
    for words in lines:
        is_key = any(re.match("AAAA|SHA256:[A-Za-z0-9+/]{43}$", word) for word in words)
        require(is_key, "malformed", f"{name}: a line is no public key and no fingerprint, such as SHA256:...")
    return {word for words in lines for word in words}


def parse_canonical(data: bytes) -> Any:
    """JSON in its one form: no key twice, keys sorted, no spaces."""
    try:
        value = json.loads(data.decode())
        same = render_canonical(value) == data  # of a key that is there twice, one is lost
    except (ValueError, RecursionError) as error:
        raise VerdictRefused("malformed", f"a line is no JSON: {str(error)[:100]}") from None
    require(same, "malformed", "a line is not canonical JSON: a key is there twice, or another program wrote it")
    return value


def parse_time(value: object) -> datetime:
    """A time in UTC and whole seconds."""
    form = re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", str(value))
    require(form, "malformed", f"{str(value)[:40]!r} is no time in UTC with all its digits")
    return datetime.strptime(str(value), TIME_FORM).replace(tzinfo=timezone.utc)


def read_fields(data: bytes, count: int) -> list[bytes]:
    """Fields of a signature in SSH's wire format, and the bytes after them."""
    end = 4 + int.from_bytes(data[:4], "big")
    require(4 <= end <= len(data), "malformed", "the signature is truncated")
    return [data[4:end], *(read_fields(data[end:], count - 1) if count > 1 else [data[end:]])]


def verify_envelope(envelope: bytes, trust: Trust, moment: datetime) -> tuple[bytes, str, str]:
    """The payload of an envelope, its signer, and the fingerprint of the key, which is valid at a time."""
    table = parse_canonical(envelope)
    payload, blob = base64.b64decode(table["payload"]), base64.b64decode(table["signatures"][0]["sig"])
    key, namespace, _, _, made, _ = read_fields(blob[10:], 5)
    plain = blob[:10] == b"SSHSIG\0\0\0\1" and b"-cert-" not in (key_type := read_fields(key, 1)[0])
    require(plain, "malformed", "the signature is no SSH signature of version 1, or by a certificate")
    fingerprint = f"SHA256:{base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip('=')}"
    code, text, signature = (base64.b64encode(one).decode() for one in (key, payload, blob))
    form = {"payload": text, "payloadType": PAYLOAD_TYPE, "signatures": [{"keyid": fingerprint, "sig": signature}]}
    require(envelope == render_canonical(form), "malformed", "it is no in-toto statement with one signature")
    require(namespace == NAMESPACE.encode(), "wrong_kind", "the signature is not for a verdict")
    touched = not key_type.startswith(b"sk-") or read_fields(made, 2)[2][0] & 1  # a token's flags
    require(touched, "no_touch", "its security token was not touched for this signature")
    signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    require(not {fingerprint, code} & trust[1], "revoked", f"its key {fingerprint} is revoked")
    return payload, run_ssh_keygen(signed, signature, trust[0], moment, known=code in trust[0]), fingerprint


def run_ssh_keygen(signed: bytes, signature: str, signers: str, moment: datetime, *, known: bool) -> str:
    """The signer of these bytes."""
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        Path(folder, "signers").write_text(signers)
        Path(folder, "sig").write_text(f"-----BEGIN SSH SIGNATURE-----\n{signature}\n-----END SSH SIGNATURE-----\n")
        clean, at = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}, f"{moment:%Y%m%d%H%M%S}"

        def run(*words: str) -> tuple[bool, str]:
            command = ["ssh-keygen", "-Y", *words, "-s", "sig", "-f", "signers", f"-Overify-time={at}"]
            try:
                done = subprocess.run(command, input=signed, capture_output=True, timeout=30, cwd=folder, env=clean)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise VerdictRefused("no_program", f"ssh-keygen does not run: {error}") from None
            return done.returncode == 0, (done.stdout or done.stderr).decode("utf-8", "replace").strip()

        found, principal = run("find-principals")
        reason, text = ("key_not_valid", "not valid then") if known else ("unknown_signer", "of no signer")
        require(found and principal, reason, f"its key is {text} ({moment:{TIME_FORM}})")
        good, said = run("verify", "-I", principal.split("\n")[0], "-n", NAMESPACE)
    require(good, "changed", f"the signature does not count: {said[-200:]}")
    return principal.split("\n")[0]


def verify_verdict(path: Path, trust: Trust, at: datetime | None = None) -> VerifiedVerdict:
    """Verify one verdict, with a key that is valid at a time: that of its signature without one."""
    try:
        envelope, line = read_verdict(path)
        details, sha256 = parse_canonical(line), hashlib.sha256(line).hexdigest()
        require_details(details)
        moment = at or parse_time(details["time"]["signed"])
        payload, signer, key = verify_envelope(envelope, trust, moment)
        fits = payload == render_canonical(build_statement(details, sha256))
        require(fits, "changed", "the details are not those of the signed statement")
        require(details["verifier"]["controller_key"] == key, "changed", "the details name another controller's key")
    except VerdictRefused as error:
        raise VerdictRefused(error.reason, f"{path}: {error}") from None
    return VerifiedVerdict(path, details, sha256, signer, details["chain"]["sequence"])


def require_details(details: Any) -> None:
    """Refuse details of another shape, and a result that their checks do not give."""
    for name, keys in (("details", (*KEYS, *TABLES, *({"tpm"} & {*details}))), *TABLES.items()):
        table = details if name == "details" else details[name]
        require(isinstance(table, dict) and {*table} == {*keys}, "malformed", f"{name} has other keys than {keys}")
    require(details["schema"] == DETAILS_TYPE, "wrong_kind", "it is no verdict of version 1")
    surveyed, signed, expires = (parse_time(details["time"][name]) for name in ("surveyed", "signed", "expires"))
    current = surveyed <= signed < expires and expires - signed <= LONGEST
    require(current, "malformed", f"its times are not in order, or it is valid for more than {LONGEST.days} days")
    number, previous = details["chain"]["sequence"], details["chain"]["previous"]
    link = previous is None if number == 1 else re.fullmatch("[0-9a-f]{64}", str(previous))
    require(type(number) is int and number >= 1 and link, "malformed", "its number or its previous link is malformed")
    checks = details["checks"]
    verdicts = {one["verdict"] for one in checks}
    failed = "fail" in verdicts or any(one["changes"] for one in checks)
    known = verdicts <= {*VERDICTS} and (failed or "ok" in verdicts)
    require(known, "malformed", "its checks are malformed, or none of them holds")
    result = RESULTS[2 if failed else int("waived" in verdicts)]
    require(details["result"] == result, "changed", f"its result is not that of its checks: {result}")
    for one in [row for row in checks if row["verdict"] == "waived"]:
        covered = {row["observed"] for row in one["waivers"]} == {*one["observed"]} != set()
        current = all(row["until"] >= details["time"]["signed"][:10] for row in one["waivers"])
        require(covered and current, "changed", f"no waiver of {one['id']} covers its values at that time")


def build_statement(details: dict[str, Any], sha256: str) -> dict[str, Any]:
    """The in-toto statement about a box: the summary of the details with a SHA-256."""
    subject, verifier = details["subject"], details["verifier"]
    used = {name: verifier[name] for name in ("host_code", "judging_code")} | {"lock": subject["lock"]}
    policies = [{"name": name, "digest": {"sha256": one}} for name, one in used.items()]
    box = {"sha256": hashlib.sha256(render_canonical(subject)).hexdigest()}
    properties = [f"RIGWRIGHT_{details['result'].replace(' ', '_').upper()}"]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": subject["name"], "digest": box}],
        "predicateType": "https://in-toto.io/attestation/svr/v0.2",
        "predicate": {
            "verifier": {"id": f"urn:rigwright:check:{verifier['rigwright']}", "policies": policies},
            "timeCreated": details["time"]["signed"],
            "properties": properties[: details["result"] != RESULTS[2]],
            "details": {"name": DETAILS_TYPE, "digest": {"sha256": sha256}},
        },
    }


def verify_chain(verdicts: list[VerifiedVerdict]) -> list[VerifiedVerdict]:
    """Refuse a chain with a missing, repeated, replaced or foreign link; returns it, the newest last."""
    chain = sorted(verdicts, key=lambda one: one.sequence)
    for one, after in itertools.pairwise(chain):
        pair = f"{one.path} and {after.path}"
        require(one.sha256 != after.sha256, "repeated", f"{pair} are the same verdict")
        require(one.sequence != after.sequence, "fork", f"{pair} have the same number, {one.sequence}")
        require(one.sequence + 1 == after.sequence, "missing", f"verdicts between {pair} are missing")
        require(after.details["chain"]["previous"] == one.sha256, "replaced", f"{pair} are not linked")
        require(one.details["time"]["signed"] <= after.details["time"]["signed"], "redated", f"{pair} are not in order")
        box, other = ([link.details["subject"][key] for key in ("host_key", "machine")] for link in (one, after))
        require(box == other, "other_box", f"{pair} are about different hosts")
    return chain


def verify_files(files: list[Path], options: argparse.Namespace, now: datetime) -> list[VerifiedVerdict]:
    """Verify files, a chain for each box, and return the newest verdict of each, which counts now."""
    trust = (Path(options.signers).read_text(), read_revoked(options.revoked))
    boxes: dict[str, list[VerifiedVerdict]] = {}
    for path in files:
        found = verify_verdict(path, trust)
        boxes.setdefault(found.details["subject"]["name"], []).append(found)
    newest = []
    for verdicts in boxes.values():
        first, head = (chain := verify_chain(verdicts))[0], chain[-1]
        require(verify_verdict(head.path, trust, now) == head, "changed", f"{head.path} was replaced meanwhile")
        time, box = head.details["time"], head.details["subject"]["host_key"]
        for condition, reason, text in (
            (parse_time(time["signed"]) <= now + SKEW, "statement_in_future", f"signed at {time['signed']}"),
            (now < parse_time(time["expires"]), "statement_expired", f"expired at {time['expires']}"),
            (first.sequence == 1 or not options.complete, "missing", f"verdicts before {first.sequence} are missing"),
            (not options.host_key or box in options.host_key, "other_box", f"the host key is {box}"),
            (options.nonce in (None, head.details["nonce"]), "other_nonce", "does not answer the nonce"),
            (head.sequence >= options.newest, "older", f"has number {head.sequence}, not {options.newest}"),
        ):
            require(condition, reason, f"{head.path}: {text}")
        newest.append(head._replace(earlier=tuple(chain[:-1])))
    return newest


def describe_verdict(one: VerifiedVerdict) -> str:
    """The lines of a verified verdict."""
    details, words = one.details, [row["verdict"] for row in one.details["checks"]]
    subject, time = details["subject"], details["time"]
    counts = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS)
    lines = [f"{subject['name']}: {details['result']} ({counts})"]
    lines += [f"  number {one.sequence}, signed {time['signed']} by {one.signer}, valid until {time['expires']}"]
    lines += [f"  {name}: {json.dumps(value)}" for name, value in subject.items()]
    for row in [row for row in details["checks"] if row["verdict"] in ("fail", "waived") or row["changes"]]:
        lines.append(f"  {row['verdict']}: {row['id']} {row['part']} {row['title']}")
        lines += [f"    until {note['until']} by {note['owner']}: {note['reason']}" for note in row["waivers"]]
    lines += [f"  could have falsified it: {party}" for party in details["could_falsify"]]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def describe_quote(one: VerifiedVerdict) -> str:
    """A line about the quote of a TPM, which `rigwright verify-verdict --tpm-key` verifies."""
    return "  quote of a TPM: NOT VERIFIED by this program\n" if "tpm" in one.details else ""


def main(words: list[str], judge: Callable[[VerifiedVerdict], str] = describe_quote) -> int:
    """Exit status: 0, all boxes conform. 1, one does not. 2, a verdict or a chain is refused."""
    parser = argparse.ArgumentParser(description="Verify signed verdicts.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--signers", required=True, help="keys that may sign: ssh-keygen's allowed signers")
    parser.add_argument("--revoked", help="public keys, or fingerprints, that no longer may")
    parser.add_argument("--host-key", action="append", help="SHA256:... of the boxes' host keys; repeatable")
    parser.add_argument("--nonce", help="the nonce that the newest verdict has to answer")
    parser.add_argument("--newest", type=int, default=1, help="the number that the newest verdict has at least")
    parser.add_argument("--complete", action="store_true", help="refuse a chain without its first verdict")
    options = parser.parse_args(words)
    try:
        found = verify_files(options.files, options, datetime.now(timezone.utc))
        sys.stdout.write("".join(f"{describe_verdict(one)}\n{judge(one)}" for one in found))
    except (VerdictRefused, OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, VerdictRefused) else "malformed"
        sys.stderr.write("".join(c if c.isprintable() else "?" for c in f"refused ({reason}): {error}") + "\n")
        return 2
    return int(any(one.details["result"] == "does not conform" for one in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
