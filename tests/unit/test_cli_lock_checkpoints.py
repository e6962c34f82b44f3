"""`rigwright lock` of checkpoints: their config.json is in the lock, and halves of one are refused."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.lock_resolver import checkpoint_inspection
from cli.lock_resolver.downloads import FileContent
from rigwright.supply.artefact import GgufMetadata, KvCacheSize
from rigwright.weights.checkpoint import parse_checkpoint
from tests.stand_ins.hub.faults import (
    ConnectionCut,
    EndlessAnswer,
    ErrorStatus,
    Fault,
    IgnoredRange,
    too_many_requests,
    truncated_content,
)
from tests.unit.checkpoints import QWEN3, safetensors_bytes
from tests.unit.gguf_files import gguf_file
from tests.unit.hub_world import CATALOG, NAME, HubLockFixture, make_hub_fixture

OWN = """
[inputs.model]
kind = "weight"
version = "3"
include = ["*"]
sources = ["shelf:mine"]
"""
CONFIG = json.dumps(QWEN3, ensure_ascii=False).encode()
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = json.dumps({"weight_map": {"a": FIRST, "b": SECOND}}).encode()
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4000000000\n"
WHOLE: dict[str, bytes | Path] = {
    "config.json": CONFIG,
    "model.safetensors.index.json": INDEX,
    FIRST: safetensors_bytes(3000),
    SECOND: safetensors_bytes(2000, format="pt"),
    "tokenizer.json": b"{}",
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    with make_hub_fixture(tmp_path / "box", monkeypatch) as made:
        made.hub.add_commit(NAME, WHOLE)
        yield made


def lock_own_checkpoint(world: HubLockFixture, changes: dict[str, bytes] | None = None) -> tuple[str, str]:
    """An operator's own folder, with some of its files changed, and how it is given."""
    world.write_catalog(text=OWN)
    folder = world.folder / "mine"
    folder.mkdir()
    for path, content in {**WHOLE, **(changes or {})}.items():
        assert isinstance(content, bytes)
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    return "--from-dir", str(folder)


def test_the_text_of_config_json_is_locked(world: HubLockFixture) -> None:
    world.lock_lines()
    assert {path: row.text for path, row in world.locked_rows.items() if row.text} == {"config.json": CONFIG.decode()}
    assert parse_checkpoint(list(world.locked_rows.values())).config == QWEN3


def test_of_weights_nothing_but_their_beginning_is_asked_for(world: HubLockFixture) -> None:
    big = 3 * checkpoint_inspection.HEADER_BYTES
    world.hub.add_commit(NAME, {**WHOLE, FIRST: safetensors_bytes(big), SECOND: safetensors_bytes(big)})
    small = sum(len(one) for path, one in WHOLE.items() if path.endswith(".json") and isinstance(one, bytes))
    world.lock_lines()
    assert world.hub.sent_bytes == small + 2 * checkpoint_inspection.HEADER_BYTES
    ranges = [asked.range for asked in world.hub.asked if "/cdn/" in asked.path]
    assert ranges == [f"bytes=0-{checkpoint_inspection.HEADER_BYTES - 1}"] * 2


def test_a_header_that_is_longer_than_what_is_read_at_once(world, monkeypatch):
    monkeypatch.setattr(checkpoint_inspection, "HEADER_BYTES", 10)
    world.lock_lines()
    assert len([asked for asked in world.hub.asked if "/cdn/" in asked.path]) == 4


def test_a_server_that_sends_all_though_a_part_was_asked_for(world, monkeypatch):
    monkeypatch.setattr(checkpoint_inspection, "HEADER_BYTES", 100)
    world.hub.add_fault(IgnoredRange(), NAME, FIRST)
    world.hub.add_fault(EndlessAnswer(), NAME, SECOND)
    world.lock_lines()


@pytest.mark.parametrize("fault", [too_many_requests(0), ConnectionCut(50)])
def test_a_server_that_fails_is_asked_again(world: HubLockFixture, fault: Fault) -> None:
    world.hub.add_fault(fault, NAME, FIRST, times=1)
    world.lock_lines()


