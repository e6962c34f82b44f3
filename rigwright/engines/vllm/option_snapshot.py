"""vLLM's options, variables and registered names, as the pinned version's own parser and registries say them.

A snapshot is what `python -m lab.vllm_snapshot` prints inside of an environment with that version, unchanged, in
catalog/flags/vllm-VERSION.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rigwright import local_files
from rigwright.problems import Invalid, Problem

KINDS = "bare|switch|text|int|float|count|count or auto|json|any|lora"
OptionSetting = bool | int | float | str | list[Any] | dict[str, Any]
"""A flag's: True for a bare one; a list for several values, or JSON; a table for JSON."""

LARGEST = 16 << 20  # bytes of a snapshot; those that are shipped have 90,000


@dataclass(frozen=True)
class NumberBounds:
    """Between which a number has to be; None where there is no end."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def describe_violation(self, value: float) -> str:
        """The bounds of a number that violates them; else empty."""
        if self.least is not None and value < self.least:
            return f"at least {self.least:g}"
        if self.above is not None and value <= self.above:
            return f"above {self.above:g}"
        if self.most is not None and value > self.most:
            return f"at most {self.most:g}"
        if self.below is not None and value >= self.below:
            return f"below {self.below:g}"
        return ""


@dataclass(frozen=True)
class VllmOption:
    """One option of `vllm serve`."""

    names: tuple[str, ...]
    """With their dashes, those that switch it off included."""
    dest: str
    """The setting that it changes: of two options with the same the later one counts."""
    kind: str
    """bare; switch (bare too, and --no-NAME switches it off); text, int, float; count, such as 16k or 16K; count or
    auto; json; any, which is text or a JSON object; lora.
    """
    none: bool = False
    """Whether `None` is a value."""
    values: str = ""
    """+ for several, ? for one or none, again for one each time that it is given; else exactly one."""
    choices: tuple[str | int, ...] = ()
    folded: bool = False
    """Whether dashes and capitals do not matter in a choice."""
    model: str = ""
    """The name of the configuration that its JSON is."""
    bounds: NumberBounds = NumberBounds()
    """The engine's bounds of a number, in addition to the parser's."""
    default: bool | int | float | str | None = None

    @property
    def name(self) -> str:
        """Its long spelling, without dashes."""
        return next(name for name in self.names if name.startswith("--"))[2:]

    def render_words(self, name: str, value: OptionSetting) -> list[str]:
        """It on a command line. One value is joined to it: `-0.5` or `-O` in a word of its own is read as an option.

        Args:
            name: The spelling, without dashes.
            value: Its value.
        """
        if value is True:
            return [f"--{name}"]
        if isinstance(value, list) and self.kind != "json":
            several = [_render_word(one) for one in value]
            return [f"--{name}", *several] if self.values == "+" else [f"--{name}={one}" for one in several]
        return [f"--{name}={_render_word(value)}"]


def _render_word(value: OptionSetting) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


@dataclass(frozen=True)
class JsonField:
    """One key of a configuration that is given as JSON."""

    types: frozenset[str]
    """JSON's names of them."""
    values: tuple[str | int, ...] = ()
    """The text and numbers that it takes, where only some are taken."""
    items: tuple[str, ...] = ()
    """The types in a list, where they are known."""
    model: str = ""
    bounds: NumberBounds = NumberBounds()


