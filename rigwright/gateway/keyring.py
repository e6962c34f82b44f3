"""The clients that may ask a gateway: the file of keys next to an inventory, and the part of it that hosts get.

A key itself is in no file. `key` shows a new key once and keeps its SHA-256: of 32 random bytes nothing can be guessed
from that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, StrictBool

from rigwright.file_lock import file_lock
from rigwright.gateway.keys_file_version import RIGHTS, TOKEN_LIMITS, KeyVersion, next_version, version_for
from rigwright.problems import FrozenModel, Invalid, Problem
from rigwright.project_root import require_own_place
from rigwright.toml import load_toml
from rigwright.validated_types import Day, Name, Sha256

FILE = "gateway-keys.toml"
HEADER = "# Gateway keys, written by `rigwright key`: only their SHA-256 hashes. No key is in here.\n"
MAXIMUM = 4 * 1024 * 1024  # bytes: some 20,000 keys
SHOWN = 16  # digits of a SHA-256 that a key goes by between nginx and router
RANDOM = 32  # bytes
LISTED = 6  # versions on a line of the file
MOST = 1_000_000  # of whatever is limited, but tokens
MOST_TOKENS = 10**12
PATIENCE = 30.0  # seconds for which another process that changes the file is waited for


def _model(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}", value):
        raise ValueError("a model's name: letters, digits and ._:/@+-, at most 128")
    return value


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("a time with its zone, such as 2026-06-10T12:00:00Z")
    return value.astimezone(timezone.utc).replace(microsecond=0)


ModelName = Annotated[str, AfterValidator(_model)]
Moment = Annotated[datetime, PlainValidator(_moment), PlainSerializer(datetime.isoformat)]
Limit = Annotated[int, Field(ge=1, le=MOST, strict=True)]
TokenLimit = Annotated[int, Field(ge=1, le=MOST_TOKENS, strict=True)]


class RotatedKey(FrozenModel):
    """The state of a key before its rotation."""

    sha256: Sha256 = Field(description="SHA-256 of the previous key.")
    until: Moment = Field(description="When it expires.")


class ClientKey(FrozenModel):
    """One name's key."""

    sha256: Sha256 = Field(description="SHA-256 of the key.")
    models: tuple[ModelName, ...] | None = Field(
        default=None, min_length=1, description="Models that it may use, by name or alias; default: all."
    )
    requests_per_minute: Limit | None = Field(default=None, description="Requests per minute.")
    streams: Limit | None = Field(default=None, description="Concurrent requests.")
    tokens_per_minute: TokenLimit | None = Field(default=None, description="Input and output tokens in any minute.")
    tokens_per_day: TokenLimit | None = Field(default=None, description="Input and output tokens per day (UTC).")
    tokens_per_month: TokenLimit | None = Field(default=None, description="Input and output tokens per month (UTC).")
    wake: StrictBool = Field(default=True, description="Whether its requests start instances on demand.")
    evict: StrictBool = Field(
        default=True,
        description="Whether such a start may have another model stopped; the listener must allow it, too.",
    )
    made: Day = Field(description="Creation date (UTC).")
    old: RotatedKey | None = Field(default=None, description="The previous key, while it is still valid.")

    def without_expired(self, moment: datetime) -> ClientKey:
        """Without the key before it where that is not valid any more."""
        return self.model_copy(update={"old": None}) if self.old and self.old.until <= moment else self


class ClientKeyring(FrozenModel):
    """The file."""

    keys: dict[Name, ClientKey] = Field(default_factory=dict, description="Name -> its key.")
    version: KeyVersion | None = Field(
        default=None, description="The version of these keys, or of those that they were made from; default: none yet."
    )

    def with_key(self, name: str, key: ClientKey | None) -> ClientKeyring:
        """With another key of a name; None for no key."""
        others = {one: kept for one, kept in self.keys.items() if one != name}
        return ClientKeyring(keys=others | ({name: key} if key else {}), version=self.version)

    @property
    def restricted_names(self) -> tuple[str, ...]:
        """Names of keys that lack one of RIGHTS."""
        return tuple(name for name, key in sorted(self.keys.items()) if not all(getattr(key, one) for one in RIGHTS))

    @property
    def current_version(self) -> KeyVersion:
        """The version of exactly these keys."""
        return version_for(self.version, _versioned_content(self))


