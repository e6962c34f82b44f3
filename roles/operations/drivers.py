"""Operations on a host's NVIDIA driver: packages, kernel module, card settings and reboots."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Generator
from dataclasses import replace
from typing import Any

import gevent
from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError

from rigwright.fetch_job_spec import job_network
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_facts import ENDS, ForeignProcesses, parse_holders, render_holders_query
from rigwright.nvidia.cards.card_setting_files import declared_paths
from rigwright.nvidia.driver import driver_facts as driver_facts
from rigwright.nvidia.driver.driver_facts import MODPROBE, SOURCE, DriverFacts, describe_pending_reboot
from rigwright.nvidia.driver.driver_files import COMPONENT, driver_release_values, store_folder
from rigwright.nvidia.packages import driver_target
from rigwright.nvidia.packages.driver_target import (
    DriverTarget,
    bundled_hashes,
    describe_unloaded,
    find_missing_driver_parts,
    find_unheld_driver_packages,
    headers_with_driver,
    is_complete_transaction,
    is_driver_changing,
    is_kernel_behind,
    needs_transaction,
    packages_before_driver,
    required_holds,
)
from rigwright.render import render
from rigwright.supply.bundle import BundledPackages, LocalFile
from roles.operations.jobs import sent_files_folder
from roles.operations.packages import OTHER_BUNDLE, PackageRun
from roles.operations.reconnecting_shell import HostLost, ReconnectingShell
from roles.progress import progress

# Seconds until a host must be back: boards with eight cards and much memory take minutes until they boot
PATIENCE = 900
# Of the boot, by two clocks: a container's kernel has one boot id for all
BOOT = "systemctl show --property=UserspaceTimestamp --property=UserspaceTimestampMonotonic | tr '\\n' ' '"
DRAIN = "systemctl stop rigwright.target 'rigwright-*.service' 2>/dev/null; true"


def describe_needed_reboot(shell: ReconnectingShell, why: str, reserved_gpus: Collection[int]) -> list[str]:
    """Lines about a reboot that needs the operator's consent.

    Args:
        shell: Of the host that needs it.
        why: For the operator.
        reserved_gpus: As of `reboot_host`.
    """
    said = (
        f"needs a reboot: {why}. Re-run deploy with --reboot, or reboot it yourself and re-run deploy; the "
        "steps after the driver wait until then"
    )
    return [
        said,
        *(f"{line}{ENDS}" for line in (_read_card_holders(shell, reserved_gpus).borrowers if reserved_gpus else ())),
    ]


def reboot_host(host: Any, why: str, reserved_gpus: Collection[int]) -> bool:
    """Stop Rigwright's services, reboot the host and wait for it; False if another process uses a card not reserved.

    Args:
        host: The pyinfra host.
        why: For the operator.
        reserved_gpus: GPU indexes of the cards that are reserved: a reboot may end processes on them, and names those.
    """
    shell = ReconnectingShell(host, PATIENCE)
    others = _read_card_holders(shell, reserved_gpus)
    if others.strangers:
        for line in others.strangers:
            logger.error(f"{host.print_prefix}no reboot: {line}")
        logger.error(f"{host.print_prefix}stop these, or wait for them, then run it again")
        return False
    for line in others.borrowers:
        logger.warning(f"{host.print_prefix}{line}{ENDS}")
    before = shell.run(BOOT)
    logger.warning(f"{host.print_prefix}rebooting: {why}")
    shell.run(DRAIN)
    # after this command has answered: the connection goes with the host
    shell.run("systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot")
    started = time.monotonic()
    with progress.task(host.name, "rebooting") as task:
        task.start_step("waiting for the host to come back")
        # a system that goes down may have no answer left
        while shell.run(BOOT) in (before, []):
            if time.monotonic() - started > PATIENCE:
                raise HostLost(f"it did not go down within {PATIENCE} s")
            gevent.sleep(0.5)
        # the next command needs a system that has started
        shell.run("timeout 50 systemctl is-system-running --wait >/dev/null 2>&1; true")
    logger.info(f"{host.print_prefix}back after {time.monotonic() - started:.0f} s")
    return True


def _read_card_holders(shell: ReconnectingShell, reserved_gpus: Collection[int]) -> ForeignProcesses:
    return parse_holders(shell.run(render_holders_query()), reserved_gpus)


Commands = Generator[FunctionCommand, None, None]
LOOK, INSTALL = "rw-job-driver-look", "rw-job-driver"
KEPT = 2  # drivers whose package files stay: the one that is installed, and the one before


class DriverFact(FactBase[DriverFacts]):
    """The driver of a host, in one command."""

    def command(self, script: str) -> StringCommand:
        """The driver probe."""
        return StringCommand("sh", "-c", QuoteString(script))

    def process(self, output: list[str]) -> DriverFacts:
        """Read what it tells."""
        try:
            return driver_facts.parse(output)
        except ValueError as error:
            raise FactProcessError(str(error)) from error


def read_driver_facts(rig: Rig) -> DriverFacts | None:
    """The driver of the running deploy's host; None where looking failed, and with it this host."""
    found: DriverFacts | None = host.get_fact(DriverFact, script=driver_facts.render_probe(rig.roots, rig.toolkit))
    return found


