"""Signed verdicts and their chain: each field changed, removed, repeated, replayed, signed again and redated is refused
with a reason, by the program that runs without Rigwright. ssh-keygen is the real one."""

import base64
import copy
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from checks import verdict_verifier
from checks.results import AppliedWaiver, HostReport, Result
from checks.signed_verdict import VerdictLink, build_details, digest_judging_code
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import ABOUT
from checks.survey.serving import GENERATIONS
from checks.survey.survey_program import digest_survey_code
from checks.verdict_verifier import TIME_FORM, build_statement, render_canonical
from cli import check_signing, main
from cli.check_signing import _write_new, find_link, parse_signing_request
from cli.exit_codes import InvalidRequest
from rigwright.declaration.connection import HostKey
from rigwright.signing.ssh_signatures import sign_payload
from tests.unit.signing_keys import make_key, public_key

NOW = datetime.now(timezone.utc).replace(microsecond=0)
WAIVER = AppliedWaiver("a (expected none)", "ana", "an agent needs it", "2099-01-31")
OK = Result("S01", "it runs", "critical", "nothing is served", "chat", "ok", 0.1)
WAIVED = Result(
    *("B01", "no logins", "high", "a login", "", "waived", 0.1),
    **{"expected": "none", "found": "a", "observed": (WAIVER.observed,), "waivers": (WAIVER,)},  # type: ignore[arg-type]
)
NONCE = "00112233445566778899aabbccddeeff"


def digest(path: Path) -> str:
    """The digest by which the next verdict names this one."""
    return hashlib.sha256(path.read_bytes().split(b"\n")[1]).hexdigest()


def at(moment: datetime) -> str:
    return moment.strftime(TIME_FORM)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name) for name in ("ana", "eve")}


class Verdicts:
    """Verdicts in a folder, and their verification."""

    def __init__(self, folder: Path, keys: dict[str, Path]) -> None:
        self.folder, self.keys = folder, keys
        self.trust("ana", f'namespaces="{verdict_verifier.NAMESPACE}"')

    def trust(self, name: str, options: str = "", more: str = "") -> None:
        words = [name, *([options] if options else []), str(public_key(self.keys[name]))]
        (self.folder / "signers").write_text(f"{' '.join(words)}\n{more}")

    def details(self, sequence: int = 1, previous: str | None = None, **changes: Any) -> dict[str, Any]:
        """The details that `check --sign` makes of a host's results."""
        answers = {
            ABOUT.name: {"told": {"clock": at(NOW), "generation": 3, "versions": {}, "machine": "e" * 64}},
        }
        key = SimpleNamespace(get_name=lambda: "ssh-ed25519", asbytes=lambda: b"the host's key")
        transport = SimpleNamespace(get_remote_server_key=lambda: key)
        client = SimpleNamespace(get_transport=lambda: transport)
        survey: Any = SurveyAnswers(answers, program="f" * 64)
        target = SimpleNamespace(connector=SimpleNamespace(client=client))
        seen = SimpleNamespace(survey=survey, rig=SimpleNamespace(cards=()), target=target)
        look = SimpleNamespace(
            hosts={"box1": seen}, inventory=str(self.folder / "rig.py"), began=NOW.timestamp() - 2, deep=False
        )
        report = HostReport("box1", "as declared", "a" * 64, 3, at(NOW), {}, [OK, WAIVED])
        frame: Any = SimpleNamespace(look=look)
        survey._read[GENERATIONS.name] = SimpleNamespace(kept=[SimpleNamespace(number=3, sealed="c" * 64)])
        signer = public_key(self.keys["ana"]).fingerprint
        made = build_details(frame, report, VerdictLink(sequence, previous), signer, None)
        for path, value in changes.items():
            *tables, key_ = path.split("__")
            table = made
            for name in tables:
                table = table[name]
            table[key_] = value
        return made

    def write(
        self, name: str, details: dict[str, Any], key: str = "ana", statement: Callable[[Any], Any] = lambda one: one
    ) -> Path:
        """Sign details as `check --sign` does."""
        line = render_canonical(details)
        made = statement(build_statement(details, hashlib.sha256(line).hexdigest()))
        envelope = sign_payload(render_canonical(made), "verdict", self.keys[key])
        path = self.folder / name
        path.write_bytes(envelope.render() + line + b"\n")
        return path

    def chain(self, number: int, **changes: Any) -> list[Path]:
        """A chain of verdicts."""
        paths: list[Path] = []
        for sequence in range(1, number + 1):
            previous = digest(paths[-1]) if paths else None
            paths.append(self.write(f"{sequence:06}.jsonl", self.details(sequence, previous, **changes)))
        return paths

    def verify(self, *files: Path, options: tuple[str, ...] = ()) -> tuple[int, str]:
        """Exit status and output of the program, run by Python alone."""
        program = [sys.executable, "-I", "-S", verdict_verifier.__file__]
        words = [f"--signers={self.folder / 'signers'}", *options, *map(str, files)]
        done = subprocess.run([*program, *words], capture_output=True, text=True, cwd="/")
        return done.returncode, done.stdout + done.stderr

    def refusal(self, *files: Path, options: tuple[str, ...] = ()) -> str:
        """The reason of a refusal."""
        try:
            words = ["--signers", str(self.folder / "signers"), *options, *map(str, files)]
            parsed = SimpleNamespace(
                **{"signers": words[1], "revoked": None, "host_key": None},
                **{"nonce": None, "complete": False, "newest": 1},
            )
            for word in options:
                name, _, value = word.removeprefix("--").partition("=")
                name, is_list = name.replace("-", "_"), name == "host-key"
                setattr(parsed, name, [value] if is_list else int(value) if name == "newest" else value or True)
            verdict_verifier.verify_files([*files], parsed, datetime.now(timezone.utc))  # type: ignore[arg-type]
        except verdict_verifier.VerdictRefused as error:
            assert str(error)
            return error.reason
        except (LookupError, TypeError, AttributeError, ValueError):
            return "malformed"
        return ""


