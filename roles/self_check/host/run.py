"""One run of a host's check by itself: waits until a change is complete, decides, and writes the result.

`python3 FOLDER DECLARATION`; exit status 0 also where something does not hold, 1 where the run itself has failed.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
import time

from . import full_read, judgements
from .observed_host import Host

TYPE_CHECKING = False  # as in observed_host.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SETTLE_S = 5.0  # seconds between the start and the decision: changes that belong together come together
PATIENCE_S = 600.0  # seconds for a transaction of packages to end
POLL_S = 2.0
HISTORY_BYTES = 256 << 10  # of one file; an older one is kept beside it
DPKG_LOCK = "/var/lib/dpkg/lock-frontend"
LOCK_RECORD, LOCK_WORDS = 4096, 200  # characters of what the holder of the deploy lock writes there, and of each part
FAILURE_ID = "Y01"  # of what cannot be decided at all
ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def main(words: list[str], root: str = "", sleep: Callable[[float], None] = time.sleep) -> int:
    """Run once.

    Args:
        words: The path of the declaration.
        root: A folder that stands in for the host's root.
        sleep: Waits for so many seconds.
    """
    sleep(SETTLE_S)
    waited = 0.0
    while has_record_lock(root, DPKG_LOCK) and waited < PATIENCE_S:
        sleep(POLL_S)
        waited += POLL_S
    # now: a deploy may have begun as this did, and written another one
    declared = json.loads(Host({}, root).text(words[0]))
    folder = root + declared["folder"]
    began = time.time()
    old = load(f"{folder}/state.json")
    host = Host(declared, root, load(f"{folder}/cache.json"), failing=old.get("failing", []) + old.get("waived", []))
    reason = decide(host)
    state = build_state(old, host, began, reason)
    if not reason:
        write(f"{folder}/cache.json", json.dumps(host.cache), 0o640)
    write(f"{folder}/state.json", json.dumps(state) + "\n", 0o640)
    if change := describe_change(old, state):
        append_history(folder, json.dumps(change))
    if declared["metrics"]:
        try:
            write(root + declared["metrics"], render_metrics(state), 0o644)
        except OSError as error:
            # no folder, or a run that began before the unit had it: metrics that are missing raise an alert
            print(f"no metrics: {error}", file=sys.stderr)
    return 0


def decide(host: Host) -> str:
    """Judge the host; returns why it is not judged now, or nothing."""
    if has_record_lock(host.root, DPKG_LOCK):
        return "packages are being changed"
    if is_deploy_locked(host.root + host.declared["lock"]):
        return describe_lock_holder(host.root + host.declared["lock"])
    try:
        host.load_generation()
    except Exception as error:
        host.fail(FAILURE_ID, "high", "", f"not readable: {type(error).__name__}: {error}")
        return ""
    if host.active(host.declared["job"]) in ("active", "activating"):
        return "an activation is running"
    for judge, check in (*judgements.JUDGEMENTS, (full_read.judge_full_read, "Y03")):
        try:
            judge(host)
        except Exception as error:
            # fail closed: unreadable state counts as a failure
            host.fail(check, "high", "", f"not readable: {type(error).__name__}: {error}")
    return ""


def is_deploy_locked(path: str) -> bool:
    """Whether the deploy lock is held. It has no holder in /proc/locks: flock(1) has taken it and ended."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


