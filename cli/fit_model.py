"""A model without a lock on cards of the catalogue: a GGUF file, here or on the hub, or a folder for vLLM."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

from cli.exit_codes import InvalidRequest
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_buffers import MICRO_BATCH, WorkShape, llama_windowed_cells
from rigwright.engines.llama_cpp.model_files import SPLIT
from rigwright.engines.memory_assessment import DRIVER_RESERVE, assess_computed
from rigwright.engines.memory_fit import MIB, MemoryNeed
from rigwright.engines.memory_prediction import ComputedMemory, MeasuredMemory
from rigwright.engines.vllm.known_issues import SHARE
from rigwright.memory_answers import FitRow
from rigwright.memory_records import AcceptedRecords, as_measurements
from rigwright.model.catalog_schema import Card, MissingModelFile
from rigwright.problems import describe_unknown, format_value
from rigwright.project_root import ROOT
from rigwright.supply.artefact import CONFIG, TEXT, Artefact, GgufMetadata
from rigwright.validated_types import ARTEFACT_FILE
from rigwright.weights.checkpoint import WEIGHTS, format_some, parse_checkpoint
from rigwright.weights.safetensors import BrokenSafetensors

HUB_FILE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95})/([A-Za-z0-9._/-]{1,200}\.gguf)"
)
ENGINE = "llama.cpp"
CONTEXT = 8192  # tokens, without --context
MOST_WINDOW = 1 << 24


def assess_model(
    name: str, cards: str | None, context: int | None, parallel: int | None, books: Mapping[str, AcceptedRecords]
) -> FitRow:
    """The answer for a GGUF file that llama.cpp serves with a KV cache of f16, or for a folder that vLLM serves.

    Raises:
        InvalidRequest: no such file, folder or card, or the header does not state the memory.
    """
    placed, measured = _select_cards(cards), as_measurements(books)
    served = os.path.isdir(name)  # noqa: PTH112 (False for a name that is too long)
    if served:
        need, size = _estimate_folder(Path(name), placed, context or CONTEXT, parallel or 1)
    else:
        header, size = read_header(name)
        need = _estimate_need(header, size, placed, context or CONTEXT, parallel or 1)
    if need.cache is None:
        raise InvalidRequest(f"MODEL: {format_value(name)} does not state the size of its KV cache")
    names = tuple(card.name for card in placed)
    label = _engine_label("vllm" if served else ENGINE, measured, names)

    def compute(tokens: int, sequences: int) -> ComputedMemory:
        sized = need.with_tokens(tokens, sequences)
        work, later = sized.work_bytes(on_cards=bool(placed))
        return ComputedMemory(
            engine=label,
            model=name,
            options="",
            cards=names,
            driver="",
            context=tokens,
            parallel=sequences,
            weights=need.weights,
            cache=sized.cache_bytes,
            work=work,
            later=later,
            host=size - need.weights,
            share=need.share if need.takes_share else 0.0,
            parts=need.parts,
        )

    left = [card.vram_mib * MIB - DRIVER_RESERVE for card in placed]
    room = tuple(int(size * need.share) for size in left)
    answer = assess_computed(compute, need, measured, room)
    place = ", ".join(names) or "RAM"
    return FitRow("", "", Path(name).name, place, answer, reserves=(DRIVER_RESERVE,) * len(placed))


def _estimate_folder(folder: Path, cards: tuple[Card, ...], context: int, parallel: int) -> tuple[MemoryNeed, int]:
    """The memory of a folder of safetensors that vLLM serves with its defaults, and the bytes of its weights."""
    if not cards:
        raise InvalidRequest(f"MODEL: {format_value(str(folder))} is a folder, for vLLM: name its cards with --cards")
    try:
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
        config = folder / CONFIG
        if not files.get(CONFIG):
            raise MissingModelFile(f"{CONFIG} is missing or empty: vLLM needs it")
        text = config.read_text(encoding="utf-8") if files[CONFIG] <= TEXT else None
        read = [name for name, size in files.items() if size and (name == CONFIG or name.endswith(WEIGHTS))]
        if wrong := [format_value(name) for name in read if not ARTEFACT_FILE.fullmatch(name)]:
            raise MissingModelFile(f"rename {format_some(wrong)}: letters, digits and ._+~- are allowed in a name")
        rows = [
            Artefact(
                kind="weight",
                name="model",
                version="0",
                group="model",
                file=name,
                sha256=hashlib.sha256((text or "").encode()).hexdigest(),
                size=files[name],
                sources=(f"shelf:{CONFIG}",),
                text=text if name == CONFIG else None,
            )
            for name in read
        ]
        found = parse_checkpoint(rows, tokenizer=False)
    except (OSError, UnicodeDecodeError, MissingModelFile) as error:
        raise InvalidRequest(f"MODEL: {format_value(str(folder))}: {error}") from None
    need = MemoryNeed(
        weights=found.size,
        key="--context",
        tokens=context,
        requests=parallel,
        cache=found.cache,
        key_bytes=Fraction(2),
        value_bytes=Fraction(2),
        share=SHARE,
        takes_share=True,
    )
    return need, found.size


def _estimate_need(header: GgufMetadata, size: int, cards: tuple[Card, ...], context: int, parallel: int) -> MemoryNeed:
    kept, work, on_cards = header.cache, header.work, bool(cards)
    parts = tuple(float(card.vram_mib) for card in cards)
    if kept and kept.window:
        kept = kept.model_copy(update={"window": llama_windowed_cells(MOST_WINDOW, kept.window, MICRO_BATCH)})
    windowed = bool(kept and kept.window)
    return MemoryNeed(
        weights=size - (header.off_card if on_cards else 0),
        key="--context",
        tokens=context,
        requests=parallel,
        cache=kept,
        key_bytes=Fraction(2),
        value_bytes=Fraction(2),
        work=WorkShape(work.width, work.feed_forward, work.heads, windowed=windowed) if work else None,
        repacked=work.repacked if work else 0,
        parts=parts,
    )


def _engine_label(kind: str, measured: list[MeasuredMemory], cards: tuple[str, ...]) -> str:
    """The engine of the latest record on such cards: of any version of its kind."""
    known = [one.computed.engine for one in measured if one.computed.cards == cards and not one.failure]
    return next((one for one in reversed(known) if one.partition(" ")[0] == kind), kind)


def _select_cards(names: str | None) -> tuple[Card, ...]:
    wanted = [name.strip() for name in names.split(",")] if names else []
    catalog = load_catalog([ROOT / "catalog"])
    if wrong := [name for name in wanted if name not in catalog.cards]:
        raise InvalidRequest(f"--cards: {describe_unknown('card', wrong[0], catalog.cards)}")
    return tuple(catalog.cards[name] for name in wanted)


def read_header(name: str) -> tuple[GgufMetadata, int]:
    """The header of a file here or on the hub, and the file's size.

    Raises:
        InvalidRequest: there is no such file, or it is no GGUF.
    """
    from cli.lock_resolver.checkpoint_inspection import parse_header
    from cli.lock_resolver.downloads import DownloadUnavailable

    path = Path(name)
    if (split := SPLIT.fullmatch(path.name)) and int(split["count"]) > 1:
        raise InvalidRequest(
            f"MODEL: {format_value(name)} is one of {int(split['count'])} parts of a model: add the model to an "
            "inventory, or merge its parts with llama-gguf-split --merge"
        )
    try:
        if path.exists() and not path.is_file():
            raise InvalidRequest(f"MODEL: {format_value(name)} is no regular file")
        size, beginning = _open_here(path) if path.exists() else _open_on_hub(name)
        found = parse_header(name, size, beginning)
    except (OSError, BrokenSafetensors, DownloadUnavailable) as error:
        raise InvalidRequest(f"MODEL: {format_value(name)}: {error}") from None
    if found is None:
        raise InvalidRequest(f"MODEL: {format_value(name)} is no GGUF file: its name ends in .gguf")
    return found, size


Beginning = Callable[[int], bytes]


def _open_here(path: Path) -> tuple[int, Beginning]:
    def beginning(count: int) -> bytes:
        with path.open("rb") as file:
            return file.read(count)

    return path.stat().st_size, beginning


def _open_on_hub(name: str) -> tuple[int, Beginning]:
    from cli.lock_resolver import downloads
    from cli.lock_resolver.model_hub import HubEndpoint

    found = HUB_FILE.fullmatch(name)
    if not found:
        raise InvalidRequest(f"MODEL: {format_value(name)} is no file here, and no OWNER/NAME/FILE.gguf of the hub")
    hub = HubEndpoint()
    listing = hub.read_listing(found[1], "main")
    sizes = {one.path: one.size for one in listing.files}
    size = sizes.get(found[2])
    if size is None:
        there = [path for path in sizes if path.endswith(".gguf")]
        raise InvalidRequest(f"MODEL: {describe_unknown('file', found[2], there)}")
    session, url = hub.open_session(), hub.file_url(found[1], listing.commit, found[2])
    return size, lambda count: downloads.fetch_beginning(session, url, count)