@pytest.fixture
def verdicts(tmp_path: Path, keys: dict[str, Path]) -> Verdicts:
    return Verdicts(tmp_path, keys)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each key and item."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from leaves(value[key], (*path, key))


def edited(value: Any, path: tuple[Any, ...], edit: Callable[[Any, Any], None]) -> Any:
    made = copy.deepcopy(value)
    table = made
    for key in path[:-1]:
        table = table[key]
    edit(table, path[-1])
    return made


def change(table: Any, key: Any) -> None:
    value = table[key]
    table[key] = value + 1 if isinstance(value, int) else f"{value}x" if isinstance(value, str) else "x"


def remove(table: Any, key: Any) -> None:
    del table[key]


def repeat(table: Any, key: Any) -> None:
    if isinstance(table, list):
        table.append(table[key])
    else:
        table[f"{key}2"] = table[key]


def test_a_verdict_is_verified_without_rigwright(verdicts: Verdicts) -> None:
    path = verdicts.write("1", verdicts.details(nonce=NONCE))
    status, output = verdicts.verify(path, options=(f"--nonce={NONCE}", "--complete"))
    assert status == 0, output
    for expected in (
        "box1: conforms with waivers (1 ok, 0 fail, 1 waived, 0 changed, 0 skip)",
        "number 1, signed ",
        "by ana, valid until ",
        "waived: B01  no logins",
        "until 2099-01-31 by ana: an agent needs it",
        "could have falsified it: root on the host",
    ):
        assert expected in output
    assert len(Path(verdict_verifier.__file__).read_text().splitlines()) <= 300


