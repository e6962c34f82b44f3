"""What the router is told: its settings, part of the generation, and the keys, both read whole or not at all."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .fields import ENTRY, KINDS, FieldRule, RuleSet

_ONE = TypeVar("_ONE")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_INSTANCE = re.compile(rf"({_NAME.pattern}/)?{_NAME.pattern}")
"""BOX/NAME is one of another box."""
_MODEL = re.compile(r"[\x21-\x7e]{1,256}")
_PATH = re.compile(r"[a-z][a-z0-9_/-]{0,63}")
_STICKY = re.compile(r"|conversation|header:[a-z0-9-]{1,64}")
_PLACE = re.compile(r"[A-Za-z0-9_]+(\[\])?(\.[A-Za-z0-9_]+(\[\])?)*")
_RULE = re.compile(r"[a-z_]{1,64}")
_ANY = re.compile(r"[\x20-\x7e]{1,1024}")
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEY_NAME = re.compile(r"[\x21-\x7e]{1,64}")


class Broken(Exception):
    """A file that cannot be used, and why: file, key, what is allowed."""


@dataclass(frozen=True)
class Listener:
    """Where callers come in."""

    keys: bool
    """Whether they need one."""
    models: frozenset[str] | None
    """That are served there; None: all."""


@dataclass(frozen=True)
class Model:
    """What requests name."""

    instances: tuple[str, ...]
    engine_name: Mapping[str, str]
    """By instance: what its engine calls the model."""
    paths: tuple[str, ...]
    """As they follow /v1/."""
    sticky: str
    """By what requests find the same instance again: nothing, `conversation`, `header:NAME`."""
    rules: Mapping[str, RuleSet]
    """What the fields of requests are judged by, for each of `paths`."""
    salted: bool
    """Whether prefix caches of its engines are kept apart by key."""
    usage_on_request: bool = False
    """Whether its streams name their tokens if a request has `stream_options.include_usage`."""
    on_demand: frozenset[str] = frozenset()
    """Instances that requests start."""


@dataclass(frozen=True)
class Key:
    """A caller's key, which is not known here itself."""

    id: str
    name: str
    sha256: str
    models: frozenset[str] | None
    """That it opens; None: all."""
    requests_per_minute: int | None
    streams: int | None
    """At a time."""
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    """UTC."""
    tokens_per_month: int | None = None
    """UTC."""
    wake: bool = True
    """Whether its requests start instances on demand."""
    evict: bool = True
    """Whether such a start may have another model stopped, where the listener allows that."""
    until: int | None = None
    """Seconds since 1970 from which on it opens nothing; None: it stays."""


@dataclass(frozen=True)
class Settings:
    """What of settings.json the router needs."""

    listeners: Mapping[str, Listener]
    models: Mapping[str, Model]
    aliases: Mapping[str, str]
    every: float
    """Seconds between two looks at an instance."""
    timeout: float
    """Seconds in which it must answer."""
    links: Path
    out: Path
    rotation: Path
    """The folder of root's reasons to keep instances out."""
    admin: Path
    digest: str
    wake_socket: Path | None = None
    """By which instances on demand are started; None without any."""
    wake_states: Path | None = None
    """The file of those that requests do not start."""

    def served(self, name: str) -> str:
        """The model's own name for an alias, or the name itself."""
        return self.aliases.get(name, name)

    def names(self, model: str) -> tuple[str, ...]:
        """All names of a model, its own first."""
        return (model, *(alias for alias, name in self.aliases.items() if name == model))

    def out_file(self, instance: str) -> Path:
        """The file that there is of an instance that is left out."""
        return self.out / instance.replace("/", "_")

    def ready_since(self, instance: str) -> int | None:
        """Since when an instance says that it is ready, in nanoseconds by the host's clock; None if it does not. One of
        another box says nothing here, and has always done so.
        """
        if "/" in instance:
            return 0
        try:
            return (self.links / instance).lstat().st_mtime_ns
        except FileNotFoundError:
            return None

    @property
    def instances(self) -> dict[str, str]:
        """What the engine of each instance calls its model, by instance."""
        return {one: model.engine_name[one] for model in self.models.values() for one in model.instances}


@dataclass(frozen=True)
class Keys:
    """What is in keys.json."""

    by_id: Mapping[str, Key]
    digest: str
    """SHA-256 of the file."""


def read_settings(path: Path) -> Settings:
    """Read settings.json.

    Raises:
        Broken: it is not there, or not what it should be.
    """
    text = _text(path)
    root = _Table(path.name, "", _json(path, text))
    probe = root.table("probe")
    wake = root.table("wake") if "wake" in root.value else None
    rules = [_rule(one) for one in root.rows("fields")]
    settings = Settings(
        listeners={name: _listener(one) for name, one in root.tables("listeners", _NAME).items()},
        models={name: _model(one, rules) for name, one in root.tables("models", _MODEL).items()},
        aliases=root.words("aliases"),
        every=probe.number("every"),
        timeout=probe.number("timeout"),
        links=Path(root.text("links")),
        out=Path(root.text("out")),
        rotation=Path(root.text("rotation")),
        admin=Path(root.text("admin")),
        digest=root.text("digest"),
        wake_socket=Path(wake.text("socket")) if wake else None,
        wake_states=Path(wake.text("states")) if wake else None,
    )
    for alias, name in settings.aliases.items():
        if name not in settings.models:
            raise Broken(f"{path.name}: aliases/{alias}: there is no model {name}")
        if alias in settings.models:
            raise Broken(f"{path.name}: aliases/{alias}: a model has this name")
    return settings


