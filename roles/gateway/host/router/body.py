"""What a request's body asks for, read so strictly that no parser behind this one could read it otherwise.

The text that is parsed is the body as Latin-1, once it is known to be UTF-8: an index into it is an offset in bytes,
and a character is one byte however rare. Outside of strings JSON is ASCII, so that both have the same structure.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn

MOST_MEMBERS = 256
"""Of the outermost object: each of them is a round in Python."""
MOST_VALUES = 1_000_000
"""In the whole body. A body of 64 MiB of empty lists would take 1.4 GB of memory otherwise."""
MOST_KEY = 256
"""Characters of the name of an outermost member: each name is compared without heed of case."""
MOST_NAME = 256
"""Characters of a model's name."""
MOST_DEPTH = 200
"""Of objects and lists in each other; what vLLM parses with pydantic ends there (jiter's limit)."""
PIECE = 1 << 20
"""Bytes that are decoded at once: a whole body with one emoji would take four times its size."""
MOST_OPENING = 64 << 10
"""Bytes that tell one conversation from another."""
PROMPT_OPENING = 1 << 10
"""The same of a prompt that is one text, and grows at its end."""
MOST_MESSAGES = 16
"""That are looked at for the first one of the user."""

TALKS = ("messages", "input", "prompt")
"""Members that hold a conversation, of chat/completions, responses and completions."""
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Up and down, as signed bytes."""
_NO_STEPS = bytes(set(range(256)) - set(b"[{]}"))
_SPACE = re.compile(r"[ \t\n\r]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class InvalidBody(Exception):
    """What is wrong with a body, in a sentence for whoever has sent it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """The member that is wrong, where it is one."""


@dataclass(frozen=True)
class ParsedBody:
    """What a body asks for."""

    model: str
    """As the client calls it."""
    span: tuple[int, int]
    """Where its value is, quotes included: offsets in bytes, the last one exclusive."""
    stream: bool
    text: str
    """The body as Latin-1."""
    talk: tuple[int, int] | None
    """Where the conversation's value is."""
    members: Mapping[str, Any]
    """The values of the outermost object by name: numbers as floats, texts with a character for each byte."""
    spans: Mapping[str, tuple[int, int]]
    """Where each of them is, as `span` has it."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each member as it is written."""
        return {key: last - start for key, (start, last) in self.spans.items()}


def read(body: bytes | bytearray) -> ParsedBody:
    """Judge a body whole.

    Raises:
        InvalidBody: it is not UTF-8, not one JSON object, too deep or of too many values, or does not say once and as
            text which model is meant.
    """
    _utf8(body)
    _modest(body)
    text = body.decode("latin-1")
    spans: dict[str, tuple[int, int]] = {}
    members: dict[str, Any] = {}
    for key, first, end, value in _members(text):
        if len(key) > MOST_KEY:
            raise InvalidBody(f"a member of the body has a name of more than {MOST_KEY} characters")
        # a reader that takes no heed of case, or ends a text at a NUL, would find a second one
        if key != "model" and key.partition("\0")[0].lower() == "model":
            raise InvalidBody("a member of the body has a name that could be read as model", "model")
        if key in spans:
            raise InvalidBody(f"the body has {_named(key)} twice", key if key in ("model", "stream") else None)
        spans[key], members[key] = (first, end), value
    if "model" not in spans:
        raise InvalidBody("the body must name a model", "model")
    first, end = spans["model"]
    talk = next((spans[one] for one in TALKS if one in spans), None)
    return ParsedBody(_name(body[first:end]), (first, end), members.get("stream") is True, text, talk, members, spans)


def beginning(asked: ParsedBody) -> str:
    """A hash of what a conversation begins with, which is the same at each of its turns: all up to the user's first
    message, or the first KiB of a text; 32 hexadecimal digits, or nothing where there is no conversation.
    """
    if asked.talk is None:
        return ""
    first, end = asked.talk
    text = asked.text
    end = _opening(text, first) if text[first] == "[" else min(end, first + PROMPT_OPENING)
    return hashlib.sha256(text[first : min(end, first + MOST_OPENING)].encode("latin-1")).hexdigest()[:32]


def _opening(text: str, at: int) -> int:
    """Where the first message of the user ends in a list that is known to be JSON."""
    at = _skip(text, at + 1)
    for _ in range(MOST_MESSAGES):
        if text[at] == "]":
            break
        message, end = DECODER.raw_decode(text, at)
        if isinstance(message, dict) and message.get("role") == "user":
            return end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at


