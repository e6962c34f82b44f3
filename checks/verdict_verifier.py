"""Verifies signed verdicts of `rigwright check --sign`, alone and as a chain, without Rigwright:

    python3 verdict_verifier.py --signers FILE VERDICT...

It needs Python's standard library and ssh-keygen (OpenSSH 8.9 or newer). FILE has the keys that may sign, as
ssh-keygen's allowed signers. A verdict has two lines: a DSSE envelope, signed with SSHSIG, of an in-toto statement with
a Simple Verification Result; and the details, which the statement names by SHA-256.
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
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

NAMESPACE = "verdict@rigwright"
PAYLOAD_TYPE, DETAILS_TYPE = "application/vnd.in-toto+json", "urn:rigwright:verdict:v1"
KEYS = ("schema", "nonce", "deep", "result", "checks", "cannot_see", "could_falsify")
TABLES = {
    "subject": ("name", "host_key", "machine", "cards", "lock", "generation"),
    "verifier": ("rigwright", "host_program", "host_code", "judging_code", "controller_key"),
    "time": ("surveyed", "host_clock", "signed", "expires"),
    "chain": ("sequence", "previous"),
}
PROPERTIES = {
    "conforms": ["RIGWRIGHT_CONFORMS"],
    "conforms with waivers": ["RIGWRIGHT_CONFORMS_WITH_WAIVERS"],
    "does not conform": [],
}
VERDICTS = ("ok", "fail", "waived", "changed", "skip")
SKEW, TIMEOUT_S = timedelta(minutes=5), 30
TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"


class VerdictRefused(Exception):
    """A verdict or a chain that does not count."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class VerifiedVerdict:
    """A verdict whose signature and content count, at the time of its signature."""

    path: Path
    details: dict[str, Any]
    sha256: str
    signer: str

    @property
    def sequence(self) -> int:
        """Its place in the chain."""
        return int(self.details["chain"]["sequence"])


def require(condition: object, reason: str, text: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise VerdictRefused(reason, text)


def render_canonical(value: object) -> bytes:
    """JSON in its one form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_canonical(data: bytes, name: str) -> Any:
    """JSON in its one form: no key twice, keys sorted, no spaces."""
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise VerdictRefused("malformed", f"{name} is no JSON: {str(error)[:100]}") from None
    same = render_canonical(value) == data  # of a key that is there twice, one is lost
    require(same, "malformed", f"{name} is not canonical JSON: a key is there twice, or another program wrote it")
    return value


def require_keys(value: Any, keys: tuple[str, ...], name: str) -> None:
    """Refuse all but a table with exactly these keys."""
    require(isinstance(value, dict) and {*value} == {*keys}, "malformed", f"{name} has other keys than {keys}")


def parse_time(value: object) -> datetime:
    """A time in UTC and whole seconds."""
    try:
        moment = datetime.strptime(str(value), TIME_FORM).replace(tzinfo=timezone.utc)
    except ValueError:
        raise VerdictRefused("malformed", f"{str(value)[:40]!r} is no time in UTC") from None
    require(moment.strftime(TIME_FORM) == value, "malformed", f"{value!r} is no time in UTC with all its digits")
    return moment


def read_field(data: bytes) -> tuple[bytes, bytes]:
    """A field of a signature in SSH's wire format, and the bytes after it."""
    end = 4 + int.from_bytes(data[:4], "big")
    require(4 <= end <= len(data), "malformed", "the signature is truncated")
    return data[4:end], data[end:]


def verify_envelope(envelope: Any, trust: dict[str, str], moment: datetime) -> tuple[bytes, str, str]:
    """The payload of an envelope, its signer, and the fingerprint of the key, which is valid at a time."""
    require_keys(envelope, ("payload", "payloadType", "signatures"), "the envelope")
    require(envelope["payloadType"] == PAYLOAD_TYPE, "wrong_kind", "the payload is no in-toto statement")
    rows = envelope["signatures"]
    require(isinstance(rows, list) and len(rows) == 1, "malformed", "the envelope does not have exactly one signature")
    require_keys(rows[0], ("keyid", "sig"), "the signature")
    texts = (envelope["payload"], rows[0]["sig"])
    payload, blob = (base64.b64decode(str(text).encode("ascii", "replace")) for text in texts)
    same = all(base64.b64encode(data).decode() == text for data, text in zip((payload, blob), texts))  # noqa: B905
    require(same, "malformed", "the payload or the signature is not base64")
    require(blob[:10] == b"SSHSIG\0\0\0\1", "malformed", "the signature is no SSH signature of version 1")
    key, rest = read_field(blob[10:])
    fingerprint = f"SHA256:{base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip('=')}"
    require(rows[0]["keyid"] == fingerprint, "malformed", "keyid is not the fingerprint of the signature's key")
    require(read_field(rest)[0] == NAMESPACE.encode(), "wrong_kind", "the signature is not for a verdict")
    signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    known, revoked = (base64.b64encode(key).decode() in trust[name] for name in ("signers", "revoked"))
    require(not revoked, "revoked", f"its key {fingerprint} is revoked")
    return payload, run_ssh_keygen(signed, blob, trust, moment, known=known), fingerprint


def run_ssh_keygen(signed: bytes, signature: bytes, trust: dict[str, str], moment: datetime, *, known: bool) -> str:
    """The signer of these bytes."""
    armour = f"-----BEGIN SSH SIGNATURE-----\n{base64.b64encode(signature).decode()}\n-----END SSH SIGNATURE-----\n"
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        for name, text in {**trust, "signature": armour}.items():
            Path(folder, name).write_text(text)

        def run(*words: str) -> tuple[bool, str]:
            command = ["ssh-keygen", "-Y", *words, "-s", "signature", "-f", "signers"]
            command.append(f"-Overify-time={moment:%Y%m%d%H%M%S}")
            options: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "TZ": "UTC", "LC_ALL": "C"}}
            try:
                done = subprocess.run(command, input=signed, capture_output=True, timeout=TIMEOUT_S, **options)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise VerdictRefused("no_program", f"ssh-keygen does not run: {error}") from None
            output = done.stdout + (done.stderr if done.returncode else b"")
            return done.returncode == 0, output.decode("utf-8", "replace").strip()

        found, principal = run("find-principals")
        reason, text = ("key_not_valid", "not valid then") if known else ("unknown_signer", "of no signer")
        require(found and principal, reason, f"its key is {text} ({moment:{TIME_FORM}})")
        good, said = run("verify", "-I", principal.split("\n")[0], "-n", NAMESPACE, "-r", "revoked")
    require(good, "changed", f"the signature does not count: {said[-200:]}")
    return principal.split("\n")[0]


