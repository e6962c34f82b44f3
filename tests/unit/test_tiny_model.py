"""Models with a fixed answer: the same bytes everywhere, those of the tiny one as the demo's lock names them."""

import hashlib
from pathlib import Path

import pytest
from gguf import GGUFReader

from lab.tiny_model import TINY, LlamaSize, write_model
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock

SMALL = LlamaSize(layers=3, width=192, heads=6, kv_heads=3, feed_forward=320, context=512)


def test_its_bytes_are_the_locked_ones(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path)
    locked = Lock.load([ROOT / "locks"]).artefacts["tiny-rig"]
    content = path.read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (locked.size, locked.sha256)


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
