"""The client on a host: its program as it runs there, against a server that speaks as engines do, or does not."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.engines.instance_request import MODELS, ONE_TOKEN, STREAMED, InstanceRequest
from rigwright.operate.chat_reply import NoChatMessage, parse_message
from rigwright.operate.client_target import ClientTarget
from roles import client
from roles.client import ClientJobFailed, ClientJobLost, HostClient, render_client_command
from roles.client.host import http_exchange
from tests.unit.client_host import ClientHost, make_client_host
from tests.unit.model_server import KEY, MODEL, Fault, ScriptedModel, run_model_server

SOON = 20.0
ESSAY = InstanceRequest(
    "/v1/chat/completions", {"messages": [{"role": "user", "content": "Write."}], "max_tokens": 64, "stream": True}
)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHost:
    return make_client_host(tmp_path / "host", monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> ClientTarget:
    (tmp_path / "key").write_text(f"{KEY}\n")
    return ClientTarget("chat", str(tmp_path / "s"), MODEL, credential=str(tmp_path / "key"), groups=("one", "two"))


OpenClient = Callable[..., "contextmanager[HostClient]"]


@pytest.fixture
def client_at_instance(host: ClientHost, place: ClientTarget, tmp_path: Path) -> OpenClient:
    @contextmanager
    def made(model: ScriptedModel, where: ClientTarget = place) -> Iterator[HostClient]:
        with run_model_server(model, tmp_path / "s"), HostClient(host, where) as one:
            yield one

    return made


def test_an_answer_comes_whole_with_its_times(client_at_instance: OpenClient) -> None:
    model = ScriptedModel(gap_s=0.01)
    with client_at_instance(model) as one:
        reply = one.send_request(ESSAY, SOON)
    said = parse_message(reply)
    assert (reply.status, reply.error, said.finish) == (200, "", "stop")
    assert said.content == model.answer_chat({**dict(ESSAY.body or {})})["content"]
    assert said.tokens == len(said.times) > 40
    # no token comes before it is sent
    assert all(at >= 0.01 * number for number, at in enumerate(said.times, 1))
    assert list(said.times) == sorted(said.times)
    assert reply.total_s >= said.times[-1] > (reply.first_s or 0)
    assert model.asked[0]["model"] == MODEL


def test_the_key_comes_from_systemd_and_is_in_no_argument(client_at_instance: OpenClient, tmp_path: Path) -> None:
    with client_at_instance(ScriptedModel()) as one:
        assert one.send_request(MODELS, SOON).status == 200
    options = (tmp_path / "host" / "options").read_text()
    assert f"--property=LoadCredential=api-key:{tmp_path / 'key'}" in options
    assert "--property=SupplementaryGroups=one two" in options
    assert "--property=DynamicUser=yes" in options
    assert KEY not in options


def test_a_key_of_the_operators_goes_over_standard_input(client_at_instance, place, tmp_path):
    mine = replace(place, credential="", key=KEY)
    assert KEY not in render_client_command(mine, "unit")
    assert KEY not in repr(mine)
    with client_at_instance(ScriptedModel(), mine) as one:
        assert one.send_request(MODELS, SOON).status == 200
    assert "LoadCredential" not in (tmp_path / "host" / "options").read_text()


def test_a_wrong_key_is_reported_and_never_shown(client_at_instance: OpenClient, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not-the-key\n")
    with client_at_instance(ScriptedModel()) as one:
        reply = one.send_request(ONE_TOKEN, SOON)
    assert reply.status == 401
    assert "not-the-key" not in reply.description


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("error with 200", "an error with status 200"),
        ("lost stream", "the answer breaks off"),
        ("no end", r"a stream that does not end with \[DONE\]"),
        ("garbage", "an answer of another shape"),
    ],
)
def test_an_invalid_answer_is_none(client_at_instance: OpenClient, fault: Fault, words: str) -> None:
    with client_at_instance(ScriptedModel(fault)) as one:
        reply = one.send_request(STREAMED, SOON)
    with pytest.raises(NoChatMessage, match=words):
        parse_message(reply)


# Run apart, for sockets of a process with gevent take a time limit after their end, too.
READ_WHOLE = """
import sys
sys.path.insert(0, sys.argv[1])
import http_exchange
connection = http_exchange.TargetConnection(http_exchange.RequestTarget(sys.argv[2]), 20)
connection.request("GET", "/metrics")
answer = connection.getresponse()
# http.client lets go of it where the server will; as of Python 3.13 it closes it with the last byte
connection.sock.close()
assert answer.read()
print(http_exchange.receive_piece(answer))
"""


def test_an_answer_that_was_read_whole_has_ended(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-c", READ_WHOLE, str(Path(http_exchange.__file__).parent), str(tmp_path / "s")]
    with run_model_server(ScriptedModel(), tmp_path / "s"):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("b''\n", "")


def test_no_answer_is_waited_for_longer_than_that(client_at_instance: OpenClient) -> None:
    with client_at_instance(ScriptedModel("wedged")) as one:
        reply = one.send_request(ONE_TOKEN, 0.3)
    assert (reply.status, reply.error) == (0, "no answer in time")
    assert 0.3 <= reply.total_s < 5


def test_an_answer_without_end_is_cut(client_at_instance: OpenClient) -> None:
    with client_at_instance(ScriptedModel("endless")) as one:
        reply = one.send_request(ESSAY, SOON, most=50_000)
    assert reply.error == "an answer of more than 50000 bytes"
    assert sum(len(text) for _, text in reply.events) < 200_000


def test_a_missing_server_is_not_waited_for(host: ClientHost, place: ClientTarget) -> None:
    with HostClient(host, place) as one:
        reply = one.send_request(ONE_TOKEN, SOON)
    assert (reply.status, reply.error) == (0, "No such file or directory")


def test_a_wait_ends_with_the_job(client_at_instance: OpenClient) -> None:
    with client_at_instance(ScriptedModel("wedged")) as one:
        ended = threading.Timer(0.3, one.close)
        ended.start()
        with pytest.raises(ClientJobLost):
            one.send_request(ONE_TOKEN, SOON)
        ended.join()
        with pytest.raises(ClientJobLost, match="the job was ended"):
            one.send_request(ONE_TOKEN, SOON)


def test_the_job_ends_with_the_block_by_its_name(client_at_instance: OpenClient, tmp_path: Path) -> None:
    with client_at_instance(ScriptedModel()) as one:
        one.send_request(MODELS, SOON)
    assert f"stop {one.unit}" in (tmp_path / "host" / "systemctl").read_text()
    assert one.unit.startswith("rw-client-chat-")


def test_a_job_that_does_not_begin_says_why(host: ClientHost, place: ClientTarget) -> None:
    with (
        pytest.raises(ClientJobLost, match="No such file or directory"),
        HostClient(host, replace(place, credential="/no/key")),
    ):
        pass


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "an invalid line"),
        ('{"id": 7, "told": {}}', "unexpected reply"),
        ('{"told": {}}', "an invalid line"),
        ("[" * 5000, "an invalid line"),
    ],
)
def test_a_host_that_says_something_else_is_not_believed(host, place, tmp_path, line, words):
    lie = tmp_path / "host" / "bin" / "systemd-run"
    lie.write_text(
        "#!/bin/sh\necho '" + json.dumps({"id": 0, "told": {}}) + f"'\nread -r a\nread -r b\necho '{line}'\ncat\n"
    )
    with HostClient(host, place) as one, pytest.raises(ClientJobLost, match=words):
        one.send_request(ONE_TOKEN, SOON)


def test_an_answer_of_another_shape_is_refused(host: ClientHost, place: ClientTarget, tmp_path: Path) -> None:
    lie = tmp_path / "host" / "bin" / "systemd-run"
    said = json.dumps({"id": 1, "told": {"status": "200"}})
    lie.write_text(
        "#!/bin/sh\necho '"
        + json.dumps({"id": 0, "told": {}})
        + f"'\nread -r a\nread -r b\nread -r c\necho '{said}'\ncat\n"
    )
    with HostClient(host, place) as one, pytest.raises(ClientJobFailed, match="unexpected reply of the job"):
        one.send_request(ONE_TOKEN, SOON)


def test_a_line_without_end_is_not_kept(host, place, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "LINE", 1000)
    lie = tmp_path / "host" / "bin" / "systemd-run"
    lie.write_text("#!/bin/sh\necho '" + json.dumps({"id": 0, "told": {}}) + "'\nhead -c 100000 /dev/zero\ncat\n")
    with HostClient(host, place) as one, pytest.raises(ClientJobLost, match="more output than allowed"):
        one.send_request(ONE_TOKEN, SOON)
