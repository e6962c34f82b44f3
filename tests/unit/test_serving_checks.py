"""How checks ask an instance that may have been taken over."""

import grp
import os
import pwd
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread

import pytest

from checks.survey import requests
from checks.survey.answers import SurveyAnswers
from checks.survey.requests import ANSWER, RequestAnswers, SurveyAnswer, SurveyRequest, share_requests
from checks.survey.section import Section
from rigwright.engines.instance_request import ONE_TOKEN
from rigwright.model.inventory_schema import ShareEntry
from tests.unit.check_runner import collect_answers
from tests.unit.file_server import FileServerHandler, LoopbackFileServer, complete_file, run_file_server
from tests.unit.samples import sample_instance, sample_rig

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the command gives root away before it connects")

COMPLETIONS = ONE_TOKEN.path.lstrip("/")
GROUP = "daemon"  # stands in for the instance's own


@pytest.fixture
def at() -> Iterator[Path]:
    """An instance's socket, where others than root come to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder, "api.sock")


@pytest.fixture
def server(at: Path) -> Iterator[LoopbackFileServer]:
    """The listener there."""
    with run_file_server(at) as found:
        at.chmod(0o777)
        yield found


SECTION: Section[RequestAnswers] = Section("requests", RequestAnswers, lambda scene: None, blind="")


def survey_answers(*asks: SurveyRequest, within: float = 20.0) -> dict[str, SurveyAnswer]:
    """The answers to the survey's program."""
    question = {"asks": [asdict(one) for one in asks], "parts": [], "within": within}
    return SurveyAnswers(collect_answers({"requests": (20.0, question)})).read(SECTION).answers


def ready(at: Path, folder: Path, key: str = 'a"key\\\n') -> SurveyAnswer:
    """The same of one request, with a key."""
    (folder / "key").write_text(key)
    return survey_answers(
        SurveyRequest.from_engine_request("it", str(at), ONE_TOKEN, key=str(folder / "key"), group=GROUP)
    )["it"]


def test_the_key_goes_with_the_request_and_the_answer_comes_back(
    server: LoopbackFileServer, at: Path, tmp_path: Path
) -> None:
    server.serve(COMPLETIONS, complete_file(b"{}"))
    found = ready(at, tmp_path)
    assert (found.status, found.body) == (200, "{}")
    assert server.asked[0].authorization == 'Bearer a"key\\'


@pytest.mark.parametrize("key", ["", "one\ntwo\n", "one\r\nX-Header: two\n", "k\u00e9y\n"])
def test_text_of_more_than_one_key_is_never_sent(
    server: LoopbackFileServer, at: Path, tmp_path: Path, key: str
) -> None:
    server.serve(COMPLETIONS, complete_file(b"{}"))
    assert "has not one key in it" in ready(at, tmp_path, key).error
    assert not server.asked


def test_no_key_is_shown_to_a_listener_in_systemds_stead(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key\n")
    with socket.create_server(("127.0.0.1", 0)) as thief:
        at = f"127.0.0.1:{thief.getsockname()[1]}"
        found = survey_answers(SurveyRequest("it", at, "/", key=str(tmp_path / "key")))["it"]
        thief.settimeout(0.01)
        with pytest.raises(TimeoutError):
            thief.accept()
    assert "systemd does not listen" in found.error


def test_an_answer_without_end_is_read_so_far(server: LoopbackFileServer, at: Path, tmp_path: Path) -> None:
    def endless(handler: FileServerHandler, start: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            while True:
                handler.wfile.write(b"x" * (1 << 20))

    server.serve(COMPLETIONS, endless)
    assert len(ready(at, tmp_path).body) == ANSWER


def test_it_is_asked_by_user_nobody_wherever_its_sockets_name_may_lead(
    server: LoopbackFileServer, at: Path, tmp_path: Path
) -> None:
    found = []

    def record_request(handler: FileServerHandler, start: int) -> None:
        found.append(struct.unpack("3i", handler.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:])
        handler.send_head(200, 0)

    server.serve(COMPLETIONS, record_request)
    ready(at, tmp_path)
    assert found == [(pwd.getpwnam("nobody").pw_uid, grp.getgrnam(GROUP).gr_gid)]


def raw(*answers: bytes, **more: object) -> SurveyAnswer:
    """The handling of an answer as it came; of several, each to one request after another."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def give() -> None:
            for one in answers:
                client, _ = server.accept()
                with client:
                    client.recv(65536)
                    client.sendall(one)

        giving = Thread(target=give)
        giving.start()
        at = f"127.0.0.1:{server.getsockname()[1]}"
        found = survey_answers(SurveyRequest("it", at, "/", limit=5.0, **more))["it"]  # type: ignore[arg-type]
        giving.join()
    return found


def test_pieces_are_put_together() -> None:
    pieces = b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    found = raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces)
    assert (found.status, found.body) == (200, "abcde")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", "no answer"),
        (b"SSH-2.0-OpenSSH_10.0\r\n", "an answer that is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX", "an answer that breaks off"),
        (b"HTTP/1.1 200 " + b"x" * 100_000, "an answer that breaks off"),
    ],
)
def test_an_invalid_answer_is_none(said: bytes, error: str) -> None:
    found = raw(said)
    assert (found.status, found.error) == (0, error)


def test_a_busy_server_is_asked_again() -> None:
    busy, done = b"HTTP/1.1 429 Later\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert raw(busy, busy, done, again=(429,)).status == 200


def test_a_box_without_listeners_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert survey_answers(SurveyRequest("it", f"127.0.0.1:{port}", "/"))["it"].error == "Connection refused"


def test_a_lane_that_hangs_ends_in_time_and_leaves_the_others_their_answers(
    server: LoopbackFileServer, at: Path
) -> None:
    server.serve(COMPLETIONS, complete_file(b"{}"))
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as frozen:
        Path(folder).chmod(0o755)
        hung = f"{folder}/hung.sock"
        frozen.bind(hung)
        frozen.listen()
        Path(hung).chmod(0o777)
        lane = [SurveyRequest(f"model {number}", hung, "/", lane="hung", limit=60.0) for number in range(3)]
        began = time.monotonic()
        found = survey_answers(*lane, SurveyRequest.from_engine_request("it", str(at), ONE_TOKEN), within=0.3)
    assert found["it"].status == 200
    assert [found[one.name].describe for one in lane] == [
        "no answer in time",
        *["not asked: those before it had no answer in time"] * 2,
    ]
    assert time.monotonic() - began < 15


def test_a_silent_share_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is waited for: with all of them a check would take minutes."""
    monkeypatch.setattr(requests, "GIVEN", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        share = ShareEntry(address="127.0.0.1", port=frozen.getsockname()[1], allow=("127.0.0.0/8",))
        asks = [*share_requests(sample_rig(sample_instance()).instances, share)]
        found = survey_answers(*asks, within=60.0)
    said = Counter(found[one.name].describe for one in asks)
    assert said.keys() == {"no answer in time", "not asked: those before it had no answer in time"}
    # one a lane, and what has none
    assert said["no answer in time"] <= requests.LANES + sum(not one.lane for one in asks)


def test_a_server_busy_for_longer_than_one_answer_is_asked_again() -> None:
    busy, done = b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert raw(busy, busy, done, again=(503,), single=0.2).status == 200
