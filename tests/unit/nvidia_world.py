"""A host with a driver that deploys bring, and each check of it with what its fixtures would give."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks import Drift, test_nvidia_cards, test_nvidia_modules, test_nvidia_packages
from checks.survey.answers import SurveyAnswers
from rigwright.model.rig import Rig
from rigwright.nvidia.driver import driver_files
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.kernel_facts import KernelFacts
from tests.unit.nvidia_host import DRIVER_FACTS, FACTS, MANAGED, STATE, NvidiaFolderHost

ALL = tuple(f"N{number:02}" for number in range(8, 29))


class NvidiaCheckFixture:
    """A host, and what its fixtures have of it."""

    def __init__(self, folder: Path) -> None:
        self.host = NvidiaFolderHost(folder)
        self.rig: Rig = MANAGED
        self.facts: DriverFacts = DRIVER_FACTS
        self.state: KernelFacts = STATE
        self.told: dict[str, object] = {}
        """Section -> what it tells in place of what the folder shows."""

    def change_state(self, **changes: Any) -> None:
        """Change the state."""
        self.state = replace(self.state, **changes)

    def change_facts(self, **changes: Any) -> None:
        """Change what the driver probe finds."""
        self.facts = replace(self.facts, **changes)

    def make_survey(self) -> SurveyAnswers:
        """The folder's contents, and the text in place of it."""
        shown = self.host.run_survey(self.rig).answers
        return SurveyAnswers({**shown, **{one: {"told": said} for one, said in self.told.items()}})

    def run_check(self, name: str, survey: SurveyAnswers | None = None) -> None:
        """Run one check on what the folder shows, and on these facts and this state."""
        rig = self.rig
        if survey is None:
            survey = self.make_survey()
        record = driver_files.parse_driver_record(
            (self.host.root / driver_files.driver_record_path(rig.roots)[1:]).read_text()
        )
        checks: dict[str, Callable[[], None]] = {
            "N08": lambda: test_nvidia_modules.test_flavour(
                survey, rig.cards, rig.driver, rig.driver_supply, rig.toolkit, FACTS
            ),
            "N09": lambda: test_nvidia_modules.test_next_boot(survey, rig.cards, FACTS),
            "N10": lambda: test_nvidia_modules.test_dkms(survey, rig.cards),
            "N11": lambda: test_nvidia_modules.test_signed(survey, rig.cards, FACTS),
            "N12": lambda: test_nvidia_modules.test_settings(survey, rig.driver),
            "N13": lambda: test_nvidia_packages.test_one_piece(survey, rig.cards, FACTS),
            "N14": lambda: test_nvidia_packages.test_locked(survey, rig.cards, rig.driver, rig.driver_supply, FACTS),
            "N15": lambda: test_nvidia_packages.test_held(
                survey, rig.cards, rig.driver, rig.driver_supply, rig.toolkit, FACTS
            ),
            "N16": lambda: test_nvidia_packages.test_in_branch(survey, rig.cards, rig.driver, FACTS),
            "N17": lambda: test_nvidia_packages.test_archive(
                survey, rig.cards, rig.driver, rig.driver_supply, rig.toolkit, FACTS
            ),
            "N18": lambda: test_nvidia_packages.test_reboot(survey, rig.cards),
            "N19": lambda: test_nvidia_packages.test_security(
                survey, rig.cards, rig.driver, rig.driver_supply, rig.toolkit, FACTS
            ),
            "N20": lambda: test_nvidia_packages.test_drift(survey, rig.roots, rig.cards, rig.driver, FACTS),
            "N21": lambda: test_nvidia_cards.test_power(survey, rig.cards, rig.driver, FACTS),
            "N22": lambda: test_nvidia_cards.test_clocks(survey, rig.cards, rig.driver, FACTS),
            "N23": lambda: test_nvidia_cards.test_windows(survey, rig.cards, FACTS),
            "N24": lambda: test_nvidia_cards.test_bridges(survey, rig.cards, rig.driver, FACTS),
            "N25": lambda: test_nvidia_cards.test_peers(survey, rig.cards, rig.instances, rig.driver),
            "N26": lambda: test_nvidia_cards.test_kernel_log(survey, rig.cards, FACTS),
            "N27": lambda: test_nvidia_cards.test_vitals(survey, rig.cards, FACTS),
            "N28": lambda: test_nvidia_packages.test_settings_files(
                survey, rig.roots, rig.cards, rig.driver, rig.driver_supply, rig.network, rig.toolkit, FACTS
            ),
        }
        found: dict[str, Callable[..., object]] = {
            "read_driver_record": lambda _: record,
            "collect_driver_facts": lambda *_: self.facts,
        }
        found |= dict.fromkeys(("driver_state", "kernel_state"), lambda _: self.state)
        with ExitStack() as stack:
            for module, name_ in (
                (module, one)
                for module in (test_nvidia_cards, test_nvidia_modules, test_nvidia_packages)
                for one in found
                if hasattr(module, one)
            ):
                stack.enter_context(patch.object(module, name_, found[name_]))
            checks[name]()

    def red_checks(self) -> dict[str, str]:
        """The checks that do not hold, with what they say; it is one line."""
        said, survey = {}, self.make_survey()
        for name in ALL:
            try:
                self.run_check(name, survey)
            except Drift as drift:
                said[name] = str(drift)
                assert "\n" not in said[name]
                assert said[name].startswith("expected ")
            except pytest.skip.Exception:
                continue
        return said
