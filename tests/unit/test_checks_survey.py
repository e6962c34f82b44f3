"""The survey's program, run here, and its handling of invalid answers."""

import base64
import json
import os
import re
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from checks import Drift, survey
from checks.survey import survey_program
from checks.survey.accounts import ACCOUNTS
from checks.survey.answers import SurveyAnswers, read_survey
from checks.survey.host.main import MARK, WAITING, count_read_bytes
from checks.survey.section import Section, SurveyScope
from checks.survey.sections import list_sections
from tests.unit.samples import sample_instance, sample_rig
from tests.unit.survey_samples import empty_answer, filled_answer


def run(questions: dict[str, tuple[float, object]]) -> dict[str, dict[str, object]]:
    done = subprocess.run(
        ["sh", "-c", survey_program.COMMAND],
        input=survey_program.render_survey_program(questions),
        text=True,
        capture_output=True,
        check=False,
    )
    assert not done.stderr
    return survey_program.parse_answers(done.stdout.encode())


def test_it_finds_root() -> None:
    found = SurveyAnswers(run({"accounts": (20.0, {"users": [], "home": "/nonexistent", "folders": []})})).read(
        ACCOUNTS
    )
    assert (user := found.user("root")) is not None
    assert (user.uid, user.home) == (0, "/root")


