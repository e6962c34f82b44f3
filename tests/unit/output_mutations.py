"""Changes of a program's output: another program's lines in it, lost, moved, translated, repeated and cut ones."""

import random
from collections.abc import Callable, Mapping
from typing import Any

# Lines that other programs, the loader among them, write between those of the one that was started
NOISE = (
    "WARNING: apt does not have a stable CLI interface. Use with caution in scripts.",
    "perl: warning: Setting locale failed.",
    'perl: warning: Please check that your locale settings:\n\tLANGUAGE = (unset),\n\tLANG = "de_DE.UTF-8"',
    "ERROR: ld.so: object 'liba.so.2' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
    "WARNING: No swap limit support",
    "pcilib: Cannot open /sys/bus/pci/devices/0000:01:00.0/config",
    "dpkg-query: warning: files list file for package 'libfoo:amd64' missing; assuming package has no files",
    "Warning: The unit file or drop-ins of x.service changed on disk. Run 'systemctl daemon-reload' to reload units.",
    "sudo: unable to resolve host box: Name or service not known",
    "/usr/bin/id: cannot find name for group ID 1001",
    "N: Unable to locate package nosuch",
    "W: Target Packages (main/binary-amd64/Packages) is configured multiple times in /etc/apt/sources.list:1",
    "\x1b[33mwarning\x1b[0m",
    "#",
    "x" * 100_000,
)


def _pick_lines(pick: random.Random, lines: list[str], most: int = 3) -> set[int]:
    return {pick.randrange(len(lines)) for _ in range(pick.randint(1, most))}


def insert_noise(pick: random.Random, lines: list[str]) -> list[str]:
    """Another program's lines, at any place."""
    made = list(lines)
    for _ in range(pick.randint(1, 3)):
        made.insert(pick.randint(0, len(made)), pick.choice(NOISE))
    return made


def remove_lines(pick: random.Random, lines: list[str]) -> list[str]:
    """Up to three lines are lost."""
    gone = _pick_lines(pick, lines)
    return [line for number, line in enumerate(lines) if number not in gone]


def repeat_lines(pick: random.Random, lines: list[str]) -> list[str]:
    """Up to three lines are there twice."""
    twice = _pick_lines(pick, lines)
    return [line for number, line in enumerate(lines) for _ in range(1 + (number in twice))]


def shuffle_blocks(pick: random.Random, blocks: list[str]) -> list[str]:
    """In another order."""
    return pick.sample(blocks, len(blocks))


def translate_words(pick: random.Random, text: str, words: Mapping[str, str]) -> str:
    """Some of a program's own words in another language."""
    for word in pick.sample(sorted(words), pick.randint(1, len(words))):
        text = text.replace(word, words[word])
    return text


def mutate_output(
    pick: random.Random, text: str, end: str, moves: str | None, words: Mapping[str, str], nul: bool = True
) -> str:
    """A text with one change that leaves it as long as its program makes it.

    Args:
        pick: Chooses.
        text: A sample.
        end: The end of its lines.
        moves: Between its parts that may come in another order; None where they may not.
        words: Its program's own words, in another language.
        nul: Whether a NUL comes through to its parser.
    """
    lines = text.removesuffix(end).split(end)
    kinds: list[Callable[[], str]] = [
        lambda: end.join(insert_noise(pick, lines)) + end,
        lambda: end.join(remove_lines(pick, lines)) + end,
        lambda: end.join(repeat_lines(pick, lines)) + end,
        lambda: text.replace("\n", "\r\n"),
    ]
    if end != "\0" and nul:
        kinds.append(lambda: text[: (at := pick.randint(0, len(text)))] + "\0" + text[at:])
    if moves is not None:
        kinds.append(lambda: moves.join(shuffle_blocks(pick, text.removesuffix(moves).split(moves))) + moves)
    if words:
        kinds.append(lambda: translate_words(pick, text, words))
    return pick.choice(kinds)()


def find_wrong_value(found: Any, good: Any, at: str = "") -> str:
    """The first value that is not one of the sample's; empty without one.

    A list may have fewer elements in any order, and a mapping fewer keys; nothing and zero stand for a missing value.
    """
    if found == good or found in (None, "", 0, False) or found in ([], (), {}):
        return ""
    if isinstance(found, dict) and isinstance(good, dict):
        pairs = [(f"{at}/{key}", value, good.get(key)) for key, value in found.items()]
    elif isinstance(found, tuple) and isinstance(good, tuple) and len(found) == len(good):
        pairs = [(f"{at}/{number}", one, good[number]) for number, one in enumerate(found)]
    elif isinstance(found, list) and isinstance(good, list):
        strange = [one for one in found if one not in good and all(find_wrong_value(one, other) for other in good)]
        return f"{at}: {strange[0]!r}"[:500] if strange else ""
    else:
        return f"{at}: {found!r}, not {good!r}"[:500]
    return next(filter(None, (find_wrong_value(one, other, place) for place, one, other in pairs)), "")
