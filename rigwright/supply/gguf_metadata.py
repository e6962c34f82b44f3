"""What a lock says of a file of weights beside its bytes: what the header in it says of memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rigwright.problems import FrozenModel
from rigwright.types import matching

MOST = 1 << 48  # of anything that is counted here; more is no model
Amount = Annotated[int, Field(ge=0, le=MOST, strict=True)]
Architecture = Annotated[str, matching(r"[a-z0-9][a-z0-9_.-]{0,63}", "a name, such as qwen35")]


class KvCacheSize(FrozenModel):
    """What attention keeps of tokens, in numbers: what each takes, the type of a KV cache says.

    State of layers that keep no tokens (linear attention) is not in it: it does not grow with the context.
    """

    keys: Amount = Field(description="Numbers in the keys of a token, over all full-attention layers.")
    values: Amount = Field(description="Numbers in its values, likewise.")
    window: Amount = Field(default=0, description="Sliding window of the other layers, tokens; 0 if there are none.")
    window_keys: Amount = Field(default=0, description="Numbers in the keys of a token in those.")
    window_values: Amount = Field(default=0, description="Numbers in its values in those.")


class GgufMetadata(FrozenModel):
    """What a GGUF file's header says."""

    architecture: Architecture | None = Field(
        default=None,
        description="Architecture, as named by llama.cpp; later parts of a split model have none.",
    )
    off_card: Amount = Field(
        default=0,
        description="Bytes of tensors that need no card: llama.cpp keeps embeddings in RAM, and loads MTP layers only "
        "on request.",
    )
    cache: KvCacheSize | None = Field(
        default=None, description="KV cache sizes; omitted if the header does not state them."
    )
