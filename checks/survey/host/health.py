"""The health of instances, in less than a second: systemd's states, engines' counts, and one token.

An engine that hangs says that it is well, so each is asked for a token, and whether it computes is seen by what it
counts. A busy processor delays both: the first look without an answer and a step waits for some seconds more. An engine
that neither answers nor computes in them is written down, and the next look knows for how long it is silent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import threading
import time
from typing import Any

from checks.survey.host import bounded_http, common, current_generation, residency, rotation, systemd_properties
from checks.survey.host.thread_pool import Pool

ROOT = ""  # a test has a folder for a host
SILENT = "/run/rigwright/silent"
LINES = 200  # of a log
KEPT = 20  # of them that betray something: a start that fails ends with several lines, and its reason is before those
LENGTH = 300  # characters of a line
ASLEEP = {
    **{"status": 0, "error": "", "took_s": 0.0, "before": [], "after": [], "apart_s": 0.0, "then": "", "now": ""},
    "asleep": True,
}
SLOW = 4.0  # seconds for a program that takes a tenth of one: other work may have the processor
MANY = 1000  # files of an instance's weights
SAMPLES = 1 << 20  # bytes of what an engine counts
APART = 0.3  # seconds between two looks at what it counts
UNKNOWN = ("", "?")  # the stand-in for the progress of an engine that counts none, or has not answered in time
PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "MemoryCurrent", "InvocationID"),
    *("StateChangeTimestampMonotonic", "ActiveEnterTimestampMonotonic"),
)


def units(names: list[str]) -> dict[str, dict[str, str]]:
    """Unit -> its properties; also of Rigwright's units that the request does not name."""
    return systemd_properties.read_properties(names, PROPERTIES, pattern="rigwright-*.service", limit=5)


