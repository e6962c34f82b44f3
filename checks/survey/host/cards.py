"""nvidia-smi's reports of the cards, all asked at once, and the kernel log's messages about them."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
from typing import Any

from checks.survey.host import common
from checks.survey.host.thread_pool import Pool

ROOT = ""  # a test has a folder for a host
PLACES = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/bin")
MESSAGES = 1000  # of a storm the end alone
PROCESSES = 4096


def tool(name: str) -> str:
    """Where a program of the driver's lies: its package's place before others'."""
    return next((path for place in PLACES if os.access(path := f"{ROOT}{place}/{name}", os.X_OK)), f"/usr/bin/{name}")


def answer(words: list[str], limit: float) -> dict[str, object]:
    """The end and the output of nvidia-smi; timeout's own status where it hangs."""
    try:
        status, out, err = common.ended(tool("nvidia-smi"), *words, limit=limit)
    except subprocess.TimeoutExpired:
        return {"status": 124, "out": "", "err": ""}
    return {"status": status, "out": out, "err": err}


def holders(text: str) -> list[dict[str, object]]:
    """The processes that rows begin with, those that are still there."""
    found: list[dict[str, object]] = []
    for pid in sorted({int(one) for one in re.findall(r"^\s*([0-9]{1,9}),", text, re.MULTILINE)})[:PROCESSES]:
        if os.path.isdir(f"{ROOT}/proc/{pid}"):
            groups = common.read(f"{ROOT}/proc/{pid}/cgroup") or ""
            group = re.search(r"^0::(.*)$", groups, re.MULTILINE)
            name = (common.read(f"{ROOT}/proc/{pid}/comm") or "").strip()
            found.append({"pid": pid, "name": name, "cgroup": group[1].strip() if group else ""})
    return found


def moment(asked: dict[str, list[str]], limit: float) -> dict[str, object]:
    """Cards, then the processes that compute on them: a process that loads between the two looks is then no surplus."""
    seen = answer(asked["gpus"], limit)
    apps = answer(asked["apps"], limit)
    return {"gpus": seen, "apps": apps, "processes": holders(str(apps["out"]))}


def log(pattern: str) -> dict[str, object]:
    """Messages of the kernel's since boot that have a pattern in them; and why there are none to be seen, if so.

    A message is read whole, whatever names are in it, and one alone: only the kernel's own are asked for.
    """
    words = ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "json", "--output-fields=MESSAGE")
    with Pool(2) as pool:
        fitting = pool.submit(
            common.ended, *words, "-n", str(MESSAGES), "-g", pattern, "--case-sensitive=true", limit=15
        )
        last = pool.submit(common.ended, *words, "-n", "1", limit=15)
        try:
            (matched, said, trouble), (status, some, complaint) = fitting.result(), last.result()
        except subprocess.TimeoutExpired:
            return {"blind": "journalctl does not answer", "messages": []}
    messages, reason = [], ""
    for line in common.lines(said):
        try:
            message = json.loads(line).get("MESSAGE")
        except (json.JSONDecodeError, AttributeError, RecursionError):
            continue
        # other values than text come as numbers
        if isinstance(message, list):
            message = bytes(one for one in message if isinstance(one, int) and 0 <= one < 256).decode(errors="replace")
        if isinstance(message, str):
            messages.append(message)
    # without a match it ends with 1
    if matched not in (0, 1) or (said and not said.endswith("\n")):
        status, complaint = matched or status, trouble or "its output is cut off"
        reason = f"journalctl ended with status {status}: {complaint.strip()[:200]}"
    reason = blind(status, bool(some.strip()), complaint) or reason
    return {"blind": reason, "messages": messages + ring(pattern, messages)}


def blind(status: int, some: bool, complaint: str) -> str:
    """Why the kernel's messages cannot be seen; empty where they can."""
    if status == 127:
        return "there is no journalctl"
    if not glob.glob(f"{ROOT}/run/log/journal/*/*.journal") + glob.glob(f"{ROOT}/var/log/journal/*/*.journal"):
        return "journald keeps nothing: there is no journal"
    if storage() == "none":
        return "journald keeps nothing (Storage=none)"
    if status not in (0, 1):
        return f"journalctl ended with status {status}: {complaint.strip()[:200]}"
    if not some and os.path.exists(f"{ROOT}/dev/kmsg"):
        return "the journal has no message of the kernel's since boot"
    return ""


def storage() -> str:
    """journald's settings for its messages (journald.conf(5))."""
    names: dict[str, str] = {}
    for part in ("/usr/lib", "/usr/local/lib", "/run", "/etc"):
        names |= {os.path.basename(path): path for path in glob.glob(f"{ROOT}{part}/systemd/journald.conf.d/*.conf")}
    found = "auto"
    for path in [f"{ROOT}/etc/systemd/journald.conf", *(names[name] for name in sorted(names))]:
        for line in common.lines(common.read(path) or ""):
            key, _, value = line.partition("=")
            if key.strip() in ("Storage", "ReadKMsg"):
                value = value.strip().lower()
                found = value if key.strip() == "Storage" else "none" if value in ("no", "false", "0", "off") else found
    return found


def ring(pattern: str, known: list[str]) -> list[str]:
    """The messages that the kernel itself still has of it and the journal has not."""
    try:
        opened = os.open(f"{ROOT}/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found, there = [], set(known)
    try:
        while True:
            record = os.read(opened, 8192).decode(errors="replace")
            if not record:
                break
            head, _, message = record.partition(";")
            message = message.split("\n", 1)[0]
            # the kernel's own are of facility 0
            if (
                head.split(",")[0].isdecimal()
                and int(head.split(",")[0]) < 8
                and message not in there
                and re.search(pattern, message)
            ):
                found.append(message)
    except OSError:  # there is no more, or what was next is overwritten
        pass
    finally:
        os.close(opened)
    return found[-MESSAGES:]


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `words`, name -> nvidia-smi's, `gpus` and `apps` among them; `limit`, seconds for one of them; `pattern`,
            what is looked for in the kernel's log.
    """
    words, limit, pattern = asked["words"], asked["limit"], asked["pattern"]
    others = [name for name in words if name not in ("gpus", "apps")]
    with Pool(8) as pool:
        said = pool.submit(log, pattern)
        now = pool.submit(moment, words, limit)
        answers = dict(zip(others, pool.map(lambda name: answer(words[name], limit), others), strict=True))
        seen = now.result()
        return {
            "answers": {**answers, "gpus": seen["gpus"], "apps": seen["apps"]},
            "processes": seen["processes"],
            "log": said.result(),
        }
