"""The state script on real folders: it finds what was decided, byte for byte."""

import hashlib
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.host.generation_layout import META, PROVEN
from rigwright.host.systemd import UnitState
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.serving import serving_state
from rigwright.serving.activation import goal_for
from rigwright.serving.instance_units import OWNED_HEADER
from rigwright.serving.serving_state import ObservedUnit
from roles.rollback import describe_rollback_refusal, find_rollback_target
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, CODE, target_generation, two_instance_rig
from tests.unit.samples import sample_card, sample_instance, sample_rig

CARDS = (sample_card("8.6"), sample_card("8.6"))
ON_CARDS = sample_rig(sample_instance("chat", cards=(1, 0)), sample_instance("code", port=8021), cards=CARDS)


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path)


@pytest.mark.parametrize("made", [two_instance_rig(), ON_CARDS, sample_rig()], ids=["two", "cards", "none"])
def test_the_host_finds_the_digest_that_was_decided(host: HostFolder, made: Rig) -> None:
    aim = target_generation(made)
    host.write_generation(3, aim)
    (found,) = host.read_state().generations
    assert (found.number, found.found, found.sealed) == (3, aim.digest, aim.digest)
    assert found.is_intact
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
    "the record is none": lambda folder: (folder / META).write_text("by hand: see\n"),
    "a reference is no path": lambda folder: (folder / "references").write_text("# by hand\n\n"),
    "the target has another description": lambda folder: (folder / "units/rigwright.target").write_text(
        "Description=All instances, édited by \x1b[31mhand\n"
    ),
    "the manifest is not text": lambda folder: (folder / "manifest.json").write_bytes(b"\xff{"),
    "a unit with a hostile name": lambda folder: (folder / "units/rigwright-a\nb.service").write_text(""),
    "the record is another's": lambda folder: (folder / META).write_text(f"{'0' * 64} 2026-11-01T12:00:00Z\n"),
}


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/elsewhere")


@pytest.mark.parametrize("change", CHANGES)
def test_the_host_finds_what_was_changed_by_hand(host: HostFolder, change: str) -> None:
    CHANGES[change](host.write_generation(1, target_generation()))
    (found,) = host.read_state().generations
    assert not found.is_intact


def test_a_record_with_more_words_and_a_copy_beside_stop_no_look(host: HostFolder) -> None:
    folder = host.write_generation(1, target_generation())
    (folder / META).write_text(f"{target_generation().digest} 2026-11-01T12:00:00Z by hand\n")
    for name in ("1.bak", "failed", ".new", "2"):
        (folder.parent / name).mkdir()
    assert [(one.number, one.is_intact) for one in host.read_state().generations] == [(1, True), (2, False)]


@pytest.mark.parametrize("made", [two_instance_rig(), ON_CARDS, sample_rig()], ids=["two", "cards", "none"])
def test_the_goal_that_is_read_from_a_host_is_the_one_that_was_written(host: HostFolder, made: Rig) -> None:
    aim = target_generation(made)
    host.write_generation(3, aim)
    assert host.generation_goal(3) == goal_for(host.read_state(), aim)


def test_a_generation_of_an_earlier_version_can_be_served_again(host: HostFolder) -> None:
    folder = host.config / "generations/1"
    folder.mkdir()
    with tarfile.open(ROOT / "tests/unit/data/serving/generation_731280c6.tar.xz") as archive:
        archive.extractall(folder)  # it is a file of this repository
    digest = "6fca0ff1f2b9376bb20f5ad991862d9c37152476196a19a1e4dda4015bf13bdc"
    (folder / META).write_text(f"{digest} 2026-11-27T09:54:46Z\n")
    (folder / PROVEN).touch()
    host.write_generation(2, target_generation(ON_CARDS))
    (host.config / "current").symlink_to("generations/2")
    found = host.read_state()
    kept = found.generations[0]
    assert (kept.is_intact, kept.found) == (True, digest)
    assert {one.unit: one.cards for one in kept.unit_states if one.cards} == {CHAT: {0, 1}}
    assert find_rollback_target(found) == 1
    assert describe_rollback_refusal(found, 1, ()) == ""
    assert f"1 has {CHAT} on cards 0 and 1" in describe_rollback_refusal(found, 1, (0, 1))
    (folder / "env/chat").write_text("A=b\n")
    assert "were changed" in describe_rollback_refusal(host.read_state(), 1, ())


