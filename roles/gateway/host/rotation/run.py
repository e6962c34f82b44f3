"""Keeps instances out of the gateway's rotation while their box cannot serve with them: `python3 FOLDER DECLARATION`.

A file for each such instance, NAME or NAME.last, has the reasons. The gateway sends no request to one with NAME, and to
one with NAME.last only if the model has no other. The file goes once the conditions have ended, the box's check of
itself has run since, and a completion through the instance has succeeded.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .card_faults import TEXT_LENGTH, Cards, XidLog, read, read_json, write

LOOK_S, GATE_S = 10.0, 1.0  # between two looks; while an instance is about to return
CHECK_AGAIN_S = 30.0  # until the box's check of itself is started again, where its result is too old
ANSWER_S, ANSWER_BYTES = 30.0, 1 << 20  # of a completion
LAST = ".last"
SELF_CHECK = "rigwright_self_check.service"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
REASON = re.compile(r"xid [0-9]{1,5}|card|disk|check [A-Z][0-9]{2}")
REQUEST_LINE = re.compile(r'(unix-socket|url|data) = "(.*)"')
ESCAPES = re.compile(r'\\([\\"])')
METRIC = "rigwright_rotation_left_seconds"


@dataclass(frozen=True)
class Reason:
    """Why an instance is out; times in seconds since 1970."""

    reason: str
    text: str
    since: float
    ended: float | None = None
    """When its condition was seen to have ended; None while it lasts."""

    @property
    def keeps_last(self) -> bool:
        """Whether the instance still gets the requests that no other can have: it may be able to answer them."""
        return self.reason.startswith(("disk", "check"))


class RotationWatch:
    """The reasons of this box's instances, and the gate by which they return."""

    def __init__(self, declaration: str, root: str = "") -> None:
        self.path, self.root = declaration, root
        self.reasons: dict[str, dict[str, Reason]] = {}
        """Instance -> text -> the reason."""
        declared = self.declared
        self.log = XidLog(declared["xids"], declared["xid"], declared["recovered"])
        self.cards = Cards(f"{root}{declared['record']}", f"{root}/sys/bus/pci/devices")
        self._answers: dict[str, tuple[threading.Thread, list[float]]] = {}
        self._check_asked = float("-inf")
        self.load()

    @property
    def declared(self) -> dict[str, Any]:
        """The part of the declaration that a deploy has written for this."""
        return dict(json.loads(read(self.root + self.path))["rotation"])

    def load(self) -> None:
        """Go on with the reasons of a process that was ended: an Xid's message may have left the journal since."""
        folder = self.root + self.declared["folder"]
        for file in sorted(one.name for one in Path(folder).iterdir()):
            name = file.removesuffix(LAST)
            if not NAME.fullmatch(name):
                continue
            with suppress(ValueError, KeyError, TypeError):
                for row in read_json(f"{folder}/{file}")["reasons"]:
                    one = Reason(str(row["reason"]), str(row["text"]), float(row["since"]))
                    self.reasons.setdefault(name, {})[one.text] = one
                    if REASON.fullmatch(one.reason) and one.reason.startswith("xid") and (slot := row.get("slot")):
                        self.log.found.setdefault((str(slot), one.reason[4:]), one.since)

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
                elif self.cards.unlisted(slot):
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

    @property
    def result(self) -> dict[str, Any]:
        """The last result of the box's check of itself."""
        return read_json(self.root + self.declared["result"])

    def look(self) -> None:
        """Compare the conditions with the reasons, pass what has come through the gate, and write what changed."""
        manifest = read_json(f"{self.root}{self.declared['config']}/current/manifest.json")
        if not manifest:
            return
        holding: dict[str, dict[str, Reason]] = {}
        for name, one in self.conditions(manifest):
            holding.setdefault(name, {}).setdefault(one.text, one)
        for name in sorted({*holding, *self.reasons}):
            before, now = self.reasons.get(name, {}), holding.get(name, {})
            kept = {text: self.end(one) for text, one in before.items() if text not in now}
            kept |= {
                text: replace(one, since=before[text].since) if text in before else one for text, one in now.items()
            }
            if name not in manifest.get("instances", {}) or (kept and not now and self.may_return(name, kept)):
                kept = {}
            self.settle(name, before, kept)
        self.write_metrics()

    def end(self, one: Reason) -> Reason:
        """A reason whose condition has ended: that of a check with the run in which it held, others now."""
        ended = float(self.result.get("judged") or 0) if one.reason.startswith("check") else time.time()
        return replace(one, ended=one.ended or ended)

    def may_return(self, name: str, reasons: Mapping[str, Reason]) -> bool:
        """Whether the gate lets an instance return: its conditions have ended, and since then the box's check of itself
        has run, and a completion has succeeded.
        """
        ended = max(one.ended or 0.0 for one in reasons.values())
        if self.declared["checks"] and float(self.result.get("judged") or 0) < ended:
            if time.monotonic() - self._check_asked > CHECK_AGAIN_S:
                self._check_asked = time.monotonic()
                with suppress(OSError, subprocess.SubprocessError):
                    subprocess.run(["systemctl", "start", "--no-block", SELF_CHECK], timeout=10, check=False)
            return False
        thread, answered = self._answers.get(name, (None, []))
        if answered and answered[0] >= ended:
            return True
        if thread is None or not thread.is_alive():
            answered = []
            thread = threading.Thread(target=self.complete, args=(name, answered), daemon=True)
            self._answers[name] = thread, answered
            thread.start()
        return False

    def complete(self, name: str, answered: list[float]) -> None:
        """Have an instance answer the request that its start waits for; adds the moment at which that began."""
        began, config = time.time(), f"{self.root}{self.declared['config']}"
        with suppress(OSError, ValueError, KeyError, http.client.HTTPException):
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
                answered.append(began)

    def settle(self, name: str, before: Mapping[str, Reason], kept: dict[str, Reason]) -> None:
        """Write an instance's reasons where they changed."""
        if kept == before:
            return
        folder = self.root + self.declared["folder"]
        for text in sorted({*kept} - {*before}):
            print(ascii(f"{name} leaves the rotation: {text}"), flush=True)
        if not kept:
            for suffix in ("", LAST):
                Path(f"{folder}/{name}{suffix}").unlink(missing_ok=True)
            self.reasons.pop(name, None)
            self._answers.pop(name, None)
            print(f"{name} returns to the rotation", flush=True)
            return
        self.reasons[name] = kept
        rows = [asdict(one) | {"slot": self.slot_in(one)} for one in sorted(kept.values(), key=lambda one: one.since)]
        suffixes = ("", LAST) if not all(one.keeps_last for one in kept.values()) else (LAST, "")
        write(f"{folder}/{name}{suffixes[0]}", json.dumps({"schema": 1, "reasons": rows}) + "\n")
        Path(f"{folder}/{name}{suffixes[1]}").unlink(missing_ok=True)

    def slot_in(self, one: Reason) -> str:
        """The slot of an Xid's card."""
        return next(
            (slot for slot, code in self.log.found if f" at {slot}: " in one.text and one.reason == f"xid {code}"), ""
        )

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


def notify_ready() -> None:
    """Tell systemd that the reasons of this boot are written (sd_notify(3)): the gateway starts after that."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)


def main(words: list[str]) -> int:
    """Look until it is ended."""
    rotation = RotationWatch(words[0])
    rotation.log.follow(1.0)
    rotation.look()
    notify_ready()
    while True:
        returning = any(all(one.ended for one in reasons.values()) for reasons in rotation.reasons.values())
        rotation.log.follow(GATE_S if returning else LOOK_S)
        rotation.cards.ask()
        rotation.look()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
