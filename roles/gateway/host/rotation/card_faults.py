"""Faults of a box's cards: Xids in the kernel's log, cards that have left the bus, and those that the driver lost."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SMI_S, SMI_LIMIT_S = 60.0, 20.0  # between two starts of nvidia-smi, and until one that hangs is killed
ROW = re.compile(r"([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2})\.[0-7], (.*)", re.IGNORECASE)
LOST = re.compile(
    r"Unable to determine the device handle for GPU[^:]{0,9}: ?([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2})\b.*", re.I
)
NO_CARD = "No devices were found"
LOADED = re.compile(r"NVRM: loading NVIDIA .*")
FILE_BYTES, LINE_BYTES, TEXT_LENGTH = 4 << 20, 1 << 16, 300


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
    Path(f"{folder}/.{name}").replace(path)


def slot_of(address: str) -> str:
    """Domain, bus and device as sysfs writes them; the driver's own words have domains of 4 to 8 digits."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest[:5]}"


class XidLog:
    """The driver's messages since boot: the Xids of each card since the module was loaded or the card reset."""

    def __init__(self, xids: Mapping[str, str], xid: str, recovered: str) -> None:
        self.names, self.xid, self.recovered = xids, re.compile(xid, re.IGNORECASE), re.compile(recovered)
        self.found: dict[tuple[str, str], float] = {}
        """Slot and code -> when it was first reported."""
        self._child: subprocess.Popen[bytes] | None = None
        self._partial = b""

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

    def feed(self, data: bytes) -> None:
        """Take what journalctl has written."""
        *lines, rest = (self._partial + data).split(b"\n")
        # of a line that is too long the rest is no message either
        self._partial = rest if len(rest) <= LINE_BYTES else b"\0"
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                row = json.loads(line)
                self.take(str(row["MESSAGE"]), int(row["__REALTIME_TIMESTAMP"]) / 1e6)

    def follow(self, seconds: float) -> None:
        """Read what there is, and wait up to so many seconds for more; journalctl is started again if it has ended."""
        if self._child is None:
            words = ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "json", "--output-fields=MESSAGE")
            more = ("-f", "-n", "all", "-g", "^NVRM: ", "--case-sensitive=true")
            self._child = subprocess.Popen([*words, *more], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            self._partial = b""
        output: Any = self._child.stdout
        until = time.monotonic() + seconds
        while select.select([output], [], [], max(0.0, until - time.monotonic()))[0]:
            if not (data := os.read(output.fileno(), LINE_BYTES)):
                output.close()
                self._child.wait()
                self._child = None
                time.sleep(max(0.0, until - time.monotonic()))
                return
            before = dict(self.found)
            self.feed(data)
            if self.found != before:
                until = time.monotonic() + min(seconds, 0.2)  # messages of one fault come together


class Cards:
    """Cards on the bus, and those that nvidia-smi no longer lists."""

    def __init__(self, record: str, bus: str = "/sys/bus/pci/devices") -> None:
        self.record, self.bus = record, bus
        self.unlisted: Callable[[str], bool] = lambda slot: False
        self._child: subprocess.Popen[bytes] | None = None
        self._started = float("-inf")
        self._complaint = ""

    def on_bus(self) -> list[str]:
        """Slots of NVIDIA's cards, in the order of GPU indexes."""
        found = []
        with suppress(FileNotFoundError):
            for name in sorted(one.name for one in Path(self.bus).iterdir()):
                vendor, kind = (read(f"{self.bus}/{name}/{file}").strip() for file in ("vendor", "class"))
                if vendor == "0x10de" and kind.startswith("0x03"):
                    found.append(slot_of(name))
        return found

    def declared(self, number: int, there: list[str]) -> list[str]:
        """The slot of each declared card, recorded while all are there: a lost one changes the indexes of others."""
        kept = [str(one) for one in read_json(self.record).get("slots", [])]
        if number and len(there) >= number and kept != there:
            with suppress(OSError):  # a full disk
                write(self.record, json.dumps({"slots": there}), 0o640)
        return there if len(there) >= number or len(kept) < number else kept

    def ask(self) -> None:
        """Start nvidia-smi from time to time, and take its answer once it has ended; the loop waits for none."""
        now = time.monotonic()
        if self._child is None:
            if now - self._started >= SMI_S and os.access("/usr/bin/nvidia-smi", os.X_OK):
                self._started = now
                words = ("/usr/bin/nvidia-smi", "--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits")
                self._child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return
        if (status := self._child.poll()) is None:
            if now - self._started > SMI_LIMIT_S:
                self._child.kill()  # one that the kernel does not let go is waited for: no second one is started
            return
        output: Any = self._child.stdout
        self.take(status, output.read(LINE_BYTES).decode(errors="replace"))
        output.close()
        self._child = None

    def take(self, status: int, text: str) -> None:
        """The end of nvidia-smi. An answer that says nothing of cards changes nothing: engines go on without it."""
        lines = [line.strip() for line in text.splitlines()]
        rows = {slot_of(row[1]): row[2] for line in lines if (row := ROW.fullmatch(line))}
        lost = {slot_of(row[1]) for line in lines if (row := LOST.fullmatch(line))}
        lost |= {slot for slot, rest in rows.items() if "GPU is lost" in rest}
        if (status == 0 and rows) or NO_CARD in lines:
            self.unlisted = lambda slot: slot in lost or slot not in rows
        elif lost:
            # a lost card ends the list: of those after it nothing is known
            self.unlisted = lambda slot: slot in lost
        elif (
            complaint := f"nvidia-smi ended with status {status}: {' '.join(lines)[:TEXT_LENGTH]}"
        ) != self._complaint:
            self._complaint = complaint
            print(ascii(complaint), flush=True)
