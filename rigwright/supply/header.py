"""What a lock says of a file of weights beside its bytes: what the header in it says of memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rigwright.problems import Frozen
from rigwright.types import matching

MOST = 1 << 48  # of anything that is counted here; more is no model
Amount = Annotated[int, Field(ge=0, le=MOST, strict=True)]
Architecture = Annotated[str, matching(r"[a-z0-9][a-z0-9_.-]{0,63}", "a name, such as qwen35")]


class Cache(Frozen):
    """What attention keeps of tokens, in numbers: what each takes, the type of a KV cache says.

    State of layers that keep no tokens (linear attention) is not in it: it does not grow with the context.
    """

    keys: Amount = Field(description="Of each token's keys, in all layers that keep all tokens.")
    values: Amount = Field(description="The same of its values.")
    window: Amount = Field(default=0, description="The newest tokens that other layers keep; 0 where there are none.")
    window_keys: Amount = Field(default=0, description="Of each token's keys in those.")
    window_values: Amount = Field(default=0, description="The same of its values.")


class Header(Frozen):
    """What a GGUF file's header says."""

    architecture: Architecture | None = Field(
        default=None,
        description="What llama.cpp calls its architecture; the parts of a split model after the first have none.",
    )
    off_card: Amount = Field(
        default=0,
        description="Bytes of its tensors that may be on no card: llama.cpp leaves embeddings in RAM, and loads layers "
        "that guess ahead only where that is asked for.",
    )
    cache: Cache | None = Field(
        default=None, description="What its attention keeps; left out where the header does not say it."
    )
