"""Faults of a box's cards: Xids in the kernel's log, cards that have left the bus, and those that the driver lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False  # as in run.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SMI = "/usr/bin/nvidia-smi"
SMI_S, SMI_LIMIT_S = 60.0, 20.0  # between two starts of nvidia-smi, and until one that hangs is killed
JOURNAL_S = 30.0  # for an answer of journalctl
ROW = re.compile(r"([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2})\.[0-7], (.*)", re.IGNORECASE)
LOST = re.compile(
    r"Unable to determine the device handle for GPU[^:]{0,9}: ?([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2})\b.*", re.I
)
NO_CARD = "No devices were found"
LOADED = re.compile(r"NVRM: loading NVIDIA .*")
FILE_BYTES, TEXT_LENGTH = 4 << 20, 300


def read(path: str) -> str:
    """A file of root's; empty for none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(FILE_BYTES)
    except OSError:
        return ""


def read_json(path: str) -> dict[str, Any]:
    """An object of a file; empty for none, and for one that is cut off."""
    try:
        found = json.loads(read(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file beside its place, and rename it: no reader sees half of one."""
    folder, _, name = path.rpartition("/")
    opened = os.open(f"{folder}/.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(opened, mode)
    os.replace(f"{folder}/.{name}", path)


def list_names(folder: str) -> list[str]:
    """Names in a folder; empty for none."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def remove(path: str) -> None:
    """Remove a file that may be there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def notify_operator(text: str) -> None:
    """Write a line to the journal, at the level of a notice: those below are systemd's own about each run."""
    print(f"<5>{ascii(text)[1:-1]}", flush=True)


def slot_of(address: str) -> str:
    """Domain, bus and device as sysfs writes them; the driver's own words have domains of 4 to 8 digits."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest[:5]}"


def is_recent(moment: float, seconds: float) -> bool:
    """Whether a moment is within the last seconds; one to come, of a clock that was ahead, is not."""
    return 0 <= time.time() - moment < seconds


class XidLog:
    """The driver's messages since boot: the Xids of each card since the module was loaded or the card reset."""

    def __init__(self, xids: Mapping[str, str], xid: str, recovered: str, record: str) -> None:
        self.names, self.xid, self.recovered = xids, re.compile(xid, re.IGNORECASE), re.compile(recovered)
        self.record = record
        """The file of earlier runs: an Xid counts though its message has left the journal since."""
        known = read_json(record)
        self.cursor = str(known.get("cursor", ""))
        self.found: dict[tuple[str, str], float] = {}
        """Slot and code -> when it was first reported."""
        with suppress(ValueError, TypeError):
            self.found = {(str(slot), str(code)): float(since) for slot, code, since in known.get("found", [])}

    def take(self, message: str, moment: float) -> None:
        """Take note of one message of the kernel's."""
        if LOADED.fullmatch(message):
            self.found.clear()
        if not (matched := self.xid.fullmatch(message)):
            return
        slot, code = slot_of(matched[1]), matched[2]
        if code == "154" and self.recovered.search(matched[3]):
            self.found = {key: since for key, since in self.found.items() if key[0] != slot}
        elif code in self.names:
            self.found.setdefault((slot, code), moment)

    def feed(self, line: bytes) -> None:
        """Take a row of journalctl; a message that is no text counts for nothing."""
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            row = json.loads(line.decode(errors="replace"))
            self.cursor = str(row["__CURSOR"])
            if isinstance(row["MESSAGE"], str):
                self.take(row["MESSAGE"], int(row["__REALTIME_TIMESTAMP"]) / 1e6)

    def update(self) -> None:
        """Read the messages since the last run; all since boot where its place in the journal is gone.

        Raises:
            TimeoutExpired: there are more than a run has time for; the next one goes on from there.
        """
        before, words = self.cursor, ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "json"]
        words += ["--output-fields=MESSAGE", *([f"--after-cursor={before}"] if before else [])]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            limit = threading.Timer(JOURNAL_S, child.kill)
            limit.start()
            try:
                # a line at a time: a boot may have written more than the unit has memory for
                for line in child.stdout or ():
                    self.feed(line)
                child.wait()
            finally:
                limit.cancel()
                if self.cursor != before:
                    found = [[*key, since] for key, since in self.found.items()]
                    write(self.record, json.dumps({"cursor": self.cursor, "found": found}))
        if child.returncode == -signal.SIGKILL:
            raise subprocess.TimeoutExpired(words, JOURNAL_S)
        if child.returncode and self.cursor and self.cursor == before:
            self.cursor = ""
            self.update()


class CardConditions:
    """Cards on the bus, and those that nvidia-smi no longer lists."""

    def __init__(self, record: str, bus: str = "/sys/bus/pci/devices") -> None:
        self.record, self.bus = record, bus
        self.known = read_json(record)

    def on_bus(self) -> list[str]:
        """Slots of NVIDIA's cards, in the order of GPU indexes."""
        found = []
        for name in list_names(self.bus):
            vendor, kind = (read(f"{self.bus}/{name}/{file}").strip() for file in ("vendor", "class"))
            if vendor == "0x10de" and kind.startswith("0x03"):
                found.append(slot_of(name))
        return found

    def declared(self, number: int, there: list[str]) -> list[str]:
        """The slot of each declared card, recorded while all are there: a lost one changes the indexes of others."""
        kept = [str(one) for one in self.known.get("slots", [])]
        if number and len(there) >= number and kept != there:
            self.remember(slots=there)
        return there if len(there) >= number or len(kept) < number else kept

    def remember(self, **values: object) -> None:
        """Keep values for later runs."""
        self.known.update(values)
        write(self.record, json.dumps(self.known))

    def ask(self) -> None:
        """Ask nvidia-smi from time to time; while one that the kernel does not let go is there, no other is started."""
        pid = int(self.known.get("pid", 0))
        if read(f"/proc/{pid}/comm").strip() == "nvidia-smi" or is_recent(float(self.known.get("asked", 0)), SMI_S):
            return
        if not os.access(SMI, os.X_OK):
            return
        words = (SMI, "--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits")
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.remember(asked=time.time(), pid=child.pid)
        try:
            text = child.communicate(timeout=SMI_LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            notify_operator("nvidia-smi does not answer")
        else:
            self.take(child.returncode, text.decode(errors="replace"))

    def take(self, status: int, text: str) -> None:
        """The end of nvidia-smi. An answer that says nothing of cards changes nothing: engines go on without it."""
        lines = [line.strip() for line in text.splitlines()]
        rows = {slot_of(row[1]): row[2] for line in lines if (row := ROW.fullmatch(line))}
        lost = {slot_of(row[1]) for line in lines if (row := LOST.fullmatch(line))}
        lost |= {slot for slot, rest in rows.items() if "GPU is lost" in rest}
        if (status == 0 and rows) or NO_CARD in lines:
            self.remember(lost=sorted(lost), listed=sorted(rows))
        elif lost:
            # a lost card ends the list: of those after it nothing is known
            self.remember(lost=sorted(lost), listed=None)
        elif (complaint := f"nvidia-smi ended with status {status}: {' '.join(lines)[:TEXT_LENGTH]}") != self.known.get(
            "complaint"
        ):
            self.remember(complaint=complaint)
            notify_operator(complaint)

    def is_unlisted(self, slot: str) -> bool:
        """Whether nvidia-smi has told, when it was asked last, that the driver has lost a card."""
        listed = self.known.get("listed")
        return slot in self.known.get("lost", []) or (listed is not None and slot not in listed)
