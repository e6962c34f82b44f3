"""The last deploy's record of driver and cards, compared with the host: checks N20 and N27."""

from __future__ import annotations

from collections.abc import Mapping

from checks import Drift
from rigwright.model.catalog import Card
from rigwright.model.facts import HostFacts
from rigwright.nvidia.cards.declared_cards_on_bus import cards_on_bus
from rigwright.nvidia.cards.smi import Gpu, number
from rigwright.nvidia.driver.driver_record import DriverRecord


def find_driver_drift(there: DriverRecord | None, kernel: str, module: str, packages: Mapping[str, str]) -> list[Drift]:
    """N20: kernel and driver are those of the last deploy.

    Args:
        there: What that wrote down.
        kernel: The one that runs.
        module: Version of the loaded module.
        packages: Each installed package of the driver, with its version.
    """
    step = "see `journalctl` and /var/log/apt/history.log for what changed it; check everything, then re-run deploy"
    if there is None:
        return [Drift("a record of the driver by the last deploy", "none", "re-run deploy")]
    changed = [
        f"{name} {packages.get(name, 'gone')}"
        for name, version in sorted(there.packages.items())
        if packages.get(name) != version
    ]
    rows = (
        (f"kernel {there.kernel}", kernel, kernel == there.kernel),
        (f"driver {there.version}", module or "none", module == there.version),
        ("the packages of the last deploy", ", ".join(changed), not changed),
    )
    return [Drift(expected, found, step) for expected, found, holds in rows if not holds]


def find_vital_differences(
    cards: tuple[Card, ...],
    facts: HostFacts,
    gpus: Mapping[str, Gpu],
    temperature: Mapping[str, Mapping[str, str]],
    there: DriverRecord | None,
) -> list[Drift]:
    """N27: no card is as hot as where it slows itself down, and each has the VBIOS that it had.

    Newer drivers tell of some cards only how many degrees are left to that point.

    Args:
        cards: The declared cards by GPU index.
        facts: Its host.
        gpus: The cards that answer, by address.
        temperature: What nvidia-smi says of their temperatures, by address.
        there: What the last deploy wrote down; None without one.
    """
    had = {card.address: card.vbios for card in there.cards} if there else {}
    found = []
    for index, _, address in cards_on_bus(cards, facts):
        said = temperature.get(address, {})

        def degrees(key: str, said: Mapping[str, str] = said) -> float | None:
            return number(said.get(f"Temperature/GPU {key}", "").removesuffix(" C"))

        now, limit = degrees("Current Temp"), degrees("Slowdown Temp")
        left, least = degrees("T.Limit Temp"), degrees("Slowdown T.Limit Temp")
        cool = "check fans, dust and airflow"
        if now is not None and limit is not None and now >= limit:
            found.append(Drift(f"card {index} at {address} below {limit:g} C, where it throttles", f"{now:g} C", cool))
        elif left is not None and least is not None and left <= least:
            found.append(
                Drift(f"card {index} at {address} below its throttling temperature", f"{least - left:g} C above", cool)
            )
        vbios = gpus[address].vbios if address in gpus else ""
        if vbios and had.get(address, vbios) not in ("", vbios):
            found.append(
                Drift(
                    f"VBIOS {had[address]} on card {index} at {address}",
                    vbios,
                    "if it was not updated, this is another card; re-run deploy to record it",
                )
            )
    return found
