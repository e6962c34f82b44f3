"""Bringing weights from a hub: the real program, the hub's own client and curl, against the lab's hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, hf_hub_url

from lab.hub.faults import (
    Changed,
    Cut,
    Damaged,
    Expired,
    Fault,
    IgnoreRange,
    Length,
    Stall,
    Status,
    Xet,
    emptied,
    extended,
    flipped,
    swapped,
    too_many,
    truncated,
)
from roles.weights.host.client import GIB, Client, xet_settings
from roles.weights.host.spec import Pace
from roles.weights.host.spec import Source as Place
from tests.unit.file_server import whole
from tests.unit.weights_world import CONTENT, HALF, REPOSITORY, WRONG, World, client_python, file, world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

OTHER = CONTENT[::-1]
FILES = {"x.gguf": CONTENT, "y.gguf": OTHER, "sub/config.json": b"{}"}


def of_each_client(faults: list[tuple[Any, str, set[str]]]) -> list[Any]:
    """Each fault with the hub's own client and with plain HTTP; with those that are not named, in `all` alone."""
    return [
        pytest.param(
            fault, client == "client", id=f"{name}-{client}", marks=[] if client in quick else [pytest.mark.all_only]
        )
        for fault, name, quick in faults
        for client in ("client", "plain")
    ]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def test_a_model_is_brought_and_the_next_run_asks_nobody(host: World) -> None:
    wanted = host.commit(FILES)
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert all(host.there(one) for one in wanted)
    assert host.left_over() == []
    assert sorted(host.asked()) == ["config.json None", "x.gguf None", "y.gguf None"]
    host.hub.asked.clear()
    assert host.bring(wanted).returncode == 0
    assert host.hub.asked == []


def test_offline_with_everything_there_succeeds(host: World) -> None:
    wanted = host.commit(FILES)
    assert host.bring(wanted).returncode == 0
    host.hub.close()
    assert host.bring(wanted).returncode == 0


def test_without_the_client_plain_http_brings_it(host: World) -> None:
    host.python = ""
    wanted = host.commit(FILES)
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert all(host.there(one) for one in wanted)


@pytest.mark.parametrize(
    ("fault", "client"),
    of_each_client(
        [
            (flipped("first"), "first", {"client", "plain"}),
            (flipped("middle"), "middle", set()),
            (flipped("last"), "last", set()),
            (truncated(), "truncated", {"plain"}),
            (extended(), "extended", set()),
            (extended(b"x" * 100_000), "extended far", {"client", "plain"}),
            (swapped(OTHER), "swapped", set()),
            (emptied(), "zero length", {"plain"}),
            (Damaged(lambda content: bytes(len(content))), "right size", {"plain"}),
        ]
    ),
)
def test_only_the_bad_file_is_not_named_and_only_it_is_fetched_again(host: World, fault: Fault, client: bool) -> None:
    host.python = client_python() if client else ""
    wanted = host.commit(FILES)
    bad, *good = wanted
    host.hub.fault(fault, REPOSITORY, "x.gguf")
    done = host.bring(wanted)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(f"{bad.path}: hub: ")
    assert not host.there(bad)
    assert all(host.there(one) for one in good)
    host.hub.heal()
    host.hub.asked.clear()
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert host.there(bad)
    assert {line.partition(" ")[0] for line in host.asked()} == {"x.gguf"}


def test_a_mirror_has_what_the_hub_damages(host: World) -> None:
    host.hub.fault(flipped("middle"), REPOSITORY, "x.gguf")
    (one,) = wanted = host.commit({"x.gguf": CONTENT})
    wanted[one] += host.url(host.server.serve("m", whole(CONTENT)))
    assert host.bring(wanted).returncode == 0
    assert host.there(one)
    assert [asked.range for asked in host.server.asked] == [None]


@pytest.mark.parametrize(
    ("faults", "client"),
    of_each_client(
        [
            ([Cut(HALF)], "cut", {"client", "plain"}),
            ([IgnoreRange(), Cut(HALF)], "no ranges and cut", {"plain"}),
            ([Expired()], "expired", {"client", "plain"}),
            ([Changed(OTHER)], "changed", {"plain"}),
            ([Length(1000)], "longer", {"plain"}),
            ([Length(-1000)], "shorter", {"plain"}),
            ([too_many(1)], "too many", {"client", "plain"}),
            ([Status(503)], "503", {"plain"}),
            ([Status(500)], "500", set()),
            ([Cut(HALF), Length(-10)], "cut and shorter", set()),
        ]
    ),
)
def test_what_passes_is_survived(host: World, faults: list[Fault], client: bool) -> None:
    host.python = client_python() if client else ""
    (one,) = wanted = host.commit({"x.gguf": CONTENT})
    wanted[one] += host.url(host.server.serve("m", whole(CONTENT)))
    for fault in faults:
        host.hub.fault(fault, REPOSITORY, "x.gguf", times=1)
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert host.there(one)
    assert host.left_over() == []
    assert all(fault.met.is_set() for fault in faults)
    # a whole answer that is wrong ends a source; everything else it may repair
    if not any(isinstance(fault, (Changed, Length)) for fault in faults):
        assert host.server.asked == []


