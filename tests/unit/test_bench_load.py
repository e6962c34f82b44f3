"""The load program as it runs on a host: from standard input, against a server that streams as its kind does."""

import json
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.load_generator import LoadConnection, LoadRequest
from bench.load_statistics import parse_load
from bench.sandbox_overhead import PROGRAM
from tests.unit.sse_server import KEY, SseSpeaker, run_sse_server

PATHS = ("/completion", "/v1/completions")


def run(asked: LoadRequest) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-", json.dumps(asdict(asked))]
    return subprocess.run(command, input=PROGRAM.read_text(), capture_output=True, text=True, check=False)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return str(path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("over", ["socket", "port"])
def test_every_request_is_timed_by_its_client(key_file: str, tmp_path: Path, over: str, path: str) -> None:
    with run_sse_server(SseSpeaker(gap_s=0.02), tmp_path / "s" if over == "socket" else None) as (files, at):
        done = run(
            LoadRequest(
                at, key_file, slots=4, streams=3, requests=2, prompt_tokens=20, output_tokens=5, seed=1, path=path
            )
        )
    assert done.returncode == 0, done.stderr
    load = parse_load(done.stdout, requests=6, tokens=5)
    assert len(files.asked) == 6
    for one in load.requests:
        assert len(one.gaps_s) == 4
        # none comes before it is sent; how late, and so how close together, is the machine's affair
        for number in range(5):
            assert one.first_s + sum(one.gaps_s[:number]) >= 0.02 * (number + 1)
        assert one.total_s >= one.first_s + sum(one.gaps_s)
    # three at once, and each of them one after the other
    assert max(one.total_s for one in load.requests) * 2 < load.seconds * 2.2
    assert load.seconds < sum(one.total_s for one in load.requests)


def test_a_port_is_reached_without_nagle_and_without_looking_up_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    with run_sse_server(SseSpeaker()) as (_, at), closing(LoadConnection(at)) as connection:
        connection.connect()
        assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_no_request_has_anothers_prompt_and_the_same_run_has_the_same_ones(key_file: str) -> None:
    asked = []
    for seed in (1, 1, 2):
        with run_sse_server(SseSpeaker()) as (files, at):
            assert run(LoadRequest(at, key_file, 4, 2, 3, prompt_tokens=20, output_tokens=2, seed=seed)).returncode == 0
        asked.append(sorted(one.body for one in files.asked))
    assert asked[0] == asked[1]
    assert len({*asked[0], *asked[2]}) == 12
    said = [json.loads(body) for body in asked[0]]
    assert all(len(one["prompt"]) == 20 and one["n_predict"] == 2 for one in said)
    assert all(one["ignore_eos"] and one["stream"] and not one["cache_prompt"] for one in said)


def test_openais_protocol_is_asked_for_as_many_tokens_and_for_their_number(key_file: str) -> None:
    with run_sse_server(SseSpeaker()) as (files, at):
        assert run(LoadRequest(at, key_file, 4, 2, 1, 20, 3, seed=1, path="/v1/completions")).returncode == 0
    for one in (json.loads(one.body) for one in files.asked):
        assert (one["max_tokens"], one["ignore_eos"], one["stream_options"]) == (3, True, {"include_usage": True})
        # a server that does not know a name refuses the request, or says so each time
        assert not {"id_slot", "n_predict", "cache_prompt"} & set(one)


def test_a_stream_keeps_to_a_slot_of_its_own_as_far_as_there_are_slots(key_file: str) -> None:
    with run_sse_server(SseSpeaker()) as (files, at):
        assert run(LoadRequest(at, key_file, 2, 3, 2, prompt_tokens=20, output_tokens=2, seed=1)).returncode == 0
    slots = [json.loads(one.body)["id_slot"] for one in files.asked]
    # three streams of two requests on two slots: the third shares the first one's
    assert sorted(slots) == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("speaker", "words"),
    [
        (SseSpeaker(error=True), "no room"),
        (SseSpeaker(cut=True), "the answer ends in the middle"),
        (SseSpeaker(words=0), "the answer ends in the middle"),
    ],
    ids=["error", "cut", "nothing"],
)
def test_an_answer_that_is_invalid_fails_the_run_in_one_line(key_file, speaker, words, path):
    with run_sse_server(speaker) as (_, at):
        done = run(LoadRequest(at, key_file, 4, 2, 1, 20, 3, seed=1, path=path))
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_key_is_reported_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("not-the-key\n")
    with run_sse_server(SseSpeaker()) as (_, at):
        done = run(LoadRequest(at, str(path), 4, 1, 1, 20, 3, seed=1))
    assert done.returncode == 1
    assert "HTTP status 401" in done.stderr
    assert "not-the-key" not in done.stderr
