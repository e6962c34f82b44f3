"""Sentence patterns that documentation, help texts, docstrings and comments avoid, with reason and replacement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ProsePattern:
    """A pattern to avoid."""

    pattern: str
    """A regular expression, without regard to case."""
    reason: str
    """Why readers stumble, and what to write instead."""
    examples: tuple[str, ...]
    """Sentences that have it."""


PATTERNS = (
    ProsePattern(
        r"\b(?:whoever|nobody|somebody)\b|(?:^|[.:;,] )whose\b|(?<!users )(?<!user )(?<!people )\bwho\b",
        "the subject is a person without a name: name the component, user or operator",
        ("Whoever has the key can ask.", "Nobody logs in to it.", "A table of who has booted it."),
    ),
    ProsePattern(
        r"(?:^|[.:;] )what (?!is\b[^.]*\?)"
        r"(?:a|an|the|it|is|was|has|had|stands|lies|comes|goes|runs|others?|you|we|one)\b",
        "a clause with `what` is the subject: name the thing",
        ("What stands beside an inventory is used.", "One rule: what is unseen fails."),
    ),
    ProsePattern(
        r"\b(?:is|are|was|were) (?:said|told)\b",
        "the verb hides the component: `plan` prints it, the message names it",
        ("The reason is said.", "Clients are told 503."),
    ),
    ProsePattern(
        r"(?<!there )\b(?:is|are) none\b|\bcomes? to nothing\b|\bno \w+ is (?:none|not)\b",
        "a negation of a negation or a riddle: state the positive",
        ("A start that comes to nothing is undone.", "A file that is none is refused."),
    ),
    ProsePattern(
        r"\bhouse\b|\bof ours\b", "not a term of operations: name the program or Rigwright", ("A unit of ours.",)
    ),
    ProsePattern(r"(?<!-)\bbeside\b(?!-)", "old-fashioned: next to, with, in addition to", ("A file beside it.",)),
    ProsePattern(
        r"\balone\b", "ambiguous after a noun: write `only` before the word that it limits", ("By hash alone.",)
    ),
    ProsePattern(
        r"\bheld (?:to|against)\b|\bholds? \w+ to\b",
        "a metaphor for comparison: is compared with",
        ("Flags are held against the help.",),
    ),
    ProsePattern(
        r"\b(?:tokens|requests|chats) a second\b", "ambiguous with `a second one`: per second", ("32 tokens a second",)
    ),
    ProsePattern(
        r"\b(?:was|were) (?:seen|measured|tried|mended|red)\b",
        "history: state the present, and put measured figures into evidence.md",
        ("It was measured on a card.",),
    ),
)

SOURCE_PATTERNS = (
    ProsePattern(
        r"\b(?:whoever|nobody|somebody|whom)\b|(?:^|[.:;] )whose\b(?!:)|(?<!users )(?<!user )(?<!people )\bwho\b",
        PATTERNS[0].reason,
        ("Whoever has the key can ask.", "Where nobody knows.", "A table of who has booted it."),
    ),
    ProsePattern(
        r"(?:^|[.:;] )what (?!if\b)(?![^.]*\?)",
        PATTERNS[1].reason,
        ("What a host prints.", "One rule: what is unseen fails."),
    ),
    PATTERNS[2],
    ProsePattern(
        r"(?<!there )\b(?:is|are) (?-i:none)\b|\bcomes? to nothing\b|\bno \w+ is (?-i:none|not)\b",
        PATTERNS[3].reason,
        ("A start that comes to nothing is undone.", "A file that is none is refused."),
    ),
    ProsePattern(r"\bhouse\b", PATTERNS[4].reason, ("The rest of the house.",)),
)
"""The worst patterns: docstrings and comments avoid these."""

# Generated blocks have their own tests; code and outputs are no prose.
_NO_PROSE = re.compile(
    r"<!-- (?:keys|output) of (?P<name>[a-z.-]+) -->\n.*?<!-- end of (?P=name) -->|^```.*?^```|`[^`\n]*`|\]\([^)\s]*\)",
    re.DOTALL | re.MULTILINE,
)


def find_violations(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, words and reason of each pattern in the prose of a Markdown text."""
    prose = _NO_PROSE.sub(lambda found: "\n" * found[0].count("\n") + "x" * (not found[0].count("\n")), text)
    for one in PATTERNS:
        for found in re.finditer(one.pattern, prose, re.IGNORECASE | re.MULTILINE):
            yield prose.count("\n", 0, found.start()) + 1, found[0].strip(), one.reason


_COMMENT = re.compile(r"^(?P<code>.*?)(?<![^\s])#+ (?P<text>.*)$")


def find_source_violations(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, words and reason of each pattern in the docstrings and comments of a Python source."""
    for line, paragraph in _source_paragraphs(text):
        prose = re.sub(r"`[^`]*`|\"[^\"]*\"", "x", paragraph)
        for one in SOURCE_PATTERNS:
            for found in re.finditer(one.pattern, prose, re.IGNORECASE):
                yield line, found[0].strip(), one.reason


def _source_paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs of docstrings and comments, each on one line, with the line on which it begins."""
    tree = ast.parse(text)
    strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno is not None:
            strings.update(range(node.lineno + 1, node.end_lineno + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            value = node.value.value
            for part in re.finditer(r"(?:(?!\n\s*\n).)+", value, re.DOTALL):
                yield node.lineno + value.count("\n", 0, part.start()), " ".join(part[0].split())
    begun, words, indent = 0, "", ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = None if number in strings else _COMMENT.match(line)
        if words and not (found and found["code"] == indent and not indent.strip()):
            yield begun, words
            words = ""
        if found:
            begun, indent = (begun, indent) if words else (number, found["code"])
            words = f"{words} {found['text']}".strip()
