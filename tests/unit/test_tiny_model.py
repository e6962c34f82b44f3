"""Models with a fixed answer: the same bytes everywhere, those of the tiny one as the demo's lock names them."""

import hashlib
import tracemalloc
from pathlib import Path

import pytest
from gguf import GGUFReader

from lab.tiny_model import HEAVY, TINY, LlamaSize, write_model
from rigwright.paths import ROOT
from rigwright.supply.lock import Lock

SMALL = LlamaSize(layers=3, width=192, heads=6, kv_heads=3, feed_forward=320, context=512)


def test_its_bytes_are_the_locked_ones(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path)
    locked = Lock.load([ROOT / "locks"]).artefacts["tiny-rig"]
    content = path.read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (locked.size, locked.sha256)


def test_another_answer_is_another_model(tmp_path: Path) -> None:
    write_model(tmp_path / "a", "yes")
    write_model(tmp_path / "b", "no")
    write_model(tmp_path / "c", "yes")
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a != b
    assert a == c


@pytest.mark.parametrize("size", [TINY, SMALL], ids=["tiny", "small"])
def test_following_the_output_matrix_says_the_answer_and_stops(tmp_path: Path, size: LlamaSize) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "one two three", size)
    reader = GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    weights = {tensor.name: tensor.data for tensor in reader.tensors}
    # blocks add nothing, so the next token follows from the last one's embedding alone
    said, token = [], tokens.index("h")
    for _ in range(10):
        token = int((weights["output.weight"] @ weights["token_embd.weight"][token]).argmax())
        said.append(tokens[token])
        if token == reader.fields["tokenizer.ggml.eos_token_id"].contents():
            break
    assert said == ["\u2581one", "\u2581two", "\u2581three", "</s>"]
    assert not any(
        weights[f"blk.{layer}.{name}.weight"].any()
        for layer in range(size.layers)
        for name in ("attn_output", "ffn_down")
    )


def test_a_model_has_the_dimensions_that_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "yes", SMALL)
    reader = GGUFReader(path)
    said = {
        name.removeprefix("llama."): field.contents()
        for name, field in reader.fields.items()
        if name.startswith("llama.")
    }
    assert said["block_count"] == 3
    assert said["embedding_length"] == 192
    assert (said["attention.head_count"], said["attention.head_count_kv"]) == (6, 3)
    assert said["rope.dimension_count"] == 32
    assert said["feed_forward_length"] == 320
    assert said["context_length"] == 512
    shapes = {tensor.name: tensor.data.shape for tensor in reader.tensors}
    assert len(shapes) == 3 + 9 * 3
    assert shapes["blk.2.attn_q.weight"] == (192, 192)
    assert shapes["blk.2.attn_k.weight"] == shapes["blk.2.attn_v.weight"] == (96, 192)
    assert shapes["blk.2.ffn_gate.weight"] == (320, 192)
    assert shapes["blk.2.ffn_down.weight"] == (192, 320)
    pattern = {tensor.name: tensor.data for tensor in reader.tensors}["blk.2.ffn_up.weight"]
    assert 0 < abs(pattern).max() <= 0.05
    assert (pattern == 0).mean() < 0.01


def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tracemalloc.start()
    try:
        write_model(path, "yes", LlamaSize(layers=24, width=256, heads=8, kv_heads=4, feed_forward=512, context=512))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 8


def test_the_heavy_one_is_what_it_is_called_for() -> None:
    layer = (
        2 * HEAVY.width**2 + 2 * HEAVY.width * HEAVY.kv_heads * HEAVY.head_width + 3 * HEAVY.width * HEAVY.feed_forward
    )
    assert HEAVY.head_width == 64
    assert 350e6 < HEAVY.layers * layer < 370e6


@pytest.mark.parametrize("answer", ["", " \n", "again and again", " ".join(f"w{n}" for n in range(128))])
def test_an_answer_that_it_could_not_say_is_refused(tmp_path: Path, answer: str) -> None:
    with pytest.raises(ValueError, match="different words"):
        write_model(tmp_path / "model.gguf", answer)
    assert not (tmp_path / "model.gguf").exists()


def test_the_longest_answer_fits(tmp_path: Path) -> None:
    write_model(tmp_path / "model.gguf", " ".join(f"w{n}" for n in range(127)))
