"""The driver's module on a host that is a shell of this machine: loaded, or brought by a reboot; and left alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.nvidia.cards.card_facts import record_digest
from rigwright.nvidia.driver.driver_facts import DriverFacts
from roles.operations import cards, drivers
from roles.operations.drivers import _load_driver, needs_installation
from tests.unit.driver_operations_host import DriverOperationsHost, capture_output, recorded_commands
from tests.unit.managed_driver_samples import (
    CONVERGED_HOST,
    KERNEL,
    LOCKED,
    NEW,
    NEXT,
    OLD,
    driver_target,
    managed_host,
    managed_rig,
)


@pytest.fixture
def output_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    return capture_output(monkeypatch, tmp_path)


@pytest.fixture
def reboots(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why hosts were rebooted."""
    asked_: list[str] = []
    monkeypatch.setattr(drivers, "reboot_host", lambda host, why, reserved_gpus: asked_.append(why) or True)
    return asked_


STUCK = replace(CONVERGED_HOST, module=OLD)
BARE = replace(CONVERGED_HOST, module="", devices=False)
LOOSE = replace(CONVERGED_HOST, held=CONVERGED_HOST.held - {"libcuda1"})


def test_a_reboot_needs_consent(output_lines: list[str], reboots: list[str], tmp_path: Path) -> None:
    assert _load_driver(DriverOperationsHost(tmp_path, LOCKED, STUCK)) is False
    assert reboots == []
    assert output_lines[0].startswith(
        f"[box] needs a reboot: the module {OLD} is loaded, {NEW} is installed. Re-run deploy"
    )


def test_with_consent_the_driver_runs_after_it(output_lines: list[str], reboots: list[str], tmp_path: Path) -> None:
    assert _load_driver(DriverOperationsHost(tmp_path, LOCKED, STUCK, CONVERGED_HOST, consent=True)) is True
    assert (output_lines, reboots) == ([], [f"the module {OLD} is loaded, {NEW} is installed"])
    assert recorded_commands(tmp_path) == []


def test_a_reboot_that_is_refused_ends_it(output_lines, tmp_path, monkeypatch):
    monkeypatch.setattr(drivers, "reboot_host", lambda *_: False)
    assert _load_driver(DriverOperationsHost(tmp_path, LOCKED, STUCK, CONVERGED_HOST, consent=True)) is False


def test_a_reboot_that_does_not_help_is_reported_and_not_repeated(output_lines, reboots, tmp_path):
    after = replace(CONVERGED_HOST, module="", kernel_modules=((KERNEL, ""), (NEXT, NEW)))
    assert _load_driver(DriverOperationsHost(tmp_path, LOCKED, STUCK, after, consent=True)) is False
    assert len(reboots) == 1
    assert output_lines == [
        f"[box] after the reboot, the running kernel {KERNEL} has no module {NEW} (kernel {KERNEL} came up, and {NEXT} "
        "is the newest one): check the boot loader's default kernel"
    ]


def test_options_come_into_force_by_a_reboot_and_one_that_does_not_is_named(output_lines, reboots, tmp_path):
    before, after = (replace(CONVERGED_HOST, params=(("EnableResizableBar", value),)) for value in "01")
    wanted = driver_target(managed_rig(module_options={"NVreg_EnableResizableBar": 1}), CONVERGED_HOST)
    assert _load_driver(DriverOperationsHost(tmp_path, wanted, before, after, consent=True)) is True
    assert _load_driver(DriverOperationsHost(tmp_path, wanted, before, consent=True)) is False
    why = "the module is loaded with NVreg_EnableResizableBar=0, 1 is declared"
    assert reboots == [why, why]
    assert output_lines == [f"[box] after the reboot, {why}: remove it from driver.module_options"]


@pytest.mark.parametrize("facts", [BARE, replace(CONVERGED_HOST, devices=False)], ids=["no module", "no device files"])
def test_a_driver_without_obstacles_is_loaded(output_lines, reboots, tmp_path, facts):
    assert _load_driver(DriverOperationsHost(tmp_path, LOCKED, facts, CONVERGED_HOST)) is True
    assert (recorded_commands(tmp_path), reboots) == (["modprobe nvidia", "modprobe nvidia_uvm"], [])


