"""Language models whose answer is fixed, in GGUF, for any real llama.cpp: one of under a megabyte, or of any size.

Whatever it is asked, at any temperature, it says the same sentence and stops. Its blocks add nothing to the
residual stream, so the last hidden state is the embedding of the last token; each word of the answer has an axis of
its own, and the output matrix maps every axis to the next word. An engine cannot know that: it multiplies every matrix
of every block, so a model takes the time that any other of its size takes. Same arguments, same bytes: there is no
randomness.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np


@dataclass(frozen=True)
class LlamaSize:
    """A model's dimensions, by the names that Llama's architecture has for them."""

    layers: int
    width: int
    """Of the residual stream; a multiple of `heads`."""
    heads: int
    kv_heads: int
    """A divisor of `heads`."""
    feed_forward: int
    context: int
    """Tokens that it says it was trained for."""

    @property
    def head_width(self) -> int:
        """Width of one head; quantised KV types need a multiple of 32."""
        return self.width // self.heads


TINY = LlamaSize(layers=2, width=128, heads=4, kv_heads=2, feed_forward=256, context=4096)
# 363 million weights, 726 MB: the cost of a token is the engine's work, not its overhead, and any card holds it
HEAVY = LlamaSize(layers=24, width=1024, heads=16, kv_heads=4, feed_forward=4096, context=32768)

ANSWER = "The rig is alive"
SPACE = "\u2581"  # SentencePiece's mark for one
CERTAIN = 8.0  # logit of the next word; every other token has 0
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class TinyTensor:
    """One tensor, made when it is written: all of them at once are as large as the file."""

    name: str
    shape: tuple[int, ...]
    type: type[np.float16] | type[np.float32]
    make: Callable[[], Array]


def write_model(path: Path, answer: str = ANSWER, size: LlamaSize = TINY) -> None:
    """Write the model.

    Raises:
        ValueError: the answer has no word, a word twice, or as many words as the model is wide.
    """
    words = answer.split()
    if not words or len(set(words)) != len(words) or len(words) >= size.width:
        raise ValueError(f"an answer is 1 to {size.width - 1} different words: {answer!r}")
    tokens, kinds = _make_vocabulary(words)
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, size, tokens, kinds)
    tensors = list(_model_tensors(size, words, len(tokens)))
    for one in tensors:
        kind = np.dtype(one.type)
        writer.add_tensor_info(one.name, one.shape, kind, int(np.prod(one.shape)) * kind.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for one in tensors:
        writer.write_tensor_data(one.make())
    writer.close()


def _make_vocabulary(words: list[str]) -> tuple[list[str], list[gguf.TokenType]]:
    """SentencePiece's kinds of token: control, all bytes (so any text can be read), characters, words."""
    control = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL)]
    any_byte = [(f"<0x{byte:02X}>", gguf.TokenType.BYTE) for byte in range(256)]
    characters = [SPACE, *string.ascii_letters, *string.digits, *".,!?:<>|_-"]
    pieces = [(piece, gguf.TokenType.NORMAL) for piece in characters + [SPACE + word for word in words]]
    tokens, kinds = zip(*(control + any_byte + pieces), strict=True)
    return list(tokens), list(kinds)


def _write_metadata(writer: gguf.GGUFWriter, size: LlamaSize, tokens: list[str], kinds: list[gguf.TokenType]) -> None:
    writer.add_name("tiny-rig")
    writer.add_context_length(size.context)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.feed_forward)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.head_width)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    # longer pieces win: words before characters
    writer.add_token_scores([-10.0 if len(token) > 1 else -100.0 for token in tokens])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def _model_tensors(size: LlamaSize, words: list[str], vocabulary: int) -> Iterator[TinyTensor]:
    """All of them, in the file's order."""
    first, end, width = vocabulary - len(words), 2, size.width
    embedding = np.zeros((vocabulary, width), np.float16)
    output = np.zeros((vocabulary, width), np.float16)
    embedding[:, len(words)] = 1.0  # the axis of all tokens that are no word of the answer
    for index in range(len(words)):
        embedding[first + index] = 0.0
        embedding[first + index, index] = 1.0
        output[first + index, len(words) if index == 0 else index - 1] = CERTAIN
    output[end, len(words) - 1] = CERTAIN

    key_value = size.kv_heads * size.head_width
    yield TinyTensor("token_embd.weight", embedding.shape, np.float16, lambda: embedding)
    yield _ones_tensor("output_norm.weight", width)
    yield TinyTensor("output.weight", output.shape, np.float16, lambda: output)
    for layer in range(size.layers):
        block = f"blk.{layer}."
        yield _ones_tensor(block + "attn_norm.weight", width)
        yield _pattern_tensor(block + "attn_q.weight", width, width)
        yield _pattern_tensor(block + "attn_k.weight", key_value, width)
        yield _pattern_tensor(block + "attn_v.weight", key_value, width)
        yield _zeros_tensor(block + "attn_output.weight", width, width)
        yield _ones_tensor(block + "ffn_norm.weight", width)
        yield _pattern_tensor(block + "ffn_gate.weight", size.feed_forward, width)
        yield _pattern_tensor(block + "ffn_up.weight", size.feed_forward, width)
        yield _zeros_tensor(block + "ffn_down.weight", width, size.feed_forward)


def _ones_tensor(name: str, width: int) -> TinyTensor:
    return TinyTensor(name, (width,), np.float32, lambda: np.ones(width, np.float32))


def _zeros_tensor(name: str, rows: int, columns: int) -> TinyTensor:
    return TinyTensor(name, (rows, columns), np.float16, lambda: np.zeros((rows, columns), np.float16))


def _pattern_tensor(name: str, rows: int, columns: int) -> TinyTensor:
    """Small numbers that are neither zero nor equal, so that every kernel has something to do."""
    period = ((np.arange(257, dtype=np.int64) * 7919 % 257 - 128) / 2560.0).astype(np.float16)
    return TinyTensor(name, (rows, columns), np.float16, lambda: np.resize(period, (rows, columns)))
