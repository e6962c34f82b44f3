"""Findings of a diagnosis: types, related events, the last error of a log and the failing component."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Literal

from rigwright.engines.log_causes import LONGEST, Cause, find_cause
from rigwright.operate.instance_health import CardUse, InstanceHealth
from rigwright.operate.instance_state import InstanceState

Severity = Literal["critical", "high", "medium", "low"]
LENGTH = 200  # characters of evidence


@dataclass(frozen=True)
class Diagnosis:
    """One likely cause."""

    id: str
    """Of the symptom, the same on every box."""
    where: str
    """The instance, or the card; empty for the host."""
    means: str
    evidence: str
    """The evidence, a line of a log among it."""
    cure: str
    """The command, or what to do."""
    weight: int
    """The larger, the likelier that this is it; causes come in that order."""
    times: int = 1
    follows: bool = False
    """Whether it is a failed check that a cause of `check` explains."""


@dataclass(frozen=True)
class FailedCheck:
    """A check that does not hold."""

    id: str
    title: str
    part: str
    severity: Severity
    expected: str
    found: str
    cure: str
    cause: str = ""
    """The id of the cause that explains it; empty where it stands for itself."""
    waived: str = ""
    """Its waivers in the inventory; empty without."""


@dataclass(frozen=True)
class HostEvidence:
    """All that was found out about a host."""

    inventory: str
    """As a command names it; empty where a file is read in place of a host."""
    host: str
    driver: str = ""
    """Its version; empty if unknown."""
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Instance -> lines of its journal, the last one last."""
    kernel: Sequence[str] = ()
    healths: Sequence[InstanceHealth] = ()
    red: Sequence[FailedCheck] = ()
    cards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Instance -> indexes of its cards."""
    uses: Sequence[CardUse] = ()
    """The memory of cards in use."""
    cards_say: str = ""
    """The problems of cards, as nvidia-smi reports them."""
    reboot: bool = False
    """Whether one is pending."""


def shorten_line(line: str) -> str:
    """A line as evidence has it; a long one ends after a word."""
    text = " ".join(line.split())
    cut = text[: LENGTH - 4]
    return text if len(text) <= LENGTH else f"{cut.rpartition(' ')[0] or cut} ..."


def excerpt_line(line: str, start: int) -> str:
    """A line as evidence has it, cut at its beginning if what matters begins late in it."""
    return shorten_line(line) if start < LENGTH // 2 else f"... {shorten_line(line[start - LENGTH // 4 :])}"[:LENGTH]


TAKEN = 1024  # MiB of a card that are in use without a process (club-3090's preflight warns as of 1 GiB)
FULL = 0.95  # of a KV cache
STANDING: tuple[InstanceState, ...] = ("failed", "stopped", "stopped by hand", "not deployed")
"""States of an instance that has no process, or none for long."""
LATEST = 500  # lines of a log: about those of its last start
# llama.cpp's words at 0c1e570; of an instance without cards they are how it is.
PROCESSOR = "no usable GPU found"


def correlate_evidence(found: HostEvidence, again: Callable[..., str]) -> Iterator[Diagnosis]:
    """Causes that only appear where facts, looks and logs are put next to each other."""
    drivers = [one.id for one in found.red if re.fullmatch("N[0-9]{2}", one.id)]
    if found.cards_say:
        means = "the cards do not answer as they should"
        yield Diagnosis(
            "cards-silent", "", means, shorten_line(found.cards_say), again("check", "--only", "N01,N02"), 92
        )
    if found.reboot and (found.cards_say or drivers):
        evidence = "a reboot is pending, and " + (f"{', '.join(drivers)} fail" if drivers else "cards are silent")
        means = "the installed driver or kernel is not loaded yet"
        yield Diagnosis("reboot-pending", "", means, evidence, again("deploy", "--reboot"), 93)
    for name, lines in found.logs.items():
        # of a file, the cards of its instance are unknown
        if not found.inventory and any(PROCESSOR in line for line in lines[-LATEST:]):
            means = (
                "llama.cpp sees no card and computes on the processor: if that is not meant, its build has no CUDA or "
                "cannot load CUDA's libraries, no driver answers, or the container has no cards"
            )
            yield Diagnosis("on-the-processor", name, means, PROCESSOR, "", 55)
    serving = {one.instance for one in found.healths if one.state not in STANDING}
    lent = {card for name in serving for card in found.cards.get(name, ())}
    for one in found.healths:
        mine = found.cards.get(one.instance, ())
        taken = [card for card in found.uses if card.index in mine and (card.used_mib or 0) > TAKEN]
        if one.state in STANDING and taken and not lent.intersection(mine):
            used = ", ".join(f"GPU {card.index}: {card.used_mib or 0:.0f} MiB" for card in taken)
            means = f"another program uses memory of the cards of {one.instance}, which does not run"
            cure = again("check", "--only", "N04")
            yield Diagnosis("card-memory-taken", one.instance, means, f"{used} in use", cure, 82)
        if mine and any(PROCESSOR in line for line in found.logs.get(one.instance, ())[-LATEST:]):
            means = "it computes on the processor, though it has cards: its build has no CUDA, or no driver answers"
            cure = again("check", "--only", "N01,N02")
            yield Diagnosis("on-the-processor", one.instance, means, PROCESSOR, cure, 84)
        now = one.metrics
        if (now.waiting or 0) >= 1 and (now.kv_used or 0) >= FULL:
            means = "requests wait because its KV cache is full"
            evidence = f"KV cache {now.kv_used:.0%}, {now.waiting:.0f} waiting"
            cure = "lower max_num_seqs or the context, or give it more KV cache"
            yield Diagnosis("kv-cache-full", one.instance, means, evidence, cure, 36)


def weigh_by_state(
    made: Iterable[Diagnosis], found: HostEvidence, causes: Mapping[str, Sequence[Cause]]
) -> Iterator[Diagnosis]:
    """Causes from logs, judged by the present state: one that a check reports, too, is likelier; one of an instance
    that serves again, less.

    A stop by hand needs no cause, and refused requests never explain an instance that is down.
    """
    red = {one.id for one in found.red}
    states = {one.instance: one.state for one in found.healths}
    requests = {(name, cause.id) for name, every in causes.items() for cause in every if cause.request}
    checks = {(name, cause.id): cause.check for name, every in causes.items() for cause in every}
    for one in made:
        check = checks.get((one.where, one.id), "")
        if red.intersection(check.split(",")):
            yield replace(one, weight=one.weight + 8, means=f"{one.means} ({check} fails, too)")
        elif (one.where, one.id) in (checks if states.get(one.where) == "stopped by hand" else requests) and (
            states.get(one.where) in ("failed", "stopped", "stopped by hand")
        ):
            yield replace(one, weight=0)
        elif (one.where, one.id) in checks and states.get(one.where) == "ready":
            yield replace(one, weight=one.weight - 50, means=f"{one.means} (it serves now)")
        else:
            yield one


# Severities and phrases by which programs mark an error: Python's logging and exceptions, llama.cpp's letters, glibc,
# the kernel's driver, container engines and systemd.
ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|EMERG|ALERT)\b|^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b|(?:^|\s)(?:[0-9.]+ "
    r")?[EF] [\w:]"
    r"|\b[Ee]rror[:=\]]|\[[Ee]rror\]|\blevel=(?:error|fatal)|\"error\":|\b[Ff]atal\b|error loading|[Ff]ailed to "
    r"|[Cc]ould ?n[o']t "
    r"|[Cc]an ?not |[Uu]nable to |terminate called|what\(\): |core dumped|\bAborted\b|\bKilled\b|\b[Pp]anic|\bBUG:"
    r"|GGML_ASSERT"
    r"|GGML_ABORT|Assertion .{0,200}failed|[Ss]egmentation fault|NVRM: .{0,200}(?:[Ff]ail|[Ee]rror|invalid|timed out)"
    r"|Exit code: ?[1-9]"
    r"|Main process exited, code=(?!exited, status=0)|Failed with result|nvidia-container-cli: |OCI runtime"
)
# Words of a failure in a line without any such mark; they count where a log has none.
FAILURE = re.compile(
    r"\b(?:unsupported|not supported|not recogni[sz]ed|not found|invalid|exceed(?:s|ed)|incompatible|mismatch|must "
    r"match"
    r"|lost|failed|inconsistent|failure|denied|refused|timed out|time-?out|missing|not enough|crash(?:ed)?|killed"
    r"|died|corrupt(?:ed)?|no such"
    r"|unexpected(?:ly)?|illegal|does not (?:exist|support)|not available|unavailable|out of (?:memory|range|bounds)"
    r"|insufficient"
    r"|aborted|terminated|undefined|not loaded|not present|hung|stuck|broken|errors?(?!s?[ _]?(?:rate|count)|s?: "
    r"?(?:0|none)))\b"
    r"|(?:exit(?:ed)?|code|status)[ =:(]+-?[1-9]\d{0,2}\b",
    re.IGNORECASE,
)
NO_FAILURE = re.compile(r"\b(?:no|0|without) (?:errors?|failures?)|\b(?:HTTP/[\d.]+\" [23]\d\d)", re.IGNORECASE)
_MILD = ("warning", "information")
# Severities below an error: Python's logging, llama.cpp's letters, glog's, and the word before a message.
WARNING = re.compile(r"\b(?:WARNING|WARN)\b|(?:^|\s)[0-9.]+ W |\[W\d{3,4} |\b[Ww]arning: |\wWarning: |level=warn")
INFORMATION = re.compile(r"\b(?:INFO|DEBUG|NOTICE)\b|(?:^|\s)[0-9.]+ [ID] |\[I\d{3,4} |level=(?:info|debug)")
EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|OfResources|Timeout|Failed)(?::|$)"
)
# The prefixes of vLLM, torch, journald and container engines before a line of a traceback.
PREFIX = re.compile(
    r"^(?:\w{3} +\d+ [\d:]+ \S+ \S+: |[\w.-]{1,60} *\| |\[[\w .:-]{1,40}\]:? *|\([^()]{1,60}\) |\d{4}-\d\d-\d\d[T "
    r"][\d:.,]+\S* "
    r"|(?:ERROR|CRITICAL) (?:[\d-]+ [\d:.]+ )?\[[\w./]+:\d+\] |\s+(?=\S)){0,8}"
)
CONTINUED = 3
"""Lines after an error that may continue its message."""
TRACEBACK = 200
"""Lines between an exception and the last error after it: vLLM repeats a traceback in each process."""


def strip_prefix(line: str) -> str:
    """A line without what programs put before a message."""
    return PREFIX.sub("", line[:LONGEST], count=1)


def is_exception(line: str) -> bool:
    """Whether a line is the last one of a traceback."""
    return EXCEPTION.match(strip_prefix(line)) is not None


def marked_severity(text: str) -> Literal["error", "warning", "information", ""]:
    """The severity that a line, or what comes before its message, is marked with; empty for none."""
    text = text[:LONGEST]
    if re.search(r"\b(?:ERROR|CRITICAL|FATAL)\b", text):
        return "error"
    return "warning" if WARNING.search(text) else "information" if INFORMATION.search(text) else ""


def messages_at(lines: Sequence[str], number: int) -> tuple[str, str]:
    """The message that begins at a line and goes on in the next ones: with a blank between them, and without.

    Programs break a message (pydantic, torch), and terminals break a copy of one.
    """
    parts = [lines[number], *(strip_prefix(line) for line in lines[number + 1 : number + 1 + CONTINUED])]
    return " ".join(map(str.strip, parts)), "".join(parts)


def find_last_error(lines: Sequence[str], causes: Sequence[Cause]) -> int | None:
    """Index of the line that reports the last error: the exception of the last traceback, else the last line that is
    marked as an error, else the last one with words of a failure; None if there is none. Lines that are known as
    harmless, that are warnings, or that only report another error, do not count.
    """
    silent = [one for one in causes if one.harmless or one.general]
    marked: int | None = None
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number][:LONGEST]
        exception = is_exception(line)
        if (
            exception or (marked is None and ERROR.search(line) and marked_severity(line) not in _MILD)
        ) and not find_cause(silent, line):
            marked = number
            if exception:
                break
        if marked is not None and marked - number > TRACEBACK:
            break
    if marked is None:
        failures = (at for at in range(len(lines) - 1, -1, -1) if _is_failure(lines[at][:LONGEST]))
        return next((at for at in failures if not find_cause(silent, lines[at])), None)
    return marked


def _is_failure(line: str) -> bool:
    return FAILURE.search(line) is not None and marked_severity(line) not in _MILD and not NO_FAILURE.search(line)


FRAMES = 60
"""Lines before an error that its traceback can have: vLLM marks a frame, its code and its carets with a line each."""
_FRAME = re.compile(r"(?:File |\bat )\"?([\w./-]{1,300}\.py)(?:\", line |:)\d+")
_FUNCTION = re.compile(r"File \"?(?:[^\"]{0,300}/)?([\w.<>-]{1,80})\"?, line (\d{1,7}), in ([\w.<>]{1,80})")
_CARETS = re.compile(r"[\s^~]*$")
NEAR = 6
"""Lines between an exception and its frame: the frame's code and carets, and a note of Python."""
SOURCE = 100
"""Characters of a source line that are shown."""
# Folders and files of vLLM 0.20 and of the libraries that it loads -> the option that leads into them.
_PARTS = (
    (r"spec_decode|eagle|_mtp\b|/mtp|medusa|dflash", "drafting (speculative_config)"),
    (r"kv_connector|kv_transfer|kv_offload|lmcache|nixl|mooncake", "the KV connector (kv_transfer_config)"),
    (r"/lora/", "LoRA adapters"),
    (r"structured_output|xgrammar|outlines|llguidance", "structured outputs (a request's schema)"),
    (r"tool_parsers|reasoning/|parser/|harmony", "the tool or reasoning parser"),
    (r"mamba|linear_attn|gdn|short_conv", "linear-attention layers (prefix caching, mamba_cache_mode)"),
    (r"attention/|flash_attn|flashmla|flashinfer/(?:decode|prefill|mla)", "the attention backend"),
    (r"fused_moe|moe/", "the kernels of experts (moe_backend)"),
    (r"quantization/|modelopt|compressed_tensors", "the quantisation"),
    (r"multimodal/|image_process|video_process|feature_extract", "pictures, videos or sound"),
    (r"device_communicators|all_reduce|parallel_state", "communication between cards"),
    (r"compilation/|_inductor|_dynamo|cuda_graph|cudagraph", "torch.compile or CUDA graphs (enforce_eager)"),
)


def failing_frame(lines: Sequence[str], number: int) -> str:
    """The function, file and source line of the frame that is nearest before an exception, bounded; empty for none.

    The frame of another exception does not count.

    Copies of a log often have the frame after the exception: it counts where no frame is before.
    """
    before = takewhile(lambda at: not is_exception(lines[at]), range(number - 1, max(0, number - NEAR) - 1, -1))
    for at in (*before, *range(number + 1, min(len(lines), number + 2))):
        if match := _FUNCTION.search(lines[at][:LONGEST]):
            source = strip_prefix(lines[at + 1]).strip() if at + 1 < len(lines) and at + 1 != number else ""
            place = f"{match[3]} ({match[1]}:{match[2]})"
            return place if not source or at > number or _CARETS.match(source) else f"{place}: {source[:SOURCE]}"
    return ""


def failing_part(lines: Sequence[str], number: int) -> str:
    """The part of the engine in the frame that is nearest before a line; empty where no frame has a known one."""
    for line in reversed(lines[max(0, number - FRAMES) : number]):
        frame = _FRAME.search(line[:LONGEST])
        part = next((name for path, name in _PARTS if frame and re.search(path, frame[1])), "")
        if part:
            return part
    return ""
