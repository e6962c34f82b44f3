"""JSON of signed files: bounded, without duplicate keys and fractions, with one form for each value."""

from __future__ import annotations

import json

from rigwright.signing.refusals import SignatureRefused

LARGEST = 16 << 20  # bytes of a signed file
DEEPEST = 40  # levels
LARGEST_INTEGER = (1 << 53) - 1
"""RFC 8785 represents no larger one exactly."""


def parse_strict_json(data: bytes, name: str, most: int = LARGEST) -> object:
    """Parse JSON: UTF-8, no key twice, whole numbers only.

    Args:
        data: The bytes.
        name: Their name in a refusal.
        most: Bytes that they may have.

    Raises:
        SignatureRefused: malformed.
    """
    if len(data) > most:
        raise SignatureRefused("malformed", f"{name} has more than {most} bytes")
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_refuse_duplicates,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
            parse_int=_parse_integer,
        )
        render_canonical_json(value)  # refuses half characters and too many levels
    except (ValueError, RecursionError) as error:
        cause = error if type(error) is ValueError else "it is not JSON in UTF-8"
        raise SignatureRefused("malformed", f"{name} is malformed: {cause}") from None
    return value


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return table


def _refuse_number(text: str) -> object:
    raise ValueError(f"{text[:40]} is not a whole number")


def _parse_integer(text: str) -> int:
    if len(text) > 17 or text == "-0" or abs(int(text)) > LARGEST_INTEGER:
        raise ValueError(f"{text[:40]} is not a whole number of at most 53 bits")
    return int(text)


def render_canonical_json(value: object) -> bytes:
    """A value as RFC 8785 writes it: keys sorted, no spaces, UTF-8. Numbers are whole.

    Raises:
        ValueError: fractions, half characters, keys outside of Unicode's first plane, too many levels.
    """
    _require_plain(value, 0)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _require_plain(value: object, level: int) -> None:
    if level > DEEPEST:
        raise ValueError(f"it has more than {DEEPEST} levels")
    if isinstance(value, dict):
        for name, one in value.items():
            # RFC 8785 sorts by UTF-16, Python by code points: the same below U+D800
            if not isinstance(name, str) or any(letter >= "\ud800" for letter in name):
                raise ValueError("a key is not plain text")
            _require_plain(one, level + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            _require_plain(one, level + 1)
    elif isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > LARGEST_INTEGER:
            raise ValueError("a number has more than 53 bits")
    elif not (value is None or isinstance(value, bool | str)):
        raise ValueError(f"a value is a {type(value).__name__}")