@pytest.fixture
def sections(tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    """Sections of a test's own beside the program's."""
    for name in ("main", *survey_program.COMMON):
        (tmp_path / f"{name}.py").write_text((survey_program.HOST / f"{name}.py").read_text())
    monkeypatch.setattr(survey_program, "HOST", tmp_path)
    return lambda **sources: [(tmp_path / f"{name}.py").write_text(text) for name, text in sources.items()]


def test_a_section_that_crashes_dies_or_hangs_takes_no_other_along(sections) -> None:  # type: ignore[no-untyped-def]
    sections(
        crashes="def look(asked):\n    return asked['nothing']\n",
        dies="import os\ndef look(asked):\n    os.kill(os.getpid(), 9)\n",
        hangs="import subprocess\ndef look(asked):\n    subprocess.run(['sleep', '1000'])\n",
        answers="def look(asked):\n    return asked\n",
    )
    found = run({"crashes": (9.0, {}), "dies": (9.0, {}), "hangs": (0.3, {}), "answers": (9.0, [1, "x" * 300_000])})
    assert found["answers"]["told"] == [1, "x" * 300_000]
    assert found["crashes"]["failed"] == "KeyError: 'nothing' (crashes.py line 2)"
    assert (found["dies"]["failed"], found["hangs"]["failed"]) == ("it died", "it took too long")


def test_a_section_that_takes_longer_than_others_is_named_meanwhile(sections) -> None:  # type: ignore[no-untyped-def]
    sections(
        slow="import time\ndef look(asked):\n    time.sleep(1.5)\n    return asked\n",
        answers="def look(asked):\n    return asked\n",
    )
    program = survey_program.render_survey_program({"slow": (9.0, 1), "answers": (9.0, 2)})
    done = subprocess.run(["sh", "-c", survey_program.COMMAND], input=program, text=True, capture_output=True)
    lines = done.stdout.encode().splitlines()
    assert [names for line in lines if (names := survey_program.parse_waiting_line(line))] == [["slow"]]
    assert any(survey_program.parse_read_line(line) is not None for line in lines)
    assert survey_program.parse_answers(done.stdout.encode())["slow"]["told"] == 1


def test_a_line_tells_how_many_bytes_sections_have_read() -> None:
    def line(value: object) -> bytes:
        return WAITING.encode() + base64.b64encode(zlib.compress(json.dumps(value).encode()))

    rows = [7, 0, -1, 1 << 61, True, 1.5, ["trees"], "7"]
    assert [survey_program.parse_read_line(line(one)) for one in rows] == [7, 0, *[None] * 6]
    assert survey_program.parse_read_line(b"Last login: today") is None
    known: dict[int, int] = {1 << 22: 5}
    before = count_read_bytes([os.getpid()], known)
    Path(__file__).read_bytes()
    assert count_read_bytes([os.getpid(), 1 << 22], known) >= before + Path(__file__).stat().st_size > 5


@pytest.mark.parametrize("names", [b"", b"!", base64.b64encode(b"x"), base64.b64encode(zlib.compress(b'{"a": 1}'))])
def test_a_line_that_names_no_section_is_left_out(names: bytes) -> None:
    assert survey_program.parse_waiting_line(WAITING.encode() + names) == []


def test_names_of_sections_steer_no_terminal() -> None:
    names = json.dumps(["requests", "\x1b[2J", 7, "x" * 100]).encode()
    assert survey_program.parse_waiting_line(WAITING.encode() + base64.b64encode(zlib.compress(names))) == ["requests"]


class TwoSectionSurvey:
    """The program of two sections, one of which is asked by what a probe finds."""

    def __init__(self, probe: str, **early: object) -> None:
        program = survey_program.render_survey_program(
            {name: (9.0, asked) for name, asked in early.items()}, probe, ["later"]
        )
        pipes = {"stdin": -1, "stdout": -1, "stderr": -1}
        self.process = subprocess.Popen(["sh", "-c", survey_program.COMMAND], **pipes, text=True)  # type: ignore[call-overload]
        self.process.stdin.write(program)
        self.process.stdin.flush()
        self.line = self.process.stdout.readline().encode()

    def end(self, given: str) -> str:
        """Give it the rest; returns what it prints after that."""
        out, err = self.process.communicate(given)
        assert not err
        return str(out)


LATER = "def look(asked):\n    return asked\n"


def test_findings_of_a_probe_lead_to_further_questions_during_the_first_ones(sections) -> None:  # type: ignore[no-untyped-def]
    sections(early=LATER, later=LATER)
    asking = TwoSectionSurvey("printf 'a %s\\n' \"$LANGUAGE\" b", early=["x" * 300_000])
    first, second = survey_program.parse_probe_line(asking.line) or ()
    assert (first, second) == (f"a {os.environ.get('LANGUAGE', '')}", "a b")
    found = survey_program.parse_answers(
        asking.end(survey_program.render_further_questions({"later": (9.0, [second])})).encode()
    )
    assert (found["early"]["told"], found["later"]["told"]) == (["x" * 300_000], ["a b"])


def test_a_closed_connection_leaves_nothing_behind(sections) -> None:  # type: ignore[no-untyped-def]
    early = "import os, time\ndef look(asked):\n    os.write(os.open(asked, os.O_WRONLY), b'.')\n    time.sleep(600)\n"
    sections(early=early, later=LATER)
    reading, writing = os.pipe()
    asking = TwoSectionSurvey("true", early=f"/proc/{os.getpid()}/fd/{writing}")
    assert os.read(reading, 1) == b"."
    os.close(writing)
    assert asking.end("") == ""
    # the reader has had the other end
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ("echo half; echo sorry >&2; exit 7", "the probe did not finish: sorry"),
        ("exit 7", "the probe did not finish: exit status 7"),
    ],
)
def test_a_probe_that_fails_leads_nowhere(sections, probe: str, said: str) -> None:  # type: ignore[no-untyped-def]
    sections(later=LATER)
    asking = TwoSectionSurvey(probe)
    asking.end("")
    with pytest.raises(ValueError, match=said):
        survey_program.parse_probe_line(asking.line)


@pytest.mark.parametrize("answer", [{}, {"probe": {"status": 0}}, {"probe": {"status": 0, "out": ["a"]}}])
def test_a_probe_of_another_shape_leads_nowhere(answer: object) -> None:
    with pytest.raises(ValueError, match="the probe did not finish"):
        survey_program.parse_probe_line(MARK.encode() + base64.b64encode(zlib.compress(json.dumps(answer).encode())))


def test_output_of_a_login_is_no_finding_of_a_probe(sections) -> None:  # type: ignore[no-untyped-def]
    sections(later=LATER)
    asking = TwoSectionSurvey("echo a")
    asking.end("")
    assert (
        survey_program.parse_probe_line(b"Welcome to box1"),
        survey_program.parse_probe_line(b"$ " + asking.line),
    ) == (None, ["a"])


@pytest.mark.parametrize("section", list_sections("early"), ids=lambda section: section.name)
def test_sections_that_run_during_a_probe_need_none_of_its_findings(section: Section[object]) -> None:
    made = sample_rig(sample_instance("chat"), sample_instance("mapped_code"))
    section.asks(SurveyScope(made, None))  # type: ignore[arg-type] # what the rig comes to is not known yet