@operation()
def install_driver(rig: Rig, wanted: DriverTarget, facts: DriverFacts, options: bool = False) -> Commands:
    """Bring the driver's packages, their holds, modules for the kernels that run now and next, and files to keep.

    apt's plan is judged before it does anything.

    + rig: the rig
    + wanted: the driver
    + facts: the facts before the run
    + options: whether the run has changed the modules' options, which initial file systems have copies of
    """
    if not needs_installation(wanted, facts, options):
        host.noop(f"driver {facts.library.driver if facts.library else ''} is installed")
        return
    yield FunctionCommand(_fail_host_on_error, (_install_driver, rig, wanted), {})


@operation()
def hold_driver(rig: Rig, wanted: DriverTarget, facts: DriverFacts, options: bool = False) -> Commands:
    """Hold a driver that is there; one that `install_driver` brings is held with that.

    + rig: the rig
    + wanted: the driver
    + facts: the facts before the run
    + options: as of `install_driver`
    """
    if needs_installation(wanted, facts, options) or not find_unheld_driver_packages(wanted, facts):
        host.noop("the driver is held")
        return
    yield FunctionCommand(_fail_host_on_error, (_hold_driver, rig, wanted), {})


@operation()
def load_driver(rig: Rig, wanted: DriverTarget, facts: DriverFacts, consent: bool) -> Commands:
    """Have the driver that is installed be the one that runs, by loading it or, with consent, by a reboot.

    + rig: the rig
    + wanted: the driver
    + facts: the facts before the run
    + consent: whether the host may be rebooted
    """
    installed = facts.library.driver if facts.library else ""
    # initial file systems are made anew without the module's doing
    missing = find_missing_driver_parts(wanted, replace(facts, old_initrds=()))
    stays = not wanted.newest and (not missing or wanted.version == installed)
    if stays and facts.module and facts.devices and not describe_unloaded(wanted, facts):
        host.noop(f"the module {facts.module} is loaded")
        return
    yield FunctionCommand(_fail_host_on_error, (_load_driver, rig, wanted, consent), {})


@operation()
def release_driver(rig: Rig) -> Generator[StringCommand, None, None]:
    """Stop managing a driver that is the operator's again: its packages stay, our files and holds go.

    + rig: the rig
    """
    script = render(
        "nvidia_driver/release.sh.j2",
        **driver_release_values(rig.roots, keep=declared_paths(rig.roots, rig.cards, rig.driver)),
    )
    yield StringCommand("sh", "-c", QuoteString(script))


