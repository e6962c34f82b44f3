"""Inputs made of good ones by hand-made mistakes: cut, repeated, and with what parsers stumble over at any place."""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

# Text that decoders, numbers, paths, terminals and readers of lines each have trouble with.
TOKENS = (
    *(
        b"\0",
        b"\n",
        b"\r\n",
        b"\x1b[2J",
        b"\x7f",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xe2\x80\xae",
        b"\xef\xbb\xbf",
        b"\xc2\x9b",
    ),
    *(
        b"\\ud800",
        b"\\u0000",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1",
        b"-0",
        b"0x10",
        b"9" * 400,
        b"9" * 5000,
    ),
    *(b"18446744073709551616", b"9223372036854775808", b"4294967295", b"0.1", b"null", b"true", b"{}", b"[]", b'""'),
    *(
        b"[" * 3000,
        b'{"a":' * 3000,
        b"(" * 500,
        b"../",
        b"/",
        b"//",
        b"~",
        b"%",
        b"%s",
        b"{0}",
        b"=",
        b":",
        b",",
        b";",
        b"'",
        b'"',
    ),
    *(
        b" ",
        b"\t",
        b"-",
        b"--",
        b"#",
        b"<",
        b"&",
        b"$(id)",
        b"\xd9\xa3",
        b"\xc2\xb2",
        b"[::1",
        b"http://[",
        b"a" * 70000,
    ),
)
VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1 << 64, 1 << 400, 0.5, float("inf"), float("nan"), "", "a", "\0", "\ud800", "\x1b[2J"),
    *(
        "a\nb",
        "9" * 5000,
        "..",
        "/",
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"a": {"a": []}},
        ["a", 1],
        "2026-99-99",
        "sha256:",
    ),
)


def mutate_document(pick: random.Random, value: Any, odds: float = 0.1) -> Any:
    """A document of JSON's with some of its parts in another shape, gone, or there twice."""
    if pick.random() < odds:
        return pick.choice(VALUES)
    if isinstance(value, dict):
        kept = {key: mutate_document(pick, one, odds) for key, one in value.items() if pick.random() > odds / 2}
        return {**kept, **({pick.choice(("", "a", "\ud800", "__class__")): None} if pick.random() < odds / 2 else {})}
    if isinstance(value, list):
        return [mutate_document(pick, one, odds) for one in value for _ in range(1 + (pick.random() < odds / 2))]
    return value


def mutate_bytes(pick: random.Random, good: bytes) -> bytes:
    """Bytes with one to four mistakes."""
    made = bytearray(good)
    for _ in range(pick.randint(1, 4)):
        at = pick.randint(0, len(made))
        what = pick.random()
        if what < 0.4:
            made[at:at] = pick.choice(TOKENS)
        elif what < 0.6:
            made[at : at + pick.randint(1, 8)] = pick.choice(TOKENS)
        elif what < 0.75 and made:
            made[at % len(made)] ^= 1 << pick.randrange(8)
        elif what < 0.85:
            del made[at : at + pick.randint(1, 64)]
        elif what < 0.92:
            del made[at:]
        else:
            made[at:at] = made[at : at + 200]
    return bytes(made)


def fuzz_inputs(seeds: Sequence[bytes], count: int, name: str) -> Iterator[bytes]:
    """So many inputs, the same ones each time: good ones, torn ones, and JSON of another shape."""
    pick = random.Random(name)
    yield from (b"", *seeds)
    for _ in range(count):
        good = pick.choice(seeds)
        if good[:1] in b"{[" and good and pick.random() < 0.6:
            with suppress(ValueError):
                good = json.dumps(mutate_document(pick, json.loads(good)), allow_nan=True).encode()
                if pick.random() < 0.8:
                    yield good
                    continue
        yield mutate_bytes(pick, good)