def load_keyring(path: Path) -> ClientKeyring:
    """Read the file, with the version of its keys; without the file there are no keys.

    Raises:
        Invalid: it is something else.
    """
    found = read_keys_file(path)
    return found.model_copy(update={"version": found.current_version})


def read_keys_file(path: Path) -> ClientKeyring:
    """Read the file as it is: keys that were edited by hand stand there with the version before.

    Raises:
        Invalid: it is something else.
    """
    try:
        if not path.exists() and not path.is_symlink():
            return ClientKeyring()
        if not path.is_file() or path.stat().st_size > MAXIMUM:
            raise Invalid([Problem(str(path), "the file", f"must be a file of at most {MAXIMUM} bytes")])
    except OSError as error:
        raise Invalid([Problem(str(path), "the file", f"cannot be read: {error.strerror}")]) from None
    found = load_toml(path, ClientKeyring)
    if problems := list(_find_duplicates(str(path), found)):
        raise Invalid(problems)
    return found


def describe_missing_file(file: Path | str) -> str:
    """The message about a missing file where hosts have keys: to go on would take them all away."""
    return (
        f"{file} is not there: bring it back, or create it empty and run `key sync INVENTORY --replace-newer` "
        "to take all keys away"
    )


def lock_keys_file(path: Path, doing: str) -> AbstractContextManager[None]:
    """Hold the lock of a keys file: a process that changes it reads it and writes it in this block.

    Args:
        path: The keys file.
        doing: The command, which a waiting process names.

    Raises:
        FileLockHeld: another process holds it for `PATIENCE` seconds.
        OSError: the lock file cannot be used.
    """
    real = path.resolve()
    return file_lock(real.with_name(f".{real.name}.lock"), doing, PATIENCE)


def describe_failure(file: Path, error: OSError) -> str:
    """Why a keys file, or its lock, cannot be written."""
    # a file that is written has a temporary name
    place = error.filename if str(error.filename or "").endswith(".lock") else f"{file} cannot be written"
    return f"{place}: {error.strerror}"


def write_version(path: Path, doing: str, *, advance: bool = False) -> ClientKeyring:
    """Write the version of the keys into their file where that does not name it, as after an edit by hand.

    Args:
        path: The keys file; where there is none, none is written.
        doing: As in `lock_keys_file`.
        advance: Make the keys their file's next version, as they replace some that were not made from it.

    Raises:
        Invalid: the file is refused.
        FileLockHeld: as `lock_keys_file`.
        OSError: it cannot be written.
    """
    found = read_keys_file(path)
    if not advance and (found.version == found.current_version or not path.exists()):
        return found.model_copy(update={"version": found.current_version})
    with lock_keys_file(path, doing):
        found = load_keyring(path)
        if advance:
            found = found.model_copy(update={"version": next_version(found.current_version, _versioned_content(found))})
        dump(path, found)
    return found


def _find_duplicates(file: str, keyring: ClientKeyring) -> Iterator[Problem]:
    """Keys that could not be told apart."""
    kept = [(name, "sha256", key.sha256) for name, key in sorted(keyring.keys.items())]
    kept += [(name, "old.sha256", key.old.sha256) for name, key in sorted(keyring.keys.items()) if key.old]
    there: dict[str, str] = {}
    for name, field, sha256 in kept:
        if other := there.get(sha256[:SHOWN]):
            wrong = f'"{sha256[:SHOWN]}..." is refused: {other} has a key with the same prefix'
            yield Problem(file, f"keys.{name}.{field}", wrong)
        there.setdefault(sha256[:SHOWN], name)


def render_keyring(keyring: ClientKeyring) -> str:
    """The file's text: the same for the same keys."""
    tables = "".join(_render_table(name, key) for name, key in sorted(keyring.keys.items()))
    return HEADER + tables + _render_version(keyring.current_version)


