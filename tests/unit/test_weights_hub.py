"""Bringing weights from a hub: the real program, the hub's own client and curl, against the lab's hub."""

import hashlib
import os
from typing import Any

import pytest
from huggingface_hub import constants, hf_hub_url

from roles.weights.host.client import GIB, HubClient, xet_settings
from roles.weights.host.spec import FileSource, TransferLimits
from tests.stand_ins.hub.faults import (
    BrokenXet,
    ChangedContent,
    ConnectionCut,
    DamagedContent,
    ErrorStatus,
    ExpiredSignature,
    Fault,
    IgnoredRange,
    StalledAnswer,
    WrongLength,
    empty_content,
    extended_content,
    flipped_byte,
    replaced_text,
    too_many_requests,
    truncated_content,
)
from tests.unit.file_server import complete_file
from tests.unit.weights_world import (
    CONTENT,
    HALF,
    REPOSITORY,
    WRONG,
    WeightsFixture,
    client_python,
    wanted_file,
)
from tests.unit.weights_world import host as host

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


def test_a_model_is_brought_and_the_next_run_asks_no_server(host: WeightsFixture) -> None:
    wanted = host.commit_files(FILES)
    host.fetch(wanted)
    assert host.leftover_paths() == []
    assert sorted(host.requested_ranges()) == ["config.json None", "x.gguf None", "y.gguf None"]
    host.hub.asked.clear()
    host.fetch(wanted)
    assert host.hub.asked == []


def test_without_the_client_plain_http_brings_it(host: WeightsFixture) -> None:
    host.python = ""
    wanted = host.commit_files(FILES)
    host.fetch(wanted)


@pytest.mark.parametrize(
    ("fault", "client"),
    of_each_client(
        [
            (flipped_byte("first"), "first", {"client", "plain"}),
            (flipped_byte("middle"), "middle", set()),
            (flipped_byte("last"), "last", set()),
            (truncated_content(), "truncated", {"plain"}),
            (extended_content(), "extended", set()),
            (extended_content(b"x" * 100_000), "extended far", {"client", "plain"}),
            (replaced_text(OTHER), "swapped", set()),
            (empty_content(), "zero length", {"plain"}),
            (DamagedContent(lambda content: bytes(len(content))), "right size", {"plain"}),
        ]
    ),
)
def test_only_the_bad_file_is_not_named_and_only_it_is_fetched_again(
    host: WeightsFixture, fault: Fault, client: bool
) -> None:
    host.python = client_python() if client else ""
    wanted = host.commit_files(FILES)
    bad, *good = wanted
    host.hub.add_fault(fault, REPOSITORY, "x.gguf")
    done = host.run_fetch(wanted)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(f"{bad.path}: hub: ")
    assert not host.is_fetched(bad)
    assert all(host.is_fetched(one) for one in good)
    host.hub.clear_faults()
    host.hub.asked.clear()
    done = host.fetch(wanted)
    assert host.is_fetched(bad)
    assert {line.partition(" ")[0] for line in host.requested_ranges()} == {"x.gguf"}


@pytest.mark.parametrize(
    ("faults", "client"),
    of_each_client(
        [
            ([ConnectionCut(HALF)], "cut", {"client", "plain"}),
            ([IgnoredRange(), ConnectionCut(HALF)], "no ranges and cut", {"plain"}),
            ([ExpiredSignature()], "expired", {"client", "plain"}),
            ([ChangedContent(OTHER)], "changed", {"plain"}),
            ([WrongLength(1000)], "longer", {"plain"}),
            ([WrongLength(-1000)], "shorter", {"plain"}),
            ([too_many_requests(1)], "too many", {"client", "plain"}),
            ([ErrorStatus(503)], "503", {"plain"}),
            ([ErrorStatus(500)], "500", set()),
            ([ConnectionCut(HALF), WrongLength(-10)], "cut and shorter", set()),
        ]
    ),
)
def test_transient_faults_are_survived(host: WeightsFixture, faults: list[Fault], client: bool) -> None:
    host.python = client_python() if client else ""
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT})
    wanted[one] += host.url_sources(host.server.serve("m", complete_file(CONTENT)))
    for fault in faults:
        host.hub.add_fault(fault, REPOSITORY, "x.gguf", times=1)
    host.fetch(wanted)
    assert host.is_fetched(one)
    assert host.leftover_paths() == []
    assert all(fault.met.is_set() for fault in faults)
    # a whole answer that is wrong ends a source; everything else it may repair
    if not any(isinstance(fault, (ChangedContent, WrongLength)) for fault in faults):
        assert host.server.asked == []


