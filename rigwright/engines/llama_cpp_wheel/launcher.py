#!/usr/bin/python3 -ISBXpycache_prefix=/dev/null
"""Serves a model by the llama.cpp server inside xllamacpp's wheel: `llama-server KEY_FILE SETTINGS`.

An installation has this file as bin/llama-server, and the unpacked wheel in lib. SETTINGS is a JSON object: `fields`
sets fields of xllamacpp's CommonParams (`cpuparams.n_threads` for a field of a part), `files` sets a field to a file's
text.
KEY_FILE contains the API key. Every value has to have its field's type: the wheel itself would convert some of them.
`llama-server --version` imports the wheel and prints its version.

Python reads no variable, no user's packages and no compiled files from folders that others can write to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any


class InvalidSettings(Exception):
    """The settings or the key cannot be used."""


def import_wheel() -> Any:
    """The wheel's module. Its folder comes after those of Python's own library."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "lib"))
    import xllamacpp  # type: ignore[import-not-found,unused-ignore] # of the installation

    return xllamacpp


def convert_value(current: object, value: object, name: str) -> object:
    """A value of JSON as the field takes it.

    Args:
        current: The field's value now, which has its type.
        value: The value of the settings.
        name: The field's name, for the error.

    Raises:
        InvalidSettings: the value has another type, or is no member of the field's enumeration.
    """
    if isinstance(current, IntEnum):
        members = type(current).__members__
        if isinstance(value, str) and value in members:
            return members[value]
        raise InvalidSettings(f"{name}: {value!r} is not one of {', '.join(members)}")
    if isinstance(current, set) and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return set(value)
    if isinstance(current, float) and type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    if type(value) is not type(current):
        raise InvalidSettings(f"{name}: {type(current).__name__} expected, not {value!r}")
    return value


def set_field(params: Any, name: str, value: object) -> None:
    """Set one field.

    Raises:
        InvalidSettings: this version has no such field, or its type differs.
    """
    *parts, last = name.split(".")
    try:
        for part in parts:
            params = getattr(params, part)
        current = getattr(params, last)
    except AttributeError:
        raise InvalidSettings(f"{name}: this version has no such field") from None
    setattr(params, last, convert_value(current, value, name))


def build_params(module: Any, key_file: str, text: str) -> Any:
    """The server's parameters.

    Raises:
        InvalidSettings: the settings or the key cannot be used.
    """
    try:
        settings = json.loads(text)
        fields, files = settings["fields"], settings["files"]
        values = {**fields, **{name: Path(path).read_text() for name, path in files.items()}}
        key = Path(key_file).read_text().strip()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSettings(f"settings or key unreadable: {type(error).__name__}: {error}") from None
    if not key:
        raise InvalidSettings(f"{key_file} contains no key")
    params = module.CommonParams()
    for name, value in values.items():
        set_field(params, name, value)
    params.api_keys = [key]
    return params


def serve(module: Any, params: Any) -> None:
    """Serve until SIGTERM or SIGINT, which end the process at once, as the operating system does during loading.

    The wheel's own end waits for requests in progress, whose answers its stopped loop no longer computes.
    """
    server = module.Server(params)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, _: os._exit(0))
    sys.stdout.write(f"serving at {server.listening_address}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def main() -> None:
    """Serve, or print the version."""
    try:
        module = import_wheel()
        if sys.argv[1:] == ["--version"]:
            sys.stdout.write(f"xllamacpp {module.__version__}, llama.cpp {module.BUILD_INFO['compiler']}\n")
            return
        if len(sys.argv) != 3:
            raise InvalidSettings("usage: llama-server KEY_FILE SETTINGS, or --version")
        serve(module, build_params(module, *sys.argv[1:]))
    except InvalidSettings as error:
        sys.exit(f"llama-server: {error}")
    except RuntimeError as error:
        sys.exit(f"llama-server: the model is not served, as the log says: {error}")


if __name__ == "__main__":
    main()
