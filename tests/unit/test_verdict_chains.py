"""Chains of signed verdicts, malformed files, and the verbs that write and verify them."""

# ruff: noqa: F811 (fixtures of another file)

import base64
import hashlib
import json
import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from checks import verdict_verifier
from checks.signed_verdict import VerdictLink
from checks.verdict_verifier import TIME_FORM, render_canonical
from cli import check_signing, main
from cli.check_signing import _write_new, find_link, parse_signing_request
from cli.exit_codes import InvalidRequest
from rigwright.declaration.connection import HostKey
from tests.unit.signing_keys import public_key
from tests.unit.test_signed_verdict import NONCE, NOW, Verdicts, at, digest, keys, verdicts  # noqa: F401 (fixtures)


def test_a_chain_shows_missing_repeated_replaced_and_foreign_links(verdicts: Verdicts, tmp_path: Path) -> None:
    one, two, three, four = verdicts.chain(4)
    assert verdicts.verify(three, one, four, two, options=("--complete",))[0] == 0
    assert verdicts.refusal(three, four) == ""
    assert verdicts.refusal(three, four, options=("--complete",)) == "missing"
    assert verdicts.refusal(one, two, four) == "missing"
    assert verdicts.refusal(one, two, two) == "repeated"
    assert verdicts.refusal(one, two, options=("--newest=4",)) == "older"
    other = verdicts.write("other", verdicts.details(2, digest(one), deep=True))
    assert verdicts.refusal(one, two, other) == "fork"
    assert verdicts.refusal(one, other, three) == "replaced"
    for key in ("host_key", "machine"):
        previous = digest(one)
        foreign = verdicts.write("foreign", verdicts.details(2, previous, **{f"subject__{key}": "b" * 64}))
        assert verdicts.refusal(one, foreign) == "other_box"
    for number, previous in ((1, "d" * 64), (2, None), (2, "D" * 64), (0, None), (True, None), ("1", None)):
        assert verdicts.refusal(verdicts.write("odd", verdicts.details(number, previous))) == "malformed"  # type: ignore[arg-type]
    renamed = verdicts.write("renamed", verdicts.details(subject__name="box2"))
    assert verdicts.verify(one, two, renamed, options=("--complete",))[0] == 0  # a chain for each box


def test_old_links_count_at_their_time_and_the_newest_one_now(verdicts: Verdicts) -> None:
    first = verdicts.write(
        "1",
        verdicts.details(
            time__surveyed=at(NOW - timedelta(days=30)),
            time__signed=at(NOW - timedelta(days=30)),
            time__expires=at(NOW - timedelta(days=23)),
        ),
    )
    second = verdicts.write("2", verdicts.details(2, digest(first)))
    assert verdicts.refusal(first) == "statement_expired"
    assert verdicts.refusal(first, second) == ""
    verdicts.trust("ana", f'valid-after="{NOW - timedelta(days=1):%Y%m%d}"')
    assert verdicts.refusal(first, second) == "key_not_valid"
    assert verdicts.refusal(second) == ""


def test_a_chain_goes_on_with_another_key_and_not_after_a_revocation(verdicts: Verdicts) -> None:
    eve = public_key(verdicts.keys["eve"])
    (first,) = verdicts.chain(1)
    previous = digest(first)
    second = verdicts.write("2", verdicts.details(2, previous, verifier__controller_key=eve.fingerprint), "eve")
    assert verdicts.refusal(first, second) == "unknown_signer"
    verdicts.trust("ana", more=f'eve namespaces="{verdict_verifier.NAMESPACE}" {eve}\n')
    assert verdicts.verify(first, second, options=("--complete",))[0] == 0
    (verdicts.folder / "revoked").write_text(f"{public_key(verdicts.keys['ana'])}\n")
    revoked = (f"--revoked={verdicts.folder / 'revoked'}",)
    assert verdicts.refusal(first, second, options=revoked) == "revoked"
    assert verdicts.refusal(second, options=revoked) == ""


