"""A stand-in for NVIDIA's management library, as nvidia-ml-py gives it to Python: cards whose figures a test sets."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """The library's error in place of an answer, with its number of nvml.h."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


NOT_SUPPORTED, TIMEOUT, GPU_IS_LOST, LIBRARY_NOT_FOUND = 3, 10, 15, 12


@dataclass
class StandInCard:
    """A card's figures; None for missing ones."""

    number: int
    temperature: int | None = 40
    power_mw: int = 120_500
    limit_mw: int = 280_000
    uncorrected: int | None = None
    reasons: int = 0
    lost: bool = False


@dataclass
class StandInNvml:
    """The module pynvml."""

    cards: list[StandInCard] = field(default_factory=lambda: [StandInCard(0), StandInCard(1)])
    driver: bool = True
    xids: list[tuple[int, int]] = field(default_factory=list)
    """Errors that are yet to be reported: a card's number, and the Xid."""
    NVMLError = NVMLError

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError(LIBRARY_NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:
        self.nvmlInit()
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> StandInCard:
        if self.cards[number].lost:
            raise NVMLError(GPU_IS_LOST)
        return self.cards[number]

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, card: StandInCard, kinds: int, events: str) -> None:
        if card.uncorrected is None:
            raise NVMLError(NOT_SUPPORTED)

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> Any:
        if not self.xids:
            raise NVMLError(TIMEOUT)
        number, xid = self.xids.pop(0)
        return SimpleNamespace(device=self.cards[number], eventData=xid)

    def nvmlDeviceGetUUID(self, card: StandInCard) -> str:
        return f"GPU-{card.number}"

    def nvmlDeviceGetName(self, card: StandInCard) -> bytes:
        return b"NVIDIA GeForce RTX 3090"

    def nvmlDeviceGetPciInfo(self, card: StandInCard) -> Any:
        return SimpleNamespace(busId=f"00000000:0{card.number + 1}:00.0")

    def nvmlDeviceGetClockInfo(self, card: StandInCard, kind: int) -> int:
        return 1000 * kind

    def nvmlDeviceGetTemperature(self, card: StandInCard, sensor: int) -> int:
        if card.temperature is None:
            raise NVMLError(NOT_SUPPORTED)
        return card.temperature

    def nvmlDeviceGetPowerUsage(self, card: StandInCard) -> int:
        return card.power_mw

    def nvmlDeviceGetPowerManagementLimit(self, card: StandInCard) -> int:
        return card.limit_mw

    def nvmlDeviceGetTotalEnergyConsumption(self, card: StandInCard) -> int:
        return 7

    def nvmlDeviceGetUtilizationRates(self, card: StandInCard) -> Any:
        return SimpleNamespace(gpu=90, memory=30)

    nvmlMemory_v2 = 33554472  # pynvml 13.615.71

    def nvmlDeviceGetMemoryInfo(self, card: StandInCard, version: int | None = None) -> Any:
        # the first form counts among what is used what the driver keeps for itself
        if version != self.nvmlMemory_v2:
            return SimpleNamespace(used=(20 << 30) + (480 << 20), free=4 << 30)
        return SimpleNamespace(used=20 << 30, free=4 << 30, reserved=480 << 20)

    def nvmlDeviceGetTotalEccErrors(self, card: StandInCard, kind: int, counter: int) -> int:
        if card.uncorrected is None:
            raise NVMLError(NOT_SUPPORTED)
        return card.uncorrected if kind == 1 else 0

    def nvmlDeviceGetPcieReplayCounter(self, card: StandInCard) -> int:
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: StandInCard) -> int:
        return card.reasons