def _render_version(version: KeyVersion) -> str:
    before = [json.dumps(one) for one in version.before]
    lines = [", ".join(before[at : at + LISTED]) for at in range(0, len(before), LISTED)]
    listed = "".join(f"  {line},\n" for line in lines)
    return (
        "\n# orders changes of several controllers: do not edit\n[version]\n"
        f'serial = {version.serial}\nid = "{version.id}"\nbefore = [\n{listed}]\n'
    )


def _render_table(name: str, key: ClientKey) -> str:
    values = {
        "sha256": json.dumps(key.sha256),
        "models": json.dumps(list(key.models)) if key.models else "",
        "requests_per_minute": str(key.requests_per_minute or ""),
        "streams": str(key.streams or ""),
        **{limit: str(getattr(key, limit) or "") for limit in TOKEN_LIMITS},
        **{right: "" if getattr(key, right) else "false" for right in RIGHTS},
        "made": key.made,
        "old": f'{{sha256 = "{key.old.sha256}", until = {key.old.until:%Y-%m-%dT%H:%M:%SZ}}}' if key.old else "",
    }
    return f"\n[keys.{name}]\n" + "".join(f"{field} = {value}\n" for field, value in values.items() if value)


def dump(path: Path, keyring: ClientKeyring) -> None:
    """Write the file, for its owner alone: a reader finds the one before or this one, whatever happens.

    Raises:
        OSError: it cannot be written; the one before is there.
    """
    real = path.resolve()
    require_own_place(real)
    with NamedTemporaryFile("w", dir=real.parent, prefix=f".{real.name}.", delete=False) as file:
        try:
            os.fchmod(file.fileno(), 0o600)
            file.write(render_keyring(keyring))
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(real)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise
    folder = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def generate_key() -> str:
    """A new key: `rw-` and 32 random bytes as 43 letters, digits, dashes and underscores (RFC 4648, 5)."""
    return f"rw-{secrets.token_urlsafe(RANDOM)}"


def hash_key(clear: str) -> str:
    """The stored form of a key."""
    return hashlib.sha256(clear.encode()).hexdigest()


def key_rows(keyring: ClientKeyring) -> list[dict[str, object]]:
    """The rows for hosts, by name: a row a key."""
    return [_row(name, key, key.sha256) for name, key in sorted(keyring.keys.items())]


def expiring_rows(keyring: ClientKeyring) -> list[dict[str, object]]:
    """Rows of earlier keys, each with its end (`until`, seconds since 1970).

    Apart from the others: a reader that skips the end must not take one for a key.
    """
    return [
        _row(name, key, key.old.sha256) | {"until": int(key.old.until.timestamp())}
        for name, key in sorted(keyring.keys.items())
        if key.old
    ]


def keys_json(keyring: ClientKeyring) -> str:
    """Both, as hosts get them, with their version at the end (templates/gateway/version.sh.j2 reads it there)."""
    version = keyring.current_version
    numbered = json.dumps({"serial": version.serial, "id": version.id}, separators=(",", ":"))
    return f'{_versioned_content(keyring)[:-1]},"version":{numbered}}}\n'


def digests_of_none() -> tuple[str, ...]:
    """SHA-256 of what hosts are given where there is no file: with a version, and from before there were any."""
    return keys_digest(keys_json(ClientKeyring())), keys_digest(f"{_versioned_content(ClientKeyring())}\n")


def _versioned_content(keyring: ClientKeyring) -> str:
    return json.dumps({"keys": key_rows(keyring), "ending": expiring_rows(keyring)}, separators=(",", ":"))


def _row(name: str, key: ClientKey, sha256: str) -> dict[str, object]:
    return {
        "id": sha256[:SHOWN],
        "name": name,
        "sha256": sha256,
        "models": list(key.models) if key.models else None,
        "requests_per_minute": key.requests_per_minute,
        "streams": key.streams,
        # only where they differ from the default: other keys stay the version that they are
        **{limit: getattr(key, limit) for limit in TOKEN_LIMITS if getattr(key, limit)},
        **{right: False for right in RIGHTS if not getattr(key, right)},
    }


def keys_digest(given: str) -> str:
    """SHA-256 of what hosts are given, by which they say what they have."""
    return hashlib.sha256(given.encode()).hexdigest()