def test_a_host_without_a_verdict_prevents_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(request: object, frame: object, report: Any) -> tuple[str, int]:
        if report.name.startswith("evil"):
            raise ValueError("the host cannot be identified")
        return f"verdicts/{report.name}", 1

    monkeypatch.setattr(check_signing, "_write_verdict", write)
    names = ("a", "evil1", "m", "evil2", "z")
    hosts = [SimpleNamespace(name=name, verdict="as declared") for name in names]
    frame: Any = SimpleNamespace(build_report=lambda: SimpleNamespace(hosts=hosts))
    with pytest.raises(InvalidRequest) as caught:
        check_signing.sign_verdicts(SimpleNamespace(), frame, is_quiet=False)  # type: ignore[arg-type]
    faults = [f"{name}: no verdict: the host cannot be identified" for name in ("evil1", "evil2")]
    assert str(caught.value) == "\n".join(faults)
    assert capsys.readouterr().out.splitlines() == [f"{name}: signed verdict 1: verdicts/{name}" for name in "amz"]


ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the group of Ed25519."""


def respell_signature(path: Path) -> None:
    """Add the group's order to the number s of an Ed25519 signature, which some programs accept: the same signature."""
    envelope, line, _ = path.read_bytes().split(b"\n")
    table = json.loads(envelope)
    blob = base64.b64decode(table["signatures"][0]["sig"])
    other = blob[:-32] + (int.from_bytes(blob[-32:], "little") + ORDER).to_bytes(32, "little")
    table["signatures"][0]["sig"] = base64.b64encode(other).decode()
    path.write_bytes(render_canonical(table) + b"\n" + line + b"\n")


def test_another_spelling_of_a_signature_breaks_no_chain(verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch) -> None:
    # the holder of the files, without a key, cannot make a second verdict of one, nor make the next one unlinked
    one, two = verdicts.chain(2)
    again = verdicts.folder / "again"
    again.write_bytes(one.read_bytes())
    respell_signature(again)
    monkeypatch.setattr(verdict_verifier, "run_ssh_keygen", lambda *words, **options: "ana")  # one that accepts both
    assert again.read_bytes() != one.read_bytes()
    assert verdicts.refusal(one, again, two) == "repeated"
    assert verdicts.refusal(again, two) == ""


def test_a_verdict_of_another_box_is_refused_by_its_host_key(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    known = HostKey("ssh-ed25519", b"the host's key").fingerprint
    assert verdicts.refusal(path, options=(f"--host-key={known}",)) == ""
    assert verdicts.refusal(path, options=(f"--host-key=SHA256:{'A' * 43}",)) == "other_box"
    words = ["verify-verdict", "--signers", str(verdicts.folder / "signers"), "--host-key", f"SHA256:{'A' * 43}"]
    done = CliRunner().invoke(main, [*words, str(path)])
    assert (done.exit_code, "refused (other_box)" in done.output) == (2, True), done.output
    done = CliRunner().invoke(main, [*words, "--host-key", known, str(path)])
    assert done.exit_code == 0, done.output


def test_a_refusal_writes_no_controls_of_a_terminal(verdicts: Verdicts) -> None:
    details = verdicts.details()
    details["checks"][1] |= {"id": "\x1b[2J\x1b[Hbox: conforms\n", "waivers": []}
    path = verdicts.folder / "\x1b[31m.jsonl"
    path.write_bytes(b"{}\n" + render_canonical(details) + b"\n")
    status, output = verdicts.verify(path)
    assert status == 2
    assert output.endswith("\n")
    assert output[:-1].isprintable()


def test_nested_large_and_endless_files_are_refused(verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch) -> None:
    path = verdicts.folder / "deep.jsonl"
    for depth in (200, 900, 990, 1000, 5000):
        path.write_bytes(b"{}\n" + b"[" * depth + b"]" * depth + b"\n")
        status, output = verdicts.verify(path)
        assert (status, output[:19]) == (2, "refused (malformed)"), output
    monkeypatch.setattr(verdict_verifier, "LARGEST", 50)
    assert verdicts.refusal(verdicts.write("1", verdicts.details())) == "malformed"
    pipe = verdicts.folder / "pipe"
    os.mkfifo(pipe)
    assert "it is no file" in verdicts.verify(pipe)[1]


def test_a_verdict_needs_a_check_that_holds_and_an_end(verdicts: Verdicts) -> None:
    ok, waived = verdicts.details()["checks"]
    skipped = [ok | {"verdict": "skip"}]
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=skipped, result="conforms"))) == "malformed"
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=[*skipped, waived]))) == "malformed"
    failed = [ok | {"verdict": "fail"}]
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=failed, result="does not conform"))) == ""
    signed = verdicts.details()["time"]["signed"]
    begin = datetime.strptime(signed, TIME_FORM)
    for expires, expected in (("9999-12-31T23:59:59Z", "malformed"), (at(begin + timedelta(days=31)), "")):
        one = verdicts.write("1", verdicts.details(time__signed=signed, time__expires=expires))
        assert verdicts.refusal(one) == expected