def test_the_verb_runs_the_same_program(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    signers = str(verdicts.folder / "signers")
    done = CliRunner().invoke(main, ["verify-verdict", "--signers", signers, str(path)])
    assert (done.exit_code, done.output) == (0, verdicts.verify(path)[1])
    done = CliRunner().invoke(main, ["verify-verdict", "--program"])
    assert done.output == Path(verdict_verifier.__file__).read_text()
    done = CliRunner().invoke(main, ["verify-verdict", "--signers", signers, "--newest", "2", str(path)])
    assert (done.exit_code, "refused (older)" in done.output) == (2, True)


def test_the_statement_is_a_simple_verification_result(verdicts: Verdicts) -> None:
    details = verdicts.details()
    lines = verdicts.write("1", details).read_bytes().split(b"\n")
    statement = json.loads(base64.b64decode(json.loads(lines[0])["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/svr/v0.2"
    predicate = statement["predicate"]
    assert predicate["properties"] == ["RIGWRIGHT_CONFORMS_WITH_WAIVERS"]
    assert predicate["timeCreated"] == details["time"]["signed"]
    assert {one["name"] for one in predicate["verifier"]["policies"]} == {"host_code", "judging_code", "lock"}
    assert predicate["details"]["digest"]["sha256"] == hashlib.sha256(lines[1]).hexdigest()


def test_the_details_name_box_programs_and_limits(verdicts: Verdicts) -> None:
    made = verdicts.details()
    assert made["subject"] == {
        **{"name": "box1", "machine": "e" * 64, "cards": [], "lock": "a" * 64},
        "host_key": HostKey("ssh-ed25519", b"the host's key").fingerprint,
        "generation": {"number": 3, "sha256": "c" * 64},
    }
    assert made["verifier"]["host_program"] == "f" * 64
    assert made["verifier"]["host_code"] == digest_survey_code()
    assert made["cannot_see"]["B01"]
    own = verdicts.folder / "checks"
    own.mkdir()
    (own / "test_own.py").write_text("# other\n")
    digest_judging_code.cache_clear()
    assert digest_judging_code(own) != made["verifier"]["judging_code"]


@pytest.mark.parametrize("edit", [change, remove, repeat])
def test_each_field_of_the_details_is_bound_to_the_signature(
    verdicts: Verdicts, edit: Callable[[Any, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    details = verdicts.details(2, "d" * 64)
    path = verdicts.write("1", details)
    envelope = path.read_bytes().split(b"\n")[0]
    assert verdicts.refusal(path) == ""
    monkeypatch.setattr(verdict_verifier, "run_ssh_keygen", lambda *words, **options: "ana")  # it sees the same bytes
    for place in leaves(details):
        path.write_bytes(envelope + b"\n" + render_canonical(edited(details, place, edit)) + b"\n")
        assert verdicts.refusal(path) in ("changed", "malformed", "wrong_kind"), place


@pytest.mark.parametrize("edit", [change, remove, repeat])
def test_each_field_of_statement_and_envelope_is_bound(verdicts: Verdicts, edit: Callable[[Any, Any], None]) -> None:
    details = verdicts.details()
    path = verdicts.write("1", details)
    envelope, line, _ = path.read_bytes().split(b"\n")
    table = json.loads(envelope)
    statement = json.loads(base64.b64decode(table["payload"]))
    for place in leaves(statement):
        other = base64.b64encode(render_canonical(edited(statement, place, edit))).decode()
        path.write_bytes(render_canonical(table | {"payload": other}) + b"\n" + line + b"\n")
        assert verdicts.refusal(path) == "changed", place
    for place in leaves(table):
        path.write_bytes(render_canonical(edited(table, place, edit)) + b"\n" + line + b"\n")
        assert verdicts.refusal(path) in ("changed", "malformed", "wrong_kind"), place


def test_a_signed_statement_that_is_not_the_summary_is_refused(verdicts: Verdicts) -> None:
    def other(one: Any) -> Any:
        one["predicate"]["properties"] = ["RIGWRIGHT_CONFORMS"]
        return one

    assert verdicts.refusal(verdicts.write("1", verdicts.details(), statement=other)) == "changed"


@pytest.mark.parametrize(
    "spell",
    [
        lambda data: data + b"\n",
        lambda data: data[:-1],
        lambda data: data.replace(b'{"cannot_see"', b'{"nonce":"00","cannot_see"'),
        lambda data: data.replace(b'{"payload"', b'{ "payload"'),
        lambda data: data.replace(b'"deep":false', b'"deep":false,"deep":false'),
        lambda data: b"",
        lambda data: b"[" * 100_000 + b"\n[]\n",
    ],
)
def test_another_spelling_is_malformed(verdicts: Verdicts, spell: Callable[[bytes], bytes]) -> None:
    (path,) = verdicts.chain(1)
    path.write_bytes(spell(path.read_bytes()))
    assert verdicts.refusal(path) == "malformed"


def test_each_byte_of_the_signature_counts(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    envelope, line, _ = path.read_bytes().split(b"\n")
    table = json.loads(envelope)
    blob = base64.b64decode(table["signatures"][0]["sig"])
    for place in range(0, len(blob), 7):
        other = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        table["signatures"][0]["sig"] = base64.b64encode(other).decode()
        path.write_bytes(render_canonical(table) + b"\n" + line + b"\n")
        assert verdicts.refusal(path) in ("changed", "malformed", "wrong_kind", "unknown_signer"), place


def test_another_key_namespace_or_time_of_a_key_is_refused(verdicts: Verdicts) -> None:
    eve = public_key(verdicts.keys["eve"])
    forged = verdicts.write("1", verdicts.details(verifier__controller_key=eve.fingerprint), "eve")
    assert verdicts.refusal(forged) == "unknown_signer"
    assert verdicts.refusal(verdicts.write("2", verdicts.details(), "eve")) == "unknown_signer"
    verdicts.trust("ana", more=f'eve namespaces="lock@rigwright" {eve}\n')
    assert verdicts.refusal(forged) in ("key_not_valid", "changed")
    verdicts.trust("eve")
    assert verdicts.refusal(verdicts.write("2", verdicts.details(), "eve")) == "changed"  # ana's name in it
    (path,) = verdicts.chain(1)
    for option in ('valid-before="20200101"', 'valid-after="20990101"'):
        verdicts.trust("ana", option)
        assert verdicts.refusal(path) == "key_not_valid"
    verdicts.trust("ana")
    (verdicts.folder / "revoked").write_text(f"{public_key(verdicts.keys['ana'])}\n")
    assert verdicts.refusal(path, options=(f"--revoked={verdicts.folder / 'revoked'}",)) == "revoked"
    line = path.read_bytes().split(b"\n")[1]
    statement = render_canonical(build_statement(json.loads(line), hashlib.sha256(line).hexdigest()))
    path.write_bytes(sign_payload(statement, "lock", verdicts.keys["ana"]).render() + line + b"\n")
    assert verdicts.refusal(path) == "wrong_kind"


def test_a_result_is_that_of_its_checks(verdicts: Verdicts) -> None:
    checks = verdicts.details()["checks"]
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=[], result="conforms"))) == "malformed"
    odd = [checks[0] | {"verdict": "held"}]
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=odd, result="conforms"))) == "malformed"
    assert verdicts.refusal(verdicts.write("1", verdicts.details(schema="urn:rigwright:verdict:v2"))) == "wrong_kind"
    red = [checks[0] | {"verdict": "fail"}, checks[1]]
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=red))) == "changed"
    honest = verdicts.write("2", verdicts.details(checks=red, result="does not conform"))
    assert (verdicts.refusal(honest), verdicts.verify(honest)[0]) == ("", 1)
    (waiver,) = checks[1]["waivers"]
    for waivers in ([], [waiver | {"until": "2020-01-01"}], [waiver | {"observed": "b"}]):
        rows = [checks[0], checks[1] | {"waivers": waivers}]
        assert verdicts.refusal(verdicts.write("3", verdicts.details(checks=rows))) == "changed"


