"""Weights from a bundle: what was sent is verified like what was fetched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.bundle import Bundle
from roles.weights import fetch_script, job_name
from tests.unit.file_server import file_server
from tests.unit.test_weights import CONTENT, Fetch

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the script gives what it fetches to root")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Fetch]:
    (tmp_path / "weights").mkdir()
    with file_server() as server:
        yield Fetch(tmp_path, server)


def sent(fetch: Fetch, content: bytes | None) -> subprocess.CompletedProcess[str]:
    """Run the job of a rig with a bundle, after this was sent."""
    made = replace(fetch.rig, bundle=Bundle(fetch.folder / "bundle", (), ()))
    folder = fetch.folder / "jobs" / job_name(fetch.artefact()) / "files"
    if content is not None:
        folder.mkdir(parents=True)
        (folder / fetch.artefact().file).write_bytes(content)
    done = fetch.shell(fetch_script(made, fetch.artefact()))
    assert not folder.exists()  # however it ends
    return done


def test_what_was_sent_is_installed_once_it_is_verified(box: Fetch) -> None:
    assert sent(box, CONTENT).returncode == 0
    assert (box.path.read_bytes(), box.verified) == (CONTENT, True)


def test_what_was_sent_wrongly_is_not_installed(box: Fetch) -> None:
    done = sent(box, CONTENT[:-1] + b"x")
    assert done.returncode == 1
    assert "is not the locked file" in done.stdout
    box.assert_nothing_has_the_name()


def test_a_wrong_file_of_the_right_size_makes_room_and_the_next_run_brings_the_right_one(box: Fetch) -> None:
    """Nothing is sent for a file of the right size: most have the right bytes."""
    box.path.parent.mkdir(parents=True)
    box.path.write_bytes(CONTENT[:-1] + b"x")
    done = sent(box, None)
    assert done.returncode == 1
    assert "deploy again, and the right one is sent" in done.stdout
    assert box.path.with_name(f"{box.path.name}.wrong").exists()
    assert sent(box, CONTENT).returncode == 0
    assert box.verified