@dataclass(frozen=True)
class EnvironmentVariable:
    """One environment variable that vLLM knows."""

    kind: str
    """text, int, float, json; switch and choice, of its choices; list of choices, with commas."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuantizationMethod:
    """A quantization method."""

    capability: int
    """The least compute capability, 75 for 7.5; -1 for none."""
    dtypes: frozenset[str]
    """The types that it computes in."""
    alone: bool
    """Whether it quantises weights that are not."""


@dataclass(frozen=True)
class VllmSnapshot:
    """One version of vLLM."""

    version: str
    options: tuple[VllmOption, ...]
    models: Mapping[str, Mapping[str, JsonField]]
    variables: Mapping[str, EnvironmentVariable]
    registered: Mapping[str, tuple[str, ...]]
    """Values that are known by name: the option that takes such names -> all of them."""
    methods: Mapping[str, QuantizationMethod] = field(default_factory=dict)
    backends: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The attention backends for a type of KV cache: its name, with ", float32" where the model computes in that and
    not in half of it -> compute capability -> theirs.
    """

    @cached_property
    def _spelled(self) -> dict[str, VllmOption]:
        return {spelling: option for option in self.options for spelling in option.names}

    @cached_property
    def backends_known(self) -> frozenset[str]:
        """The attention backends that are for some type of KV cache on some card."""
        return frozenset(one for rows in self.backends.values() for row in rows.values() for one in row)

    def find(self, name: str) -> VllmOption | None:
        """The option of a name without dashes, long or short."""
        return self._spelled.get(f"--{name}") or self._spelled.get(f"-{name}")

    def names(self) -> list[str]:
        """All long names, without dashes."""
        return [name[2:] for name in self._spelled if name.startswith("--")]


def snapshot_file_name(version: str) -> str:
    """The name of the file of a version, such as 0.21.0; a build's own mark, as in 0.21.0+cpu, changes no option."""
    return f"vllm-{version.partition('+')[0]}.json"


def load_snapshot(path: Path) -> VllmSnapshot:
    """Read a snapshot.

    Raises:
        Invalid: it cannot be read, or is not what `python -m lab.vllm_snapshot` prints.
    """
    try:
        text = local_files.read_content(path, LARGEST).decode()
    except ValueError as error:
        raise Invalid([Problem(str(path), "the file", f"cannot be read: {error}")]) from error
    try:
        return parse_snapshot(text)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        wrong = f"is not what `python -m lab.vllm_snapshot` prints: {type(error).__name__}: {error}"
        raise Invalid([Problem(str(path), "the file", wrong)]) from error


def parse_snapshot(text: str) -> VllmSnapshot:
    """A snapshot of its text.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError: it is invalid.
    """
    said = json.loads(text)
    names = dict(said["names"])
    methods = names.pop("quantization")
    backends = {name: names.pop(f"kv-cache-backends{name}") for name in ("", ", float32")}
    made = VllmSnapshot(
        version=_require_match(r"[0-9]+(\.[0-9]+)+[0-9a-z.]*", said["version"]),
        options=tuple(_parse_option(row) for row in said["options"]),
        models={name: {key: _parse_field(row) for key, row in rows.items()} for name, rows in said["models"].items()},
        variables={
            _require_match(r"[A-Z][A-Z0-9_]*", name): EnvironmentVariable(
                row["kind"], _parse_texts(row.get("choices", ()))
            )
            for name, row in said["variables"].items()
        },
        registered={name: _parse_texts(rows) for name, rows in names.items()} | {"quantization": _parse_texts(methods)},
        methods={
            name: QuantizationMethod(int(row["capability"]), frozenset(_parse_texts(row["dtypes"])), bool(row["alone"]))
            for name, row in methods.items()
        },
        backends={
            f"{name}{dtype}": {card: _parse_texts(row) for card, row in rows.items()}
            for dtype, of in backends.items()
            for name, rows in of.items()
        },
    )
    if not made.find("model"):
        raise ValueError("it has no --model")
    return made


def _require_match(pattern: str, text: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError(f"{text!r} is not a valid name")
    return text


def _parse_texts(rows: Any) -> tuple[str, ...]:
    if not all(isinstance(one, str) for one in rows):
        raise TypeError("not text")
    return tuple(rows)


def _parse_option(row: dict[str, Any]) -> VllmOption:
    names = tuple(_require_match(r"--?[A-Za-z0-9][A-Za-z0-9-]*", name) for name in row.pop("names"))
    row["kind"] = _require_match(KINDS, row["kind"])
    row["choices"] = tuple(row.get("choices", ()))
    return VllmOption(names=names, bounds=NumberBounds(**row.pop("bounds", {})), **row)


def _parse_field(row: dict[str, Any]) -> JsonField:
    bounds = {key: row.pop(key) for key in ("least", "above", "most", "below") if key in row}
    row["types"] = frozenset(row["types"])
    for key in ("values", "items"):
        row[key] = tuple(row.get(key, ()))
    return JsonField(bounds=NumberBounds(**bounds), **row)