def number(text: str | None) -> int | None:
    """A count of systemd's; None where it says none."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def state(rows: dict[str, str]) -> dict[str, object]:
    """One unit."""
    active = rows.get("ActiveState", "")
    moment = number(rows.get(f"{'ActiveEnter' if active == 'active' else 'StateChange'}TimestampMonotonic"))
    return {
        "load": rows.get("LoadState", ""),
        "active": active,
        "sub": rows.get("SubState", ""),
        "result": rows.get("Result", ""),
        "restarts": number(rows.get("NRestarts")) or 0,
        "running": rows.get("MainPID", "0") != "0",
        "since_s": round(max(0.0, time.monotonic() - moment / 1e6), 1) if moment else None,
        "memory": number(rows.get("MemoryCurrent")),
    }


SEARCHED = 1000  # characters of a line
SEARCH = 0.5  # seconds for the lines of a unit: all units share one interpreter, and a hostile line takes milliseconds


def betraying(rows: dict[str, str], patterns: list[str]) -> tuple[list[str], bool]:
    """The last lines of a unit's last start that match one of these regular expressions; whether all were searched.

    The newest lines come first in the search.
    """
    run = rows.get("InvocationID", "")
    if not (run and patterns):
        return [], True
    words = ("journalctl", "--no-pager", "-q", "-b", "-o", "cat", "-n", str(LINES), f"_SYSTEMD_INVOCATION_ID={run}")
    try:
        said = common.run(*words, limit=0.7, status=True)
    except (RuntimeError, OSError, subprocess.TimeoutExpired):
        return [], True
    known = re.compile("|".join(f"(?:{one})" for one in patterns))
    until = time.monotonic() + SEARCH
    fitting: dict[str, None] = {}
    for line in reversed(common.lines(said)):
        if len(fitting) == KEPT:
            break
        if time.monotonic() > until:
            return list(fitting)[::-1], False
        if known.search(line[:SEARCHED]):
            fitting.setdefault(common.masked(line)[:LENGTH])
    return list(fitting)[::-1], True


def idle(lines: list[str], busy: tuple[str, ...]) -> bool:
    """Whether an engine counts that it has no requests."""
    counted = [line.rpartition(" ")[2] for line in lines if line.startswith(busy)] if busy else []
    return bool(counted) and not any(one.strip("0.") for one in counted)


def is_step(then: str, now: str) -> bool:
    """Whether an engine has computed between two counts."""
    return then not in UNKNOWN and now not in UNKNOWN and then != now


def asking(ask: dict[str, Any], key: str, until: float, patience: float) -> Any:
    """The process that makes the requests of one instance: for a token, and for its counts, before and next to it.

    Args:
        ask: As `look` has it.
        key: The instance's key.
        until: The moment until which an answer or a step is waited for.
        patience: Seconds after it in which an engine without both is waited for.
    """

    def made(path: str, body: str, limit: float) -> dict[str, Any]:
        one = {"at": ask["at"], "path": path, "method": "POST" if body else "GET", "headers": (), "body": body}
        more = {"tls": False, "source": "", "connect": limit, "limit": limit, "told": (), "shown": SAMPLES}
        return bounded_http.answer({**one, **more, "most": SAMPLES}, key)

    def counted(end: float) -> tuple[list[str], str]:
        """Lines that are asked for, and what stands for how far it has computed; `?` for no answer in time."""
        left = max(0.05, end - time.monotonic())
        found = made(ask["counts"], "", left)
        if not found["status"]:
            return [], "?"
        if found["status"] != 200:
            return [], ""
        if not ask["names"]:
            return [], hashlib.sha256(str(found["body"]).encode()).hexdigest()
        names = tuple(ask["names"])
        lines = [line[:LENGTH] for line in str(found["body"]).split("\n") if line.startswith(names)][:LINES]
        progress = "\n".join(line for line in lines if line.startswith(tuple(ask["progress"])))
        return lines, hashlib.sha256(progress.encode()).hexdigest() if progress else ""

    def work(writing: int) -> None:
        began = time.monotonic()
        if ask["sleep"] and re.search(ask["asleep"], str(made(ask["sleep"], "", max(0.05, until - began))["body"])):
            # a request would load its model
            bounded_http.write(writing, ASLEEP)
            return
        end = until + patience
        first: tuple[list[str], str] = counted(until) if ask["counts"] else ([], "")
        looked = since = time.monotonic()
        token: dict[str, Any] = {"status": 0, "error": bounded_http.LATE}
        took = [0.0]

        def probe() -> None:
            token.update(made(ask["probe"], ask["body"], max(0.05, end - time.monotonic())))
            took[0] = time.monotonic() - looked

        asked = threading.Thread(target=probe, daemon=True)
        asked.start()
        asked.join(max(0.0, until - time.monotonic()))
        last = first
        # an instance that has answered computes; the survey waits for its tokens per second where it makes some and
        # counts that
        quick = token["status"] == 200 and took[0] < APART
        resting = quick and (not ask["names"] or idle(first[0], tuple(ask["busy"])))
        if ask["counts"] and not resting:
            time.sleep(max(0.0, min(APART, until - time.monotonic() - 0.1) - (time.monotonic() - looked)))
            last = counted(until)
        while asked.is_alive() and not is_step(first[1], last[1]) and (left := end - time.monotonic()) > 0:
            asked.join(min(APART, left))
            if ask["counts"] and asked.is_alive():
                if first[1] == "?":
                    first, since = last, time.monotonic()
                last = counted(end)
        bounded_http.write(
            writing,
            {
                "status": token["status"],
                "error": str(token["error"])[:LENGTH],
                "took_s": round(took[0] or time.monotonic() - began, 3),
                "before": first[0],
                "after": last[0],
                "apart_s": round(time.monotonic() - since, 3),
                "then": first[1],
                "now": last[1],
            },
        )

    return work


def read_silence(name: str, run: str) -> dict[str, Any] | None:
    """An earlier look's record of an instance in this run of its unit; None for nothing."""
    try:
        kept = json.loads(common.read(f"{ROOT}{SILENT}/{name}") or "")
        kept = {"run": kept["run"], "now": str(kept["now"]), "began": float(kept["began"])}
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    return kept if kept["run"] == run and 0 <= kept["began"] <= time.monotonic() else None