def verify_verdict(path: Path, trust: dict[str, str], at: datetime | None = None) -> VerifiedVerdict:
    """Verify one verdict, with a key that is valid at a time: that of its signature without one."""
    data = path.read_bytes()
    try:
        lines = data.split(b"\n")
        require(len(lines) == 3 and not lines[2], "malformed", "it does not have two lines")
        details = parse_canonical(lines[1], "the line of details")
        require_details(details)
        moment = at or parse_time(details["time"]["signed"])
        payload, signer, key = verify_envelope(parse_canonical(lines[0], "the envelope"), trust, moment)
        fits = payload == render_canonical(build_statement(details, hashlib.sha256(lines[1]).hexdigest()))
        require(fits, "changed", "the details are not those of the signed statement")
        require(
            details["verifier"]["controller_key"] == key, "changed", "the details name the key of another controller"
        )
    except VerdictRefused as error:
        raise VerdictRefused(error.reason, f"{path}: {error}") from None
    return VerifiedVerdict(path, details, hashlib.sha256(data).hexdigest(), signer)


def require_details(details: Any) -> None:
    """Refuse details of another shape, and a result that their checks do not give."""
    require_keys(details, (*KEYS, *TABLES), "the table of details")
    require(details["schema"] == DETAILS_TYPE, "wrong_kind", "it is no verdict of version 1")
    for name, keys in TABLES.items():
        require_keys(details[name], keys, name)
    surveyed, signed, expires = (parse_time(details["time"][name]) for name in ("surveyed", "signed", "expires"))
    require(surveyed <= signed < expires, "malformed", "its times are not in order")
    number, previous = details["chain"]["sequence"], details["chain"]["previous"]
    require(type(number) is int and number >= 1, "malformed", "the sequence number is not a whole number from 1")
    link = previous is None if number == 1 else re.fullmatch("[0-9a-f]{64}", str(previous))
    require(link, "malformed", "the digest of the previous verdict is missing or malformed")
    checks = details["checks"]
    require(checks and all(one["verdict"] in VERDICTS for one in checks), "malformed", "its checks are malformed")
    waived = [one for one in checks if one["verdict"] == "waived"]
    failed = any(one["verdict"] == "fail" or one["changes"] for one in checks)
    result = "does not conform" if failed else "conforms with waivers" if waived else "conforms"
    require(details["result"] == result, "changed", f"its result is not that of its checks: {result}")
    for one in waived:
        covered = {row["observed"] for row in one["waivers"]} == {*one["observed"]} != set()
        current = all(row["until"] >= details["time"]["signed"][:10] for row in one["waivers"])
        require(covered and current, "changed", f"no waiver of {one['id']} covers its values at that time")


