"""The survey's program: put together here, run on a host, and what it has answered."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import shlex
import zlib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from checks.survey.host.main import MARK, WAITING
from checks.survey.section import Section, SurveyScope
from rigwright.host.systemd import UNIT_FOLDER

HOST = Path(__file__).with_name("host")
COMMON = (
    *(
        "common",
        "mount_table",
        "systemd_properties",
        "fs_responsiveness",
        "thread_pool",
        "libffi_closures",
        "mapped_code",
        "network_sockets",
        "bounded_http",
        "residency",
        "rotation",
        "current_generation",
        "listener_probe",
        "foreign_proxies",
        "dpkg",
        "pci_cards",
        "initramfs",
    ),
    *(
        "apt",
        "rollback_packages",
        "docker",
        "overlayfs_layers",
        "python_import_paths",
    ),
    *(
        "host_entry",
        "entry_digests",
        "entry_files",
        "entry_privileges",
        "process_entries",
        "secret_entries",
        "live_entries",
        "entry_archives",
        "ledger_entries",
        "entry_readers",
        "entry_collection",
    ),
    "accepted_entries",
    *("packaged_modes", "entry_packages", "entry_attribution", "entry_templates", "entry_accounts"),
    *(
        "entry_derivations",
        "entry_boot",
        "entry_generators",
        "entry_live",
        "entry_origins",
        "entry_debs",
        "entry_problems",
        "entry_authors",
    ),
)
"""Modules of the program that its sections may import; each may import those before it."""
IMPORTED = re.compile(r"^from checks[.]survey[.]host(?:[.](\w+))? import (\([^)]*\)|.+)$", re.MULTILINE)
FAST = 3
"""How hard the program is packed: harder takes longer than to send what it spares."""
LEAST = 1 << 16  # bytes of a list of names
MOST_READ = 1 << 60  # bytes that sections may have read
MOST = 32 << 20  # bytes of an answer, packed or not: as lists of nothing it takes twenty times that here
BLANK_HOST = 97
"""Exit status of COMMAND on a host without Python and without a deployment: a deploy installs both."""
UNFINISHED = "the survey did not finish"
NO_PYTHON = "the host has no /usr/bin/python3, which a deploy installs"
LOST_PYTHON = "on the box, as root: apt-get install --reinstall python3-minimal"
# Isolated, and without site: nothing that lies in the host's own Python folders is run, no `.pth`, no sitecustomize.
COMMAND = (
    f"[ -x /usr/bin/python3 ] || [ -L {UNIT_FOLDER}/rigwright.target ] "
    # a channel that closes while the program is still being sent is a lost connection
    f"|| {{ head -n 1 > /dev/null; exit {BLANK_HOST}; }}; "
    "exec /usr/bin/python3 -I -S -c "
    + shlex.quote("import sys,zlib,base64;exec(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())))")
)


def collect_questions(scene: SurveyScope, sections: Iterable[Section[Any]]) -> dict[str, tuple[float, object]]:
    """Section -> seconds that it may take, and what the host is asked; without what the rig has nothing of."""
    found = {section.name: (section.time_limit(scene), section.asks(scene)) for section in sections}
    return {name: (limit, question) for name, (limit, question) in found.items() if question is not None}


def render_survey_program(
    questions: Mapping[str, tuple[float, object]], probe: str = "", later: Iterable[str] = ()
) -> str:
    """The input of COMMAND on standard input: the program, with its modules and questions in it.

    Args:
        questions: As `collect_questions` has them.
        probe: A shell script that is run beside. Its probe's findings have a line of their own, upon which
            `render_further_questions` follows.
        later: Sections that are asked then.
    """
    return _pack_program((*questions, *later), probe, json.dumps(questions))


@lru_cache(8)
def _pack_program(sections: tuple[str, ...], probe: str, questions: str) -> str:
    """The program with these questions; many hosts of a fleet have the same."""
    begun, packed = _pack_modules(HOST, sections)
    packed = packed.copy()
    end = packed.compress(f"{probe!r}, {questions!r})\n".encode()) + packed.flush()
    return base64.b64encode(begun + end).decode() + "\n"


def render_further_questions(questions: Mapping[str, tuple[float, object]]) -> str:
    """The input of COMMAND after its probe's findings: questions that these lead to."""
    return _pack_questions(json.dumps(questions))


