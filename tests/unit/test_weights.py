"""Fetching weights: the real script with real curl; only the locked bytes get the locked name."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rigwright.lock import Artefact
from rigwright.rig import Rig, Roots
from roles.weights import fetch_script, record_path, verified
from tests.unit import samples
from tests.unit.file_server import FileServer, cut, file_server, redirect, status, whole, without_ranges

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the script gives what it fetches to root")

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(6000))
WRONG = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
HALF = len(CONTENT) // 2


@dataclass
class Fetch:
    """A rig whose weights lie in a folder of the test."""

    folder: Path
    server: FileServer

    @property
    def rig(self) -> Rig:
        # the rig's own rule keeps roots out of /tmp
        roots = Roots.model_construct(models=str(self.folder / "models"), state=str(self.folder))
        return samples.rig(roots=roots)

    def artefact(self, *urls: str) -> Artefact:
        digest = hashlib.sha256(CONTENT).hexdigest()
        return samples.artefact(sha256=digest, size=len(CONTENT), sources=urls or ("http://127.0.0.1:1/x",))

    @property
    def path(self) -> Path:
        return Path(self.rig.weight_path(self.artefact()))

    @property
    def part(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    @property
    def verified(self) -> bool:
        return self.shell(f"if {verified(self.rig, self.artefact())}; then exit 0; else exit 9; fi").returncode == 0

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        # no waiting between two tries; otherwise a job's environment, with no proxy and no ~/.curlrc
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "sleep").unlink(missing_ok=True)
        (programs / "sleep").symlink_to("/bin/true")
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            ["sh", "-c", script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def run(self, *urls: str) -> subprocess.CompletedProcess[str]:
        return self.shell(fetch_script(self.rig, self.artefact(*urls)))

    def assert_nothing_has_the_name(self) -> None:
        assert not self.path.exists()
        assert not Path(record_path(self.rig, self.artefact())).exists()
        assert not self.verified


@pytest.fixture
def fetch(tmp_path: Path) -> Iterator[Fetch]:
    (tmp_path / "weights").mkdir()
    with file_server() as server:
        yield Fetch(tmp_path, server)


def test_a_good_file_is_installed_verified_and_read_only(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert fetch.path.stat().st_mode & 0o777 == 0o444
    assert not fetch.part.exists()
    assert fetch.verified


def test_a_redirect_is_followed(fetch: Fetch) -> None:
    fetch.server.serve("real", whole(CONTENT))
    assert fetch.run(fetch.server.serve("m", redirect("real"))).returncode == 0
    assert fetch.path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "content", [WRONG, CONTENT[:-1], CONTENT + b"x", CONTENT[:HALF], b"", b"<html>moved</html>"], ids=len
)
def test_any_other_bytes_are_not_installed(fetch: Fetch, content: bytes) -> None:
    done = fetch.run(fetch.server.serve("m", whole(content)))
    assert done.returncode != 0
    assert "small-q4.gguf is not the locked file" in done.stdout
    assert f"{len(content)} bytes" in done.stdout
    assert hashlib.sha256(CONTENT).hexdigest() in done.stdout
    assert not fetch.part.exists()
    fetch.assert_nothing_has_the_name()


def test_a_size_that_is_not_the_locked_one_is_refused_although_the_hash_is_right(fetch: Fetch) -> None:
    wrong = fetch.artefact(fetch.server.serve("m", whole(CONTENT))).model_copy(update={"size": len(CONTENT) - 1})
    assert fetch.shell(fetch_script(fetch.rig, wrong)).returncode != 0
    fetch.assert_nothing_has_the_name()


def test_a_download_that_was_cut_goes_on_where_it_ended(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", cut(CONTENT, HALF), whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert [one.range for one in fetch.server.asked] == [None, f"bytes={HALF}-"]


def test_a_part_of_an_earlier_run_is_gone_on_with(fetch: Fetch) -> None:
    fetch.part.parent.mkdir(parents=True)
    fetch.part.write_bytes(CONTENT[:1000])
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    assert fetch.path.read_bytes() == CONTENT
    assert [one.range for one in fetch.server.asked] == ["bytes=1000-"]


def test_a_part_that_was_whole_already_is_not_fetched_again(fetch: Fetch) -> None:
    fetch.part.parent.mkdir(parents=True)
    fetch.part.write_bytes(CONTENT)
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    assert fetch.server.asked == []
    assert fetch.verified


def test_a_server_without_ranges_is_asked_for_everything_again(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", cut(CONTENT, HALF), without_ranges(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert fetch.server.asked[-1].range is None


def test_a_download_that_is_cut_again_and_again_still_ends(fetch: Fetch) -> None:
    steps = [cut(CONTENT, len(CONTENT) * n // 8) for n in range(1, 8)]
    assert fetch.run(fetch.server.serve("m", *steps, whole(CONTENT))).returncode == 0
    assert fetch.path.read_bytes() == CONTENT
    assert len(fetch.server.asked) == 8


def test_a_server_that_sends_nothing_more_is_given_up_and_what_came_is_kept(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", cut(CONTENT, HALF)))
    assert done.returncode != 0
    assert len(fetch.server.asked) < 10
    assert fetch.part.read_bytes() == CONTENT[:HALF]
    fetch.assert_nothing_has_the_name()


@pytest.mark.parametrize("code", [404, 403, 410])
def test_a_mirror_without_the_file_gives_way_to_the_next(fetch: Fetch, code: int) -> None:
    gone, there = fetch.server.serve("gone", status(code)), fetch.server.serve("m", whole(CONTENT))
    assert fetch.run(gone, there).returncode == 0
    assert [one.path for one in fetch.server.asked] == ["gone", "m"]
    assert fetch.path.read_bytes() == CONTENT


def test_a_mirror_with_other_bytes_gives_way_to_the_next(fetch: Fetch) -> None:
    wrong, right = fetch.server.serve("wrong", whole(WRONG)), fetch.server.serve("m", whole(CONTENT))
    done = fetch.run(wrong, right)
    assert done.returncode == 0
    assert "is not the locked file" in done.stdout
    assert fetch.path.read_bytes() == CONTENT


def test_the_next_mirror_is_not_asked_once_the_file_is_there(fetch: Fetch) -> None:
    first, second = fetch.server.serve("a", whole(CONTENT)), fetch.server.serve("b", whole(CONTENT))
    assert fetch.run(first, second).returncode == 0
    assert [one.path for one in fetch.server.asked] == ["a"]


def test_without_any_mirror_that_has_it_nothing_is_installed(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("a", status(404)), fetch.server.serve("b", whole(WRONG)))
    assert done.returncode != 0
    assert "no source has the locked file" in done.stdout
    fetch.assert_nothing_has_the_name()


def test_a_right_file_that_is_there_already_is_taken_without_a_request(fetch: Fetch) -> None:
    fetch.path.parent.mkdir(parents=True)
    fetch.path.write_bytes(CONTENT)
    assert not fetch.verified
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    assert fetch.server.asked == []
    assert fetch.verified


def test_a_wrong_file_that_is_there_is_replaced_by_a_verified_one_only(fetch: Fetch) -> None:
    fetch.path.parent.mkdir(parents=True)
    fetch.path.write_bytes(b"old")
    assert fetch.run(fetch.server.serve("a", whole(WRONG))).returncode != 0
    assert fetch.path.read_bytes() == b"old"
    assert not fetch.verified
    assert fetch.run(fetch.server.serve("b", whole(CONTENT))).returncode == 0
    assert fetch.path.read_bytes() == CONTENT


def test_a_file_that_was_written_to_since_is_not_verified_any_more(fetch: Fetch) -> None:
    url = fetch.server.serve("m", whole(CONTENT))
    assert fetch.run(url).returncode == 0
    assert fetch.verified
    fetch.path.chmod(0o644)
    with fetch.path.open("r+b") as file:
        file.write(b"x")
    os.utime(fetch.path, (1, 1))
    assert not fetch.verified
    assert fetch.run(url).returncode == 0
    assert fetch.path.read_bytes() == CONTENT
    assert fetch.verified


LYING = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]


def test_a_part_from_a_mirror_that_lied_does_not_spoil_the_next_ones(fetch: Fetch) -> None:
    lying, good = fetch.server.serve("lying", cut(LYING, HALF)), fetch.server.serve("good", whole(CONTENT))
    done = fetch.run(lying, good)
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert [one.range for one in fetch.server.asked if one.path == "good"] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("part", [WRONG, WRONG + b"more", LYING[:HALF], CONTENT + b"more"], ids=len)
def test_a_wrong_part_of_an_earlier_run_is_replaced_by_the_right_file(fetch: Fetch, part: bytes) -> None:
    fetch.part.parent.mkdir(parents=True)
    fetch.part.write_bytes(part)
    done = fetch.run(fetch.server.serve("m", whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert fetch.verified


def test_a_mirror_whose_own_bytes_are_wrong_has_one_chance_only(fetch: Fetch) -> None:
    assert fetch.run(fetch.server.serve("m", whole(WRONG))).returncode != 0
    assert [one.range for one in fetch.server.asked] == [None]


def test_a_wrong_part_and_a_wrong_mirror_end(fetch: Fetch) -> None:
    fetch.part.parent.mkdir(parents=True)
    fetch.part.write_bytes(WRONG[:HALF])
    assert fetch.run(fetch.server.serve("m", whole(WRONG))).returncode != 0
    assert [one.range for one in fetch.server.asked] == [f"bytes={HALF}-", None]
    fetch.assert_nothing_has_the_name()


@pytest.mark.parametrize("record", ["", "0\n"], ids=["empty record", "record"])
def test_a_file_that_is_not_there_is_not_verified(fetch: Fetch, record: str) -> None:
    Path(record_path(fetch.rig, fetch.artefact())).write_text(record)
    assert not fetch.verified


def test_a_file_beside_an_empty_record_is_not_verified(fetch: Fetch) -> None:
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    Path(record_path(fetch.rig, fetch.artefact())).write_text("")
    assert not fetch.verified


@pytest.mark.parametrize("replaced", [False, True], ids=["written to", "replaced"])
def test_a_change_that_keeps_size_and_mtime_is_seen(fetch: Fetch, replaced: bool) -> None:
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    before = fetch.path.stat()
    if replaced:
        other = fetch.path.with_name("other")
        other.write_bytes(WRONG)
        other.replace(fetch.path)
    else:
        fetch.path.write_bytes(WRONG)
    os.utime(fetch.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = fetch.path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not fetch.verified


def test_each_version_and_hash_has_a_record_of_its_own(fetch: Fetch) -> None:
    changes = ({}, {"version": "v2"}, {"sha256": "c" * 64}, {"name": "other"})
    assert len({record_path(fetch.rig, samples.artefact(**change)) for change in changes}) == 4