def build_statement(details: dict[str, Any], sha256: str) -> dict[str, Any]:
    """The in-toto statement about a box: the summary of the details with a SHA-256."""
    subject, verifier = details["subject"], details["verifier"]
    used = {name: verifier[name] for name in ("host_code", "judging_code")} | {"lock": subject["lock"]}
    policies = [{"name": name, "digest": {"sha256": one}} for name, one in used.items()]
    box = {"sha256": hashlib.sha256(render_canonical(subject)).hexdigest()}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": subject["name"], "digest": box}],
        "predicateType": "https://in-toto.io/attestation/svr/v0.2",
        "predicate": {
            "verifier": {"id": f"urn:rigwright:check:{verifier['rigwright']}", "policies": policies},
            "timeCreated": details["time"]["signed"],
            "properties": PROPERTIES[details["result"]],
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
        follows = after.details["chain"]["previous"] == one.sha256
        require(follows, "replaced", f"{one.path} is not the verdict that {after.path} follows")
        require(one.details["time"]["signed"] <= after.details["time"]["signed"], "redated", f"{pair} are not in order")
        for key in ("host_key", "machine"):
            same = one.details["subject"][key] == after.details["subject"][key]
            require(same, "other_box", f"{pair} are about different hosts: {key}")
    return chain


def verify_files(files: list[Path], options: argparse.Namespace, now: datetime) -> list[VerifiedVerdict]:
    """Verify files, a chain for each box, and return the newest verdict of each, which counts now."""
    trust = {name: Path(getattr(options, name) or os.devnull).read_text() for name in ("signers", "revoked")}
    boxes: dict[str, list[VerifiedVerdict]] = {}
    for path in files:
        found = verify_verdict(path, trust)
        boxes.setdefault(found.details["subject"]["name"], []).append(found)
    newest = []
    for verdicts in boxes.values():
        first, head = (chain := verify_chain(verdicts))[0], chain[-1]
        verify_verdict(head.path, trust, now)
        path, time = head.path, head.details["time"]
        require(parse_time(time["signed"]) <= now + SKEW, "statement_in_future", f"{path}: signed at {time['signed']}")
        require(now < parse_time(time["expires"]), "statement_expired", f"{path}: expired at {time['expires']}")
        whole = first.sequence == 1 or not options.complete
        require(whole, "missing", f"{path}: verdicts before {first.sequence} are missing")
        require(options.nonce in (None, head.details["nonce"]), "other_nonce", f"{path}: does not answer the nonce")
        require(
            head.sequence >= options.newest, "older", f"{path}: it has number {head.sequence}, not {options.newest}"
        )
        newest.append(head)
    return newest


def describe_verdict(one: VerifiedVerdict) -> str:
    """The lines of a verified verdict."""
    details, count = one.details, Counter(row["verdict"] for row in one.details["checks"])
    subject, time = details["subject"], details["time"]
    lines = [f"{subject['name']}: {details['result']} ({', '.join(f'{count[word]} {word}' for word in VERDICTS)})"]
    lines += [f"  number {one.sequence}, signed {time['signed']} by {one.signer}, valid until {time['expires']}"]
    lines += [f"  {name}: {json.dumps(value)}" for name, value in subject.items()]
    for row in [row for row in details["checks"] if row["verdict"] in ("fail", "waived") or row["changes"]]:
        lines.append(f"  {row['verdict']}: {row['id']} {row['part']} {row['title']}")
        lines += [f"    until {note['until']} by {note['owner']}: {note['reason']}" for note in row["waivers"]]
    lines += [f"  could have falsified it: {party}" for party in details["could_falsify"]]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def main(words: list[str]) -> int:
    """Exit status: 0, all boxes conform. 1, one does not. 2, a verdict or a chain is refused."""
    parser = argparse.ArgumentParser(description="Verify signed verdicts.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--signers", required=True, help="keys that may sign: ssh-keygen's allowed signers")
    parser.add_argument("--revoked", help="public keys that no longer may")
    parser.add_argument("--nonce", help="the nonce that the newest verdict has to answer")
    parser.add_argument("--newest", type=int, default=1, help="the number that the newest verdict has at least")
    parser.add_argument("--complete", action="store_true", help="refuse a chain without its first verdict")
    options = parser.parse_args(words)
    try:
        found = verify_files(options.files, options, datetime.now(timezone.utc))
        sys.stdout.write("".join(f"{describe_verdict(one)}\n" for one in found))
    except (VerdictRefused, OSError, LookupError, TypeError, AttributeError, ValueError) as error:
        sys.stderr.write(f"refused ({getattr(error, 'reason', 'malformed')}): {error}\n")
        return 2
    return int(any(one.details["result"] == "does not conform" for one in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
