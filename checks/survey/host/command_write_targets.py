"""Where the commands of a line lead: what they copy, unpack or download to, and what they change where they are.

A host's users write such lines, as long as they like: each word is gone through a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

COMMANDS = re.compile(r"[^\n;|&]+")
CLUSTER = re.compile(r"-?([A-Za-z0-9#]*)")
QUOTES = "\"'`(){}"
# What has a word `install` of its own
MANAGERS = frozenset({"apt", "apt-get", "aptitude", "pip", "pip3", "conda", "npm", "make"})
# Options with values, so that what follows is none of them: of tar the old way, of curl in one word
TAR_VALUES, CURL_VALUES = "fCbTXIgKNHVF", "XHduFAebTUmr"
TAR_MODES = "xcruAtd"
TAR_LONG = {"--extract": "x", "--get": "x", "--create": "c", "--append": "r", "--update": "u", "--list": "t"}
GIT_READS = re.compile(
    r"status|log|show|diff|blame|grep|describe|archive|shortlog|reflog|push|remote|fsck|bundle|count-objects|config"
    r"|cat-file|ls-[a-z]+|rev-[a-z]+|version|help"
)
GIT_VALUES = frozenset({"-C", "-c", "-b", "-o", "--branch", "--depth", "--origin", "--git-dir"})


def reaches(line: str, about: re.Pattern[str]) -> bool:
    """Whether a command copies to what is ours, or goes there and then changes something by a relative name.

    Args:
        line: Without its end, and without a remark.
        about: What words about us look like.
    """
    here = False
    for command in COMMANDS.finditer(line):
        given, printed = _words(command[0])
        program, words = _program(given)
        if program in ("cd", "pushd"):
            to = _operands(words)[:1]
            if not to or not relative(to[0]):
                here = bool(to and about.search(to[0]))
        elif program == "popd":
            here = False
        else:
            leads = LEADS[program](words) if program else []
            if any(map(about.search, leads)) or (here and any(map(relative, (*leads, *printed)))):
                return True
        here = here and ")" not in command[0]
    return False


def relative(word: str) -> bool:
    """Whether a name is one below where the shell is; what has a colon is another machine's."""
    return bool(word) and word[0] not in "-/~$" and ":" not in word


def _words(command: str) -> tuple[list[str], list[str]]:
    """Its words without quotes, and the files that its shell prints to."""
    words: list[str] = []
    printed: list[str] = []
    prints = False
    for word in command.split():
        _, sign, after = word.rpartition(">")
        if sign:
            prints = not after
            printed += [after.strip(QUOTES)] if after else []
        elif prints:
            printed.append(word.strip(QUOTES))
            prints = False
        else:
            words.append(word.strip(QUOTES))
    return words, printed


def _program(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The first of those that are known here, and what it is given."""
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in MANAGERS:
            return "", ()
        if name in LEADS or name in ("cd", "pushd", "popd"):
            return name, words[at + 1 :]
    return "", ()


def _operands(words: Sequence[str]) -> list[str]:
    return [word for word in words if word and word[0] != "-"]


def _letters(word: str) -> str:
    """Options of one letter that a word has together."""
    found = CLUSTER.match(word)
    return found[1] if found and word[:1] == "-" != word[1:2] else ""


def _before(values: str, word: str) -> str:
    """Its options of one letter up to the first that has a value, which can be in the same word."""
    return re.split(f"[{values}]", _letters(word), maxsplit=1)[0]


def _option_values(words: Sequence[str], letters: str, *names: str) -> list[str]:
    """What an option is given: in the same word, or in the next one."""
    found: list[str] = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name[:2] == "--" and name[2:] in names:
            found += [value] if equals else words[at + 1 : at + 2]
        elif hits := [place for place, letter in enumerate(_letters(word), start=2) if letter in letters]:
            found += [word[hits[0] :]] if word[hits[0] :] else words[at + 1 : at + 2]
    return found


def _last(words: Sequence[str]) -> list[str]:
    return _operands(words)[-1:]


def _copy(words: Sequence[str]) -> list[str]:
    return _option_values(words, "t", "target-directory") or _last(words)


def _tar(words: Sequence[str]) -> list[str]:
    # the old way has its options first, without a dash, and their values in the same order after them
    old = words[0] if words and words[0][:1] != "-" else ""
    values = dict(zip([letter for letter in old if letter in TAR_VALUES], words[1:], strict=False))
    mode = next(filter(None, (TAR_LONG.get(word) or _mode(_before(TAR_VALUES, word)) for word in words)), _mode(old))
    if mode == "x":
        return _option_values(words, "C", "directory") or [values.get("C", ".")]
    if mode not in ("c", "r", "u", "A"):
        return []
    archives = _option_values(words, "f", "file") or ([values["f"]] if "f" in values else [])
    return [*archives, *(_operands(words) if "--remove-files" in words else [])]


def _mode(letters: str) -> str:
    return next((letter for letter in letters if letter in TAR_MODES), "")


def _cpio(words: Sequence[str]) -> list[str]:
    letters = "".join(map(_letters, words))
    if "i" in letters or "--extract" in words:
        return _option_values(words, "D", "directory") or ["."]
    return _last(words) if "p" in letters or "--pass-through" in words else []


def _git(words: Sequence[str]) -> list[str]:
    operands = [word for at, word in enumerate(words) if word[:1] != "-" and not (at and words[at - 1] in GIT_VALUES)]
    if operands[:1] == ["clone"]:
        return operands[2:] or ["."]
    if not operands or GIT_READS.fullmatch(operands[0]):
        return []
    return _option_values(words, "C", "work-tree") or ["."]


def _curl(words: Sequence[str]) -> list[str]:
    if to := _option_values(words, "o", "output", "output-dir"):
        return to
    for word in words:
        if "O" in _before(CURL_VALUES, word) or word in ("--remote-name", "--remote-name-all"):
            return ["."]
    return []


def _wget(words: Sequence[str]) -> list[str]:
    to = _option_values(words, "OP", "output-document", "directory-prefix")
    return to or ([] if "--spider" in words else ["."])


def _unzip(words: Sequence[str]) -> list[str]:
    if set("ltpvzZ") & set("".join(map(_letters, words))):
        return []
    return _option_values(words, "d") or ["."]


def _behind(words: Sequence[str]) -> list[str]:
    return _operands(words)[1:]


# program -> what it writes to, `.` for where it is
LEADS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    **dict.fromkeys(["rm", "rmdir", "mv", "truncate", "shred", "ln", "unlink", "touch", "tee", "setfacl"], _operands),
    # what has something else first
    **dict.fromkeys(["chmod", "chown", "chgrp", "chattr"], _behind),
    **{"cp": _copy, "install": _copy, "rsync": _last, "scp": _last, "tar": _tar, "bsdtar": _tar, "cpio": _cpio},
    **{"git": _git, "curl": _curl, "wget": _wget, "unzip": _unzip},
}