def test_the_survey_has_the_sections_of_all_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fans.py").write_text(
        "from checks.survey.section import Section\n"
        "FANS = Section('fans', int, lambda scene: {}, blind='fans of others')\n"
        "PUMPS = Section('pumps', int, lambda scene: {}, blind='', phase='probed', start_order=0)\n"
        "PIPES = Section('pipes', int, lambda scene: {}, blind='', phase='separate')\n"
    )
    shipped = [one.name for one in list_sections()]
    monkeypatch.setattr(survey, "__path__", [*survey.__path__, str(tmp_path)])
    found = list_sections.__wrapped__()
    monkeypatch.delitem(sys.modules, "checks.survey.fans")
    names = [one.name for one in found]
    assert (names[0], names[-1]) == ("pumps", "fans")
    assert names[1:-1] == shipped


def test_a_section_that_cannot_be_ended_keeps_no_connection_open(sections) -> None:  # type: ignore[no-untyped-def]
    # as one that waits in the kernel: it is not in the group that is ended
    sections(
        stays="""import os
import time
def look(asked):
    os.setpgid(0, int(asked))
    time.sleep(6)
"""
    )
    began = time.monotonic()
    assert run({"stays": (0.3, str(os.getpgid(0)))})["stays"]["failed"] == "it took too long"
    assert time.monotonic() - began < 5


def test_a_section_that_waits_for_a_dead_server_says_where_one_is(sections) -> None:  # type: ignore[no-untyped-def]
    heard = (survey_program.HOST / "fs_responsiveness.py").read_text()
    sections(
        fs_responsiveness=f"{heard}\ndef mounted():\n    return ['/', '/home']\n"
        "def _answered(folders, limit):\n    return folders.index('/home') if '/home' in folders else len(folders)\n",
        hangs="import time\ndef look(asked):\n    time.sleep(60)\n",
        answers="def look(asked):\n    return asked\n",
    )
    found = run({"hangs": (0.3, {}), "answers": (9.0, 1)})
    assert found["hangs"]["failed"] == "it took too long: file systems that do not answer: /home"
    assert found["answers"]["told"] == 1


def test_a_section_that_is_ended_while_it_speaks_takes_no_other_along(sections) -> None:  # type: ignore[no-untyped-def]
    program = survey_program.HOST / "main.py"
    program.write_text(
        program.read_text().replace("left = memoryview(", "left = memoryview(b'{' if name == 'speaks' else ")
    )
    sections(speaks="def look(asked):\n    return 1\n", answers="def look(asked):\n    return asked\n")
    found = run({"speaks": (9.0, {}), "answers": (9.0, [1])})
    assert (found["speaks"]["failed"], found["answers"]["told"]) == ("it died", [1])


def test_names_that_are_no_text_are_an_answer_all_the_same(sections) -> None:  # type: ignore[no-untyped-def]
    sections(told="def look(asked):\n    return {'one': 1, 'words': ['a\\udcff']}\n")
    assert SurveyAnswers(run({"told": (9.0, {})})).read(TOLD).words == ["a?"]


@dataclass(frozen=True)
class ScriptedAnswer:
    one: int
    words: list[str]


def deep() -> object:
    """Lists in lists, as many as are read and more than are written."""
    made: object = []
    for _ in range(sys.getrecursionlimit() * 100):
        made = [made]
    return made


TOLD: Section[ScriptedAnswer] = Section("told", ScriptedAnswer, lambda scene: {}, blind="")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"told": {"one": "1", "words": []}}, "one: "),
        ({"told": {"one": 1, "words": ["a", 3]}}, "words.1: "),
        ({"told": {"one": 1}}, "words: "),
        ({"told": None}, "about told"),
        ({"told": deep()}, "found"),
        ({"failed": "KeyError: 'x'"}, "KeyError: 'x'"),
        ({"failed": "a\x1b[31mb"}, "a\N{REPLACEMENT CHARACTER}[31mb"),
        ({}, "found none"),
    ],
)
def test_an_invalid_answer_conforms_to_nothing(answer: dict[str, object], said: str) -> None:
    with pytest.raises(Drift, match="expected an answer about told") as caught:
        SurveyAnswers({"told": answer}).read(TOLD)
    assert said in str(caught.value)