def test_a_client_that_stands_still_is_ended_and_plain_http_goes_on_where_it_ended(host: WeightsFixture) -> None:
    content = CONTENT * 20
    # on a busy machine the client alone takes seconds to start
    host.pace["stall"] = 8.0
    (one,) = wanted = host.commit_files({"x.gguf": content})
    stall = host.hub.add_fault(StalledAnswer(3_000_000), REPOSITORY, "x.gguf", times=1)
    done = host.fetch(wanted)
    assert stall.met.is_set()
    assert "stood still" in done.stdout
    assert host.is_fetched(one)
    first, second = host.requested_ranges()
    assert first == "x.gguf None"
    went_on = int(second.removeprefix("x.gguf bytes=").rstrip("-"))
    assert 2_000_000 < went_on <= 3_000_000


def test_a_client_that_is_slow_gives_way_where_there_is_another_source(host: WeightsFixture) -> None:
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT * 10})
    wanted[one] += host.url_sources(host.server.serve("m", complete_file(CONTENT * 10)))
    host.hub.bytes_a_second = 50_000
    host.pace["stall"] = 10.0
    host.fetch(wanted)
    assert host.is_fetched(one)
    (asked,) = host.server.asked
    assert int(str(asked.range).removeprefix("bytes=").rstrip("-")) > 0


@pytest.mark.parametrize("cas", [pytest.param("dead", marks=pytest.mark.all_only), "stalled"])
def test_xet_that_does_not_work_gives_way_to_plain_http(host: WeightsFixture, cas: str) -> None:
    if "HF_HUB_DISABLE_XET" in xet_settings(HubClient("", TransferLimits(), "").memory, 2, 1 << 40):
        pytest.skip("no memory for Xet here")
    content = bytes(65 << 20)
    (one,) = wanted = host.commit_files({"x.gguf": content})
    host.pace["stall"] = 3.0
    host.hub.add_fault(BrokenXet("dead" if cas == "dead" else "stalled"), REPOSITORY, "x.gguf")
    done = host.fetch(wanted)
    assert "going on with plain HTTP" in done.stdout
    assert host.is_fetched(one)
    assert host.requested_ranges() == ["x.gguf None"]


def test_a_client_that_does_not_start_gives_way_to_plain_http(host: WeightsFixture) -> None:
    host.python = "/bin/false"
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT})
    done = host.fetch(wanted)
    assert "the hub's client failed: exit status 1; going on with plain HTTP" in done.stdout
    assert host.is_fetched(one)


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_an_address_that_has_always_run_out_is_given_up(host: WeightsFixture, client: bool) -> None:
    host.python = client_python() if client else ""
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT})
    host.hub.add_fault(ExpiredSignature(), REPOSITORY, "x.gguf")
    done = host.run_fetch(wanted)
    assert done.returncode == 1
    assert len([asked for asked in host.hub.asked if asked.path.startswith("/cdn/")]) < 15
    assert not host.is_fetched(one)


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_a_commit_or_a_file_that_is_gone_asks_for_a_new_lock(host: WeightsFixture, client: bool) -> None:
    host.python = client_python() if client else ""
    commit = host.hub.add_commit(REPOSITORY, FILES)
    wanted = {
        wanted_file(CONTENT, "a"): [host.hub_source("0" * 40)],
        wanted_file(CONTENT, "b"): [host.hub_source(commit, "gone.gguf")],
    }
    done = host.run_fetch(wanted)
    gone, missing = done.stdout.splitlines()[-2:]
    assert "the commit is not there any more, answer 404" in gone
    assert "the commit has no such file, answer 404" in missing
    assert gone.endswith("lock the model anew")


def test_other_bytes_under_the_locked_commit_are_not_even_fetched(host: WeightsFixture) -> None:
    commit = host.hub.add_commit(REPOSITORY, {"x.gguf": WRONG})
    done = host.run_fetch({wanted_file(): [host.hub_source(commit)]})
    assert done.returncode == 1
    assert f"the hub has SHA-256 {hashlib.sha256(WRONG).hexdigest()} there" in done.stdout
    assert host.requested_ranges() == []


def test_the_hub_s_own_address_comes_from_its_client() -> None:
    place = FileSource("hub", repository=REPOSITORY, revision="c" * 40, file="sub dir/x.gguf")
    expected = f"{constants.ENDPOINT}/{REPOSITORY}/resolve/{'c' * 40}/sub%20dir/x.gguf"
    assert (
        HubClient(client_python(), TransferLimits(), "", user="nobody").resolve_address(place, wanted_file())
        == expected
    )


def test_the_address_below_a_given_endpoint_is_the_client_s(host: WeightsFixture) -> None:
    place = FileSource(**host.hub_source("c" * 40, "sub dir/ü#.gguf"))
    expected = hf_hub_url(REPOSITORY, "sub dir/ü#.gguf", revision="c" * 40, endpoint=host.hub.url)
    assert HubClient("", TransferLimits(), "").resolve_address(place, wanted_file()) == expected


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
