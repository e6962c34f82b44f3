"""Keeps instances out of the gateway's rotation while their box cannot serve with them: `python3 FOLDER DECLARATION`.

A file for each such instance, NAME or NAME.last, has the reasons. The gateway sends no request to one with NAME, and to
one with NAME.last only if the model has no other. The file goes once the conditions have ended, the box's check of
itself has run since, and a completion through the instance has succeeded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress

from .card_faults import (
    TEXT_LENGTH,
    CardConditions,
    XidLog,
    is_recent,
    list_names,
    notify_operator,
    read,
    read_json,
    remove,
    write,
)

TYPE_CHECKING = False  # a run every ten seconds: typing, pathlib and dataclasses take half of it
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CHECK_AGAIN_S = 30.0  # until the box's check of itself is started again, where its result is too old
ANSWER_S, ANSWER_BYTES = 30.0, 1 << 20  # of a completion
LAST = ".last"
SELF_CHECK = "rigwright_self_check.service"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
REQUEST_LINE = re.compile(r'(unix-socket|url|data) = "(.*)"')
ESCAPES = re.compile(r'\\([\\"])')
METRIC = "rigwright_rotation_left_seconds"


class Reason:
    """Why an instance is out; times in seconds since 1970."""

    def __init__(self, reason: str, text: str, since: float, ended: float | None = None) -> None:
        self.reason, self.text, self.since = reason, text, since
        self.ended = ended
        """When its condition was seen to have ended; None while it lasts."""

    @property
    def keeps_last(self) -> bool:
        """Whether the instance still gets the requests that no other can have: it may be able to answer them."""
        return self.reason.startswith(("disk", "check"))

    @property
    def row(self) -> dict[str, Any]:
        """Its values, as a file has them."""
        return {"reason": self.reason, "text": self.text, "since": self.since, "ended": self.ended}


class RotationWatch:
    """The reasons of this box's instances, and the gate by which they return."""

    def __init__(self, declaration: str, root: str = "") -> None:
        self.root = root
        self.reasons: dict[str, dict[str, Reason]] = {}
        """Instance -> text -> the reason."""
        self.declared: dict[str, Any] = json.loads(read(root + declaration))["rotation"]
        self.folder = root + self.declared["folder"]
        self.result = read_json(root + self.declared["result"])
        """The last result of the box's check of itself."""
        one = self.declared
        self.log = XidLog(one["xids"], one["xid"], one["recovered"], f"{self.folder}/.xids")
        self.cards = CardConditions(f"{self.folder}/.cards", f"{root}/sys/bus/pci/devices")
        self.load()

    @property
    def checked_at(self) -> float:
        """When the box last checked itself; 0 for never, and for a time to come, of a clock that was ahead."""
        moment = float(self.result.get("judged") or 0)
        return moment if moment <= time.time() else 0.0

    def load(self) -> None:
        """Go on with the reasons of the last run."""
        for file in list_names(self.folder):
            name = file.removesuffix(LAST)
            if not NAME.fullmatch(name):
                continue
            with suppress(ValueError, KeyError, TypeError):
                for row in read_json(f"{self.folder}/{file}")["reasons"]:
                    ended = None if row["ended"] is None else float(row["ended"])
                    one = Reason(str(row["reason"]), str(row["text"]), float(row["since"]), ended)
                    self.reasons.setdefault(name, {})[one.text] = one

    def conditions(self, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Reason]]:
        """Instance and reason of each condition that holds now."""
        declared, now = self.declared, time.time()
        instances: Mapping[str, Any] = manifest.get("instances", {})
        number = len(manifest.get("cards", []))
        there = self.cards.on_bus() if number else []
        slots = self.cards.declared(number, there)
        for name, one in instances.items():
            for index in one["cards"]:
                slot = slots[index] if index < len(slots) else ""
                if not slot or slot not in there:
                    yield name, Reason("card", f"card {index} is not on the PCI bus", now)
                elif self.cards.is_unlisted(slot):
                    yield name, Reason("card", f"nvidia-smi no longer lists card {index} at {slot}", now)
                for (place, code), since in self.log.found.items():
                    if place == slot:
                        text = f"Xid {code} of card {index} at {slot}: {self.log.names[code]}"
                        yield name, Reason(f"xid {code}", text, since)
        for path, free in declared["disks"].items():
            with suppress(OSError):
                found = os.statvfs(self.root + path)
                if found.f_bavail * found.f_frsize < free:
                    text = f"less than {free >> 20} MiB are free in {path}"
                    yield from ((name, Reason("disk", text, now)) for name in instances)
        for row in self.result.get("failing", []):
            check, text = str(row["check"]), f"{row['check']} fails: {row['text']}"[:TEXT_LENGTH]
            if check in declared["checks"] or check[:1] in declared["checks"]:
                since = float(row["since"])
                for name in self.concerned(str(row["part"]), instances):
                    yield name, Reason(f"check {check}", text, since)

    @staticmethod
    def concerned(part: str, instances: Mapping[str, Any]) -> list[str]:
        """The instances that a finding is about: the one it names, those with the file that it names, or all."""
        if part in instances:
            return [part]
        reading = [
            name for name, one in instances.items() if part in (path.rpartition("/")[2] for path in one["weights"])
        ]
        return (part and reading) or list(instances)

    def look(self) -> None:
        """Compare the conditions with the reasons, pass what has come through the gate, and write what changed."""
        manifest = read_json(f"{self.root}{self.declared['config']}/current/manifest.json")
        if not manifest:
            return
        holding: dict[str, dict[str, Reason]] = {}
        for name, one in self.conditions(manifest):
            holding.setdefault(name, {}).setdefault(one.text, one)
        names = sorted({*holding, *self.reasons})
        changed: dict[str, dict[str, Reason]] = {}
        for name in names:
            before, now = self.reasons.get(name, {}), holding.get(name, {})
            kept = {text: self.end(one) for text, one in before.items() if text not in now}
            kept |= {text: Reason(one.reason, text, before.get(text, one).since) for text, one in now.items()}
            changed[name] = kept if name in manifest.get("instances", {}) else {}
            self.settle(name, changed[name])
        returning = [name for name in names if changed[name] and not holding.get(name)]
        for name in self.pass_gate({name: changed[name] for name in returning}):
            self.settle(name, {})
        self.write_metrics()

    def end(self, one: Reason) -> Reason:
        """A reason whose condition has ended: that of a check with the run in which it held, others now."""
        now = time.time()
        ended = one.ended or (one.reason.startswith("check") and self.checked_at) or now
        # a clock that was ahead has been set since
        return Reason(one.reason, one.text, one.since, min(ended, now))

    def pass_gate(self, returning: Mapping[str, Mapping[str, Reason]]) -> list[str]:
        """The instances that may return, of those whose conditions have ended: the box's check of itself has run since,
        and a completion succeeds now.
        """
        judged = self.checked_at if self.declared["checks"] else float("inf")
        checked = [
            name for name, reasons in returning.items() if judged >= max(one.ended or 0.0 for one in reasons.values())
        ]
        if len(checked) < len(returning):
            self.start_check()
        answered: list[str] = []
        threads = [threading.Thread(target=self.complete, args=(name, answered), daemon=True) for name in checked]
        for one in threads:
            one.start()
        until = time.monotonic() + ANSWER_S
        for one in threads:
            one.join(max(0.0, until - time.monotonic()))
        return list(answered)

    def start_check(self) -> None:
        """Have the box check itself; not with each look, since it may be skipped for as long as a deploy runs."""
        asked = f"{self.folder}/.check"
        if not is_recent(float(read(asked) or 0), CHECK_AGAIN_S):
            write(asked, str(time.time()))
            with suppress(OSError, subprocess.SubprocessError):  # a systemd that is too busy
                subprocess.run(["systemctl", "start", "--no-block", SELF_CHECK], timeout=ANSWER_S, check=False)

    def complete(self, name: str, answered: list[str]) -> None:
        """Have an instance answer the request that its start waits for; adds its name then."""
        config = f"{self.root}{self.declared['config']}"
        # most runs ask nothing, and start faster without them
        import http.client
        import socket

        with suppress(OSError, ValueError, KeyError, RecursionError, http.client.HTTPException):
            found = (REQUEST_LINE.fullmatch(line) for line in read(f"{config}/current/requests/{name}").splitlines())
            request = {line[1]: ESCAPES.sub(r"\1", line[2]) for line in found if line}
            files = dict(line.split(" ", 1) for line in read(f"{config}/current/gateway/engine-keys").splitlines())
            key = read(f"{config}/credentials/{files[name]}").strip()
            link = http.client.HTTPConnection("localhost", timeout=ANSWER_S)
            link.sock = socket.socket(socket.AF_UNIX)
            link.sock.settimeout(ANSWER_S)
            link.sock.connect(self.root + request["unix-socket"])
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Connection": "close"}
            body = request.get("data")
            path = request["url"].removeprefix("http://localhost")
            link.request("POST" if body else "GET", path, body and body.encode(), headers)
            answer = link.getresponse()
            if answer.status == 200 and isinstance(json.loads(answer.read(ANSWER_BYTES)), dict):
                answered.append(name)

    def settle(self, name: str, kept: dict[str, Reason]) -> None:
        """Write an instance's reasons where they changed."""
        before = self.reasons.get(name, {})
        rows = [one.row for one in sorted(kept.values(), key=lambda one: one.since)]
        if rows == [one.row for one in sorted(before.values(), key=lambda one: one.since)]:
            return
        for text in sorted({*kept} - {*before}):
            notify_operator(f"{name} leaves the rotation: {text}")
        self.reasons[name] = kept
        files = [f"{self.folder}/{name}{suffix}" for suffix in ("", LAST)]
        if not kept:
            del self.reasons[name]
            notify_operator(f"{name} returns to the rotation")
        else:
            file = files.pop(all(one.keeps_last for one in kept.values()))
            write(file, json.dumps({"schema": 1, "reasons": rows}) + "\n")
        for other in files:
            remove(other)

    def write_metrics(self) -> None:
        """The reasons in Prometheus' text format."""
        if not (path := self.declared["metrics"]):
            return
        rows = {(name, one.reason): one.since for name in self.reasons for one in self.reasons[name].values()}
        lines = [
            f'{METRIC}{{instance="{name}",reason="{reason}"}} {int(since)}' for (name, reason), since in rows.items()
        ]
        text = "\n".join([f"# TYPE {METRIC} gauge", *sorted(lines)]) + "\n"
        if text != read(self.root + path):
            with suppress(OSError):  # a full disk
                write(self.root + path, text)


def main(words: list[str]) -> int:
    """Look once."""
    watch = RotationWatch(words[0])
    for collect in (watch.log.update, watch.cards.ask):
        try:
            collect()
        except (OSError, subprocess.SubprocessError) as error:
            # the other conditions are looked at all the same
            notify_operator(str(error))
    watch.look()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