def test_keys_are_revoked_by_line_and_fingerprint_and_other_lists_are_refused(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    ana, eve = (public_key(verdicts.keys[name]) for name in ("ana", "eve"))
    revoked = verdicts.folder / "revoked"
    options = (f"--revoked={revoked}",)
    for text in (f"{ana}\n", f"# lost\n\n{eve}\n{ana.fingerprint}\n", f"256 {ana.fingerprint} ana (ED25519)\n"):
        revoked.write_text(text)
        assert verdicts.refusal(path, options=options) == "revoked", text
    for text in ("", f"{eve}\n{eve.fingerprint}\n", f"# {ana}\n"):
        revoked.write_text(text)
        assert verdicts.refusal(path, options=options) == "", text
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(revoked), f"{verdicts.keys['eve']}.pub"], check=True)
    for text in (None, "hello\n", f"SHA256: {ana.fingerprint[7:]}\n"):
        if text:
            revoked.write_text(text)
        status, output = verdicts.verify(path, options=options)
        assert status == 2
        assert f"refused (malformed): {revoked}: a line is no public key and no fingerprint" in output


def test_a_certificate_signs_no_verdict(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    envelope, line, _ = path.read_bytes().split(b"\n")
    table = json.loads(envelope)
    blob = base64.b64decode(table["signatures"][0]["sig"])
    kind = b"ssh-ed25519-cert-v01@openssh.com"
    key = len(kind).to_bytes(4, "big") + kind + b"rest"
    rest = verdict_verifier.read_fields(blob[10:], 1)[1]
    table["signatures"][0]["sig"] = base64.b64encode(blob[:10] + len(key).to_bytes(4, "big") + key + rest).decode()
    path.write_bytes(render_canonical(table) + b"\n" + line + b"\n")
    assert "or by a certificate" in verdicts.verify(path)[1]


def test_the_next_link_follows_the_last_file_and_replaces_none(tmp_path: Path) -> None:
    assert find_link(tmp_path) == VerdictLink(1, None)
    _write_new(tmp_path / "000001.jsonl", b"envelope\none\n")
    (tmp_path / "notes.txt").write_text("")
    assert find_link(tmp_path) == VerdictLink(2, hashlib.sha256(b"one").hexdigest())
    (tmp_path / "000003.jsonl").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"000003[.]jsonl does not have two lines"):
        find_link(tmp_path)
    (tmp_path / "000003.jsonl").unlink()
    with pytest.raises(ValueError, match="another run has written it"):
        _write_new(tmp_path / "000001.jsonl", b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001.jsonl", "notes.txt"]


def test_all_mistakes_of_a_request_are_refused_before_a_host_is_reached(tmp_path: Path, keys: dict[str, Path]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_signing_request(str(tmp_path / "rig.py"), str(tmp_path / "no"), "XY")
    text = caught.value.message
    assert "--key: " in text
    assert "No such file" in text
    assert "--nonce: 'XY' is refused: must be 16 to 128 hexadecimal digits" in text
    assert parse_signing_request(str(tmp_path / "rig.py"), str(keys["ana"]), NONCE).key == public_key(keys["ana"])
    for words in (
        ["--sign", "--only=S01"],
        ["--nonce=00"],
        ["--sign", "--serving"],
        ["--sign", "--history"],
    ):
        assert CliRunner().invoke(main, ["check", str(tmp_path / "rig.py"), *words]).exit_code == 2
