"""The launches of a trial: models, contexts, sequences and types of the KV cache, in an order that gives each class."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction

from benchmarks.memory_fit.checkpoints import checkpoint_bytes
from benchmarks.memory_fit.random_models import RandomModel, list_tensors
from rigwright.engines.llama_buffers import WorkShape, llama_windowed_cells
from rigwright.engines.memory_prediction import ComputedMemory

# As in rigwright/engines/llama_cpp/known_issues.py, without its other modules: this runs where only Python is.
NUMBER_BYTES = {"f16": Fraction(2), "q8_0": Fraction(34, 32), "q4_0": Fraction(18, 32)}
REPACKED = frozenset({"q4_0"})
VLLM_BATCH = 2048  # tokens that vLLM computes at once


@dataclass(frozen=True)
class TrialLaunch:
    """One launch of a trial."""

    engine: str
    model: RandomModel
    context: int
    """Tokens over all sequences."""
    parallel: int = 1
    kv_type: str = "f16"
    flash: bool = True
    cards: int = 0
    """How many it may see."""

    @property
    def name(self) -> str:
        """A text that only this launch has."""
        kind = f"{self.kv_type}{'' if self.flash else ' no-fa'}"
        return f"{self.engine} {self.model.name} c={self.context} np={self.parallel} kv={kind}"

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache."""
        model, number = self.model, NUMBER_BYTES[self.kv_type]
        each = 2 * model.kv_heads * model.head_width * number
        sequence = self.context // self.parallel
        full = (model.layers - model.windowed_layers) * sequence
        windowed = model.windowed_layers * llama_windowed_cells(sequence, model.window) if model.window else 0
        return int((full + windowed) * each) * self.parallel

    def compute(self, card_names: tuple[str, ...], driver: str) -> ComputedMemory:
        """Its computed sizes."""
        model, used = self.model, card_names[: self.cards]
        options = hashlib.sha256(f"{self.engine} {self.flash} {used}".encode()).hexdigest()
        digest = hashlib.sha256(repr(model).encode()).hexdigest()
        common = {"model": digest, "options": options, "cards": used, "driver": driver}
        if self.engine == "vllm":
            return ComputedMemory(
                engine="vllm",
                **common,  # type: ignore[arg-type]
                context=self.context,
                parallel=self.parallel,
                weights=checkpoint_bytes(model),
                cache=self.kv_bytes,
                work=VLLM_BATCH * 2 * (3 * model.feed_forward + 4 * model.width) + 256 * model.vocabulary * 4,
            )
        tensors = list_tensors(model)
        embedding = tensors[0].size
        matrices = sum(one.size for one in tensors if len(one.shape) > 1) - embedding
        work = WorkShape(model.width, model.feed_forward, model.heads, flash=self.flash, windowed=bool(model.window))
        on_cards, shape = bool(used), (self.context // self.parallel, self.parallel)
        growing = work.context_bytes(*shape)
        return ComputedMemory(
            engine="llama.cpp",
            **common,  # type: ignore[arg-type]
            context=self.context,
            parallel=self.parallel,
            weights=sum(one.size for one in tensors) - (embedding if on_cards else 0),
            cache=self.kv_bytes,
            work=work.step_bytes(*shape) + (growing if on_cards else matrices if model.weights in REPACKED else 0),
            later=0 if on_cards else growing,
            host=embedding if on_cards else 0,
        )


# Layers, width, heads, KV heads, feed-forward width, vocabulary, weights, window.
Row = tuple[int, int, int, int, int, int, str, int]
CPU_MODELS: tuple[Row, ...] = (
    (8, 768, 12, 4, 3072, 32000, "f16", 0),
    (16, 1024, 16, 8, 2048, 32000, "q8_0", 0),
    (8, 1024, 8, 4, 4096, 48000, "q4_0", 0),
    (12, 896, 7, 7, 3584, 32000, "q8_0", 512),
    (20, 640, 10, 5, 1792, 64000, "f16", 0),
    (6, 1536, 12, 6, 4096, 32000, "q4_0", 0),
    (12, 512, 8, 4, 2048, 96000, "f16", 1024),
    (14, 768, 12, 2, 3840, 32000, "q8_0", 0),
    (10, 1024, 16, 4, 2816, 64000, "q4_0", 0),
    (12, 1024, 16, 8, 3072, 96000, "q8_0", 0),
)
# Of 1 to 30 GB.
CARD_MODELS: tuple[Row, ...] = (
    (16, 2048, 32, 8, 8192, 128256, "q8_0", 0),
    (28, 3072, 24, 8, 8192, 128256, "q4_0", 0),
    (32, 4096, 32, 8, 14336, 128256, "q4_0", 0),
    (26, 2560, 10, 5, 10240, 128256, "q8_0", 1024),
    (28, 3584, 28, 4, 18944, 152064, "q8_0", 0),
    (32, 4096, 32, 8, 14336, 32000, "f16", 0),
    (40, 5120, 40, 8, 13824, 152064, "q4_0", 0),
    (36, 4096, 32, 8, 12288, 151936, "q8_0", 0),
    (48, 5120, 40, 8, 17408, 152064, "q4_0", 0),
    (48, 3840, 15, 5, 15360, 128256, "q4_0", 1024),
    (40, 5120, 40, 8, 14336, 131072, "q8_0", 0),
    (40, 5120, 40, 8, 17408, 151936, "f16", 0),
    (64, 5120, 40, 8, 27648, 152064, "q4_0", 0),
    (62, 5376, 42, 14, 21504, 128256, "q8_0", 0),
)
VLLM_MODELS: tuple[Row, ...] = (
    (28, 1024, 8, 4, 3072, 32000, "f16", 0),
    (28, 2048, 16, 8, 6144, 32000, "f16", 0),
    (36, 2560, 20, 4, 9728, 64000, "f16", 0),
    (36, 4096, 32, 8, 12288, 96000, "f16", 0),
    (24, 3072, 24, 8, 8192, 64000, "f16", 0),
)


def make_models(rows: tuple[Row, ...], prefix: str) -> list[RandomModel]:
    """The models of a table."""
    return [
        RandomModel(f"{prefix}{number:02}", *row[:6], weights=row[6], window=row[7])
        for number, row in enumerate(rows, start=1)
    ]


def plan_llama(models: list[RandomModel], cards: int) -> list[TrialLaunch]:
    """Of each model one launch that is new, four with other contexts, sequences and KV types, and the first again."""
    made = []
    for number, model in enumerate(models):
        base = 4096 if number % 2 else 8192
        first = TrialLaunch("llama.cpp", model, base, 1, "f16", cards=cards)
        made += [
            first,
            replace(first, context=base * 4),
            replace(first, context=base * 2, parallel=4),
            replace(first, context=base * 2, kv_type="q8_0"),
            replace(first, context=base * 8 if cards else base, parallel=8),
            first,
        ]
    return made


def plan_vllm(models: list[RandomModel], cards: int) -> list[TrialLaunch]:
    """Of each model one launch that is new, one with twice the KV cache, and the first again."""
    made = []
    for model in models:
        first = TrialLaunch("vllm", model, 16384, cards=cards)
        made += [first, replace(first, context=65536), first]
    return made
