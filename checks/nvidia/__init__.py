"""Common parts of the checks of the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from checks import Drift, ItemText, report_drift
from checks.remedy import Remedy, instruction
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SETTINGS
from checks.survey.kernel import KERNEL, KernelThere, Module
from checks.survey.packages import PACKAGES
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec
from rigwright.nvidia.driver.driver_facts import (
    MODULE_NAMES,
    PERSISTENCE_UNIT,
    DriverFacts,
    package_fields,
    parse_parameters,
)
from rigwright.nvidia.driver.driver_files import DriverRecord, parse_driver_record
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.nvidia.driver.kernel_facts import DRIVER, DkmsEntry, KernelFacts, KernelModule

CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm"}


def skip_without_cards(cards: tuple[Card, ...]) -> None:
    """Leave out what only a rig with cards can be asked."""
    if not cards:
        pytest.skip("the rig declares no cards")


def skip_unless_managed(cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    """Leave out what only a driver can be asked that deploys bring."""
    skip_without_cards(cards)
    if not driver_entry.managed:
        pytest.skip("the driver is not managed")


def expect_no_differences(drifts: Sequence[Drift]) -> None:
    """Say every drift in one line.

    Raises:
        Drift: there is one that waivers do not cover.
    """
    __tracebackhide__ = True
    if drifts:
        report_drift(Drift.combine(drifts))


def expect_no_items(expected: str, found: Sequence[str], remedy: Remedy) -> None:
    """Say in one line that there is something where nothing is to be: the first three, and how many more.

    Raises:
        Drift: there is, and waivers do not cover it.
    """
    __tracebackhide__ = True
    if found:
        report_drift(Drift(expected, ItemText.from_items(found, "; ", 3), remedy))


def find_main_module(kernel: KernelThere) -> Module | None:
    """The driver's own module among those that a kernel would load."""
    names = tuple(f"/{name}.ko" for name in MODULE_NAMES)
    return next((one for one in kernel.modules if any(name in one.filename for name in names)), None)


def collect_driver_facts(survey: SurveyAnswers, facts: HostFacts) -> DriverFacts:
    """The host's facts for the choice of a driver."""
    kernel, packages, settings = survey.read(KERNEL), survey.read(PACKAGES), survey.read(SETTINGS)
    modules = {one.release: find_main_module(one) for one in kernel.kernels}
    unit = settings.unit_property(PERSISTENCE_UNIT, "UnitFileState")
    there = {one.path for one in kernel.devices if one.kind == "device"}
    return DriverFacts(
        os_id=packages.os_id,
        os_version=packages.os_version,
        architecture=packages.architecture,
        kernel=kernel.running,
        secure_boot=kernel.secure_boot,  # type: ignore[arg-type] # one of three words, or no host's
        key_enrolled=kernel.key_enrolled,
        cards=tuple(kernel.cards),
        module=kernel.loaded.get("nvidia", [""])[0],
        module_open="Open Kernel Module" in kernel.version,
        nouveau="nouveau" in kernel.loaded,
        params=parse_parameters(kernel.params),
        **package_fields(packages.packages, {name: one.origin for name, one in packages.policy.items()}),
        run_files=tuple(packages.runs),
        nvidia_sources=tuple((one[0], one[1]) for one in packages.sources),
        kernel_modules=tuple(
            sorted(
                (one.release, found.version if (found := modules[one.release]) else "")
                for one in kernel.kernels
                if one.bootable or one.release == kernel.running
            )
        ),
        devices=there >= CONTROL,
        persistence=unit if unit in ("masked", "masked-runtime") else "",  # type: ignore[arg-type] # as mypy has no sets
        recorded=tuple((one[0], one[1]) for one in packages.recorded),
        kept=tuple(one.version for one in packages.kept if one.listed is not None),
        toolkit=facts.nvcc,
    )


def kernel_state(survey: SurveyAnswers) -> KernelFacts:
    """The kernels, and nothing else."""
    kernel = survey.read(KERNEL)
    here = next((one for one in kernel.kernels if one.release == kernel.running), None)
    return KernelFacts(
        running=kernel.running,
        kernels=tuple(_as_kernel(one) for one in kernel.kernels),
        kernel_days=here.days if here else None,
        params=parse_parameters(kernel.params),
        sysctl=tuple(sorted(kernel.sysctl.items())),
        p2p=tuple((one.instance, one.pid) for one in kernel.peers),
    )


def driver_state(survey: SurveyAnswers) -> KernelFacts:
    """Kernels, modules, packages and settings around the driver; of the latter a rig without cards may have some."""
    kernel, packages = survey.read(KERNEL), survey.read(PACKAGES)
    return replace(
        kernel_state(survey),
        dkms=tuple(
            DkmsEntry(
                one.version, one.kernel, one.state, "(missing)" if one.missing else "Differences" if one.differs else ""
            )
            for one in kernel.dkms
            if DRIVER.fullmatch(one.version)
        ),
        holds=frozenset(packages.packages.held),
        unattended=packages.unattended,
        blacklist=tuple(packages.blacklist),
        candidates=tuple((name, one.candidate) for name, one in sorted(packages.policy.items()) if one.candidate),
        security=tuple((name, version) for name, one in sorted(packages.policy.items()) for version in one.security),
        reboot=packages.reboot,
        reboot_for=tuple(packages.reboot_for),
    )


def _as_kernel(one: KernelThere) -> KernelModule:
    module = find_main_module(one)
    if module is None:
        return KernelModule(one.release, one.bootable, "", "", "")
    return KernelModule(one.release, one.bootable, module.version, module.license, module.signer)


def read_driver_record(survey: SurveyAnswers) -> DriverRecord | None:
    """The last deploy's record of the driver."""
    return parse_driver_record(survey.read(PACKAGES).record)


def expected_driver_plan(
    cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: DriverFacts,
) -> DriverPlan:
    """The driver that deploys bring.

    Raises:
        Drift: the next one would refuse the host; its driver is then not judged, and not in order.
    """
    made = plan_driver(cards, driver_entry, driver_supply, toolkit_spec, facts)
    if not isinstance(made, DriverPlan):
        raise Drift(
            "a host that deploy accepts", ItemText.from_items(made.reasons, "; "), instruction("resolve each of these")
        )
    return made


def relevant_kernels(survey: SurveyAnswers) -> list[str]:
    """The kernels that run and that boot next."""
    there = kernel_state(survey)
    return list(dict.fromkeys((there.running, there.newest.release))) if there.has_own_kernel else []
