"""The one way by which text gets out: untrusted text becomes plain letters without terminal control sequences."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

# Everything that no terminal prints as a character: controls of both kinds, what turns the direction of a line or hides
# in it, Unicode's line ends, and halves of a character, which no encoding has. A tab and a line's end are text.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
# The characters that join letters of Persian and of Indian scripts, or people of one picture. In prose it is seen by
# what it joins; in a name it tells two apart that look the same.
JOINERS = "\u200c\u200d"
# A style as we, pyinfra and pytest print it: one at a time, bold or a colour of letters that is neither black nor
# white, and their end (ECMA-48, SGR). A sequence that conceals, blinks, or has letters in the colour of their ground is
# not let through.
STYLE = re.compile(r"(\x1b\[(?:0|1|3[1-6])m)")


def escape_controls(text: str, *, styles: bool = True, joiners: bool = False) -> str:
    """A text with its control characters spelt as JSON spells them, so that JSON with some in it stays what it is.

    Args:
        text: The text, of any number of lines.
        styles: Whether it may have styles; they are spelt, too, if not.
        joiners: Whether it is prose, whose letters may be joined.
    """
    if text.isascii() and text.isprintable():
        return text
    # text split by a pattern with one group has the matches at the odd places
    parts = STYLE.split(text) if styles else [text]
    kept = JOINERS if joiners else ""
    return "".join(
        part
        if number % 2
        else CONTROL.sub(lambda found: found[0] if found[0] in kept else _escape_character(found), part)
        for number, part in enumerate(parts)
    )


def print_model_text(text: str) -> None:
    """Write what a model says to standard output, at once: without styles, and its letters joined as they are meant."""
    stream = sys.stdout
    below = stream.ungated if isinstance(stream, EscapingStream) else stream
    below.write(escape_controls(text, styles=False, joiners=True))
    below.flush()


def _escape_character(found: re.Match[str]) -> str:
    number = ord(found[0])
    # JSON has two of these for what is beyond 65,535
    return f"\\u{number:04x}" if number < 0x10000 else json.dumps(found[0])[1:-1]


class EscapingStream:
    """A stream of text that writes what is `shown`; in all else the one below it."""

    escape = staticmethod(escape_controls)

    def __init__(self, stream: TextIO) -> None:
        self.ungated = stream
        """A drawing program, such as a progress bar, moves the cursor; it has this one, and escapes its input."""
        # click would write to what is below a stream of ASCII
        self.encoding = "utf-8"
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write a text."""
        self.ungated.write(self.escape(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ungated, name)


def install_streams() -> None:
    """Have all that this process writes as text go through, tracebacks and what libraries warn of among it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, EscapingStream):
            setattr(sys, name, EscapingStream(stream))
