"""Where a script is in its next lines: what changes something by a relative name may come lines later.

Unlike `leads`, which takes a line as it looks, this takes it as a shell does: what stands in quotes is one word, and
what a subshell or a function does to its folder ends with it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from checks.survey.host import command_write_targets

LONGEST = 4096  # characters of a line that is taken apart: each takes a microsecond
# What is set, as far as a line shows it, and where what it was set to is meant
GIVEN = re.compile(r"(?:^|(?<=[\s;&|(]))([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;&|()]*)")
MEANT = re.compile(r"\$(?:(\w+)|\{(\w+)[^{}]*\})")
ABOVE = re.compile(r"/(?:[a-z]+/?){0,2}")  # folders in which ours may be; what is secret is none
SHORT, FEW = 256, 16  # characters of what is set, and places in a line: two that hold each other twice grow for ever
# What stands before a command, or starts it as another one does
BEFORE = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "sudo", "env", "nice", "ionice"}
)
BEFORE |= {"nohup", "exec", "command", "builtin", "xargs"}
SET = re.compile(r"\w+=")
FUNCTION = re.compile(r"(?:function\s+[\w-]+|[\w-]+\s*\(\s*\))\s*(?:\(\s*\)\s*)?\{\s*")
SIGNS = re.compile(r"[();]|[<>&|]+")
T = TypeVar("T")


class ScriptShell:
    """One that obeys a script, as far as it is or is not in a folder of ours.

    Args:
        about: What words about us look like.
    """

    def __init__(self, about: re.Pattern[str]) -> None:
        self.about = about
        self.here = False
        self.outer: list[bool] = []
        """Where it was before each function that it reads."""
        self.text = ""
        """What ends a text that stands in the script, and is read by a command."""

    def obeys(self, line: str) -> bool:
        """Whether a line changes something by a relative name while the shell is in a folder of ours."""
        if self.text:
            self.text = "" if line == self.text else self.text
            return False
        if FUNCTION.fullmatch(line):
            self.outer.append(self.here)
        elif line == "}" and self.outer:
            self.here = self.outer.pop()
        if not (self.here or self.about.search(line)) or len(line) > LONGEST:
            return False
        above: list[bool] = []
        changed, command = False, Command()
        for word, sign in _signs(line):
            if not sign:
                command.takes(word)
            elif "<" in word or ">" in word:
                command.turns(word)
            else:
                changed |= self._runs(command)
                command = Command()
                if word == "(":
                    above.append(self.here)
                elif word == ")" and above:
                    self.here = above.pop()
        return self._runs(command) or changed

    def _runs(self, command: Command) -> bool:
        """Whether one command changes something there; where it leads the shell."""
        self.text = command.text or self.text
        names, fed = command.names, False
        while names and (names[0] in BEFORE or SET.match(names[0]) or (fed and names[0][:1] == "-")):
            fed |= names.pop(0) == "xargs"
        program, given = (names[0].rpartition("/")[2], names[1:]) if names else ("", [])
        if program in ("cd", "pushd", "popd"):
            to = next((one for one in given if one[:1] != "-"), "")
            if program == "popd" or not command_write_targets.relative(to) or to.startswith(".."):
                self.here = program != "popd" and bool(self.about.search(to))
            return False
        if not self.here or program == "[[":
            return False
        return any(
            map(
                command_write_targets.relative,
                (*command.printed, *_changed(program, [*given, *(["x"] if fed else [])])),
            )
        )


class Command:
    """A simple one, as it is read. (No dataclass: importing those takes a host as long as many a look.)"""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.printed: list[str] = []
        """Files that it prints to."""
        self.text = ""
        """What ends a text of the script that it reads."""
        self.sign = ""

    def takes(self, word: str) -> None:
        """Read a word."""
        sign, self.sign = self.sign, ""
        if sign.startswith("<<") and sign != "<<<":
            self.text = word.removeprefix("-")
        elif ">" in sign and not (sign.endswith("&") and (word.isdigit() or word == "-")):
            self.printed.append(word)
        elif not sign:
            self.names.append(word)

    def turns(self, sign: str) -> None:
        """Read what turns its input or output elsewhere."""
        # the number of what is turned
        if self.names and self.names[-1].isdigit():
            del self.names[-1]
        self.sign = sign


def meant(said: Iterable[tuple[T, str]], about: re.Pattern[str]) -> Iterator[tuple[T, str]]:
    """Lines with what a variable of the same script was last set to in its place, where that is or leads to ours.

    Args:
        said: Script and line, those of a script in a row.
        about: What words about us look like.
    """
    script, known = None, dict[str, str]()
    for path, line in said:
        if path != script:
            script, known = path, {}
        if len(line) <= LONGEST:
            for name, value in GIVEN.findall(line):
                value = _filled(value.strip("\"'"), known)
                known.pop(name, None)
                if len(value) <= SHORT and (about.search(value) or ABOVE.fullmatch(value)):
                    known[name] = value
            line = _filled(line, known)
        yield path, line


def _filled(text: str, known: dict[str, str]) -> str:
    if not known or "$" not in text:
        return text
    return MEANT.sub(lambda one: known.get(one[1] or one[2], one[0]), text, count=FEW)


def _signs(line: str) -> Iterator[tuple[str, bool]]:
    """Words and signs of a line, and whether it is a sign; up to a remark, or to a quote that ends in another line."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    with suppress(ValueError):
        for word in words:
            if word.startswith("#"):
                return
            if set(word) <= set("();<>|&"):
                yield from ((sign, True) for sign in SIGNS.findall(word))
            else:
                yield word, False


def _changed(program: str, given: list[str]) -> list[str]:
    """What a program changes or removes of what it is given."""
    if program == "find":
        return [] if {"-delete", "-exec", "-execdir"}.isdisjoint(given) else [next(iter(given), ".")]
    if program == "sed":
        return given[-1:] if any(one.startswith(("-i", "--in-place")) for one in given) else []
    if program == "dd":
        return [one[3:] for one in given if one.startswith("of=")]
    return command_write_targets.LEADS[program](given) if program in command_write_targets.LEADS else []


def find_relative_changes(said: Iterable[tuple[T, str]], about: re.Pattern[str]) -> Iterator[tuple[T, str]]:
    """Those lines of scripts that change something by a relative name where a line before has gone to what is ours.

    Args:
        said: Script and line, those of a script in a row.
        about: What words about us look like.
    """
    script, shell = None, ScriptShell(about)
    begun = ""
    for path, line in said:
        if path != script:
            script, shell, begun = path, ScriptShell(about), ""
        if line.endswith("\\") and len(begun) < LONGEST:
            begun += f"{line[:-1]} "
            continue
        line, begun = begun + line, ""
        was = shell.here
        if shell.obeys(line) and was:
            yield path, line