def describe_lock_holder(path: str) -> str:
    """The holder of the deploy lock, as it has written itself there: command, user and start; bounded."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = json.loads(file.readline(LOCK_RECORD))
        doing, who, since = (str(found[key])[:LOCK_WORDS] for key in ("doing", "who", "since"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process holds the deploy lock"
    return f"{doing} holds the deploy lock since {since} ({who})"


def has_record_lock(root: str, path: str) -> bool:
    """Whether a process holds a lock of fcntl(2) on a file, as dpkg and apt do."""
    try:
        opened = os.open(root + path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # struct flock: type, whence, start, length, process. /proc/locks names inodes of any file system's files.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack_from("h", fcntl.fcntl(opened, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(opened)


def build_state(old: dict[str, Any], host: Host, began: float, reason: str) -> dict[str, Any]:
    """The result: of a run that is skipped, what the last one that was not has found."""
    failing = old.get("failing", []) if reason else host.findings
    waived = old.get("waived", []) if reason else [one for one in failing if is_waived(host.declared, one, began)]
    failing = [one for one in failing if one not in waived]
    since = {key_of(one): one.get("since") for one in old.get("failing", []) + old.get("waived", [])}
    return {
        "schema": 1,
        "run": round(began, 3),
        "judged": old.get("judged") if reason else round(began, 3),
        "outcome": "skipped" if reason else "failing" if failing else "ok",
        "reason": reason,
        "generation": old.get("generation") if reason else host.generation,
        "failing": [{**one, "since": since.get(key_of(one)) or round(began, 3)} for one in failing],
        "waived": [{**one, "since": since.get(key_of(one)) or round(began, 3)} for one in waived],
    }


def is_waived(declared: dict[str, Any], one: dict[str, str], now: float) -> bool:
    """Whether the declaration has a waiver of a finding that has not ended."""
    today = time.strftime("%Y-%m-%d", time.gmtime(now))
    value = [one["check"], one["part"], one["text"]]
    return any(row[:3] == value and row[3] >= today for row in declared.get("waivers", []))


def key_of(one: dict[str, Any]) -> tuple[Any, ...]:
    """A finding, whenever it was made."""
    return tuple(one.get(name) for name in ("check", "severity", "part", "text"))


def describe_change(old: dict[str, Any], state: dict[str, Any]) -> dict[str, Any] | None:
    """What a run adds to the history: what fails since, what holds again, and the first of several that are skipped."""
    before = {key_of(one): one for one in old.get("failing", [])}
    now = {key_of(one): one for one in state["failing"]}
    names = ("check", "severity", "part", "text")
    failed = [{name: one[name] for name in names} for key, one in now.items() if key not in before]
    accepted = {key_of(one): one for one in state["waived"]}
    waived_before = {key_of(one): one for one in old.get("waived", [])}
    # one whose waiver ends fails, and one that is waived does not hold again
    recovered = [
        {name: one[name] for name in names}
        for key, one in {**before, **waived_before}.items()
        if key not in now and key not in accepted
    ]
    waived = [{name: one[name] for name in names} for key, one in accepted.items() if key not in waived_before]
    skipped = state["outcome"] == "skipped"
    if not (failed or recovered or waived or not old or (skipped and old.get("outcome") != "skipped")):
        return None
    return {
        "schema": 1,
        "time": state["run"],
        "outcome": state["outcome"],
        "reason": state["reason"],
        "generation": state["generation"],
        "failed": failed,
        "recovered": recovered,
        "waived": waived,
    }


def render_metrics(state: dict[str, Any]) -> str:
    """The result in Prometheus' text format."""
    lines = ["# TYPE rigwright_self_check_run_seconds gauge", f"rigwright_self_check_run_seconds {int(state['run'])}"]
    if state["judged"] is not None:
        lines.append("# TYPE rigwright_self_check_judged_seconds gauge")
        lines.append(f"rigwright_self_check_judged_seconds {int(state['judged'])}")
    heads = ("# TYPE rigwright_self_check_failed gauge", "# TYPE rigwright_self_check_waived gauge")
    for head, found in zip(heads, (state["failing"], state["waived"])):  # noqa: B905 (of Python 3.10; two of each)
        lines.append(head)
        for row in sorted({(one["check"], one["severity"], one["part"]) for one in found}):
            labels = zip(("check", "level", "part"), row)  # noqa: B905 (of Python 3.10; three of each)
            text = ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in labels)
            lines.append(f"{head.split()[2]}{{{text}}} 1")
    return "\n".join(lines) + "\n"


def load(path: str) -> dict[str, Any]:
    """What the last run has written; empty for none, or what a full disk has cut off."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: str, text: str, mode: int) -> None:
    """Write a file beside its place, and rename it: no reader sees half of one."""
    opened = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(opened, mode)
    os.replace(f"{path}.new", path)


def append_history(folder: str, line: str) -> None:
    """Add a line to the history; the file that has grown too long takes the place of the older one first."""
    path = f"{folder}/history.jsonl"
    try:
        if os.stat(path).st_size + len(line) >= HISTORY_BYTES:
            os.replace(path, f"{folder}/history.1.jsonl")
    except FileNotFoundError:
        pass
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o640)
    with os.fdopen(opened, "a", encoding="utf-8") as file:
        os.fchmod(opened, 0o640)
        # a line that a full disk has cut off does not spoil the next one
        file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
