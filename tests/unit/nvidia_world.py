"""A host with a driver that deploys bring, and each check of it with what its fixtures would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift
from checks import test_nvidia_cards as c
from checks import test_nvidia_modules as m
from checks import test_nvidia_packages as p
from checks.nvidia_smi import ask
from rigwright.declaration.rig import Rig
from rigwright.nvidia.cards import smi as nvidia_smi
from rigwright.nvidia.driver import record as nvidia_record
from rigwright.nvidia.driver.choice import DriverPlan, driver_plan
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.nvidia.driver.state import State
from tests.unit.nvidia_host import DRIVER_FACTS, FACTS, MANAGED, STATE, NvidiaHost

ALL = tuple(f"N{number:02}" for number in range(8, 29))


class World:
    """A host, and what its fixtures have of it."""

    def __init__(self, folder: Path) -> None:
        self.host = NvidiaHost(folder)
        self.rig: Rig = MANAGED
        self.facts: DriverFacts = DRIVER_FACTS
        self.state: State = STATE

    def change(self, **changes: Any) -> None:
        """Change the state."""
        self.state = replace(self.state, **changes)

    def found(self, **changes: Any) -> None:
        """Change what the driver probe finds."""
        self.facts = replace(self.facts, **changes)

    def fixture(self, name: str) -> Any:
        """What a fixture gives."""
        if name in ("plan", "driver_facts"):
            made = driver_plan(self.rig, self.facts)
            return made if name == "plan" else self.facts
        gpus = ask(self.host, nvidia_smi.GPUS, nvidia_smi.gpus)
        return gpus if name == "gpus" else {gpu.address: gpu for gpu in gpus}

    def run(self, name: str) -> None:
        """Run one check, with what its fixtures would give it."""
        request: Any = SimpleNamespace(getfixturevalue=self.fixture)
        made = driver_plan(self.rig, self.facts)
        assert isinstance(made, DriverPlan)
        record = nvidia_record.parse(self.host.run("cat %s", nvidia_record.path(self.rig)).stdout)
        checks: dict[str, Callable[[], None]] = {
            "N08": lambda: m.test_flavour(self.rig, self.facts, self.state),
            "N09": lambda: m.test_next_boot(self.facts, self.state),
            "N10": lambda: m.test_dkms(self.rig, self.state),
            "N11": lambda: m.test_signed(self.facts, self.state),
            "N12": lambda: m.test_settings(self.rig, self.state),
            "N13": lambda: p.test_one_piece(self.facts),
            "N14": lambda: p.test_locked(self.rig, self.facts),
            "N15": lambda: p.test_held(self.facts, self.state, made),
            "N16": lambda: p.test_in_branch(self.rig, self.facts, self.state),
            "N17": lambda: p.test_archive(self.host, self.rig, made, self.facts),
            "N18": lambda: p.test_reboot(self.rig, self.state),
            "N19": lambda: p.test_security(self.state, self.facts, made),
            "N20": lambda: p.test_drift(self.rig, self.facts, record),
            "N21": lambda: c.test_power(self.rig, FACTS, request),
            "N22": lambda: c.test_clocks(self.rig, FACTS, request),
            "N23": lambda: c.test_windows(self.host, self.rig, FACTS),
            "N24": lambda: c.test_bridges(self.host, self.rig, FACTS, request),
            "N25": lambda: c.test_peers(self.rig, self.state),
            "N26": lambda: c.test_kernel_log(self.host, self.rig, FACTS),
            "N27": lambda: c.test_vitals(self.host, self.rig, FACTS, self.fixture("answering"), record),
            "N28": lambda: p.test_settings_files(self.host, self.rig, request),
        }
        checks[name]()

    def red(self) -> dict[str, str]:
        """The checks that do not hold, with what they say; it is one line."""
        said = {}
        for name in ALL:
            try:
                self.run(name)
            except Drift as drift:
                said[name] = str(drift)
                assert "\n" not in said[name]
                assert said[name].startswith("expected ")
            except pytest.skip.Exception:
                continue
        return said
