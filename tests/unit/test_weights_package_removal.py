"""Packages are taken away again: with all that is known of them, whatever was cut in between, and nothing else."""

import fcntl
import hashlib
import os
import subprocess

import pytest

from roles.weights.host import drop, records
from roles.weights.host.records import LockedFile
from roles.weights.host.spec import FetchRefused, load_spec
from tests.unit.file_server import complete_file
from tests.unit.polling import wait_until
from tests.unit.weights_world import CONTENT, PACE, WeightsFixture
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

OTHERS = "tree /opt/rigwright/tools-x\ndir /srv/models/_packages\nuser rigwright\n"


def package(number: int) -> LockedFile:
    one = LockedFile("", hashlib.sha256(CONTENT[number:]).hexdigest(), len(CONTENT) - number)
    return LockedFile(f"_packages/{one.sha256[:16]}/p{number}.whl", one.sha256, one.size)


def fetched(host: WeightsFixture, *numbers: int) -> list[LockedFile]:
    """Packages that were fetched, and a ledger with others' lines around theirs."""
    files = [package(number) for number in numbers]
    host.ledger.write_text(OTHERS)
    urls = {one: host.server.serve(f"p{n}", complete_file(CONTENT[n:])) for n, one in zip(numbers, files, strict=True)}
    host.fetch({one: host.url_sources(url) for one, url in urls.items()})
    return files


def dropped(host: WeightsFixture, *files: LockedFile, program: str = "") -> subprocess.CompletedProcess[str]:
    words = host.fetch_command({one: [] for one in files})
    words[words.index("rigwright_weights.fetch")] = "rigwright_weights.drop"
    if program:
        words[words.index("-m") : words.index("-m") + 2] = ["-c", program]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(host.folder / "packages"), "LC_ALL": "C.UTF-8"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def traces(host: WeightsFixture) -> list[str]:
    """The traces of packages: files, folders, records and lines of the ledger."""
    found = [str(path.relative_to(host.folder)) for top in (host.root, host.records) for path in top.rglob("*")]
    lines = [line for line in host.ledger.read_text().splitlines() if str(host.root / "_packages") in line]
    return sorted({*found, *lines} - {"weights/deep", "weights/wrong", "weights/verity"})


def test_nothing_is_left_of_packages_but_what_is_others(host: WeightsFixture) -> None:
    files = fetched(host, 1, 2, 3)
    (host.part_path(files[0])).write_bytes(b"x")
    records.withdraw_record(host.records, records.record_name(files[1]), "other bytes")
    done = dropped(host, *files[:2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.is_fetched(files[2])
    assert not any(one.sha256[:16] in trace for one in files[:2] for trace in traces(host))
    done = dropped(host, files[2])
    assert done.returncode == 0, done.stdout
    assert traces(host) == []
    assert host.ledger.read_text().startswith(OTHERS)
    # a second time, there is nothing to do
    before = host.ledger.stat()
    assert dropped(host, *files).returncode == 0
    assert host.ledger.stat().st_ino == before.st_ino


def test_foreign_files_stay(host: WeightsFixture) -> None:
    one = package(1)
    host.place_file(host.file_path(one), CONTENT[1:])
    host.fetch({one: []})
    done = dropped(host, one)
    assert done.returncode == 0, done.stdout
    assert "stays, for another user placed it there" in done.stdout
    assert host.is_fetched(one)


@pytest.mark.parametrize("call", ["Path.unlink", "Path.rmdir", "Path.replace", "os.fsync"])
@pytest.mark.parametrize("count", range(0, 12, 3))
def test_a_drop_that_is_cut_is_finished_by_the_next(host: WeightsFixture, call: str, count: int) -> None:
    files = fetched(host, 1, 2)
    owner, _, name = call.partition(".")
    program = f"""
import os, signal, sys
from pathlib import Path
from rigwright_weights import drop
real, left = {call}, [{count}]
def dying(*given, **named):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return real(*given, **named)
setattr({owner}, {name!r}, dying)
sys.exit(drop.main())
"""
    cut = dropped(host, *files, program=program)
    assert cut.returncode in (0, -9), cut.stderr
    # a file of its name has it rightly all the time
    for one in files:
        assert not host.file_path(one).exists() or host.file_path(one).read_bytes() == CONTENT[int(one.path[-5]) :]
    assert dropped(host, *files).returncode == 0
    assert traces(host) == []
    assert host.ledger.read_text().startswith(OTHERS)


def test_a_line_that_another_job_adds_meanwhile_is_kept(host: WeightsFixture) -> None:
    files = fetched(host, 1)
    with host.ledger.open("a") as other:
        words = host.fetch_command({files[0]: []})
        words[words.index("rigwright_weights.fetch")] = "rigwright_weights.drop"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(host.folder / "packages")}
        before = host.ledger.stat().st_ino
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
            wait_until(lambda: host.ledger.stat().st_ino != before)
            assert process.poll() is None
            other.write("tree /opt/rigwright/late\n")
            other.close()
            process.communicate(timeout=30)
            assert process.returncode == 0
    assert host.ledger.read_text() == f"{OTHERS}dir {host.root}\ntree /opt/rigwright/late\n"


def test_a_drop_waits_for_a_run_that_brings_files(host: WeightsFixture) -> None:
    (one,) = fetched(host, 1)
    host.pace = {**PACE, "turn": 0.3}
    with (host.locks / "weights").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = dropped(host, one)
    assert done.returncode == 1
    assert "another run brings weights" in done.stdout
    assert host.is_fetched(one)


def test_a_place_that_leads_elsewhere_is_refused(host: WeightsFixture) -> None:
    one = package(1)
    (host.folder / "elsewhere").mkdir()
    host.root.mkdir()
    (host.root / "_packages").symlink_to(host.folder / "elsewhere")
    host.fetch_command({one: []})
    with pytest.raises(FetchRefused, match="is not a real folder: replace it with a folder, or remove it"):
        drop.drop_files(load_spec(host.folder / "spec.json"))


def test_files_without_a_lock_go_only_by_their_place(host: WeightsFixture) -> None:
    one, other = fetched(host, 1, 2)
    done = dropped(host, LockedFile(one.path, "", 0))
    assert done.returncode == 0, done.stdout
    left = traces(host)
    assert not any(one.path in line or one.sha256 in line for line in left)
    assert any(other.path in line for line in left)
    assert any(other.sha256 in line for line in left)