def test_on_a_blank_host_nothing_is_found(host: HostFolder) -> None:
    assert host.read_state() == serving_state.ObservedServing()


def test_links_and_files_of_ours_are_distinguished_from_what_is_not(host: HostFolder) -> None:
    ours = f"{host.config}/current/units/{CHAT}"
    (host.units / CHAT).symlink_to(ours)
    (host.units / "rigwright-old.service").write_text(OWNED_HEADER + "\n[Unit]\n")
    (host.units / "rigwright-theirs.service").write_text("[Unit]\n")
    (host.units / "rigwright-masked.service").symlink_to("/dev/null")
    (host.units / "rigwrights.service").write_text(OWNED_HEADER + "\n")
    assert host.read_state().links == {CHAT: ours, "rigwright-old.service": ""}


def test_a_masked_target_is_no_other_folder_that_the_host_is_served_from(host: HostFolder) -> None:
    target = host.units / "rigwright.target"
    for to, folder in {"/dev/null": "", "/etc/other/current/units/rigwright.target": "/etc/other"}.items():
        target.symlink_to(to)
        assert host.read_state().elsewhere == folder
        target.unlink()


def test_engines_tools_and_keys_that_are_whole_are_found(host: HostFolder) -> None:
    for path in ("engines/whole/build.json", "engines/half/bin", "tools-1/.complete", "tools-2/bin"):
        (host.software / path).parent.mkdir(parents=True)
        (host.software / path).touch()
    (host.config / "credentials/chat.api-key").touch()
    (host.config / "credentials/chat.api-key.rigwright-new").touch()
    whole = [host.software / "engines/whole", host.software / "tools-1", host.config / "credentials/chat.api-key"]
    assert host.read_state().folders == {str(path) for path in whole}


def test_unfinished_work_of_a_job_is_found_and_foreign_files_are_not(host: HostFolder) -> None:
    ours = [host.software / "engines/ours", host.software / "engines/.making-ours", host.config / "build/ours"]
    for path in (*ours, host.software / "engines/somebodys", host.software / "engines/.making-somebodys"):
        path.mkdir(parents=True)
    host.ledger.write_text("".join(f"tree {path}\n" for path in ours[:2]))
    host.set_answers(fails="--quiet is-active rw-job-ours.service\n--quiet is-active rw-job-somebodys.service\n")
    assert host.read_state().folders == {str(path) for path in ours}


def test_systemds_facts_are_read(host: HostFolder) -> None:
    (host.config / "current").symlink_to("generations/4")
    (host.config / "activating").write_text("3 4\n")
    host.set_answers(description="All instances of this rig, generation abc\n", reload="no\n\nyes\n")
    found = host.read_state()
    assert (found.current, found.activating, found.job, found.reload_needed) == (4, True, False, True)
    assert found.loaded == "All instances of this rig, generation abc"


