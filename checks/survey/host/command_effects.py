"""What a line of a job's or a script's does: to cards, to the box, and to what is ours.

A host's users write such lines, as long as they like. Words that stand apart in a line are looked for each by itself:
an expression with a gap in it begins anew at each word that it may begin with, and its time is the length's square.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from checks.survey.host import command_write_targets

# What ends a box; one that starts again comes back
OFF = re.compile(r"(?:^|[\s/(\"'])(?:poweroff|halt|rtcwake|pm-suspend|pm-hibernate)\b|\b(?:tel)?init\s+0\b")
SYSTEMCTL = re.compile(r"\bsystemctl\b")
OFF_VERB = re.compile(r"\s(?:poweroff|halt|suspend|hibernate|hybrid-sleep|suspend-then-hibernate)\b")
SHUTDOWN = re.compile(r"(?:^|[\s/(\"'])shutdown\b")
AGAIN = re.compile(r"\s(?:-[A-Za-z]*[rck]|--reboot)")
# What sets cards
SMI = re.compile(r"nvidia-smi\b")
SMI_SETS = re.compile(
    r"\s(?:-pl|--power-limit|-pm|--persistence-mode|-lgc|--lock-gpu-clocks|-rgc|--reset-gpu-clocks|-lmc|"
    r"--lock-memory-clocks|-ac|--applications-clocks|-r\b|--gpu-reset|-e\b|--ecc-config|-c\b|--compute-mode|-mig)"
)
SETS = re.compile(r"\bnvidia-settings\s+-a|\b(?:rmmod|modprobe\s+-r\w*)\s+nvidia")
DAEMON = re.compile(r"\bnvidia-persistenced\b")
DAEMON_SETS = re.compile(r"[\s\"']--no-persistence-mode")
# What changes files, units or users; copies do where they lead to (`leads`)
CHANGES = re.compile(
    r"\b(?:rm|rmdir|mv|dd|chmod|chown|chgrp|chattr|truncate|shred|touch|mount|umount|ln|setfacl|setcap|tee|unlink|mkfs\w*"
    r"|wipe|srm|fallocate|usermod|userdel|useradd|groupmod|gpasswd|passwd|chpasswd|pkill|killall|kill|prlimit|renice"
    r"|taskset|nsenter|gdb|setpriv|runuser|su|sudo|sh|bash|dash|python3?|perl|env|nohup|exec|source)\b"
    r"|-delete\b|-exec\b|>|\bcrontab\b"
)
FINDS = re.compile(r"-(?:delete|exec)\b")
EDITS, IN_PLACE = re.compile(r"\bsed\b"), re.compile("-i")
ASKED, READS = re.compile(r"\bsystemctl$"), re.compile(r"status|show|cat|is-|list-")
WORD = re.compile(r"\S+")
REMARK = re.compile(r"\s#.*")


def ends_box(line: str) -> bool:
    """Whether a line switches the box off, or puts it to sleep."""
    return any(_off(one[0]) for one in command_write_targets.COMMANDS.finditer(line))


def _off(command: str) -> bool:
    if OFF.search(command):
        return True
    asked = SYSTEMCTL.search(command)
    if asked and OFF_VERB.search(command, asked.end()):
        return True
    down = [one.end() for one in SHUTDOWN.finditer(command)]
    return bool(down) and not AGAIN.search(command, down[-1])


def sets_cards(text: str) -> str:
    """What the first command of a script or job that sets cards says, as far as it does; empty where none does."""
    for line in text.split("\n"):
        for one in command_write_targets.COMMANDS.finditer(line):
            if found := SETS.search(one[0]):
                return found[0]
            for program, option in ((SMI, SMI_SETS), (DAEMON, DAEMON_SETS)):
                begun = program.search(one[0])
                ends = [found.end() for found in option.finditer(one[0], begun.end())] if begun else []
                if begun and ends:
                    return one[0][begun.start() : ends[-1]]
    return ""


def touches(line: str, about: re.Pattern[str], software: str) -> bool:
    """Whether a line changes what is ours, runs it or stops it; to read it is no harm.

    Args:
        line: Without its end.
        about: What words about us look like; no match of it has a space in it.
        software: The folder of our engines.
    """
    named = [one.span() for one in about.finditer(line)]
    if named:
        first, last = named[0][1], named[-1][0]
        if any(at <= last for at in _changes(line)) or FINDS.search(line, first):
            return True
        if command_write_targets.reaches(REMARK.sub("", line, count=1), about):
            return True
    return any(_runs(word[0], f"{software}/") for word in WORD.finditer(line))


def _changes(line: str) -> Iterator[int]:
    """Where the first of each kind of what changes something ends."""
    if found := CHANGES.search(line):
        yield found.end()
    edits = EDITS.search(line)
    if edits and (found := IN_PLACE.search(line, edits.end())):
        yield found.end()
    waits = False
    for word in WORD.finditer(line):
        if waits and not word[0].startswith("-") and not READS.match(word[0]):
            yield word.start()
            return
        waits = bool(ASKED.search(word[0])) or (waits and word[0].startswith("-"))


def _runs(word: str, folder: str) -> bool:
    """Whether a program in a folder of ours is named by a word, or in quotes or the like within it."""
    at = word.find(folder)
    while at > 0 and word[at - 1] not in "\"'=;&|":
        at = word.find(folder, at + 1)
    return at >= 0 and word.rfind("/bin/") >= at + len(folder)
