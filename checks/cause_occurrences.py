"""Causes of several failures as they are on a host: how each is recognised, described and put right."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from checks.cause_facts import CauseFacts, InstanceFacts
from checks.drift_text import format_day
from checks.failure_causes import CheckFailure, Occurrence
from checks.survey.recent_events import PackageChange
from checks.survey.survey_program import NO_PYTHON
from rigwright.plan.preflight import CLOCK_TOLERANCE

Found = Iterable[Occurrence]
Failures = Sequence[CheckFailure]
SHOWN = 3
NO_ANSWER = "an answer about "
RUNS = re.compile(r"(rigwright[-_][A-Za-z0-9_-]+\.service)'s (?:worker )?process [0-9]+ runs (/[^\s,;]+)")
"""A unit, and a file that its process runs."""
NEWEST = re.compile(r"kernel (\S+), the newest that is installed")
"""The expectation of N18."""
PROGRAMS = frozenset({"/usr/sbin/nginx"})
"""Programs of the gateway and of the weights share."""


def find_undeployed(facts: CauseFacts, _failures: Failures) -> Found:
    """A box without a generation; a deploy needs Python, and installs it."""
    bare = facts.unanswered == NO_PYTHON
    if bare or not facts.is_deployed:
        why = "the box has no Python" if bare else "no generation is current"
        cure = f"`rigwright deploy {facts.place}`"
        yield Occurrence(f"not deployed: {why}", cure, terms={"bare": [why] if bare else []})


def find_unanswered_sections(facts: CauseFacts, failures: Failures) -> Found:
    """Parts of the survey without an answer, which several checks need."""
    why = Counter(item for failure in failures for item in failure.items if item[0].startswith(NO_ANSWER))
    reasons: dict[str, list[str]] = {}
    for (expected, found), count in why.items():
        if count > 1 or facts.unanswered:
            reasons.setdefault(found, []).append(expected.removeprefix(NO_ANSWER))
    for found, sections in reasons.items():
        which = "nothing" if facts.unanswered else f"nothing about {', '.join(sections)}"
        yield Occurrence(
            f"the box answers {which}: {found}",
            f"`rigwright doctor {facts.place}`",
            subject="" if facts.unanswered else sections[0],
            terms={"unanswered": [f"{NO_ANSWER}{name}" for name in sections], "why": [found]},
        )


def find_undeployed_edit(facts: CauseFacts, _failures: Failures) -> Found:
    """An inventory, lock or release that no deploy has brought to the box."""
    edit = facts.edit
    if edit is None:
        return
    down = {one.name for one in facts.instances if one.is_down}
    yield Occurrence(
        f"the box runs generation {edit.number}; the inventory declares another",
        f"`rigwright deploy {facts.place}`",
        "; ".join(edit.changes),
        terms={
            "added": sorted(edit.added),
            "changed": sorted(edit.changed - down),
            "changed_processes": sorted(edit.changed_processes - down),
            "changed_ports": sorted(edit.changed_ports - down),
            "changed_cards": sorted(edit.changed_cards - down),
            "changed_variants": sorted(edit.changed_variants - down),
            "added_units": edit.added_units,
            "changed_units": edit.changed_units,
            "removed_units": edit.removed_units,
            "added_users": edit.added_users,
            "digests": edit.digests,
            "mark": [edit.mark],
            "foreign": edit.foreign,
            "intact_generation": [f"the declared files in generation {edit.number}"] if edit.intact else [],
        },
    )


def find_stopped_by_hand(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that `stop` has stopped."""
    for one in facts.instances:
        if one.state == "stopped by hand":
            start = f"`rigwright start {facts.place} {one.name}`, or deploy"
            yield _of_instance(facts, one, f"{one.name} was stopped by hand{_on(one.stopped_at)}", start)


