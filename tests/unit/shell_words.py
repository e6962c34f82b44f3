"""Which programs the text of a shell template starts: the words in the place of a command, without running anything."""

import re
from collections.abc import Iterator

WORDS = """
if then else elif fi for in do done while until case esac { } ! [ [[ set unset export local return exit shift read echo
printf cd eval exec trap wait test true false : . break continue umask command type getopts ulimit hash times
"""
KEYWORDS = frozenset(WORDS.split())
"""A shell's own words."""
PASSING = frozenset(("exec", "if", "then", "else", "elif", "while", "until", "do", "!", "command", "time", "{"))
"""Before another command."""
STARTING = frozenset(("prlimit", "setpriv", "nice", "env", "timeout", "flock", "xargs", "setsid", "nohup", "ionice"))
"""Programs that start what comes after their options."""
HEREDOC = re.compile(r"<<-?'?\"?(\w+)'?\"?(.*?)\n.*?^\t*\1$", re.DOTALL | re.MULTILINE)
FUNCTION = re.compile(r"^\s*([A-Za-z_]\w*)\s*\(\)", re.MULTILINE)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def _strip_template(text: str) -> str:
    """Without Jinja's own words, here-documents and comments; a text that Jinja fills in is one word."""
    text = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "FILLED", text, flags=re.DOTALL)
    return HEREDOC.sub(r"\2", text.replace("\\\n", " "))


def defined_functions(text: str) -> set[str]:
    """The functions that a template defines."""
    return set(FUNCTION.findall(_strip_template(text)))


def _simple_commands(text: str) -> Iterator[str]:
    """Simple commands, those in substitutions among them; a quoted text is one word of it."""
    part, at = "", 0
    nested: list[str] = []
    piped: list[str] = []
    outer: list[tuple[str, list[str]]] = []
    while at < len(text):
        char = text[at]
        if char == "\\":
            part, at = part + "_", at + 2
        elif char == "'":
            end = text.find("'", at + 1)
            part, at = part + "QUOTED", (end if end >= 0 else len(text)) + 1
        elif char == '"':
            at, inner = _parse_quoted(text, at + 1)
            nested += inner
            part += "QUOTED"
        elif char == "#" and (not part or part[-1].isspace()):
            end = text.find("\n", at)
            at = end if end >= 0 else len(text)
        elif text.startswith("$((", at):
            end = text.find("))", at)
            part, at = part + "NUMBER", end + 2
        elif text.startswith("${", at):
            end = text.find("}", at)
            part, at = part + "VALUE", end + 1
        elif text.startswith("$(", at):
            outer.append((part, piped))
            piped, part, at = [], "", at + 2
        elif char in "\n;|&(`":
            piped.append(part)
            if char != "|":
                yield from piped
                piped = []
            if char == "(":
                outer.append(("", []))
            part, at = "", at + 1
        elif char == ")":
            # without one that opens, it ends a pattern of `case`
            before, rest = "", list[str]()
            if outer:
                yield from (*piped, part)
                before, rest = outer.pop()
            piped, part, at = rest, f"{before}VALUE" if before else "", at + 1
        else:
            part, at = part + char, at + 1
    yield from (*piped, part)
    for one in nested:
        yield from _simple_commands(one)


def _parse_quoted(text: str, at: int) -> tuple[int, list[str]]:
    """The end of a text in double quotes, and the commands that are substituted in it."""
    inner = []
    while at < len(text) and text[at] != '"':
        if text[at] == "\\":
            at += 2
        elif text.startswith("$(", at) and not text.startswith("$((", at):
            begin, depth, at = at + 2, 1, at + 2
            while at < len(text) and depth:
                if text[at] == "'":
                    at = text.find("'", at + 1)
                depth += (text[at] == "(") - (text[at] == ")")
                at += 1
            inner.append(text[begin : at - 1])
        else:
            at += 1
    return at + 1, inner


def parse_started(text: str) -> set[str]:
    """The programs that a template starts, without a shell's own words and the template's functions."""
    plain = _strip_template(text)
    found = set()
    for part in _simple_commands(plain):
        words = part.split()
        while words:
            word = words.pop(0)
            if ASSIGNMENT.match(word) or word in PASSING or re.match(r"[0-9]*[<>]", word):
                continue
            found.add(word)
            if word not in STARTING:
                break
            while words and (words[0].startswith("-") or ASSIGNMENT.match(words[0]) or words[0][0].isdigit()):
                words.pop(0)
    return {one for one in found if re.fullmatch(r"[a-z][a-z0-9._+-]*|(?:/usr)?/s?bin/[\w.+-]+", one)} - KEYWORDS