def read_keys(path: Path) -> Keys:
    """Read keys.json.

    Raises:
        Broken: it is not there, or not what it should be.
    """
    text = _text(path)
    root = _Table(path.name, "", _json(path, text))
    by_id: dict[str, Key] = {}
    ending = root.rows("ending") if "ending" in root.value else []
    for one in (*root.rows("keys"), *ending):
        key = Key(
            id=one.text("id", _KEY_ID),
            name=one.text("name", _KEY_NAME),
            sha256=one.text("sha256", _SHA256),
            models=one.names("models"),
            requests_per_minute=one.count("requests_per_minute"),
            streams=one.count("streams"),
            tokens_per_minute=one.count("tokens_per_minute"),
            tokens_per_day=one.count("tokens_per_day"),
            tokens_per_month=one.count("tokens_per_month"),
            wake=one.right("wake"),
            evict=one.right("evict"),
            until=one.take("until", int, "seconds since 1970") if one in ending else None,
        )
        if key.id in by_id or not key.sha256.startswith(key.id):
            raise Broken(f"{path.name}: {one.place}id: must be the first 16 digits of sha256, and one key's alone")
        by_id[key.id] = key
    return Keys(by_id, hashlib.sha256(text).hexdigest())


def _listener(one: _Table) -> Listener:
    return Listener(keys=one.take("keys", bool, "true or false"), models=one.names("models"))


def _rule(one: _Table) -> FieldRule:
    kind = one.text("kind")
    if kind not in KINDS:
        raise Broken(f"{one.file}: {one.place}kind: must be one of {', '.join(KINDS)}")
    return FieldRule(
        name=one.text("name", _RULE),
        kind=kind,
        places=tuple(tuple(place.replace(ENTRY, f".{ENTRY}").split(".")) for place in one.texts("at", _PLACE)),
        names=frozenset(one.texts("names", _ANY)),
        least=float(one.take("least", int, "a whole number")),
        most=float(one.take("most", int, "a whole number")),
        demand=one.text("demand", _ANY),
        paths=frozenset(one.texts("paths", _PATH)),
    )


def _model(one: _Table, rules: list[FieldRule]) -> Model:
    instances = one.texts("instances", _INSTANCE)
    names = one.words("engine_name")
    for instance in instances:
        if instance not in names:
            raise Broken(f"{one.file}: {one.place}engine_name: {instance} is missing")
    paths, allowed = one.texts("paths", _PATH), set(one.texts("allow_fields", _RULE))
    if unknown := allowed - {rule.name for rule in rules}:
        raise Broken(f"{one.file}: {one.place}allow_fields: there is no rule {min(unknown)}")
    judging = [rule for rule in rules if rule.name not in allowed]
    return Model(
        *(instances, names, paths, one.text("sticky", _STICKY)),
        rules={path: RuleSet([rule for rule in judging if path in rule.paths or not rule.paths]) for path in paths},
        salted=one.take("salted", bool, "true or false"),
        usage_on_request=one.take("usage_on_request", bool, "true or false"),
        on_demand=frozenset(one.texts("on_demand", _INSTANCE) if "on_demand" in one.value else ()),
    )


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Broken(f"{path.name}: {error.strerror}") from None


def _json(path: Path, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Broken(f"{path.name}: it is not JSON") from None


@dataclass(frozen=True)
class _Table:
    """An object of a file, which says where it is when something in it is wrong."""

    file: str
    place: str
    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise self._wrong("", "an object")

    def _wrong(self, key: str, allowed: str) -> Broken:
        return Broken(f"{self.file}: {self.place}{key}: must be {allowed}")

    def take(self, key: str, kind: type[_ONE], allowed: str) -> _ONE:
        value = self.value.get(key)
        if not isinstance(value, kind):
            raise self._wrong(key, allowed)
        return value

    def table(self, key: str) -> _Table:
        return _Table(self.file, f"{self.place}{key}/", self.value.get(key))

    def tables(self, key: str, names: re.Pattern[str]) -> dict[str, _Table]:
        inner = self.table(key)
        for name in inner.value:
            if not names.fullmatch(name):
                raise inner._wrong("", f"by names of {names.pattern}")
        return {name: inner.table(name) for name in inner.value}

    def rows(self, key: str) -> list[_Table]:
        rows = self.take(key, list, "a list")
        return [_Table(self.file, f"{self.place}{key}/{number}/", one) for number, one in enumerate(rows)]

    def text(self, key: str, form: re.Pattern[str] | None = None) -> str:
        value = self.take(key, str, "a text")
        if form is not None and not form.fullmatch(value):
            raise self._wrong(key, f"of the form {form.pattern}")
        return value

    def texts(self, key: str, form: re.Pattern[str]) -> tuple[str, ...]:
        value = self.take(key, list, "a list of texts")
        if not all(isinstance(one, str) and form.fullmatch(one) for one in value):
            raise self._wrong(key, f"a list of texts of the form {form.pattern}")
        return tuple(value)

    def names(self, key: str) -> frozenset[str] | None:
        return None if self.value.get(key) is None else frozenset(self.texts(key, _MODEL))

    def words(self, key: str) -> dict[str, str]:
        value = self.table(key).value
        if not all(isinstance(one, str) for one in value.values()):
            raise self._wrong(key, "an object of texts")
        return dict(value)

    def number(self, key: str) -> float:
        value = self.value.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
            raise self._wrong(key, "a number of seconds above 0")
        return float(value)

    def right(self, key: str) -> bool:
        return key not in self.value or self.take(key, bool, "true or false")

    def count(self, key: str) -> int | None:
        value = self.value.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self._wrong(key, "a whole number above 0, or null")
        return value