def find_wrong_clock(facts: CauseFacts, _failures: Failures) -> Found:
    """A clock that is too far from the controller's."""
    if facts.now and abs(facts.ahead_s) > CLOCK_TOLERANCE:
        way = "ahead of" if facts.ahead_s > 0 else "behind"
        yield Occurrence(
            f"the box's clock is {_duration(abs(facts.ahead_s))} {way} this machine's",
            "set it on the box: `timedatectl set-ntp true`",
            f"it says {format_day(facts.now)}",
            terms={"behind": ["behind"] if facts.ahead_s < 0 else []},
        )


def find_missing_mounts(facts: CauseFacts, _failures: Failures) -> Found:
    """File systems of /etc/fstab that are not mounted, and have what instances load."""
    for point in facts.unmounted:
        below = [one for one in facts.instances if any(_is_below(path, point) for path in one.paths)]
        weights = sorted(part for part, path in facts.weights if _is_below(path, point))
        yield Occurrence(
            f"{point} is not mounted",
            f"`mount {shlex.quote(point)}` on the box; where that fails, see `dmesg` for the disk",
            "/etc/fstab mounts it at boot",
            point,
            {
                "path": [point],
                "weights": sorted(weights),
                **_instance_terms(facts, *(one for one in below if one.is_down)),
            },
        )


def find_lost_cards(facts: CauseFacts, _failures: Failures) -> Found:
    """Declared cards that do not answer."""
    for card in facts.lost_cards:
        users = [one for one in facts.instances if card.address and card.address in one.cards]
        where = f" ({card.address})" if card.address else ""
        what = (
            "fell off the bus (Xid 79)"
            if card.fell_off
            else "does not answer"
            if card.address
            else "is not on the PCI bus"
        )
        names = ", ".join(one.name for one in users)
        yield Occurrence(
            f"card {card.index}{where} {what}",
            "turn the box off and on; where the card stays away, check its power cables and reseat it",
            f"{names} used it" if names else "",
            str(card.index),
            {
                "card": [f"card {card.index}"],
                "address": [card.address, card.address.rpartition(".")[0]],
                **_instance_terms(facts, *(one for one in users if one.is_down)),
            },
        )


def find_driver_mismatch(facts: CauseFacts, failures: Failures) -> Found:
    """A driver that was upgraded, while the old module stays loaded."""
    driver = facts.driver
    if driver is None or not driver.module or not driver.library or driver.module == driver.library:
        return
    changes = [one for one in facts.changes if driver.library in one.after]
    users = [one for one in facts.instances if one.cards and one.is_down]
    yield Occurrence(
        f"the loaded NVIDIA module is {driver.module}, and its installed libraries are {driver.library}",
        f"reboot the box: `rigwright deploy {facts.place} --reboot`",
        _describe_changes(changes),
        terms={
            "module": [driver.module],
            "library": [driver.library],
            "packages": [one.package for one in changes],
            **_instance_terms(facts, *users),
        },
    )


def find_lacking_modules(facts: CauseFacts, _failures: Failures) -> Found:
    """Kernels without the driver's module: the running one, or the next."""
    driver = facts.driver
    if driver is None:
        return
    if not driver.module and not driver.has_module:
        users = [one for one in facts.instances if one.cards and one.is_down]
        yield Occurrence(
            f"kernel {driver.kernel} runs without a module of the NVIDIA driver",
            f"`rigwright deploy {facts.place}`, or boot the kernel before",
            _describe_changes([one for one in facts.changes if driver.kernel in one.package]),
            "running",
            {"kernel": [driver.kernel], "running": [driver.kernel], **_instance_terms(facts, *users)},
        )
    for release in driver.lacking:
        yield Occurrence(
            f"kernel {release} can boot next, and has no module of the NVIDIA driver",
            f"`rigwright deploy {facts.place}` before a reboot",
            _describe_changes([one for one in facts.changes if release in one.package]),
            release,
            {"kernel": [release]},
        )


