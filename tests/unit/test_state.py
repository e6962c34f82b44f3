"""The state script and the goal script on real folders: they find what was decided, byte for byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rigwright.declaration.rig import Rig
from rigwright.serving import live as served
from rigwright.serving.generation import META
from rigwright.serving.units import DIGEST_VARIABLE, OWNED
from tests.unit.host_folder import HostFolder
from tests.unit.samples import card, instance, rig
from tests.unit.states import CHAT, two, wanted

CARDS = (card("8.6"), card("8.6"))
ON_CARDS = rig(instance("chat", cards=(1, 0)), instance("code", port=8021), cards=CARDS)


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path)


@pytest.mark.parametrize("made", [two(), ON_CARDS, rig()], ids=["two", "cards", "none"])
def test_the_host_finds_the_digest_that_was_decided(host: HostFolder, made: Rig) -> None:
    aim = wanted(made)
    host.write(3, aim)
    (found,) = host.look().generations
    assert (found.number, found.found, found.sealed) == (3, aim.digest, aim.digest)
    assert found.intact
    assert found.created == "2026-11-01T12:00:00Z"
    assert found.references == set(aim.files["references"].splitlines())


CHANGES: dict[str, Callable[[Path], object]] = {
    "a unit is edited": lambda folder: (folder / "units" / CHAT).write_text("[Unit]\n"),
    "an environment is edited": lambda folder: (folder / "env/chat").write_text("A=b\n"),
    "a file is cut": lambda folder: os.truncate(folder / "ready", 0),
    "a file is gone": lambda folder: (folder / "manifest.json").unlink(),
    "a file more": lambda folder: (folder / "units/rigwright-x.service").write_text(""),
    "a file with a hostile name": lambda folder: (folder / 'it\'s "one"').write_text(""),
    "a file is called otherwise": lambda folder: (folder / "env/chat").rename(folder / "env/tahc"),
    "a link points elsewhere": lambda folder: relink(folder / "tools"),
    "a link is gone": lambda folder: (folder / "tools").unlink(),
    "a link more": lambda folder: (folder / "more").symlink_to("/"),
    "the record is gone": lambda folder: (folder / META).unlink(),
    "the record is empty": lambda folder: (folder / META).write_text(""),
    "the record is another's": lambda folder: (folder / META).write_text(f"{'0' * 64} 2026-11-01T12:00:00Z\n"),
}


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/elsewhere")


@pytest.mark.parametrize("change", CHANGES)
def test_the_host_finds_what_was_changed_by_hand(host: HostFolder, change: str) -> None:
    CHANGES[change](host.write(1, wanted()))
    (found,) = host.look().generations
    assert not found.intact


def test_a_record_with_more_words_and_a_copy_beside_stop_no_look(host: HostFolder) -> None:
    folder = host.write(1, wanted())
    (folder / META).write_text(f"{wanted().digest} 2026-11-01T12:00:00Z by hand\n")
    for name in ("1.bak", "failed", ".new", "2"):
        (folder.parent / name).mkdir()
    assert [(one.number, one.intact) for one in host.look().generations] == [(1, True), (2, False)]


@pytest.mark.parametrize("made", [two(), ON_CARDS, rig()], ids=["two", "cards", "none"])
def test_the_goal_that_is_read_from_a_host_is_the_one_that_was_written(host: HostFolder, made: Rig) -> None:
    aim = wanted(made)
    host.write(3, aim)
    assert host.goal(3) == served.goal(host.look(), aim)


def test_on_a_blank_host_nothing_is_found(host: HostFolder) -> None:
    assert host.look() == served.Served()


def test_links_and_files_of_ours_are_told_from_what_is_not(host: HostFolder) -> None:
    ours = f"{host.config}/current/units/{CHAT}"
    (host.units / CHAT).symlink_to(ours)
    (host.units / "rigwright-old.service").write_text(OWNED + "\n[Unit]\n")
    (host.units / "rigwright-theirs.service").write_text("[Unit]\n")
    (host.units / "rigwright-masked.service").symlink_to("/dev/null")
    (host.units / "rigwrights.service").write_text(OWNED + "\n")
    assert host.look().links == {CHAT: ours, "rigwright-old.service": ""}


def test_a_masked_target_is_no_other_folder_that_the_host_is_served_from(host: HostFolder) -> None:
    target = host.units / "rigwright.target"
    for to, folder in {"/dev/null": "", "/etc/other/current/units/rigwright.target": "/etc/other"}.items():
        target.symlink_to(to)
        assert host.look().elsewhere == folder
        target.unlink()


def test_engines_tools_and_keys_that_are_whole_are_found(host: HostFolder) -> None:
    for path in ("engines/whole/build.json", "engines/half/bin", "tools-1/.complete", "tools-2/bin"):
        (host.software / path).parent.mkdir(parents=True)
        (host.software / path).touch()
    (host.config / "credentials/chat.api-key").touch()
    (host.config / "credentials/chat.api-key.rigwright-new").touch()
    whole = [host.software / "engines/whole", host.software / "tools-1", host.config / "credentials/chat.api-key"]
    assert host.look().folders == {str(path) for path in whole}


def test_what_systemd_knows_is_read(host: HostFolder) -> None:
    (host.config / "current").symlink_to("generations/4")
    (host.config / "activating").write_text("3 4\n")
    host.says(description="All instances of this rig, generation abc\n", reload="no\n\nyes\n")
    found = host.look()
    assert (found.current, found.activating, found.job, found.reload_needed) == (4, True, False, True)
    assert found.loaded == "All instances of this rig, generation abc"


@pytest.mark.parametrize("key", ["the key\n", "another key\n"])
def test_a_process_is_known_by_what_it_was_started_from(host: HostFolder, key: str) -> None:
    aim = wanted(ON_CARDS)
    slot = next(unit.slot for unit in aim.units if unit.name == CHAT)
    for path, text in (
        (host.run / "rigwright" / CHAT, slot.started_from + "\n"),
        (host.run / "credentials" / CHAT / "api-key", "the key\n"),
        (host.config / "credentials/chat.api-key", key),
        (host.units / CHAT, f"LoadCredential=api-key:{host.config}/credentials/chat.api-key\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {DIGEST_VARIABLE: slot.digest, "CUDA_VISIBLE_DEVICES": "1,0", "PATH": os.environ["PATH"]}
    command = ["sh", "-c", "read -r _", "llama-server", "--host", "127.0.0.1", "--port", "8020", "--port-like", "1"]
    (host.units / "rigwright-code.service").write_text(OWNED + "\n")
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as server:
        blocks = [
            f"Id={CHAT}\nActiveState=active\nSubState=running\nNRestarts=2\nMainPID={server.pid}\n",
            "Id=rigwright-code.service\nActiveState=failed\nSubState=failed\nNRestarts=5\nMainPID=0\n",
        ]
        host.says(processes="\n".join(blocks))
        found = host.look().processes
        server.communicate(b"\n")
    chat, code = found[CHAT], found["rigwright-code.service"]
    assert (chat.state, chat.sub, chat.restarts, chat.pid) == ("active", "running", 2, server.pid)
    assert (chat.port, chat.cards) == (8020, {0, 1})
    assert chat.fits(slot) == (key == "the key\n")
    assert (code.state, code.restarts, code.pid, code.digest, code.port) == ("failed", 5, 0, "", 0)


def test_what_a_process_was_started_from_is_the_sum_of_its_two_files(host: HostFolder) -> None:
    folder = host.write(1, wanted())
    texts = (folder / "units" / CHAT).read_bytes() + (folder / "env/chat").read_bytes()
    (slot,) = [slot for slot in host.goal(1).slots if slot.unit == CHAT]
    assert slot.started_from == hashlib.sha256(texts).hexdigest()