def test_redated_and_replayed_verdicts_are_refused(verdicts: Verdicts) -> None:
    def times(days: int, **more: int) -> dict[str, Any]:
        moment = NOW + timedelta(days=days)
        return {
            **{"time__surveyed": at(moment), "time__signed": at(moment)},
            "time__expires": at(moment + timedelta(days=7)),
        }

    assert verdicts.refusal(verdicts.write("1", verdicts.details(**times(-8)))) == "statement_expired"
    assert verdicts.refusal(verdicts.write("1", verdicts.details(**times(1)))) == "statement_in_future"
    late = verdicts.details(time__surveyed=at(NOW + timedelta(days=1)))
    assert verdicts.refusal(verdicts.write("1", late)) == "malformed"
    for value in ("2026-11-29", "2026-11-29T00:00:00+00:00", "2026-1-2T00:00:00Z", 5):
        assert verdicts.refusal(verdicts.write("1", verdicts.details(time__signed=value))) == "malformed"
    short = {"time__surveyed": "2026-01-02T03:04:05Z", "time__signed": "2026-1-2T3:4:5Z"}
    assert verdicts.refusal(verdicts.write("1", verdicts.details(**short))) == "malformed"
    first = verdicts.write("1", verdicts.details(nonce=NONCE))
    assert verdicts.refusal(first, options=(f"--nonce={NONCE}",)) == ""
    assert verdicts.refusal(first, options=(f"--nonce={'0' * 32}",)) == "other_nonce"
    assert verdicts.refusal(first, options=("--newest=2",)) == "older"
    previous = digest(first)
    assert verdicts.refusal(first, verdicts.write("2", verdicts.details(2, previous, **times(-1)))) == "redated"


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
    rest = verdict_verifier.read_field(blob[10:])[1]
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