def find_pending_reboots(facts: CauseFacts, failures: Failures) -> Found:
    """A kernel or driver that is installed and does not run until a reboot."""
    waits = [item for failure in failures if failure.id == "N18" for item in failure.items]
    if waits:
        kernels = [matched[1] for expected, _ in waits if (matched := NEWEST.fullmatch(expected))]
        changes = [one for one in facts.changes if any(release in one.package for release in kernels)]
        what = f"kernel {kernels[0]} is installed" if kernels else f"packages ask for it ({waits[0][1]})"
        yield Occurrence(
            f"a reboot is pending: {what}",
            f"`rigwright deploy {facts.place} --reboot`",
            _describe_changes(changes),
            terms={"kernel": kernels},
        )


def find_full_disks(facts: CauseFacts, _failures: Failures) -> Found:
    """File systems without room."""
    for one in facts.full:
        paths = ", ".join(one.paths)
        yield Occurrence(
            f"the file system of {paths} is full ({one.free_mib} MiB free)",
            f"free space there: `du -xh {shlex.quote(one.paths[0])} | sort -h | tail` lists the largest directories",
            subject=one.paths[0],
            terms={"paths": one.paths},
        )


def find_replaced_packages(facts: CauseFacts, failures: Failures) -> Found:
    """Packages that were changed under running processes, or away from the declared versions."""
    text = "\n".join(found for failure in failures for item in failure.items for found in item)
    words = set(re.findall(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]", text))
    paths = set(re.findall(r"/[^\s,;]+", text))
    if "another program" in text:
        paths |= PROGRAMS
    # of a package, what was done last is what is so
    latest = {one.package: one for one in facts.changes}
    named = [one for one in latest.values() if one.package in words or not paths.isdisjoint(one.files)]
    runs: dict[tuple[str, str, str], list[PackageChange]] = {}
    for one in named:
        runs.setdefault((format_day(one.moment)[:10], one.program, one.user), []).append(one)
    for (day, program, _), changes in runs.items():
        files = {path for one in changes for path in one.files}
        units = sorted({unit for unit, path in RUNS.findall(text) if path in files})
        restart = f"`systemctl restart {' '.join(units)}` on the box" if units else "deploy restores declared versions"
        yield Occurrence(
            _describe_changes(changes),
            restart,
            subject=f"{day} {program}".rstrip(),
            terms={
                "packages": [one.package for one in changes],
                "files": sorted(files),
                "removed": [one.package for one in changes if not one.after],
                "programs": [path for one in changes for path in one.files if path in PROGRAMS],
            },
        )


def find_dead_network(facts: CauseFacts, _failures: Failures) -> Found:
    """A box without a way to other networks, or to names."""
    lacks = [*(["no default route"] if not facts.default_routes else [])]
    lacks += ["no name server in /etc/resolv.conf"] if not facts.nameservers else []
    if lacks:
        yield Occurrence(
            f"the box has {' and '.join(lacks)}",
            "see `ip route` and `networkctl` on the box, and restore its network",
        )


def find_exhausted_memory(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that the kernel has killed for want of memory."""
    for one in facts.instances:
        if one.is_failed and one.result == "oom-kill":
            cure = f"raise memory_max of {one.name}, or lower its context; then `rigwright deploy {facts.place}`"
            yield _of_instance(facts, one, f"the kernel killed {one.name} for want of memory{_on(one.since)}", cure)


def find_unstarted_since_boot(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that the last boot did not start."""
    for one in facts.instances:
        if one.state == "stopped" and not one.ran_since_boot and facts.booted:
            cure = f"`rigwright start {facts.place} {one.name}`, or deploy"
            yield _of_instance(
                facts, one, f"{one.name} has not started since the boot on {format_day(facts.booted)}", cure
            )


def find_damaged_weights(facts: CauseFacts, failures: Failures) -> Found:
    """Weight files of other bytes than the locked ones, and the instances that fail with them."""
    paths = dict(facts.weights)
    for part in dict.fromkeys(one.part for one in failures if one.id == "W01" and one.part in paths):
        users = [one for one in facts.instances if paths[part] in one.paths]
        yield Occurrence(
            f"the weight file {paths[part]} is not the locked one",
            f"`rigwright deploy {facts.place}` fetches it again",
            f"loaded by {', '.join(one.name for one in users)}" if users else "",
            part,
            {
                "weights": [part],
                "paths": [paths[part]],
                **_instance_terms(facts, *(one for one in users if one.is_failed)),
            },
        )


def find_failed_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances whose process ended by itself."""
    for one in facts.instances:
        if one.is_failed:
            yield _of_instance(
                facts,
                one,
                f"{one.name} has failed{_on(one.since)}",
                f"`rigwright doctor {facts.place} --instance {one.name}` names the reason",
                one.note,
            )


def find_starting_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that have not answered for the first time yet."""
    for one in facts.instances:
        if one.state == "starting":
            yield _of_instance(
                facts,
                one,
                f"{one.name} is starting{_since(one.since)}",
                f"wait until `rigwright status {facts.place}` shows it ready",
            )


def find_stopping_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that end now."""
    for one in facts.instances:
        if one.state == "stopping" and not one.is_failed:
            cure = f"`rigwright status {facts.place}` shows when it has stopped"
            yield _of_instance(facts, one, f"{one.name} is stopping{_since(one.since)}", cure)


def find_stopped_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that run no more, though neither `stop` nor a failure ended them."""
    for one in facts.instances:
        if one.state == "stopped" and one.ran_since_boot:
            cure = f"`rigwright start {facts.place} {one.name}`, or deploy"
            yield _of_instance(facts, one, f"{one.name} is stopped{_since(one.since)}", cure, one.note)


def find_paused_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances whose process a signal has stopped."""
    for one in facts.instances:
        if one.paused:
            cure = f"`systemctl kill -s CONT {one.unit}` on the box"
            yield _of_instance(facts, one, f"a signal has stopped the process of {one.name}", cure)


def find_unresponsive_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that run and do not answer as they should."""
    for one in facts.instances:
        if one.state in ("silent", "wedged", "failing") and not one.paused:
            cure = f"`rigwright restart {facts.place} {one.name}`"
            yield _of_instance(facts, one, f"{one.name} is {one.state}", cure, one.note)


def _of_instance(facts: CauseFacts, one: InstanceFacts, headline: str, cure: str, evidence: str = "") -> Occurrence:
    return Occurrence(headline, cure, evidence, one.name, _instance_terms(facts, one))


def _instance_terms(facts: CauseFacts, *instances: InstanceFacts) -> dict[str, Sequence[str]]:
    served = {name for one in facts.instances if not one.is_down for name in one.models}
    return {
        "down": [one.name for one in instances],
        "models": [name for one in instances for name in one.models if name not in served],
        "offered": [name for one in instances for name in one.models],
        "own_units": [unit for one in instances for unit in one.units if unit.startswith(("rigwright-", "rigwright."))],
        "gate": [
            f"{one.unit}'s {kind}process {pid}" for one in instances for pid in one.gate for kind in ("", "worker ")
        ],
        "unit": [one.unit for one in instances],
    }


def _since(moment: float | None) -> str:
    return f" since {format_day(moment)}" if moment else ""


def _on(moment: float | None) -> str:
    return f" on {format_day(moment)}" if moment else ""


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _is_below(path: str, point: str) -> bool:
    return f"{path}/".startswith(f"{point.rstrip('/')}/")


def _describe_changes(changes: Sequence[PackageChange]) -> str:
    """Changes of packages in words: their author, their names, their time."""
    if not changes:
        return ""
    last = changes[-1]
    names = list(dict.fromkeys(one.package for one in changes))
    more = f" and {len(names) - SHOWN} more packages" if len(names) > SHOWN else ""
    program = {"unattended-upgrade": "unattended-upgrades"}.get(last.program, last.program) or "dpkg"
    user = f" of {last.user}" if last.user else ""
    verb = "removed" if all(one.action in ("remove", "purge") for one in changes) else "replaced"
    return f"{program}{user} {verb} {', '.join(names[:SHOWN])}{more} on {format_day(last.moment)}"