def _fail_host_on_error(state: Any, host: Any, function: Any, *arguments: Any) -> bool:
    """False fails this host, where an exception would show a traceback."""
    try:
        return bool(function(_DriverRun(state, host, *arguments)))
    except (HostLost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False


class _DriverRun(PackageRun):
    """A host in the middle of a run, and the driver that it is to have."""

    def __init__(self, state: Any, host: Any, rig: Rig, wanted: DriverTarget, consent: bool = False) -> None:
        super().__init__(state, host, rig)
        self.wanted, self.consent, self.store = wanted, consent, store_folder(rig.roots)

    def read_facts(self) -> DriverFacts:
        """The present state."""
        return driver_facts.parse(self.shell.run(driver_facts.render_probe(self.rig.roots, self.rig.toolkit)))

    def bundled_packages(self, facts: DriverFacts) -> BundledPackages:
        """The packages that the host is sent; none without a bundle for its system.

        Raises:
            ValueError: the bundle lacks one, and the host has not kept the driver's files.
        """
        bundle = self.rig.bundle
        if bundle is None or facts.system not in bundle.systems:
            return BundledPackages()
        from rigwright.nvidia.packages.bundled_driver import bundled_driver_packages

        try:
            return bundled_driver_packages(bundle, self.rig.driver_supply, facts.system)
        except ValueError:
            if self.wanted.version in facts.kept:
                return BundledPackages()
            raise

    def render_job_script(self, template: str, unit: str, packages: BundledPackages, **values: object) -> str:
        """One of the jobs' scripts; with packages, of a bundle."""
        plan = self.wanted.plan
        return render(
            template,
            network=job_network(self.rig.roots, self.rig.network),
            ledger=self.rig.roots.ledger,
            done=self.done_path(unit),
            component=plan.component,
            component_file=COMPONENT,
            source_file=SOURCE,
            removed=plan.removed,
            packages=packages,
            sent=sent_files_folder(self.jobs, unit) if packages.files else "",
            offline=self.rig.bundle is not None and not packages.files,
            **values,
        )


def needs_installation(wanted: DriverTarget, facts: DriverFacts, options: bool = False) -> bool:
    """Whether there is more to bring than holds."""
    return bool(find_missing_driver_parts(wanted, facts)) or not facts.recorded or wanted.newest or options


def _hold_driver(one: _DriverRun) -> bool:
    _hold_and_record(one, one.read_facts())
    return _is_complete(one)


def _is_complete(one: _DriverRun) -> bool:
    now = one.read_facts()
    left = find_missing_driver_parts(one.wanted, now) + find_unheld_driver_packages(one.wanted, now)
    for line in left:
        one.report_error(f"the driver is incomplete: {line}")
    return not left


def _install_driver(one: _DriverRun) -> bool:
    # work of an earlier run goes on by itself
    if one.is_job_active(INSTALL) and not one.run_package_job(INSTALL, ""):
        return False
    facts = one.read_facts()
    if missing := find_missing_driver_parts(one.wanted, facts) or one.wanted.newest:
        for line in missing if isinstance(missing, list) else ():
            logger.info(f"{one.host.print_prefix}{line}")
        found = _plan_installation(one, facts)
        if found is None or (found[0] and not one.run_package_job(INSTALL, *found)):
            return False
        facts = one.read_facts()
    _hold_and_record(one, facts)
    return _is_complete(one)


def _plan_installation(one: _DriverRun, facts: DriverFacts) -> tuple[str, tuple[LocalFile, ...]] | None:
    """The installing job's script and the bundle's files that it is sent.

    The script is empty where nothing is left for one. None after saying what speaks against it.
    """
    wanted, seen, kept = one.wanted, driver_target.parse_driver_simulation([]), ""
    targets: tuple[str, ...] = ()
    bundled = one.bundled_packages(facts)
    # one transaction: a job has the files that it was sent
    headers = headers_with_driver(wanted, facts) if bundled.files else ()
    if needs_transaction(wanted, facts) or headers:
        there = f"{one.store}/{wanted.version}" if wanted.version in facts.kept else ""
        targets = headers + (wanted.targets if is_driver_changing(wanted, facts) else ())
        if wanted.newest and is_kernel_behind(wanted, facts):
            targets += (wanted.kernel,)
        # apt says by lists alone what it would do
        lists = bundled.with_files_of(())
        script = one.render_job_script(
            "nvidia_driver/look.sh.j2",
            LOOK,
            lists,
            first=() if bundled.files else packages_before_driver(wanted, facts),
            targets=targets,
            kept=there,
            names=wanted.packages,
            kernel=wanted.kernel,
        )
        if not one.run_package_job(LOOK, script, lists.files):
            return None
        how, seen = driver_target.read_driver_simulation(one.shell.run(f"cat {shlex.quote(one.done_path(LOOK))}"))
        if reasons := driver_target.find_driver_transaction_problems(seen, wanted):
            if seen.complaints and bundled.files:
                reasons.append(OTHER_BUNDLE)
            for reason in reasons:
                one.report_error(f"refused: {reason}")
            return None
        if how == "kernel":
            targets += (wanted.kernel,)
        if how == "kept":
            logger.warning(f"{one.host.print_prefix}the archive has dropped {wanted.version}: using stored files")
            kept, targets = there, (*headers, *(f"{name}-" for name in wanted.plan.removed))
    names = [package.name for package in seen.drivers]
    if not names and not find_missing_driver_parts(wanted, facts):
        return "", ()
    installed = facts.library.driver if facts.library else ""
    sent = bundled.with_files_of({name for name, *_ in seen.installed}) if seen.installed else BundledPackages()
    script = one.render_job_script(
        "nvidia_driver/install.sh.j2",
        INSTALL,
        sent,
        folder=one.store,
        targets=targets,
        kept=kept,
        hashes=bundled_hashes(one.rig.driver_supply, facts.system, seen)
        if sent.files
        else [(name, wanted.hashes[name]) for name in names if name in wanted.hashes],
        names=names,
        whole=is_complete_transaction(wanted, facts, names),
        version=wanted.version or next((package.driver for package in seen.drivers), installed),
        fresh=[name for name, before, _ in seen.installed if not before],
        dkms=wanted.plan.dkms,
        kernels=list(dict.fromkeys((facts.kernel, facts.newest_kernel))),
        newest=facts.newest_kernel,
        modprobe=MODPROBE,
    )
    return script, sent.files


def _hold_and_record(one: _DriverRun, facts: DriverFacts) -> None:
    """Hold and record the installed packages, and drop files that no rollback needs."""
    store = shlex.quote(one.store)
    before = set(
        one.shell.read_facts("nvidia_driver/held.sh.j2", driver_facts.HOLDS_SCHEMA, held=f"{one.store}/held").all(
            "held"
        )
    )
    # holds of the operator are not ours to release one day
    held = [name for name in required_holds(one.wanted, facts) if name in before or name not in facts.held]
    recorded = sorted(f"{package.name} {package.version}" for package in facts.own_packages)
    for name, lines in (("held", held), ("installed", recorded)):
        one.write_lines(one.store, name, lines)
    one.mark_packages("unhold", sorted(before - set(held)))
    one.mark_packages("hold", held)
    # remains of an interrupted job are newer than the files of a way back
    one.shell.run(f"cd {store} && rm -rf fetched.* *.new && ls -1dt */ | tail -n +{KEPT + 1:d} | xargs -r rm -rf")


def _load_driver(one: _DriverRun) -> bool:
    facts = one.read_facts()
    if why := describe_unloaded(one.wanted, facts):
        if not one.consent:
            return one.report_error(*describe_needed_reboot(one.shell, why, one.rig.reserved_gpus))
        if not reboot_host(one.host, why, one.rig.reserved_gpus):
            return False
        facts = one.read_facts()
        if still := describe_unloaded(one.wanted, facts):
            if describe_pending_reboot(one.wanted.plan.options, facts.params) == still:
                return one.report_error(f"after the reboot, {still}: remove it from driver.module_options")
            newest = f"kernel {facts.kernel} came up, and {facts.newest_kernel} is the newest one"
            return one.report_error(f"after the reboot, {still} ({newest}): check the boot loader's default kernel")
    if not facts.module or not facts.devices:
        one.shell.run(render("nvidia_driver/load.sh.j2"))
        facts = one.read_facts()
    if not facts.module or not facts.devices:
        return one.report_error("the module nvidia cannot be loaded: see `journalctl -k -b -g NVRM`")
    return True