FLOAT = "a number goes here"
SECTIONS_WITH_FLOATS = [one for one in list_sections() if FLOAT in json.dumps(filled_answer(one.shape, FLOAT))]


def test_some_sections_have_floats() -> None:
    assert {"recent_events", "health"} <= {one.name for one in SECTIONS_WITH_FLOATS}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", f"{'9' * 400}.0"])
@pytest.mark.parametrize("section", SECTIONS_WITH_FLOATS, ids=lambda section: section.name)
def test_a_number_without_limit_conforms_to_nothing(section: Section[object], number: str) -> None:
    parts = json.dumps({section.name: {"told": filled_answer(section.shape, FLOAT)}}).split(f'"{FLOAT}"')
    for place in range(1, len(parts)):
        text = "1.5".join(parts[:place]) + number + "1.5".join(parts[place:])
        with pytest.raises(Drift, match="found an invalid number"):
            read_survey(text.encode(), "").read(section)
    assert read_survey("1.5".join(parts).encode(), "").read(section)


def test_words_for_numbers_are_text_elsewhere() -> None:
    other = next(one for one in list_sections() if one not in SECTIONS_WITH_FLOATS)
    answers = {other.name: {"told": empty_answer(other.shape)}, "accounts": {"failed": "NaN of Infinity"}}
    with pytest.raises(Drift, match="NaN of Infinity"):
        read_survey(json.dumps(answers).encode(), "").read(ACCOUNTS)


def test_a_host_that_was_not_asked_conforms_to_nothing() -> None:
    with pytest.raises(Drift, match="found the connection was lost"):
        SurveyAnswers({}, "the connection was lost").read(TOLD)


@pytest.mark.parametrize("output", [b"", b"Traceback\n", b"AAAA\n", base64.b64encode(zlib.compress(b"{")), b"\xff\xfe"])
def test_output_that_is_no_survey_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="did not finish"):
        survey_program.parse_answers(output)


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        ("", "x: exit status 127"),
        ("sh: 1: exec: /usr/bin/other: not found", "x: sh: 1: exec: /usr/bin/other: not found"),
        (
            "sh: 1: exec: /usr/bin/python3: not found",
            "x: sh: 1: exec: /usr/bin/python3: not found; on the box, as root: apt-get install --reinstall "
            "python3-minimal",
        ),
    ],
)
def test_a_box_that_lost_its_python_comes_with_the_remedy(complaint: str, reason: str) -> None:
    assert survey_program.describe_failed_survey(ValueError("x"), complaint, 127) == reason


@pytest.mark.parametrize("answer", [[], {"accounts": 1}])
def test_an_answer_of_another_shape_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        survey_program.parse_answers(base64.b64encode(zlib.compress(json.dumps(answer).encode())))


def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_program, "MOST", 1 << 10)
    with pytest.raises(ValueError, match="longer than"):
        survey_program.parse_answers(base64.b64encode(zlib.compress(b"[" * 100_000)))


def test_a_host_is_sent_what_its_sections_import_and_no_more() -> None:
    modules = {
        name: (survey_program.HOST / f"{name}.py").read_text()
        for name in (*survey_program.COMMON, "service_exposure", "host_summary", "package_file_changes")
    }
    assert survey_program.shared_modules(modules, ["host_summary"]) == ("common", "mount_table", "fs_responsiveness")
    taken = ("common", "mount_table", "fs_responsiveness", "dpkg")
    assert survey_program.shared_modules(modules, ["package_file_changes"]) == taken
    assert {"network_sockets", "bounded_http", "listener_probe", "foreign_proxies"} <= {
        *survey_program.shared_modules(modules, ["service_exposure"])
    }


def test_the_sent_program_has_all_imports_of_its_modules() -> None:
    modules = {path.stem: path.read_text() for path in survey_program.HOST.glob("*.py")}
    for name in sorted({*modules} - {"main", "__init__", *survey_program.COMMON}):
        sent = {name, *survey_program.shared_modules(modules, [name])}
        for one in sent:
            found = re.findall(r"from checks[.]survey[.]host(?: import (\([^)]*\)|.+)|[.]([a-z_]+) )", modules[one])
            assert {word.strip(" ()\n") for named, module in found for word in (named or module).split(",")} - {
                ""
            } <= sent, one
