"""Tells of the host's NVIDIA cards, with the names and units of DCGM's exporter (its etc/default-counters.csv).

Runs on the host, in an environment with nvidia-ml-py and prometheus-client. What a card does not tell is left out;
while there is no driver, it says how many cards there should be, and tells of none.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MIB, MILLI = 1 << 20, 1000
AGAIN = 10.0  # seconds until a driver that was not there is looked for again
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
        self.lock = threading.Lock()
        self.up = self.lost = False
        """Whether the driver's library is in use, and whether the driver has gone since: another one needs another."""
        self.events: Any = None
        self.xids: dict[str, tuple[int, int]] = {}
        """UUID -> how many there were, and the last one."""

    def open(self) -> bool:
        """Have the driver's library, if there is a driver; returns whether there is."""
        if not self.up:
            try:
                self.nvml.nvmlInit()
                self.events = self.nvml.nvmlEventSetCreate()
                self.up = True
            except self.nvml.NVMLError:
                return False
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


def limits(text: str) -> list[int | None]:
    """Power limits of cards, W, with commas between them; `-` where one is left alone."""
    return [None if one == "-" else int(one) for one in text.split(",")]


def main() -> None:
    """Tell whoever asks, for as long as it runs."""
    import pynvml
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--power-limits", type=limits, required=True)
    given = parser.parse_args()
    cards = Cards(pynvml, given.power_limits)

    class Told(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            families: dict[str, GaugeMetricFamily] = {}
            for one in cards.samples():
                names = [name for name, _ in one.labels]
                family = families.setdefault(one.name, GaugeMetricFamily(one.name, one.name, labels=names))
                family.add_metric([value for _, value in one.labels], one.value)
            yield from families.values()

    registry = CollectorRegistry()
    registry.register(Told())
    start_http_server(given.port, addr=given.address, registry=registry)
    while not cards.lost:
        if not cards.open() or not cards.wait(int(AGAIN * MILLI)):
            time.sleep(AGAIN)
    sys.exit("the driver has gone: whoever started this starts it again, with what is there then")


if __name__ == "__main__":
    main()
