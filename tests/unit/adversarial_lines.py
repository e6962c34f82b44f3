"""Lines that make a search by a regular expression long, made of the expression's literals."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

try:
    from re import _constants as codes
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as codes  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
_CHARACTERS = "a0_ A.'-:/"  # one of each class of characters that patterns repeat


def is_unbounded(pattern: str) -> bool:
    """Whether a part of a pattern may repeat any number of times."""
    return _has_unbounded(parser.parse(pattern))


def _has_unbounded(nodes: Iterable[Any]) -> bool:
    return any(
        (code in _REPEATS and value[1] == codes.MAXREPEAT) or any(map(_has_unbounded, _children(code, value)))
        for code, value in nodes
    )


def _children(code: object, value: Any) -> list[Any]:
    if code in _REPEATS or code is codes.SUBPATTERN:
        return [value[-1]]
    if code is codes.BRANCH:
        return list(value[1])
    return [value[1]] if code in (codes.ASSERT, codes.ASSERT_NOT) else []


def adversarial_lines(pattern: str, length: int) -> Iterator[str]:
    """Lines of that many characters: each literal of a pattern, neighbours of them, and single characters, repeated."""
    pieces = list(dict.fromkeys(_literals(parser.parse(pattern))))
    for piece in (*pieces, *_CHARACTERS, *(f"{one} " for one in pieces), *(f"{one}a" for one in pieces)):
        yield (piece * (length // len(piece) + 1))[:length]
    for first, second in pairwise(pieces):
        half = length // 2
        yield (first * half)[:half] + (second * half)[:half]
        both = first + second
        yield (both * (length // len(both) + 1))[:length]


def _literals(nodes: Iterable[Any]) -> Iterator[str]:
    piece = ""
    for code, value in nodes:
        if code is codes.LITERAL:
            piece += chr(value)
            continue
        if piece:
            yield piece
        piece = ""
        for child in _children(code, value):
            yield from _literals(child)
    if piece:
        yield piece
