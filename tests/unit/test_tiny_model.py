"""The tiny model: the same bytes everywhere, those that the demo's lock names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from gguf import GGUFReader

from lab.tiny_model import write
from rigwright.inventory import ROOT
from rigwright.lock import Lock


def test_its_bytes_are_the_locked_ones(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path)
    locked = Lock.load([ROOT / "locks"]).artefacts["tiny-rig"]
    content = path.read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (locked.size, locked.sha256)


def test_another_answer_is_another_model(tmp_path: Path) -> None:
    write(tmp_path / "a", "yes")
    write(tmp_path / "b", "no")
    write(tmp_path / "c", "yes")
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a != b
    assert a == c


def test_following_the_output_matrix_says_the_answer_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, "one two three")
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
        weights[f"blk.{layer}.{name}.weight"].any() for layer in (0, 1) for name in ("attn_output", "ffn_down")
    )


@pytest.mark.parametrize("answer", ["", " \n", "again and again", " ".join(f"w{n}" for n in range(128))])
def test_an_answer_that_it_could_not_say_is_refused(tmp_path: Path, answer: str) -> None:
    with pytest.raises(ValueError, match="different words"):
        write(tmp_path / "model.gguf", answer)
    assert not (tmp_path / "model.gguf").exists()


def test_the_longest_answer_fits(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", " ".join(f"w{n}" for n in range(127)))
