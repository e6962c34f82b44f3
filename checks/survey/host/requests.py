"""Requests as clients make them, all at once, from an unprivileged user: the answers are not trusted."""

from __future__ import annotations

import grp
import hashlib
import json
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from checks.survey.host import bounded_http, common, network_sockets, systemd_properties

PAUSE = 0.25  # seconds before a busy server is asked again
DOWN = "not asked: {} is not active"
UNASKED = "not asked: those before it had no answer in time"
JOURNAL = "/run/systemd/journal/socket"
# rigwright/engines/log_causes.py reads both.
IDENTIFIER, RECORD = "rigwright-check", "a check sends {} requests without a valid API key"
LACKING = {"status": 0, "body": "", "sha256": "", "headers": {}, "certificate": ""}


def patiently(ask: dict[str, Any], key: str) -> dict[str, object]:
    """The same, repeated while the server is busy."""
    until = time.monotonic() + ask["limit"]
    once = {**ask, "limit": min(ask["limit"], ask["single"])}
    found = bounded_http.answer(once, key)
    while found["status"] in ask["again"] and time.monotonic() < until and may_serve(ask):
        time.sleep(PAUSE)
        found = bounded_http.answer(once, key)
    return found


def may_serve(ask: dict[str, Any]) -> bool:
    """Whether a process still runs of the services that answer it: a gateway without any of them is busy to no end."""
    return not ask["units"] or any(map(is_alive, ask["processes"]))


def is_alive(pid: int) -> bool:
    """Whether a process runs, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main_processes(units: set[str]) -> dict[str, int]:
    """Service that is active -> its main process."""
    found = systemd_properties.properties(sorted(units), "ActiveState", "MainPID")
    return {unit: one["MainPID"] for unit, one in found.items() if one.get("ActiveState") == "active"}


def bounded(ask: dict[str, Any], key: str, end: float) -> dict[str, object]:
    """The same, until a moment at most: of a lane whose engine hangs, each request would take all of its own time."""
    left = end - time.monotonic()
    if left <= 0:
        return {**LACKING, "error": UNASKED}
    return patiently({**ask, **{name: min(ask[name], left) for name in ("limit", "connect")}}, key)


def asking(asks: list[dict[str, Any]], keys: dict[str, str], end: float) -> Callable[[int], None]:
    """The program that makes requests: those of a lane one after another, all lanes at once, none after `end`."""

    def work(writing: int) -> None:
        found: dict[str, object] = {}
        lanes: dict[str, list[dict[str, Any]]] = {}
        for ask in asks:
            lanes.setdefault(ask["lane"] or ask["name"], []).append(ask)

        def along(lane: list[dict[str, Any]]) -> None:
            silent: set[str] = set()
            for ask in lane:
                # a frozen process takes connections, and all the time that each of them is given
                unasked = ask["at"] in silent
                answer = {**LACKING, "error": UNASKED} if unasked else bounded(ask, keys.get(ask["key"], ""), end)
                found[ask["name"]] = answer
                silent |= {ask["at"]} if answer["error"] == bounded_http.LATE else set()

        threads = [threading.Thread(target=along, args=(lane,)) for lane in lanes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bounded_http.write(writing, found)

    return work


def announce_keyless(asks: list[dict[str, Any]], processes: dict[str, int]) -> None:
    """Write to the journal of each service how many requests without a valid API key follow.

    journald shows the lines among those of the service that a process belongs to, and only if root has sent them.
    """
    counts = Counter(unit for ask in asks if ask["keyless"] for unit in ask["units"] if unit in processes)
    for unit, count in counts.items():
        fields = {"MESSAGE": RECORD.format(count), "PRIORITY": 6, "SYSLOG_IDENTIFIER": IDENTIFIER}
        lines = "".join(f"{name}={value}\n" for name, value in {**fields, "OBJECT_PID": processes[unit]}.items())
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
            journal.setblocking(False)
            journal.sendto(lines.encode(), JOURNAL)


def part(path: str, start: int, length: int) -> str:
    """SHA-256 of a part of a file; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return hashlib.sha256(file.read(length)).hexdigest()
    except OSError:
        return ""


def look(asked: dict[str, Any]) -> dict[str, object]:
    """Make all requests.

    Args:
        asked: The fields of checks.survey.requests.SurveyRequest, the parts of files that answers are compared with,
            and the seconds within which all of it has to be done.
    """
    found: dict[str, object] = {}
    end = time.monotonic() + asked["within"]
    theirs = network_sockets.systemds()
    groups: dict[str, list[dict[str, Any]]] = {}
    keys: dict[str, str] = {}
    try:
        processes = main_processes({unit for ask in asked["asks"] for unit in ask["units"]})
    except (RuntimeError, OSError, ValueError, struct.error):  # systemd does not say: each is asked to the end
        asked["asks"] = [{**ask, "units": ()} for ask in asked["asks"]]
        processes = {}
    for ask in asked["asks"]:
        ask["processes"] = [processes[unit] for unit in ask["units"] if unit in processes]
        if ask["units"] and not ask["processes"]:
            # an instance that systemd does not run gives no answer
            found[ask["name"]] = {**LACKING, "error": DOWN.format(" and ".join(ask["units"]))}
            continue
        path, at = ask["key"], ask["at"]
        if path and path not in keys:
            keys[path] = common.one_key(path)
        if path and not keys[path]:
            found[ask["name"]] = {**LACKING, "error": f"{path} has not one key in it"}
        elif path and not at.startswith("/") and at not in theirs:
            found[ask["name"]] = {**LACKING, "error": f"systemd does not listen on {at}: the key is not shown"}
        else:
            groups.setdefault(ask["group"], []).append(ask)
    announce_keyless([ask for asks in groups.values() for ask in asks], processes)
    readers = []
    for name, asks in groups.items():
        try:
            group = grp.getgrnam(name).gr_gid if name else bounded_http.NOBODY
        except KeyError:
            found.update({ask["name"]: {**LACKING, "error": f"there is no group {name}"} for ask in asks})
            continue
        pid, reading = bounded_http.apart(group, asking(asks, keys, end))
        readers.append((pid, reading, asks))
    parts = {one["name"]: part(one["path"], one["start"], one["length"]) for one in asked["parts"]}
    for pid, reading, asks in readers:
        with os.fdopen(reading, "rb") as file:
            said = file.read()
        os.waitpid(pid, 0)
        answers = json.loads(said or b"{}")
        for ask in asks:
            name = ask["name"]
            found[name] = answers.get(name, {**LACKING, "error": "what asked has died"})
    return {"answers": found, "parts": parts}
