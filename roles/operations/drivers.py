"""Operations on a host's NVIDIA driver: its packages, the module that runs, and what cards are set to."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError

from rigwright.delivery.network import network
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.files import declared
from rigwright.nvidia.driver import found as driver_facts
from rigwright.nvidia.driver.files import COMPONENT, release, store
from rigwright.nvidia.driver.found import MODPROBE, SOURCE, DriverFacts
from rigwright.nvidia.modules.options import late
from rigwright.nvidia.packages import simulation
from rigwright.nvidia.packages.wanted import (
    Wanted,
    behind,
    first,
    holds,
    lacking,
    moving,
    transaction,
    unheld,
    unloaded,
    whole,
)
from rigwright.render import render
from roles.operations.reboots import needed, reboot
from roles.operations.shell import Lost
from roles.operations.working import Working

Commands = Generator[FunctionCommand, None, None]
LOOK, INSTALL = "rw-job-driver-look", "rw-job-driver"
KEPT = 2  # drivers whose package files stay: the one that is installed, and the one before


class DriverNow(FactBase[DriverFacts]):
    """What driver a host has, in one command."""

    def command(self, script: str) -> StringCommand:
        """The driver probe."""
        return StringCommand("sh", "-c", QuoteString(script))

    def process(self, output: list[str]) -> DriverFacts:
        """Read what it tells."""
        try:
            return driver_facts.parse(output)
        except ValueError as error:
            raise FactProcessError(str(error)) from error


def look(rig: Rig) -> DriverFacts | None:
    """The driver of the running deploy's host; None where looking failed, and with it this host."""
    found: DriverFacts | None = host.get_fact(DriverNow, script=driver_facts.script(rig))
    return found


@operation()
def brought(rig: Rig, wanted: Wanted, facts: DriverFacts, options: bool = False) -> Commands:
    """Bring the driver's packages, their holds, modules for the kernels that run now and next, and files to keep.

    What apt would do is judged before it does anything.

    + rig: the rig
    + wanted: the driver
    + facts: what was found before the run
    + options: whether the run has changed the modules' options, which initial file systems have copies of
    """
    if not lacks(wanted, facts, options):
        host.noop(f"driver {facts.library.driver if facts.library else ''} is installed")
        return
    yield FunctionCommand(_guarded, (_bring, rig, wanted), {})


@operation()
def held(rig: Rig, wanted: Wanted, facts: DriverFacts, options: bool = False) -> Commands:
    """Hold a driver that is there; one that `brought` brings is held with that.

    + rig: the rig
    + wanted: the driver
    + facts: what was found before the run
    + options: as of `brought`
    """
    if lacks(wanted, facts, options) or not unheld(wanted, facts):
        host.noop("the driver is held")
        return
    yield FunctionCommand(_guarded, (_hold, rig, wanted), {})


@operation()
def running(rig: Rig, wanted: Wanted, facts: DriverFacts, consent: bool) -> Commands:
    """Have the driver that is installed be the one that runs, by loading it or, with consent, by a reboot.

    + rig: the rig
    + wanted: the driver
    + facts: what was found before the run
    + consent: whether the host may be rebooted
    """
    installed = facts.library.driver if facts.library else ""
    # initial file systems are made anew without the module's doing
    missing = lacking(wanted, replace(facts, old_initrds=()))
    stays = not wanted.newest and (not missing or wanted.version == installed)
    if stays and facts.module and facts.devices and not unloaded(wanted, facts):
        host.noop(f"the module {facts.module} is loaded")
        return
    yield FunctionCommand(_guarded, (_run, rig, wanted, consent), {})


@operation()
def released(rig: Rig) -> Generator[StringCommand, None, None]:
    """Stop managing a driver that is the operator's again: its packages stay, our files and holds go.

    + rig: the rig
    """
    script = render("nvidia_driver/release.sh.j2", **release(rig, keep=declared(rig)))
    yield StringCommand("sh", "-c", QuoteString(script))