def test_a_module_that_cannot_be_loaded_is_reported(
    output_lines: list[str], reboots: list[str], tmp_path: Path
) -> None:
    assert _load_driver(DriverOperationsHost(tmp_path, LOCKED, BARE)) is False
    assert output_lines == ["[box] the module nvidia cannot be loaded: see `journalctl -k -b -g NVRM`"]


@pytest.fixture
def noop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(drivers, "host", SimpleNamespace(noop=lines.append))
    return lines


@pytest.mark.parametrize(
    ("operation", "facts", "more", "quiet"),
    [
        ("install_driver", CONVERGED_HOST, {}, True),
        ("install_driver", managed_host(), {}, False),
        ("install_driver", replace(CONVERGED_HOST, recorded=()), {}, False),
        ("install_driver", LOOSE, {}, True),
        ("install_driver", CONVERGED_HOST, {"options": True}, False),
        ("hold_driver", CONVERGED_HOST, {}, True),
        ("hold_driver", LOOSE, {}, False),
        # with what is brought
        ("hold_driver", replace(LOOSE, recorded=()), {}, True),
        ("hold_driver", LOOSE, {"options": True}, True),
        ("load_driver", CONVERGED_HOST, {"consent": False}, True),
        ("load_driver", STUCK, {"consent": False}, False),
        ("load_driver", BARE, {"consent": False}, False),
        ("load_driver", replace(CONVERGED_HOST, devices=False), {"consent": False}, False),
        ("load_driver", replace(CONVERGED_HOST, params=(("EnableResizableBar", "0"),)), {"consent": False}, False),
        # the driver that is about to come is not the one that runs
        ("load_driver", managed_host(), {"consent": False}, False),
    ],
)
def test_a_host_that_has_it_is_left_alone(noop, operation, facts, more, quiet):
    inner: Callable[..., Any] = getattr(drivers, operation)._inner
    wanted = replace(LOCKED, plan=replace(LOCKED.plan, options=(("NVreg_EnableResizableBar", 1),)))
    steps = list(inner(rig=managed_rig(), wanted=wanted, facts=facts, **more))
    assert (len(steps), len(noop)) == ((0, 1) if quiet else (1, 0))


def test_an_upgrade_to_the_newest_is_always_looked_at(noop: list[str]) -> None:
    newest = replace(driver_target(managed_rig(), CONVERGED_HOST), newest=True)
    assert len(list(drivers.install_driver._inner(rig=managed_rig(), wanted=newest, facts=CONVERGED_HOST))) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "facts", [LOOSE, replace(CONVERGED_HOST, old_initrds=(KERNEL,))], ids=["a hold", "an initial file system"]
)
def test_missing_packages_next_to_the_module_are_no_matter_of_the_modules(noop: list[str], facts: DriverFacts) -> None:
    stays = driver_target(managed_rig(), facts)
    assert stays.version == ""
    assert list(drivers.load_driver._inner(rig=managed_rig(), wanted=stays, facts=facts, consent=False)) == []  # type: ignore[attr-defined]
    assert noop == [f"the module {NEW} is loaded"]


@pytest.mark.parametrize("moving", [True, False])
def test_cards_that_are_set_are_written_down_anew_where_the_driver_moves(monkeypatch, moving):
    lines: list[str] = []
    now = SimpleNamespace(record=record_digest("as it was"))
    monkeypatch.setattr(cards, "host", SimpleNamespace(noop=lines.append, get_fact=lambda *_, **__: now))
    monkeypatch.setattr(cards, "find_unset", lambda *_: {})
    monkeypatch.setattr(cards, "render_driver_record", lambda *_: "as it was")
    inner: Callable[..., Any] = cards.apply_card_settings._inner  # type: ignore[attr-defined]
    steps = list(inner(rig=managed_rig(), plan=LOCKED.plan, facts=CONVERGED_HOST, moving=moving))
    assert (len(steps), lines) == ((1, []) if moving else (0, ["the cards are set"]))


def test_a_driver_moves_where_a_run_brings_more_than_holds(noop: list[str]) -> None:
    assert [
        needs_installation(LOCKED, facts)
        for facts in (CONVERGED_HOST, LOOSE, managed_host(), replace(CONVERGED_HOST, recorded=()))
    ] == [False, False, True, True]
    assert needs_installation(replace(LOCKED, newest=True), CONVERGED_HOST)