@lru_cache(8)
def _pack_questions(questions: str) -> str:
    return base64.b64encode(zlib.compress(questions.encode(), FAST)).decode() + "\n"


def parse_probe_line(line: bytes) -> list[str] | None:
    """The lines of a probe's findings; None of a foreign line, as a login may print some.

    Raises:
        ValueError: it has found nothing; its text is why.
    """
    _, mark, packed = line.rpartition(MARK.encode())
    if not mark:
        return None
    found = parse_answers(packed).get("probe", {})
    status, out, err = (found.get(name) for name in ("status", "out", "err"))
    if not isinstance(out, str) or status != 0:
        said = err.strip().splitlines()[-1:] if isinstance(err, str) else []
        raise ValueError(f"the probe did not finish: {said[0] if said else f'exit status {status}'}")
    return out.rstrip("\r\n").splitlines()


def parse_waiting_line(line: bytes) -> list[str]:
    """Sections that have not answered yet, by a line of the program's; none by any other line, and by a broken one."""
    names = _parse_note(line)
    return (
        [name for name in names if isinstance(name, str) and re.fullmatch("[a-z_]{1,40}", name)]
        if isinstance(names, list)
        else []
    )


def parse_read_line(line: bytes) -> int | None:
    """Bytes that sections have read until now, by a line of the program's; None by any other line."""
    found = _parse_note(line)
    return found if type(found) is int and 0 <= found < MOST_READ else None


def _parse_note(line: bytes) -> object:
    """The progress in a line while sections are under way; None of any other line, and of a broken one."""
    begun, mark, packed = line.partition(WAITING.encode())
    if begun or not mark:
        return None
    try:
        return json.loads(zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), LEAST))
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None


@cache
def _pack_modules(folder: Path, sections: tuple[str, ...]) -> tuple[bytes, Any]:
    """The program up to its questions, packed, and what goes on packing: that is once for all hosts of a kind."""
    modules = {name: (folder / f"{name}.py").read_text() for name in (*COMMON, *sections)}
    common = shared_modules(modules, sections)
    modules = {name: text for name, text in modules.items() if name in sections or name in common}
    packed = zlib.compressobj(FAST)
    main = (folder / "main.py").read_text()
    return packed.compress(f"{main}\nmain({modules!r}, {common!r}, ".encode()), packed


@cache
def digest_survey_code() -> str:
    """SHA-256 of the program's modules, whatever hosts are asked: that of one version is always the same."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(HOST.glob("*.py"))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def shared_modules(modules: Mapping[str, str], questions: Iterable[str]) -> tuple[str, ...]:
    """Those of COMMON that these sections import, or that those import: a host compiles no others."""
    needed, left = {"common", "fs_responsiveness"}, [*questions, "fs_responsiveness"]
    while left:
        for module, named in IMPORTED.findall(modules[left.pop()]):
            names = {module or name.strip(" ()\n") for name in named.split(",")} & {*COMMON} - needed
            needed |= names
            left += sorted(names)
    return tuple(name for name in COMMON if name in needed)


def unpack_answers(output: bytes) -> bytes:
    """The JSON text of the answers.

    Raises:
        ValueError: the host has not run it to its end.
    """
    last = output.rstrip().rpartition(b"\n")[2]
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(base64.b64decode(last, validate=True), MOST)
    except (binascii.Error, zlib.error):
        raise ValueError(UNFINISHED) from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"an answer longer than {MOST >> 20} MiB")
    return text


def parse_answers(output: bytes) -> dict[str, dict[str, object]]:
    """Section -> `{"told": ...}` or `{"failed": REASON}`, each with `took`, seconds.

    Raises:
        ValueError: the host has not run it to its end.
    """
    return decode_answers(unpack_answers(output))


def decode_answers(text: bytes) -> dict[str, dict[str, object]]:
    """The answers of a JSON text. Returns and raises as `parse_answers`."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(UNFINISHED) from None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ValueError("the survey's answer is invalid")
    return found


def describe_failed_survey(error: ValueError, complaint: str, status: int) -> str:
    """The reason of an incomplete answer; with the remedy where a deployed host has lost its Python.

    Args:
        error: From parse_answers.
        complaint: The host's errors; empty for none.
        status: The exit status of COMMAND there.
    """
    remedy = f"; {LOST_PYTHON}" if "/usr/bin/python3: not found" in complaint else ""
    return f"{error}: {complaint or f'exit status {status}'}{remedy}"