def _guarded(state: Any, host: Any, function: Any, *arguments: Any) -> bool:
    """False fails this host, where an exception would show a traceback."""
    try:
        return bool(function(_Host(state, host, *arguments)))
    except (Lost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False


class _Host(Working):
    """A host in the middle of a run, and the driver that it is to have."""

    def __init__(self, state: Any, host: Any, rig: Rig, wanted: Wanted, consent: bool = False) -> None:
        super().__init__(state, host, rig)
        self.wanted, self.consent, self.store = wanted, consent, store(rig)

    def look(self) -> DriverFacts:
        """What is there now."""
        return driver_facts.parse(self.shell.run(driver_facts.script(self.rig)))

    def script(self, template: str, unit: str, **values: object) -> str:
        """One of the jobs' scripts."""
        plan = self.wanted.plan
        return render(
            template,
            network=network(self.rig),
            ledger=self.rig.ledger,
            done=self.done(unit),
            component=plan.component,
            component_file=COMPONENT,
            source_file=SOURCE,
            removed=plan.removed,
            sent="",
            **values,
        )


def lacks(wanted: Wanted, facts: DriverFacts, options: bool = False) -> bool:
    """Whether there is more to bring than holds."""
    return bool(lacking(wanted, facts)) or not facts.recorded or wanted.newest or options


def _hold(one: _Host) -> bool:
    _settle(one, one.look())
    return _whole(one)


def _whole(one: _Host) -> bool:
    now = one.look()
    left = lacking(one.wanted, now) + unheld(one.wanted, now)
    for line in left:
        one.error(f"the driver is incomplete: {line}")
    return not left


def _bring(one: _Host) -> bool:
    # what an earlier run has begun goes on by itself
    if one.active(INSTALL) and not one.job(INSTALL, ""):
        return False
    facts = one.look()
    if missing := lacking(one.wanted, facts) or one.wanted.newest:
        for line in missing if isinstance(missing, list) else ():
            logger.info(f"{one.host.print_prefix}{line}")
        script = _installation(one, facts)
        if script is None or (script and not one.job(INSTALL, script)):
            return False
        facts = one.look()
    _settle(one, facts)
    return _whole(one)


def _installation(one: _Host, facts: DriverFacts) -> str | None:
    """The installing job's script; empty where nothing is left for one, None after saying what speaks against it."""
    wanted, seen, kept = one.wanted, simulation.parse([]), ""
    targets: tuple[str, ...] = ()
    if transaction(wanted, facts):
        there = f"{one.store}/{wanted.version}" if wanted.version in facts.kept else ""
        targets = wanted.targets if moving(wanted, facts) else ()
        if wanted.newest and behind(wanted, facts):
            targets += (wanted.kernel,)
        script = one.script(
            "nvidia_driver/look.sh.j2",
            LOOK,
            first=first(wanted, facts),
            targets=targets,
            kept=there,
            names=wanted.packages,
            kernel=wanted.kernel,
        )
        if not one.job(LOOK, script):
            return None
        how, seen = simulation.read(one.shell.run(f"cat {shlex.quote(one.done(LOOK))}"))
        if reasons := simulation.objections(seen, wanted):
            for reason in reasons:
                one.error(f"refused: {reason}")
            return None
        if how == "kernel":
            targets += (wanted.kernel,)
        if how == "kept":
            logger.warning(f"{one.host.print_prefix}the archive has dropped {wanted.version}: using stored files")
            kept, targets = there, tuple(f"{name}-" for name in wanted.plan.removed)
    names = [package.name for package in seen.drivers]
    if not names and not lacking(wanted, facts):
        return ""
    installed = facts.library.driver if facts.library else ""
    return one.script(
        "nvidia_driver/install.sh.j2",
        INSTALL,
        folder=one.store,
        targets=targets,
        kept=kept,
        hashes=[(name, wanted.hashes[name]) for name in names if name in wanted.hashes],
        names=names,
        whole=whole(wanted, facts, names),
        version=wanted.version or next((package.driver for package in seen.drivers), installed),
        fresh=[name for name, before, _ in seen.installed if not before],
        dkms=wanted.plan.dkms,
        kernels=list(dict.fromkeys((facts.kernel, facts.newest_kernel))),
        newest=facts.newest_kernel,
        modprobe=MODPROBE,
    )


def _settle(one: _Host, facts: DriverFacts) -> None:
    """Hold what is there, write down what that is, and drop files that nobody goes back to."""
    store = shlex.quote(one.store)
    before = set(one.shell.told("nvidia_driver/held.sh.j2", driver_facts.HELD, held=f"{one.store}/held").all("held"))
    # what the operator has held is not ours to release one day
    held = [name for name in holds(one.wanted, facts) if name in before or name not in facts.held]
    recorded = sorted(f"{package.name} {package.version}" for package in facts.own_packages)
    for name, lines in (("held", held), ("installed", recorded)):
        one.write(one.store, name, lines)
    one.mark("unhold", sorted(before - set(held)))
    one.mark("hold", held)
    # what an interrupted job has left is newer than what there is to go back to
    one.shell.run(f"cd {store} && rm -rf fetched.* *.new && ls -1dt */ | tail -n +{KEPT + 1:d} | xargs -r rm -rf")


def _run(one: _Host) -> bool:
    facts = one.look()
    if why := unloaded(one.wanted, facts):
        if not one.consent:
            return one.error(*needed(one.shell, why, one.rig.lent))
        if not reboot(one.host, why, one.rig.lent):
            return False
        facts = one.look()
        if still := unloaded(one.wanted, facts):
            if late(one.wanted.plan.options, facts.params) == still:
                return one.error(f"after the reboot, {still}: remove it from driver.module_options")
            newest = f"kernel {facts.kernel} came up, and {facts.newest_kernel} is the newest one"
            return one.error(f"after the reboot, {still} ({newest}): check what the boot loader starts")
    if not facts.module or not facts.devices:
        one.shell.run(render("nvidia_driver/load.sh.j2"))
        facts = one.look()
    if not facts.module or not facts.devices:
        return one.error("the module nvidia cannot be loaded: see `journalctl -k -b -g NVRM`")
    return True
