"""The checkpoint with fixed answers: the same bytes each time, and what follows from them without any engine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest

from lab.vllm_model import SIZE, TEMPLATE, Size, write

SMALL = Size(num_hidden_layers=3, hidden_size=64, intermediate_size=96, num_attention_heads=2, head_dim=16)
USER = {"role": "user", "content": "who is there?"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}
SAID = {"role": "tool", "content": "8 cards"}


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def weights(folder: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Every tensor as float32."""
    content = (folder / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, said in json.loads(content[8:end]).items():
        if name != "__metadata__":
            begin, last = said["data_offsets"]
            half = np.frombuffer(content[end + begin : end + last], "<u2").astype("<u4")
            found[name] = (half << 16).view("<f4").reshape(said["shape"])
    return found


def tokens(folder: Path) -> dict[str, int]:
    """All of the tokenizer's, those that are added as well."""
    said = read(folder, "tokenizer.json")
    return said["model"]["vocab"] | {one["content"]: one["id"] for one in said["added_tokens"]}


def spoken(folder: Path, last: str) -> str:
    """What is said after a token, up to the end of the turn."""
    numbers, tensors = tokens(folder), weights(folder)
    texts, said, token = {number: token for token, number in numbers.items()}, "", numbers[last]
    for _ in range(40):
        token = int((tensors["lm_head.weight"] @ tensors["model.embed_tokens.weight"][token]).argmax())
        if token == read(folder, "generation_config.json")["eos_token_id"]:
            return said
        said += texts[token]
    raise AssertionError(f"it never ends: {said}")


def test_it_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        write(tmp_path / name)
        files = sorted((tmp_path / name).iterdir())
        assert sum(path.stat().st_size for path in files) < 1 << 20
        digests.append([(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files])
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("x", "TheĠrigĠisĠalive"),
        ("<|im_start|>", "TheĠrigĠisĠalive"),
        ("ĊĊ", "TheĠrigĠisĠalive"),
        ("Ċ", "<think>ĊSomebodyĠasksĠme.Ċ</think>ĊĊTheĠrigĠisĠalive"),
        ("ĉĊ", '<tool_call>Ċ{"name":Ġ"look",Ġ"arguments":Ġ{"at":Ġ"cards"}}ĠĊ</tool_call>'),
    ],
)
@pytest.mark.parametrize("size", [SIZE, SMALL], ids=["tiny", "small"])
def test_following_the_output_matrix_says_what_the_prompt_asks_for(
    tmp_path: Path, size: Size, last: str, said: str
) -> None:
    write(tmp_path, size)
    assert spoken(tmp_path, last) == said
    # so the next token follows from the last one's embedding alone
    assert not any(
        tensor.any() for name, tensor in weights(tmp_path).items() if "o_proj" in name or "down_proj" in name
    )


@pytest.mark.parametrize(
    ("messages", "given", "end"),
    [
        ([USER], {}, "assistant\n"),
        ([USER], {"enable_thinking": True}, "assistant\n"),
        ([USER], {"enable_thinking": False}, "</think>\n\n"),
        ([USER], {"tools": [TOOL]}, "assistant\t\n"),
        ([USER, CALLED, SAID], {"tools": [TOOL], "enable_thinking": False}, "</think>\n\n"),
    ],
)
def test_what_a_prompt_ends_with_is_one_token(
    tmp_path: Path, messages: list[dict[str, Any]], given: dict[str, Any], end: str
) -> None:
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE)
    assert template.render(messages=messages, add_generation_prompt=True, **given).endswith(end)
    write(tmp_path)
    merges = {"".join(one) for one in read(tmp_path, "tokenizer.json")["model"]["merges"]}
    spelt = end.removeprefix("assistant").removeprefix("</think>").replace("\n", "Ċ").replace("\t", "ĉ")
    assert len(spelt) == 1 or spelt in merges


def test_its_tensors_have_the_dimensions_of_its_config(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    config, tensors = read(tmp_path, "config.json"), weights(tmp_path)
    width, head = config["hidden_size"], config["head_dim"]
    assert tensors["model.embed_tokens.weight"].shape == (config["vocab_size"], width)
    assert config["vocab_size"] == len(set(tokens(tmp_path).values()))
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    assert tensors[f"{last}self_attn.k_proj.weight"].shape == (config["num_key_value_heads"] * head, width)
    assert tensors[f"{last}self_attn.o_proj.weight"].shape == (width, config["num_attention_heads"] * head)
    assert tensors[f"{last}mlp.down_proj.weight"].shape == (width, config["intermediate_size"])