def _utf8(body: bytes | bytearray) -> None:
    if not body:
        raise InvalidBody("there is no body: send a JSON object")
    if body.startswith(codecs.BOM_UTF8):
        raise InvalidBody("the body begins with a byte order mark, which JSON has not")
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(body)
    try:
        for at in range(0, len(body), PIECE):
            decoder.decode(view[at : at + PIECE], at + PIECE >= len(body))
    except UnicodeDecodeError:
        raise InvalidBody("the body is not UTF-8") from None
    finally:
        view.release()


def _modest(body: bytes | bytearray) -> None:
    """Refuse what would take too much memory or stack, before it does, and at the same depth with every Python."""
    openings = body.count(b"[") + body.count(b"{")
    if openings <= MOST_DEPTH and openings + body.count(b",") < MOST_VALUES:
        return
    values = depth = 0
    for bare in _outside(body):
        values += bare.count(b",") + bare.count(b"[") + bare.count(b"{")
        if values >= MOST_VALUES:
            raise InvalidBody(f"the body has more than {MOST_VALUES} values")
        steps = memoryview(bare.translate(_STEPS, _NO_STEPS)).cast("b")
        # each step is a round in Python: what closes more than it opens, or is too deep, is read no further
        if max(accumulate(steps, initial=depth)) > MOST_DEPTH:
            raise InvalidBody(f"the body is nested more than {MOST_DEPTH} levels deep")
        depth += sum(steps)
        if depth < 0:
            raise InvalidBody("the body is not JSON: it closes more objects and lists than it opens")


def _outside(body: bytes | bytearray) -> Iterator[bytes]:
    """What is not in texts, a piece at a time: the parts between quotes of a whole body may take ten times its size."""
    within, left = False, b""
    for at in range(0, len(body), PIECE):
        piece = left + body[at : at + PIECE]
        # a backslash at its end may belong to what follows; how many there are before it says
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        left = b"\\" if backslashes % 2 else b""
        piece = piece[: len(piece) - len(left)]
        # without escaped quotes, every other part between quotes is in a text
        parts = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        yield b"".join(parts[within::2])
        within ^= len(parts) % 2 == 0


def _constant(name: str) -> NoReturn:
    raise InvalidBody(f"the body is not JSON: it has {name}")


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which no reader finds another value of a name than the rules for fields have judged."""
    made = dict(pairs)
    if len(made) < len(pairs):
        for name, _ in pairs:
            if name not in made:
                raise InvalidBody(f"an object in the body has {_named(name)} twice")
            del made[name]
    return made


# int() refuses long numbers, and float() is exact as far as rules for fields count
DECODER = json.JSONDecoder(parse_int=float, parse_float=float, parse_constant=_constant, object_pairs_hook=_single)


def _members(text: str) -> Iterator[tuple[str, int, int, Any]]:
    """The outermost object's members: name, where the value begins and ends, value."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise InvalidBody("the body must be a JSON object")
    at = _skip(text, at + 1)
    going = text[at : at + 1] != "}"
    for _ in range(MOST_MEMBERS):
        if not going:
            break
        if text[at : at + 1] != '"':
            raise _broken("a name in double quotes is missing", at)
        key, at = _value(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise _broken("a colon is missing", at)
        first = _skip(text, at + 1)
        value, end = _value(text, first)
        yield key, first, end, value
        at = _skip(text, end)
        mark = text[at : at + 1]
        if mark not in (",", "}"):
            raise _broken("a comma or a closing brace is missing", at)
        going = mark == ","
        if going:
            at = _skip(text, at + 1)
    if going:
        raise InvalidBody(f"the body has more than {MOST_MEMBERS} members")
    at = _skip(text, at + 1)
    if at != len(text):
        raise _broken("something follows the object", at)


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _broken(error.msg, error.pos) from None
    except RecursionError:
        raise InvalidBody(f"the body is nested more than {MOST_DEPTH} levels deep") from None


def _broken(why: str, at: int) -> InvalidBody:
    return InvalidBody(f"the body is not JSON: {why}, at byte {at}")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _named(key: str) -> str:
    return key if re.fullmatch(r"[a-z_]{1,40}", key) else "a member"


def _name(value: bytes | bytearray) -> str:
    """The model's name from the bytes of its value, which are UTF-8 and JSON."""
    if value[:1] != b'"':
        raise InvalidBody("model must be a text", "model")
    name = str(json.loads(value.decode()))
    if len(name) > MOST_NAME:
        raise InvalidBody(f"model is longer than {MOST_NAME} characters", "model")
    if _CONTROL.search(name) or not _has_no_surrogate(name):
        raise InvalidBody("model has control characters or half of a character", "model")
    return name


def _has_no_surrogate(name: str) -> bool:
    """Whether it has no half of a surrogate pair."""
    return all(not 0xD800 <= ord(one) <= 0xDFFF for one in name)