HALVES: dict[str, tuple[dict[str, bytes], str]] = {
    "a shard that is not there": (
        {"model.safetensors.index.json": json.dumps({"weight_map": {"a": FIRST, "c": "more.safetensors"}}).encode()},
        "model.safetensors.index.json names more.safetensors, which the input lacks: include it, or exclude "
        "model.safetensors.index.json",
    ),
    "a name that would write on the terminal": (
        {"model.safetensors.index.json": json.dumps({"weight_map": {"a": "\x1b[2J"}}).encode()},
        "model.safetensors.index.json names '\\x1b[2J', which",
    ),
    "an index that is invalid": (
        {"model.safetensors.index.json": b"[]"},
        "model.safetensors.index.json is not a weights index: exclude it",
    ),
    "weights that are cut": (
        {SECOND: safetensors_bytes(2000)[:-1]},
        f"{SECOND} is truncated: its header implies 2079 bytes, but it has 2078: replace it at its source, "
        "or exclude it",
    ),
    "weights that are none": ({SECOND: b"<html>" * 9}, f"{SECOND} has no safetensors header: replace it"),
    "a config that is no text": ({"config.json": b'{"a": "\xff"}'}, "config.json is not UTF-8 text: exclude it"),
    "two at once": (
        {SECOND: safetensors_bytes(2000)[:-1], FIRST: safetensors_bytes(3000) + b"x"},
        f"{FIRST} is longer than it should be: its header implies 3079 bytes, but it has 3080: replace it "
        "at its source, "
        f"or exclude it; {SECOND} is truncated: ",
    ),
}


@pytest.mark.parametrize("case", HALVES)
def test_half_of_a_checkpoint_on_the_hub_is_refused(world: HubLockFixture, case: str) -> None:
    changes, said = HALVES[case]
    world.hub.add_commit(NAME, {**WHOLE, **changes})
    assert world.lock_error().startswith(f"cannot be locked: {said}")


@pytest.mark.parametrize("case", HALVES)
def test_half_of_a_checkpoint_in_a_folder_is_refused(world: HubLockFixture, case: str) -> None:
    changes, said = HALVES[case]
    assert world.lock_error(*lock_own_checkpoint(world, changes)).startswith(f"cannot be locked: {said}")


def test_a_shard_that_the_patterns_leave_out_is_named(world: HubLockFixture) -> None:
    world.write_catalog(f'exclude = ["{SECOND}"]')
    assert f"index.json names {SECOND}, which the input lacks: include it" in world.lock_error()


def test_a_checkpoint_of_ones_own_is_locked_with_its_config(world: HubLockFixture) -> None:
    world.lock_lines(*lock_own_checkpoint(world))
    assert world.locked_rows["config.json"].text == CONFIG.decode()
    assert parse_checkpoint(list(world.locked_rows.values())).folder == "model/3"


@pytest.mark.parametrize("path", [FIRST, "tokenizer.json", "extra.gguf"])
def test_pointers_of_git_lfs_are_refused(world: HubLockFixture, path: str) -> None:
    said = f"FOLDER/mine/{path} is a Git LFS pointer: run `git lfs pull` there, or exclude it"
    assert world.lock_error(*lock_own_checkpoint(world, {path: POINTER})) == f"cannot be locked: {said}"


def test_pointers_of_git_lfs_that_a_repository_has_as_files_are_refused(world: HubLockFixture) -> None:
    world.hub.add_commit(NAME, {**WHOLE, "tokenizer.json": POINTER})
    assert world.lock_error() == (
        "cannot be locked: tokenizer.json is a Git LFS pointer without its content: exclude it"
    )


def test_an_index_and_a_config_that_the_hub_keeps_as_large_files(world: HubLockFixture) -> None:
    world.hub.lfs_above = 50
    world.hub.add_commit(NAME, WHOLE)
    world.lock_lines()
    assert world.locked_rows["config.json"].text == CONFIG.decode()
    world.hub.add_commit(NAME, {**WHOLE, "README.md": b"x"})
    world.hub.add_fault(truncated_content(), NAME, "config.json")
    assert re.search(r"config\.json: its server has only \d+ bytes of it", world.lock_error("--refresh"))