def serve(host: HostFolder) -> UnitState:
    """Have the host serve chat as it is decided, and code not at all. Returns what chat's process is to be."""
    aim = target_generation(ON_CARDS)
    unit_state = next(unit.unit_state for unit in aim.units if unit.name == CHAT)
    host.write_generation(1, aim)
    weight = host.root / "a weight.gguf"
    weight.write_text("weights")
    there = weight.stat()
    for path, text in (
        (host.run / "rigwright" / CHAT, f"{unit_state.started_from}\n{there.st_dev}:{there.st_ino} {weight}\n"),
        (host.run / "credentials" / CHAT / "api-key", "the key\n"),
        (host.config / "credentials/chat.api-key", "the key\n"),
        (host.units / CHAT, f"{OWNED_HEADER}\nLoadCredential=api-key:{host.config}/credentials/chat.api-key\n"),
        (host.units / CODE, OWNED_HEADER + "\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    blocks = [
        f"Id={CHAT}\nActiveState=active\nSubState=running\nNRestarts=2\nMainPID=4711\n",
        f"Id={CODE}\nActiveState=failed\nSubState=failed\nNRestarts=5\nMainPID=0\n",
    ]
    host.set_answers(processes="\n".join(blocks))
    return unit_state


def replaced(path: Path, text: str) -> None:
    """Put another file in the place of one, as a fetch does."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.rename(path)


def test_a_process_is_known_by_what_root_wrote_down_of_it(host: HostFolder) -> None:
    unit_state = serve(host)
    found = host.read_state()
    assert found.processes == {
        CHAT: ObservedUnit("active", "running", 2, True, unit_state.started_from, True, True),
        CODE: ObservedUnit("failed", "failed", 5, False, "", False, False),
    }
    assert found.processes[CHAT].is_running_from(unit_state)
    assert found.held_state(CHAT) == unit_state
    assert (unit_state.port, unit_state.cards) == (0, {0, 1})


LATER: dict[str, tuple[Callable[[HostFolder], object], dict[str, object]]] = {
    "another key": (
        lambda host: (host.config / "credentials/chat.api-key").write_text("other"),
        {"key_current": False},
    ),
    "the key is gone": (lambda host: (host.config / "credentials/chat.api-key").unlink(), {"key_current": False}),
    "weights replaced": (lambda host: replaced(host.root / "a weight.gguf", "others"), {"weights_current": False}),
    "the same weights fetched again": (
        lambda host: replaced(host.root / "a weight.gguf", "weights"),
        {"weights_current": False},
    ),
    "weights gone": (lambda host: (host.root / "a weight.gguf").unlink(), {"weights_current": False}),
    "no record": (lambda host: (host.run / "rigwright" / CHAT).unlink(), {"started_from": ""}),
    "a record of before weights were in it": (
        lambda host: (host.run / "rigwright" / CHAT).write_text("a" * 64 + "\n"),
        {"started_from": "a" * 64},
    ),
    "the record of another file": (
        lambda host: (host.run / "rigwright" / CHAT).write_text(f"{'a' * 64}\n1:2 {host.root / 'a weight.gguf'}\n"),
        {"started_from": "a" * 64, "weights_current": False},
    ),
}


@pytest.mark.parametrize("what", LATER)
def test_changes_since_the_start_of_a_process_are_seen(host: HostFolder, what: str) -> None:
    unit_state = serve(host)
    before = host.read_state().processes[CHAT]
    change, told = LATER[what]
    change(host)
    found = host.read_state().processes[CHAT]
    assert {
        key: getattr(found, key)
        for key in ObservedUnit.__dataclass_fields__
        if getattr(found, key) != getattr(before, key)
    } == told
    assert not found.is_running_from(unit_state)


def test_a_running_process_is_not_asked_about_itself(host: HostFolder) -> None:
    """Its arguments and its environment are its own to write."""
    unit_state = serve(host)
    command = ["sh", "-c", "read -r _", "llama-server", "--port", "1"]
    environment = {"CUDA_VISIBLE_DEVICES": "7", "RW_DIGEST": "0" * 16, "PATH": os.environ["PATH"]}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as server:
        text = (host.systemd / "processes").read_text()
        host.set_answers(processes=text.replace("4711", str(server.pid)))
        found = host.read_state()
        server.communicate(b"\n")
    assert found.held_state(CHAT) == unit_state


def test_a_generation_of_before_units_were_in_its_manifest_is_known_by_its_files(host: HostFolder) -> None:
    unit_state = serve(host)
    engines = [one for one in host.read_state().generations[0].unit_states if not one.holders]
    path = host.config / "generations/1/manifest.json"
    manifest = json.loads(path.read_text())
    for one in manifest["instances"].values():
        for key in set(one) - {"variant", "port", "cards", "engine", "digest", "weights"}:
            del one[key]
    del manifest["listeners"]
    path.write_text(json.dumps(manifest))
    found = host.read_state()
    # each engine listened on its port itself
    assert found.generations[0].unit_states == tuple(replace(one, port=8020 + at) for at, one in enumerate(engines))
    assert found.generations[0].users is None
    assert found.held_state(CHAT) == replace(unit_state, port=8020)


def test_an_instance_may_have_any_name_in_a_manifest_of_before_units_were_in_it(host: HostFolder) -> None:
    aim = target_generation(two_instance_rig(sample_instance("units")))
    path = host.write_generation(1, aim) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["instances"]["units"]["units"]
    path.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    assert host.read_state().generations[0].unit_states == aim.unit_states


def test_the_start_digest_of_a_process_is_the_sum_of_its_two_files(host: HostFolder) -> None:
    folder = host.write_generation(1, target_generation())
    texts = (folder / "units" / CHAT).read_bytes() + (folder / "env/chat").read_bytes()
    (unit_state,) = [unit_state for unit_state in host.generation_goal(1).unit_states if unit_state.unit == CHAT]
    assert unit_state.started_from == hashlib.sha256(texts).hexdigest()
