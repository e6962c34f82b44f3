"""A language model of half a megabyte whose answer is fixed, in GGUF, for any real llama.cpp.

Whatever it is asked, at any temperature, it says the same sentence and stops. Its blocks add nothing to the
residual stream, so the last hidden state is the embedding of the last token; each word of the answer has an axis of
its own, and the output matrix maps every axis to the next word. Same arguments, same bytes: there is no randomness.
"""

from __future__ import annotations

import string
from pathlib import Path

import gguf
import numpy as np

ANSWER = "The rig is alive"
LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD = 2, 128, 4, 2, 256  # heads of 32: the block size of quantised KV types
CONTEXT = 4096
SPACE = "\u2581"  # SentencePiece's mark for one
CERTAIN = 8.0  # logit of the next word; every other token has 0
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write(path: Path, answer: str = ANSWER) -> None:
    """Write the model.

    Raises:
        ValueError: the answer has no word, a word twice, or more words than the model is wide.
    """
    words = answer.split()
    if not words or len(set(words)) != len(words) or len(words) >= WIDTH:
        raise ValueError(f"an answer is 1 to {WIDTH - 1} different words: {answer!r}")
    tokens, kinds = _vocabulary(words)
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, tokens, kinds)
    _tensors(writer, words, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(words: list[str]) -> tuple[list[str], list[gguf.TokenType]]:
    """SentencePiece's kinds of token: control, all bytes (so any text can be read), characters, words."""
    control = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL)]
    any_byte = [(f"<0x{byte:02X}>", gguf.TokenType.BYTE) for byte in range(256)]
    characters = [SPACE, *string.ascii_letters, *string.digits, *".,!?:<>|_-"]
    pieces = [(piece, gguf.TokenType.NORMAL) for piece in characters + [SPACE + word for word in words]]
    tokens, kinds = zip(*(control + any_byte + pieces), strict=True)
    return list(tokens), list(kinds)


def _describe(writer: gguf.GGUFWriter, tokens: list[str], kinds: list[gguf.TokenType]) -> None:
    writer.add_name("tiny-rig")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
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


def _tensors(writer: gguf.GGUFWriter, words: list[str], vocabulary: int) -> None:
    first, end = vocabulary - len(words), 2
    embedding = np.zeros((vocabulary, WIDTH), np.float16)
    output = np.zeros((vocabulary, WIDTH), np.float16)
    embedding[:, len(words)] = 1.0  # the axis of all tokens that are no word of the answer
    for index in range(len(words)):
        embedding[first + index] = 0.0
        embedding[first + index, index] = 1.0
        output[first + index, len(words) if index == 0 else index - 1] = CERTAIN
    output[end, len(words) - 1] = CERTAIN

    ones = np.ones(WIDTH, np.float32)
    key_value = KV_HEADS * WIDTH // HEADS
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        writer.add_tensor(block + "attn_norm.weight", ones)
        writer.add_tensor(block + "attn_q.weight", _pattern(WIDTH, WIDTH))
        writer.add_tensor(block + "attn_k.weight", _pattern(key_value, WIDTH))
        writer.add_tensor(block + "attn_v.weight", _pattern(key_value, WIDTH))
        writer.add_tensor(block + "attn_output.weight", np.zeros((WIDTH, WIDTH), np.float16))
        writer.add_tensor(block + "ffn_norm.weight", ones)
        writer.add_tensor(block + "ffn_gate.weight", _pattern(FEED_FORWARD, WIDTH))
        writer.add_tensor(block + "ffn_up.weight", _pattern(FEED_FORWARD, WIDTH))
        writer.add_tensor(block + "ffn_down.weight", np.zeros((WIDTH, FEED_FORWARD), np.float16))


def _pattern(rows: int, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float16]]:
    """Small numbers that are neither zero nor equal, so that every kernel has something to do."""
    values = (np.arange(rows * columns, dtype=np.int64) * 7919 % 257 - 128) / 2560.0
    return values.astype(np.float16).reshape(rows, columns)