def test_weights_that_are_not_given(world: HubLockFixture) -> None:
    world.hub.add_fault(ErrorStatus(404), NAME, FIRST)
    assert world.lock_error() == f"cannot be locked: {FIRST}: its server answers 404 Not Found"


def test_a_config_that_is_larger_than_a_lock_takes_is_locked_without_its_text(world: HubLockFixture) -> None:
    world.hub.add_commit(NAME, {**WHOLE, "config.json": json.dumps(QWEN3 | {"more": "x" * (4 << 20)}).encode()})
    world.lock_lines()
    assert world.locked_rows["config.json"].text is None


def test_an_index_of_what_is_no_checkpoint_is_not_looked_at(world: HubLockFixture) -> None:
    world.hub.add_commit(NAME, {path: content for path, content in WHOLE.items() if path != SECOND})
    world.write_catalog('exclude = ["config.json"]')
    world.lock_lines()
    world.write_catalog('include = ["*.json"]\nexclude = ["*.index.json"]', text=CATALOG)
    world.lock_lines()
    assert sorted(world.locked_rows) == ["config.json", "tokenizer.json"]


NO_MODELS: dict[str, tuple[str, bytes, str]] = {
    "noise": ("x.gguf", bytes(range(256)) * 20_000, "x.gguf has no GGUF header"),
    "noise among checkpoints": (FIRST, b"no weights", f"{FIRST} has no safetensors header"),
    "a page": ("x.gguf", b"<html>", "x.gguf has no GGUF header"),
    "a GGUF that is cut": (
        "x.gguf",
        gguf_file(5000)[:-1],
        "x.gguf is truncated: its header implies 5128 bytes, but it has 5127",
    ),
}


@pytest.mark.parametrize("case", NO_MODELS)
def test_an_invalid_model_is_refused(world: HubLockFixture, case: str) -> None:
    path, content, said = NO_MODELS[case]
    world.hub.add_commit(NAME, {path: content})
    assert world.lock_error() == f"cannot be locked: {said}: replace it at its source, or exclude it"


def test_the_header_of_a_gguf_is_locked(world: HubLockFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is longer than what is read at once: it does not say how long it is."""
    monkeypatch.setattr(checkpoint_inspection, "HEADER_BYTES", 64)
    said = {"llama.block_count": 2, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2}
    said |= {"llama.embedding_length": 512, "tokenizer.ggml.tokens": ["one"] * 500}
    world.hub.add_commit(NAME, {"x.gguf": gguf_file(5000, said)})
    world.lock_lines()
    kept = KvCacheSize(keys=2 * 2 * 64, values=2 * 2 * 64)
    assert world.locked_rows["x.gguf"].header == GgufMetadata(architecture="llama", off_card=0, cache=kept)
    asked = [one.range for one in world.hub.asked if "/cdn/" in one.path]
    assert asked[:3] == ["bytes=0-63", "bytes=0-255", "bytes=0-1023"]


def test_long_headers_are_read_one_after_the_other() -> None:
    """They take many times their bytes while they are read, and a hub can have any number of them."""
    header = json.dumps({"__metadata__": {"a": "b" * (300 << 10)}}).encode()
    content = len(header).to_bytes(8, "little") + header
    together = threading.Barrier(2)

    def beginning(path: str, count: int) -> bytes:
        if path.endswith("json"):
            return b"{}"
        if count > checkpoint_inspection.HEADER_BYTES:
            with pytest.raises(threading.BrokenBarrierError):
                together.wait(0.2)
            together.reset()
        return content[:count]

    empty = FileContent("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", 2)
    weights = {f"{number}.safetensors": FileContent("0" * 64, len(content)) for number in range(3)}
    checkpoint_inspection.LockedCheckpoint("model", {"config.json": empty, **weights}, beginning).annotate_rows([])