def silence(name: str, run: str, found: dict[str, Any]) -> float:
    """Seconds for which an engine has neither answered nor computed, as far as looks tell; written down for others."""
    path = f"{ROOT}{SILENT}/{name}"
    if found["status"] or is_step(found["then"], found["now"]):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return 0.0
    now = time.monotonic()
    kept = read_silence(name, run)
    if kept and not is_step(kept["now"], found["now"]):
        return max(round(now - float(kept["began"]), 1), 0.001)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(f"{path}.new", "w") as file:
            json.dump({"run": run, "now": found["now"], "began": now - found["took_s"]}, file)
        os.replace(f"{path}.new", path)
    return max(float(found["took_s"]), 0.001)


def group(at: str) -> int:
    """The users that may connect to a socket now: its own group, and once it has answered the gateway's."""
    try:
        return os.stat(os.path.dirname(at)).st_gid
    except OSError:
        return bounded_http.NOBODY


Begun = list[tuple[dict[str, Any], int, int]]


def start_requests(asked: dict[str, Any], there: dict[str, dict[str, str]]) -> Begun:
    """Begin to ask those whose unit runs, each in a process of its own."""
    until = time.monotonic() + asked["seconds"]
    found = []
    for ask in asked["asks"]:
        rows = there.get(ask["unit"], {})
        if rows.get("ActiveState") == "active":
            key = common.one_key(f"{ROOT}{ask['key']}")
            patience = 0.0 if read_silence(ask["name"], rows.get("InvocationID", "")) else asked["patience"]
            found.append((ask, *bounded_http.apart(group(ask["at"]), asking(ask, key, until, patience))))
    return found


def ended(asked: Begun, there: dict[str, dict[str, str]]) -> dict[str, object]:
    """Instance -> what came of asking it."""
    found: dict[str, object] = {}
    for ask, pid, reading in asked:
        with os.fdopen(reading, "rb") as file:
            said = file.read()
        os.waitpid(pid, 0)
        told = json.loads(said or b"null")
        if told is not None:
            run = there[ask["unit"]].get("InvocationID", "")
            silent = 0.0 if told.get("asleep") else silence(ask["name"], run, told)
            read = told.pop("now"), told.pop("then")
            # without any counts, whether it computes is unknown
            found[ask["name"]] = {**told, "silent_s": silent, "counts": "" not in read}
    return found


def cards(words: list[str]) -> dict[str, object]:
    """The output of nvidia-smi; empty if it is not requested."""
    if not words:
        return {"status": 127, "out": "", "err": ""}
    program = next((path for place in ("/usr/bin", "/bin") if os.access(path := f"{place}/nvidia-smi", os.X_OK)), "")
    try:
        status, out, err = common.ended(program or "nvidia-smi", *words, limit=SLOW)
    except subprocess.TimeoutExpired:
        return {"status": 124, "out": "", "err": ""}
    return {"status": status, "out": out[:65536], "err": err[:1000]}


def holder(path: str) -> str:
    """The text that the holder of the deploy lock has written there; empty if it is free."""
    try:
        with open(f"{ROOT}{path}") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.readline(4096) or "?"
    except OSError:
        pass
    return ""


def stop_times(folder: str, asks: list[dict[str, Any]]) -> dict[str, float]:
    """Instance that was stopped by hand -> when, in seconds since 1970."""
    found = {}
    for ask in asks:
        with contextlib.suppress(OSError):
            found[ask["name"]] = os.lstat(f"{folder}/{ask['name']}").st_mtime
    return found


