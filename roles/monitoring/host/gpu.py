"""Tells of the host's NVIDIA cards, with the names and units of DCGM's exporter (its etc/default-counters.csv).

Runs on the host, in an environment with nvidia-ml-py and nothing else. What a card does not tell is left out; while
there is no driver, it says how many cards there should be, and tells of none.
"""

from __future__ import annotations

import argparse
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MIB, MILLI = 1 << 20, 1000
AGAIN = 10.0  # seconds until a driver that was not there is looked for again
CLIENTS = 8  # at once: a Prometheus has one connection, and asks again where it is closed
PATIENCE = 10.0  # seconds for a request, and for its answer to be taken
HEAD = 8192  # bytes of a request at most
FORMAT = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus's
# What only grows, by DCGM's own list, and ours; the rest goes up and down.
COUNTERS = {
    *("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "rigwright_gpu_xid_events"),
    *("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
}
# Bits of what holds a card's clocks down (nvml.h, nvmlClocksEventReason*); its power limit is no fault
THROTTLED = {0x8: "hardware", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
TIMEOUT = 10  # nvml.h, NVML_ERROR_TIMEOUT
XID = 0x8  # nvml.h, nvmlEventTypeXidCriticalError
VOLATILE, CORRECTED, UNCORRECTED = 0, 0, 1  # nvml.h, nvmlEccCounterType_t and nvmlMemoryErrorType_t
SM, MEMORY = 1, 2  # nvml.h, nvmlClockType_t
SENSOR = 0  # nvml.h, NVML_TEMPERATURE_GPU


@dataclass(frozen=True)
class Sample:
    """A figure of a card, or of the host where it has no labels."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


Read = Callable[[Any, Any], float]


def _memory(nvml: Any, card: Any) -> Any:
    """Of its first form, what is used has in it what the driver keeps for itself: 480 MiB of an idle H100."""
    return nvml.nvmlDeviceGetMemoryInfo(card, version=nvml.nvmlMemory_v2)


FIGURES: dict[str, Read] = {
    "DCGM_FI_DEV_SM_CLOCK": lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, SM),
    "DCGM_FI_DEV_MEM_CLOCK": lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, MEMORY),
    "DCGM_FI_DEV_GPU_TEMP": lambda nvml, card: nvml.nvmlDeviceGetTemperature(card, SENSOR),
    "DCGM_FI_DEV_POWER_USAGE": lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card) / MILLI,
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": lambda nvml, card: nvml.nvmlDeviceGetPowerManagementLimit(card) / MILLI,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda nvml, card: nvml.nvmlDeviceGetTotalEnergyConsumption(card),
    "DCGM_FI_DEV_GPU_UTIL": lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).gpu,
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).memory,
    "DCGM_FI_DEV_FB_USED": lambda nvml, card: _memory(nvml, card).used // MIB,
    "DCGM_FI_DEV_FB_FREE": lambda nvml, card: _memory(nvml, card).free // MIB,
    "DCGM_FI_DEV_FB_RESERVED": lambda nvml, card: _memory(nvml, card).reserved // MIB,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": lambda nvml, card: nvml.nvmlDeviceGetTotalEccErrors(card, CORRECTED, VOLATILE),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": lambda nvml, card: nvml.nvmlDeviceGetTotalEccErrors(card, UNCORRECTED, VOLATILE),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda nvml, card: nvml.nvmlDeviceGetPcieReplayCounter(card),
}


class Cards:
    """The cards of a host, as its driver tells of them."""

    def __init__(self, nvml: Any, declared: Sequence[int | None]) -> None:
        """Begin.

        Args:
            nvml: The module pynvml.
            declared: The power limit of each card that there should be, W; None where that is left alone.
        """
        self.nvml, self.declared = nvml, declared
        self.lock, self.opening = threading.Lock(), threading.Lock()
        self.up = self.lost = False
        """Whether the driver's library is in use, and whether the driver has gone since: another one needs another."""
        self.events: Any = None
        self.xids: dict[str, tuple[int, int]] = {}
        """UUID -> how many there were, and the last one."""

    def open(self) -> bool:
        """Have the driver's library, if there is a driver; returns whether there is."""
        with self.opening:  # who asks and who waits for errors may find the driver at the same time
            if self.up:
                return True
            try:
                self.nvml.nvmlInit()
                self.events = self.nvml.nvmlEventSetCreate()
            except self.nvml.NVMLError:
                return False
            self.up = True
            with suppress(self.nvml.NVMLError):  # it has gone again
                for _, card in self._there():
                    with suppress(self.nvml.NVMLError):  # one that tells of no errors
                        self.nvml.nvmlDeviceRegisterEvents(card, XID, self.events)
            return True

    def _there(self) -> Iterator[tuple[int, Any]]:
        """Number and handle of each card that answers; one that has fallen off the bus does not."""
        for number in range(self.nvml.nvmlDeviceGetCount()):
            try:
                yield number, self.nvml.nvmlDeviceGetHandleByIndex(number)
            except self.nvml.NVMLError:
                continue

    def wait(self, milliseconds: int) -> bool:
        """Wait for an error that the driver reports, and count it; False where it cannot be waited for."""
        try:
            event = self.nvml.nvmlEventSetWait_v2(self.events, milliseconds)
            uuid = _text(self.nvml.nvmlDeviceGetUUID(event.device))
        except self.nvml.NVMLError as error:
            return bool(error.value == TIMEOUT)
        with self.lock:
            self.xids[uuid] = (self.xids.get(uuid, (0, 0))[0] + 1, int(event.eventData))
        return True

    def samples(self) -> Iterator[Sample]:
        """All figures, now."""
        yield Sample("rigwright_gpus_declared", len(self.declared))
        if not self.open():
            return
        try:
            for number, card in self._there():
                yield from self._card(number, card)
        except self.nvml.NVMLError:
            self.lost = True

    def _card(self, number: int, card: Any) -> Iterator[Sample]:
        nvml = self.nvml
        uuid, name = _text(nvml.nvmlDeviceGetUUID(card)), _text(nvml.nvmlDeviceGetName(card))
        bus = _text(nvml.nvmlDeviceGetPciInfo(card).busId)
        place = (("gpu", str(number)), ("UUID", uuid), ("pci_bus_id", bus))
        own = (*place, ("device", f"nvidia{number}"), ("modelName", name))
        for figure, read in FIGURES.items():
            try:
                yield Sample(figure, float(read(nvml, card)), own)
            except nvml.NVMLError:
                continue
        try:
            reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card))
            yield Sample("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", reasons, own)
            for bit, reason in THROTTLED.items():
                yield Sample("rigwright_gpu_throttled", float(bool(reasons & bit)), (*own, ("reason", reason)))
        except nvml.NVMLError:
            pass
        with self.lock:
            count, last = self.xids.get(uuid, (0, 0))
        yield Sample("DCGM_FI_DEV_XID_ERRORS", last, own)
        yield Sample("rigwright_gpu_xid_events", count, own)
        if number < len(self.declared) and (limit := self.declared[number]) is not None:
            yield Sample("rigwright_gpu_power_limit_declared_watts", limit, own)


def _text(value: str | bytes) -> str:
    """What the library returns: bytes, of older releases."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def page(samples: Iterable[Sample]) -> str:
    """What cards tell, as Prometheus reads it: figures of a name together, below that name and its type."""
    families: dict[str, list[str]] = {}
    for one in samples:
        kind = "counter" if one.name in COUNTERS else "gauge"
        lines = families.setdefault(one.name, [f"# TYPE {one.name} {kind}\n"])
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in one.labels)
        lines.append(f"{one.name}{f'{{{labels}}}' if labels else ''} {float(one.value)!r}\n")
    return "".join(line for lines in families.values() for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Answers(socketserver.BaseRequestHandler):
    """One request and its answer, by hand: Python's own HTTP server takes megabytes for what nobody asks."""

    request: socket.socket
    server: Server

    def handle(self) -> None:
        """Read what is asked, within PATIENCE of all of it, and answer."""
        try:
            asked = self._head()
            if asked is None:
                return
            method, path = asked
            if path != "/metrics":
                self._answer("404 Not Found", "text/plain", "figures are at /metrics\n", method)
            elif method not in ("GET", "HEAD"):
                self._answer("405 Method Not Allowed", "text/plain", "GET alone\n", method)
            else:
                self._answer("200 OK", FORMAT, self.server.collect_metrics(), method)
        except OSError:  # whoever asks has gone, or is too slow
            return

    def _head(self) -> tuple[str, str] | None:
        """Method and path; None where there is no request within bounds."""
        until, read = time.monotonic() + PATIENCE, b""
        while b"\r\n\r\n" not in read:
            if len(read) > HEAD or (left := until - time.monotonic()) <= 0:
                return None
            self.request.settimeout(left)
            if not (more := self.request.recv(HEAD)):
                return None
            read += more
        words = read.partition(b"\r\n")[0].decode("latin-1").split(" ")
        return (words[0], words[1].partition("?")[0]) if len(words) == 3 else None

    def _answer(self, status: str, kind: str, text: str, method: str) -> None:
        body = text.encode()
        lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close")
        head = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
        self.request.settimeout(PATIENCE)  # of all that is sent
        self.request.sendall(head if method == "HEAD" else head + body)


class Server(socketserver.ThreadingTCPServer):
    """Answers a few at a time; who comes beyond them is closed."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: str, port: int, told: Callable[[], str]) -> None:
        """Listen.

        Args:
            address: An IPv4 or IPv6 address.
            port: A port there.
            told: What is told; asked for by one thread at a time.

        Raises:
            OSError: somebody else listens there, or it is no address of this host.
        """
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.room, self.asking, self.tell = threading.Semaphore(CLIENTS), threading.Lock(), told
        super().__init__((address, port), Answers)

    def collect_metrics(self) -> str:
        """The metrics, now."""
        with self.asking:
            return self.tell()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Have a thread answer, if there is room for one more."""
        if not self.room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()


def limits(text: str) -> list[int | None]:
    """Power limits of cards, W, with commas between them; `-` where one is left alone."""
    return [None if one == "-" else int(one) for one in text.split(",")]


def main() -> None:
    """Tell whoever asks, for as long as it runs."""
    import pynvml

    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--power-limits", type=limits, required=True)
    given = parser.parse_args()
    cards = Cards(pynvml, given.power_limits)
    server = Server(given.address, given.port, lambda: page(cards.samples()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not cards.lost:
        if not cards.open() or not cards.wait(int(AGAIN * MILLI)):
            time.sleep(AGAIN)
    sys.exit("the driver has gone: whoever started this starts it again, with what is there then")


if __name__ == "__main__":
    main()
