"""Bringing weights over plain HTTP: the real program with real curl; only the locked bytes get the locked name."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from roles.weights.host import http
from roles.weights.host.spec import FetchRefused, TransferLimits
from tests.hosts.download_servers import StandInMirror, make_certificate
from tests.unit.file_server import (
    AnswerHandler,
    FileServerHandler,
    complete_file,
    error_status,
    rangeless_file,
    redirect_to,
    slow_file,
    truncated_file,
)
from tests.unit.weights_world import CONTENT, HALF, LYING, WRONG, WeightsFixture, wanted_file
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


def ranges(host: WeightsFixture, path: str | None = None) -> list[str | None]:
    return [one.range for one in host.server.asked if path in (None, one.path)]


def test_a_good_file_is_named_read_only_and_recorded(host: WeightsFixture) -> None:
    host.fetch_file(host.server.serve("m", complete_file(CONTENT)))
    assert host.leftover_paths() == []


def test_a_redirect_is_followed(host: WeightsFixture) -> None:
    host.server.serve("real", complete_file(CONTENT))
    host.fetch_file(host.server.serve("m", redirect_to("real")))


@pytest.mark.parametrize(
    "content",
    [
        LYING,
        CONTENT[:HALF] + b"?" + CONTENT[HALF + 1 :],
        WRONG,
        CONTENT[:-1],
        CONTENT + b"x",
        CONTENT[:HALF],
        b"",
        b"0",
    ],
    ids=["first", "middle", "last", "truncated", "extended", "half", "zero length", "one byte"],
)
def test_any_other_bytes_are_not_named(host: WeightsFixture, content: bytes) -> None:
    done = host.run_fetch_file(host.server.serve("m", complete_file(content)))
    assert done.returncode == 1
    assert "127.0.0.1" in done.stdout.splitlines()[-1]
    assert "not the locked file" in done.stdout.splitlines()[-1]
    assert wanted_file().sha256 in done.stdout
    assert not host.is_fetched(wanted_file())
    assert not host.part_path().exists()


def test_a_server_that_sends_without_end_does_not_fill_the_disk(host: WeightsFixture) -> None:
    def endless(handler: FileServerHandler, start: int) -> None:
        handler.send_head(200, 1 << 40)
        sent = 0
        try:
            while sent < 64 << 20:
                sent += handler.wfile.write(bytes(1 << 16))
        except OSError:
            return
        raise AssertionError("nobody stopped it")

    done = host.run_fetch_file(host.server.serve("m", endless))
    assert done.returncode == 1
    assert f"not the locked file: {len(CONTENT) + 1} bytes" in done.stdout
    assert len(host.server.asked) == 1


def test_a_size_that_is_not_the_locked_one_is_refused_although_the_hash_is_right(host: WeightsFixture) -> None:
    box_rig = wanted_file()
    shorter = type(wanted_file())(box_rig.path, box_rig.sha256, len(CONTENT) + 1)
    assert host.run_fetch({shorter: host.url_sources(host.server.serve("m", complete_file(CONTENT)))}).returncode == 1
    assert not host.is_fetched(shorter)


AFTER = f"bytes={HALF}-"
CUT, WHOLE = truncated_file(CONTENT, HALF), complete_file(CONTENT)
# Files of an earlier run, the sources' answers, and the ranges that the last source is asked for.
FETCHED: dict[str, tuple[bytes | None, dict[str, list[AnswerHandler]], list[str | None]]] = {
    "cut off": (None, {"m": [CUT, WHOLE]}, [None, AFTER]),
    "a part of an earlier run": (CONTENT[:1000], {"m": [WHOLE]}, ["bytes=1000-"]),
    "a part that is whole": (CONTENT, {"m": [WHOLE]}, []),
    "a server without ranges": (None, {"m": [CUT, rangeless_file(CONTENT)]}, [None, AFTER, None]),
    "another file at the second request": (None, {"m": [truncated_file(LYING, HALF), WHOLE]}, [None, AFTER, None]),
    "the first source has it": (None, {"a": [WHOLE], "b": [WHOLE]}, []),
    "a part of a source that lied": (None, {"a": [truncated_file(LYING, HALF)], "b": [WHOLE]}, [AFTER, None]),
}


@pytest.mark.parametrize("what", FETCHED)
def test_present_files_are_not_fetched_again(host: WeightsFixture, what: str) -> None:
    part, sources, asked = FETCHED[what]
    if part is not None:
        host.place_file(host.part_path(), part)
    host.fetch_file(*(host.server.serve(name, *answers) for name, answers in sources.items()))
    assert ranges(host, [*sources][-1]) == asked


def test_a_server_that_breaks_off_and_cannot_go_on_is_given_up(host: WeightsFixture) -> None:
    def half(handler: FileServerHandler, start: int) -> None:
        truncated_file(CONTENT, HALF)(handler, 0)

    host.fetch_file(
        host.server.serve("bad", *[half] * 30, complete_file(CONTENT)), host.server.serve("m", complete_file(CONTENT))
    )
    assert host.is_fetched(wanted_file())
    assert "m" in [one.path for one in host.server.asked]


def test_a_download_that_is_cut_again_and_again_still_ends(host: WeightsFixture) -> None:
    steps = [truncated_file(CONTENT, len(CONTENT) * n // 8) for n in range(1, 8)]
    host.fetch_file(host.server.serve("m", *steps, complete_file(CONTENT)))
    assert len(host.server.asked) == 8


def test_a_server_that_sends_nothing_more_is_given_up_and_what_came_is_kept(host: WeightsFixture) -> None:
    done = host.run_fetch_file(host.server.serve("m", truncated_file(CONTENT, HALF)))
    assert done.returncode == 1
    assert "given up after 5 tries" in done.stdout
    assert len(host.server.asked) == 6
    assert host.part_path().read_bytes() == CONTENT[:HALF]
    assert not host.is_fetched(wanted_file())


@pytest.mark.parametrize("by", [1000, -1000])
def test_a_wrong_length_ends_well_once_it_is_corrected(host: WeightsFixture, by: int) -> None:
    def lie(handler: FileServerHandler, start: int) -> None:
        handler.send_head(200, len(CONTENT) + by)
        handler.wfile.write(CONTENT)
        handler.close_connection = True

    host.fetch_file(host.server.serve("a", lie), host.server.serve("b", complete_file(CONTENT)))


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_a_mirror_without_the_file_gives_way_to_the_next(host: WeightsFixture, code: int) -> None:
    gone, there = host.server.serve("gone", error_status(code)), host.server.serve("m", complete_file(CONTENT))
    done = host.run_fetch_file(gone, there)
    assert done.returncode == 0
    assert f"answer {code}" in done.stdout
    assert [one.path for one in host.server.asked] == ["gone", "m"]
    assert host.is_fetched(wanted_file())


@pytest.mark.parametrize("code", [429, 500, 503])
def test_an_answer_that_passes_is_tried_again(host: WeightsFixture, code: int) -> None:
    assert (
        host.run_fetch_file(
            host.server.serve("m", error_status(code), error_status(code), complete_file(CONTENT))
        ).returncode
        == 0
    )
    assert len(host.server.asked) == 3
    assert host.is_fetched(wanted_file())


def test_without_any_source_that_has_it_each_one_s_reason_is_reported(host: WeightsFixture) -> None:
    done = host.run_fetch_file(host.server.serve("a", error_status(404)), host.server.serve("b", complete_file(WRONG)))
    assert done.returncode == 1
    (line,) = [
        line for line in done.stdout.splitlines() if line.startswith(f"{wanted_file().path}: 127") and ";" in line
    ][-1:]
    assert "has it not, answer 404" in line
    assert "not the locked file" in line


@pytest.mark.parametrize("part", [WRONG, WRONG + b"more", LYING[:HALF], CONTENT + b"more"], ids=len)
def test_a_wrong_part_of_an_earlier_run_is_replaced_by_the_right_file(host: WeightsFixture, part: bytes) -> None:
    host.place_file(host.part_path(), part)
    host.fetch_file(host.server.serve("m", complete_file(CONTENT)))


def test_a_slow_source_is_given_up_and_the_next_goes_on_where_it_ended(host: WeightsFixture) -> None:
    done = host.fetch_file(
        host.server.serve("slow", slow_file(CONTENT, 40_000)), host.server.serve("fast", complete_file(CONTENT))
    )
    assert "slower than 64 KiB/s" in done.stdout
    assert host.is_fetched(wanted_file())
    (began,) = ranges(host, "fast")
    assert began is not None
    assert 0 < int(began.removeprefix("bytes=").rstrip("-")) < len(CONTENT)


def test_the_last_source_may_be_slow(host: WeightsFixture) -> None:
    host.fetch_file(host.server.serve("slow", slow_file(CONTENT, 60_000)))
    assert ranges(host) == [None]
    assert host.is_fetched(wanted_file())


def test_the_last_source_is_tried_again_when_it_all_but_stops(host: WeightsFixture) -> None:
    host.fetch_file(host.server.serve("slow", slow_file(CONTENT, 600), complete_file(CONTENT)))
    assert len(host.server.asked) == 2
    assert host.is_fetched(wanted_file())


def test_the_last_source_is_given_up_when_each_try_brings_some_bytes_too_few(host: WeightsFixture) -> None:
    url, part = host.server.serve("slow", slow_file(CONTENT, 20)), host.folder / "part"
    with pytest.raises(FetchRefused, match="given up after 2 tries slower than 1 KiB/s"):
        http.download_part(url, part, len(CONTENT), TransferLimits(tries=2, longest=1, pause=0.0), last=True)
    assert 0 < http.file_size(part) < 1024
    assert len(host.server.asked) == 2


def test_an_address_with_marks_and_a_password_is_asked_for_as_it_is_and_not_printed(host: WeightsFixture) -> None:
    odd = wanted_file(CONTENT, "a/[1-3] {x} 'q' \"p\" ü.gguf")
    url = host.server.serve("a%5B1-3%5D{x}", complete_file(CONTENT)).replace("http://", "http://user:secret@")
    done = host.fetch({odd: host.url_sources(url)})
    assert "secret" not in done.stdout
    assert host.is_fetched(odd)


def test_one_file_that_fails_does_not_stop_the_others(host: WeightsFixture) -> None:
    contents = {f"shard-{n}.gguf": hashlib.sha256(str(n).encode()).digest() * 1000 for n in range(6)}
    wanted = {
        wanted_file(content, f"m/v1/{name}"): host.url_sources(host.server.serve(name, complete_file(content)))
        for name, content in contents.items()
    }
    bad = list(wanted)[2]
    host.server.serve("shard-2.gguf", complete_file(contents["shard-3.gguf"]))
    done = host.run_fetch(wanted)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(f"{bad.path}: ")
    assert [host.is_fetched(one) for one in wanted] == [True, True, False, True, True, True]
    host.server.asked.clear()
    host.server.serve("shard-2.gguf", complete_file(contents["shard-2.gguf"]))
    host.fetch(wanted)
    assert [one.path for one in host.server.asked] == ["shard-2.gguf"]


def test_a_file_without_bytes_is_brought_too(host: WeightsFixture) -> None:
    empty = wanted_file(b"", "a/__init__.py")
    host.fetch({empty: host.url_sources(host.server.serve("m", complete_file(b"")))})


def test_an_untrusted_certificate_is_reported_at_once_with_a_remedy(host: WeightsFixture, tmp_path: Path) -> None:
    _, server = make_certificate(tmp_path, "127.0.0.1")
    private = StandInMirror("127.0.0.1", lambda _: CONTENT, certificate=server)
    done = host.run_fetch({wanted_file(): host.url_sources(f"{private.url}/m")})
    assert done.returncode == 1
    assert re.search(r"certificate.*: if that is a network's own authority, name it as ca_file", done.stdout)
    assert "given up after" not in done.stdout