def test_a_client_that_stands_still_is_ended_and_plain_http_goes_on_where_it_ended(host: World) -> None:
    content = CONTENT * 20
    # on a busy machine the client alone takes seconds to start
    host.pace["stall"] = 8.0
    (one,) = wanted = host.commit({"x.gguf": content})
    stall = host.hub.fault(Stall(3_000_000), REPOSITORY, "x.gguf", times=1)
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert stall.met.is_set()
    assert "stood still" in done.stdout
    assert host.there(one)
    first, second = host.asked()
    assert first == "x.gguf None"
    went_on = int(second.removeprefix("x.gguf bytes=").rstrip("-"))
    assert 2_000_000 < went_on <= 3_000_000


def test_a_client_that_is_slow_gives_way_where_there_is_another_source(host: World) -> None:
    (one,) = wanted = host.commit({"x.gguf": CONTENT * 10})
    wanted[one] += host.url(host.server.serve("m", whole(CONTENT * 10)))
    host.hub.bytes_a_second = 50_000
    host.pace["stall"] = 10.0
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert host.there(one)
    (asked,) = host.server.asked
    assert int(str(asked.range).removeprefix("bytes=").rstrip("-")) > 0


@pytest.mark.parametrize("cas", [pytest.param("dead", marks=pytest.mark.all_only), "stalled"])
def test_xet_that_does_not_work_gives_way_to_plain_http(host: World, cas: str) -> None:
    if "HF_HUB_DISABLE_XET" in xet_settings(Client("", Pace(), "").memory, 2, 1 << 40):
        pytest.skip("no memory for Xet here")
    content = bytes(65 << 20)
    (one,) = wanted = host.commit({"x.gguf": content})
    host.pace["stall"] = 3.0
    host.hub.fault(Xet("dead" if cas == "dead" else "stalled"), REPOSITORY, "x.gguf")
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert "going on with plain HTTP" in done.stdout
    assert host.there(one)
    assert host.asked() == ["x.gguf None"]


def test_a_client_that_does_not_start_gives_way_to_plain_http(host: World) -> None:
    host.python = "/bin/false"
    (one,) = wanted = host.commit({"x.gguf": CONTENT})
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert "the hub's client failed: exit status 1; going on with plain HTTP" in done.stdout
    assert host.there(one)


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_an_address_that_has_always_run_out_is_given_up(host: World, client: bool) -> None:
    host.python = client_python() if client else ""
    (one,) = wanted = host.commit({"x.gguf": CONTENT})
    host.hub.fault(Expired(), REPOSITORY, "x.gguf")
    done = host.bring(wanted)
    assert done.returncode == 1
    assert len([asked for asked in host.hub.asked if asked.path.startswith("/cdn/")]) < 15
    assert not host.there(one)


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_a_commit_or_a_file_that_is_gone_asks_for_a_new_lock(host: World, client: bool) -> None:
    host.python = client_python() if client else ""
    commit = host.hub.repository(REPOSITORY, FILES)
    wanted = {file(CONTENT, "a"): [host.of_hub("0" * 40)], file(CONTENT, "b"): [host.of_hub(commit, "gone.gguf")]}
    done = host.bring(wanted)
    gone, missing = done.stdout.splitlines()[-2:]
    assert "the commit is not there any more, answer 404" in gone
    assert "the commit has no such file, answer 404" in missing
    assert gone.endswith("lock the model anew")


def test_other_bytes_under_the_locked_commit_are_not_even_fetched(host: World) -> None:
    commit = host.hub.repository(REPOSITORY, {"x.gguf": WRONG})
    done = host.bring({file(): [host.of_hub(commit)]})
    assert done.returncode == 1
    assert f"the hub has SHA-256 {hashlib.sha256(WRONG).hexdigest()} there" in done.stdout
    assert host.asked() == []


def test_the_hub_s_own_address_comes_from_its_client() -> None:
    place = Place("hub", repository=REPOSITORY, revision="c" * 40, file="sub dir/x.gguf")
    expected = f"{constants.ENDPOINT}/{REPOSITORY}/resolve/{'c' * 40}/sub%20dir/x.gguf"
    assert Client(client_python(), Pace(), "", user="nobody").address(place, file()) == expected


def test_the_address_below_a_given_endpoint_is_the_client_s(host: World) -> None:
    place = Place(**host.of_hub("c" * 40, "sub dir/ü#.gguf"))
    expected = hf_hub_url(REPOSITORY, "sub dir/ü#.gguf", revision="c" * 40, endpoint=host.hub.url)
    assert Client("", Pace(), "").address(place, file()) == expected


@pytest.mark.parametrize(
    ("memory", "cpus", "size", "wanted"),
    [
        (8 * GIB - 1, 64, 20 * GIB, "off"),
        (8 * GIB, 4, 20 * GIB, "capped"),
        (63 * GIB, 64, 20 * GIB, "capped"),
        (64 * GIB, 64, 20 * GIB, "high"),
        (64 * GIB, 4, 20 * GIB, "capped"),
        (512 * GIB, 64, 1 << 20, "off"),
    ],
)
def test_xet_is_used_where_it_helps_and_memory_allows(memory: int, cpus: int, size: int, wanted: str) -> None:
    settings = xet_settings(memory, cpus, size)
    found = {"HF_HUB_DISABLE_XET": "off", "HF_XET_HIGH_PERFORMANCE": "high"}
    assert next((found[key] for key in settings if key in found), "capped") == wanted
    assert wanted != "capped" or int(settings["HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_LIMIT"]) <= 2 * GIB
