"""Words for systemd: its reading of them is the declaration."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rigwright.engines.engine_interface import KEY_FILE
from rigwright.host.systemd import ExpandedWord, quote_word, render_command_line, render_environment_file

# systemd's extract_first_word() takes these (systemd.service(5), table "Quoting"); \x, \u and octal ones beside them
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "} | {
    one: one for one in "\\\"'"
}
WHITE = " \t\n\r"


def unescaped(text: str, at: int) -> tuple[str, int]:
    """The character that an escape at a place stands for, and where it ends."""
    if text[at] in ESCAPES:
        return ESCAPES[text[at]], at + 1
    for pattern, base in ((r"x([0-9a-f]{2})", 16), (r"u([0-9a-f]{4})", 16), (r"([0-7]{3})", 8)):
        if found := re.compile(pattern).match(text, at):
            return chr(int(found[1], base)), found.end()
    raise ValueError(f"no escape: {text[at:]!r}")


def words_of(line: str) -> list[tuple[str, bool]]:
    """Words of a line with what they stand for, and whether each was written with quotes or an escape.

    Quotes count only where a word begins, or ends after them; a semicolon alone separates two commands.
    """
    assert not set(line) & set("\n\r\0"), "the line would end"
    found, at = [], 0
    while at < len(line):
        if line[at] in WHITE:
            at += 1
            continue
        made, marked, quote = "", False, ""
        while at < len(line) and (quote or line[at] not in WHITE):
            char = line[at]
            if char == "\\":
                char, at = unescaped(line, at + 1)
                made, marked = made + char, True
                continue
            at += 1
            if quote and char == quote:
                quote = ""
            elif not quote and char in "'\"":
                quote, marked = char, True
            else:
                made += char
        assert not quote, "a quote that is left open"
        found.append((made, marked))
    return found


def arguments(line: str, variables: dict[str, str]) -> list[str]:
    """The arguments of an ExecStart= line's process: specifiers first, then words, then variables."""
    assert not line.lstrip().startswith(("@", "-", ":", "+", "!", "|")), "a prefix of the program"
    specified = re.sub(r"%(.)", lambda found: {"%": "%", "n": "SPECIFIER"}[found[1]], line)
    made = []
    for text, marked in words_of(specified):
        assert marked or text != ";", "another command"
        # a word that is $NAME alone is split into several
        assert not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", text), "a variable in words"
        expanded = re.sub(r"\$\$|\$\{(\w+)\}", lambda found: variables[found[1]] if found[1] else "$", text)
        made.append(expanded)
    return made


def variables_of(text: str) -> dict[str, str]:
    """systemd's reading of an EnvironmentFile (load_env_file(): the shell's rules, without any expansion)."""
    found, at = {}, 0
    while at < len(text):
        name, _, _ = text[at:].partition("=")
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
        at += len(name) + 1
        value, quote, bare_end = "", "", 0
        while at < len(text) and (quote or text[at] not in "\n\r"):
            char = text[at]
            at += 1
            if char == "\\" and quote != "'":
                # between double quotes it escapes these alone; everywhere it joins two lines
                after = text[at]
                at += 1
                value += "" if after == "\n" else after if not quote or after in '"\\`$' else "\\" + after
                bare_end = len(value)
            elif quote and char == quote:
                quote, bare_end = "", len(value)
            elif not quote and char in "'\"":
                quote = char
            else:
                value += char
                if quote or char not in WHITE:
                    bare_end = len(value)
        assert not quote, "a quote that is left open"
        found[name] = value[:bare_end]
        at += 1
    return found


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
HOSTILE = st.text(st.sampled_from("ab \t\n\r\\\"'%$;{}#=`n0x41éN/-"), max_size=20)
VALUES = TEXTS | HOSTILE
SAMPLES = [
    *(
        "",
        " ",
        "a b",
        'say "hi"',
        "it's",
        "back\\slash",
        "\\n",
        "\\",
        '"',
        "%n %%",
        "$HOME ${HOME} $$",
        ";",
        "a;b",
        "#",
    ),
    *("two\nlines", "\ttab\r", json.dumps({"rope": {"type": "yarn", "factor": 4.0}, "a": ["b c", '"%$\\']}), "é ☃ 𝄞"),
]


@pytest.mark.parametrize("text", SAMPLES)
def test_a_word_reaches_a_process_as_it_is(text: str) -> None:
    assert arguments(f"/bin/x {quote_word(text)} {quote_word('end')}", {}) == ["/bin/x", text, "end"]


@given(st.lists(VALUES, max_size=6))
@example(["--flag", ";", "-x"])
def test_any_words_reach_a_process_as_they_are(texts: list[str]) -> None:
    assert arguments(render_command_line(("/opt/x/bin/server", *texts)), {}) == ["/opt/x/bin/server", *texts]


def test_only_a_word_that_is_to_be_expanded_is() -> None:
    line = render_command_line(("/bin/x", "--key", KEY_FILE, "--text", str(KEY_FILE)))
    folder = {"CREDENTIALS_DIRECTORY": "/run/credentials/x.service"}
    assert arguments(line, folder) == [
        *("/bin/x", "--key", "/run/credentials/x.service/api-key"),
        *("--text", "${CREDENTIALS_DIRECTORY}/api-key"),
    ]


def test_an_ordinary_word_is_written_as_it_is() -> None:
    plain = "/opt/rigwright/engines/x-1.0+a/bin/llama-server"
    assert (quote_word(plain), quote_word("--tensor-split"), quote_word("3,5"), quote_word("a=b:c@d")) == (
        *(plain, "--tensor-split", "3,5"),
        "a=b:c@d",
    )


@pytest.mark.parametrize("text", ["\0", "a\0b", ExpandedWord("a\0")])
def test_text_that_no_process_can_get_is_refused(text: str) -> None:
    for write in (quote_word, lambda value: render_environment_file({"A": value})):
        with pytest.raises(ValueError, match="NUL"):
            write(text)


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
@example({"A": " x ", "B": "", "C": '"', "D": "\\", "E": "#", "F": "a\nB=c", "G": "${A} $(id) `id`", "H": "'"})
def test_any_environment_reaches_a_process_as_it_is(variables: dict[str, str]) -> None:
    text = render_environment_file(variables)
    assert variables_of(text) == variables
    assert list(variables_of(text)) == sorted(variables)
