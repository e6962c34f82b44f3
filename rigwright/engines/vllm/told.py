"""What vLLM says of itself when it starts, in the lines of its log. Files are those of vLLM 0.21.0."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigwright.engines.kind import Begun

MARKS = (" KV cache size: ", " attention backend", "Model loading took ", "init engine (profile")
# v1/core/kv_cache_utils.py
TOKENS = re.compile(r".*\bKV cache size: ([0-9]{1,3}(?:,[0-9]{3}){0,4}) tokens\b.*")
# platforms/cuda.py; with another head size a model can have two
BACKEND = re.compile(r".*\bUsing ([A-Z][A-Z0-9_]{1,40}) attention backend\b.*")
# v1/worker/gpu_model_runner.py and v1/engine/core.py
SECONDS = re.compile(
    r".*\b(?:Model loading took [0-9.]{1,12} GiB(?: memory)? and|took) ([0-9]{1,6}(\.[0-9]{1,9})?) s.*"
)


def begun(lines: Iterable[str]) -> Begun:
    """What is said; of several workers the first counts, but of backends all do."""
    tokens: list[int] = []
    backends: set[str] = set()
    seconds: dict[str, float] = {}
    for line in lines:
        if found := TOKENS.fullmatch(line):
            tokens.append(int(found[1].replace(",", "")))
        elif found := BACKEND.fullmatch(line):
            backends.add(found[1])
        elif found := SECONDS.fullmatch(line):
            seconds.setdefault("load" if "Model loading" in line else "init", float(found[1]))
    load = round(sum(seconds.values()), 1) if seconds else None
    return Begun(tokens[0] if tokens else None, ", ".join(sorted(backends)), load)
