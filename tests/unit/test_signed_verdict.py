"""Signed verdicts and their chain: each field changed, removed, repeated, replayed, signed again and redated is refused
with a reason, by the program that runs without Rigwright. ssh-keygen is the real one."""

import base64
import copy
import hashlib
import json
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
from cli import main
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