def start_record(ask: dict[str, Any], folder: str) -> dict[str, object]:
    """The files that the process of an instance was started from, and whether its key and its weights are those on
    disk."""
    unit = ask["unit"]
    lines = common.lines(common.read(f"{ROOT}{folder}/{unit}") or "")
    current = True
    for line in lines[1:MANY]:
        numbers, _, path = line.partition(" ")
        try:
            there = os.stat(f"{ROOT}{path}")
            current &= numbers == f"{there.st_dev}:{there.st_ino}"
        except OSError:
            current = False
    passed = common.read(f"{ROOT}/run/credentials/{unit}/api-key", 1 << 16)
    current &= passed == common.read(f"{ROOT}{ask['key']}", 1 << 16)
    return {"started_from": lines[0][:64] if lines else "", "inputs_current": current}


def look(asked: dict[str, Any]) -> dict[str, object]:
    """How all of it is doing.

    Args:
        asked: `units`, names; `asks`, of each instance `name`, `unit`, `at`, `key`, `probe` and its `body`, `counts`
            (the path of what it counts), `names`, `progress` and `busy` of that, `sleep` (a path that does not wake it,
            or nothing), `asleep` (what its answer matches then) and `patterns` of its log; `seconds` for an answer,
            `patience`, those after them for an instance without an answer, without a step and without a record of
            silence; `smi`, what nvidia-smi is asked; `lock`; `out`, the folder of those that the gateway has taken out;
            `rotation`, that of root's reasons, and `last_resort`, which ends the names of files for instances that are
            asked where no other can be;
            `config`, the configuration's folder; in it `stopped`, the folder of instances stopped by hand; in a
            generation `sealed`, the file with its digest, and `unsealed`, the files that are not part of it; `records`,
            the folder of what processes were started from; `residency`, the ledger of instances on demand, and
            `counters`, the gateway's socket; `jobs`, whether long work is listed.
    """
    there = units(asked["units"])
    # before there are threads, of which a process that is split off has the locks and not the threads
    asked_of = start_requests(asked, there)
    with Pool(8) as pool:
        seen = pool.submit(cards, asked["smi"])
        work = ("systemctl", "list-units", "--plain", "--no-legend", "--full", "--state=active,activating", "rw-*")
        jobs = pool.submit(common.run, *work, limit=SLOW) if asked["jobs"] else None
        logs = {
            ask["name"]: pool.submit(betraying, there.get(ask["unit"], {}), ask["patterns"]) for ask in asked["asks"]
        }
        answers = ended(asked_of, there)
        said = {name: log.result() for name, log in logs.items()}
        records = {ask["unit"]: start_record(ask, asked["records"]) for ask in asked["asks"] if ask["unit"] in there}
        on_demand: dict[str, dict[str, object]] = {}
        if asked["residency"]:
            on_demand = residency.read_residency(f"{ROOT}{asked['residency']}", f"{ROOT}{asked['counters']}")
        out = {ask["name"]: common.begin(f"{ROOT}{asked['out']}/{ask['name']}", LENGTH) for ask in asked["asks"]}
        kept_out = {
            ask["name"]: rotation.read_rotation(f"{ROOT}{asked['rotation']}", ask["name"], asked["last_resort"])
            for ask in asked["asks"]
        }
        return {
            "units": {name: state(rows) | records.get(name, {}) for name, rows in there.items()},
            "engines": answers,
            "said": {name: lines for name, (lines, _) in said.items()},
            "partial": [name for name, (_, complete) in said.items() if not complete],
            "out": {name: text.strip() for name, text in out.items() if text},
            "rotation": {name: reasons for name, reasons in kept_out.items() if reasons},
            "cards": seen.result(),
            "jobs": systemd_properties.parse_unit_names(jobs.result(), "rw-")[:50] if jobs else [],
            "holder": holder(asked["lock"]),
            "reboot": os.path.exists(f"{ROOT}/run/reboot-required"),
            "stopped": stop_times(f"{ROOT}{asked['config']}/{asked['stopped']}", asked["asks"]),
            "residency": on_demand,
            "generation": current_generation.read_generation(f"{ROOT}{asked['config']}", asked)
            if asked["config"]
            else None,
        }
