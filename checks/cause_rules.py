"""The causes of several failures: how each is recognised, and which failures follow from it.

Where a failure follows from several, the first of CAUSE_RULES has it: causes of other causes come before those.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from checks.cause_facts import CauseFacts, InstanceFacts
from checks.drift_text import format_day
from checks.failure_causes import CauseRule, Consequence, FailedCheck, Occurrence
from checks.survey.recent_events import PackageChange
from rigwright.plan.preflight import CLOCK_TOLERANCE

Found = Iterable[Occurrence]
Failures = Sequence[FailedCheck]
SHOWN = 3
# Checks of what a deploy neither makes nor needs: what surrounds Rigwright, and the hardware.
SURROUNDINGS = r"M[0-9]{2}|P01|N(0[1-7]|2[3467]|3[489]|4[1-35])|A(05|10|11)|B03|F12|O09|R(07|10)|U0[568]|S23"
NO_SUCCESS = r"(?:(?!\b2[0-9]{2}\b).)*"
"""A text without the HTTP status of an answer."""
DOWN_STATES = "inactive|failed|activating|deactivating"
DOWN = (
    Consequence("S01|D08", DOWN_STATES, "active", of_part="down"),
    Consequence("S02", "another key|no record of a start", of_part="down"),
    Consequence("S05", rf"{NO_SUCCESS} for (no|wrong) key", of_part="down"),
    Consequence("S06", NO_SUCCESS, "one token from its (socket|port)", of_part="down"),
    Consequence("S13", NO_SUCCESS, "the model .*|events ending in .*", of_part="down"),
    Consequence("S12|I0[1-7]", "none", "a (process|container)", of_part="down"),
    Consequence("S08", r"\[\]", of_part="down"),
    Consequence("R05", r".* is nothing|nobody", of_part="down"),
    Consequence("E0[1-5]", "nothing was tried: .*", of_part="down"),
    Consequence("D07", rf"<models> \({NO_SUCCESS}\)", "an answer for every name"),
    Consequence("D08", "nothing|left out", of_part="down"),
    Consequence("U09", r"<own_units> (is (inactive|not there|queued to start or stop)|has failed)"),
)
"""What follows from an instance that does not run."""
NO_SMI = "an answer from nvidia-smi"
NVIDIA = "N[0-9]{2}|S08|C05"


RUNS = re.compile(r"(\S+)'s (?:worker )?process [0-9]+ runs (/[^\s,;]+)")
"""A unit, and a file that its process runs."""
PROGRAMS = frozenset({"/usr/sbin/nginx"})
"""Programs of the gateway and of the weights share."""


def find_undeployed(facts: CauseFacts, _failures: Failures) -> Found:
    """A box without a generation."""
    if not facts.is_deployed:
        yield Occurrence(
            "nothing is deployed: no generation is current", f"`rigwright deploy {_inventory(facts)}` makes one"
        )


def find_undeployed_edit(facts: CauseFacts, _failures: Failures) -> Found:
    """An inventory, lock or release that no deploy has brought to the box."""
    edit = facts.edit
    if edit is None:
        return
    down = {one.name for one in facts.instances if one.is_down}
    yield Occurrence(
        f"the box runs generation {edit.number}; the inventory declares another",
        f"`rigwright deploy {_inventory(facts)}`",
        "; ".join(edit.changes),
        terms={
            "added": sorted(edit.added),
            "changed": sorted(edit.changed - down),
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
        if one.is_down and one.stopped_at is not None and not one.is_failed:
            start = f"`rigwright start {_inventory(facts)} {one.name}`, or deploy"
            yield _of_instance(one, f"{one.name} was stopped by hand on {format_day(one.stopped_at)}", start)


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


def find_missing_mounts(facts: CauseFacts, failures: Failures) -> Found:
    """File systems of /etc/fstab that are not mounted, and have what instances load."""
    for point in facts.unmounted:
        below = [one for one in facts.instances if any(_is_below(path, point) for path in one.paths)]
        weights = {
            failure.part
            for failure in failures
            if failure.id.startswith("W") and any(_mentions(item, point) for item in failure.items)
        }
        yield Occurrence(
            f"{point} is not mounted",
            f"`mount {shlex.quote(point)}` on the box; where that fails, see `dmesg` for the disk",
            "/etc/fstab mounts it at boot",
            point,
            {"path": [point], "weights": sorted(weights), **_instance_terms(*(one for one in below if one.is_down))},
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
                **_instance_terms(*(one for one in users if one.is_down)),
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
        f"reboot the box: `rigwright deploy {_inventory(facts)} --reboot`",
        _describe_changes(changes),
        terms={
            "module": [driver.module],
            "library": [driver.library],
            "packages": [one.package for one in changes],
            **_instance_terms(*users),
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
            f"`rigwright deploy {_inventory(facts)}`, or boot the kernel before",
            _describe_changes([one for one in facts.changes if driver.kernel in one.package]),
            "running",
            {"kernel": [driver.kernel], "running": [driver.kernel], **_instance_terms(*users)},
        )
    for release in driver.lacking:
        yield Occurrence(
            f"kernel {release} can boot next, and has no module of the NVIDIA driver",
            f"`rigwright deploy {_inventory(facts)}` before a reboot",
            _describe_changes([one for one in facts.changes if release in one.package]),
            release,
            {"kernel": [release]},
        )


def find_full_disks(facts: CauseFacts, _failures: Failures) -> Found:
    """File systems without room."""
    for one in facts.full:
        paths = ", ".join(one.paths)
        yield Occurrence(
            f"the file system of {paths} is full: {one.free_mib} MiB are free",
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
    named = [one for one in facts.changes if one.package in words or not paths.isdisjoint(one.files)]
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
        if one.is_down and one.result == "oom-kill":
            cure = f"raise memory_max of {one.name}, or lower its context; then `rigwright deploy {_inventory(facts)}`"
            yield _of_instance(one, f"the kernel killed {one.name} for want of memory{_on(one.since)}", cure)


def find_unstarted_since_boot(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that the last boot did not start."""
    for one in facts.instances:
        if one.active == "inactive" and not one.ran_since_boot and one.stopped_at is None and facts.booted:
            cure = f"`rigwright start {_inventory(facts)} {one.name}`, or deploy"
            yield _of_instance(one, f"{one.name} has not started since the boot on {format_day(facts.booted)}", cure)


def find_failed_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances whose process ended by itself."""
    for one in facts.instances:
        if one.is_failed:
            status = f", status {one.exit_status}" if one.exit_status not in ("", "0") else ""
            again = "; systemd starts it again" if one.active == "activating" else ""
            yield _of_instance(
                one,
                f"{one.name} has failed{_on(one.since)}",
                f"`rigwright diagnose {_inventory(facts)} --instance {one.name}` names the reason",
                f"systemd: {one.result or 'no result'}{status}{again}",
            )


def find_starting_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that have not answered for the first time yet."""
    for one in facts.instances:
        if one.active == "activating" and not one.is_failed:
            yield _of_instance(
                one,
                f"{one.name} is starting since {format_day(one.since) if one.since else 'a moment'}",
                f"wait until `rigwright status {_inventory(facts)}` shows it ready",
            )


def find_stopped_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances that run no more, though neither `stop` nor a failure ended them."""
    for one in facts.instances:
        if one.active in ("inactive", "deactivating") and one.ran_since_boot and one.stopped_at is None:
            cure = f"`rigwright start {_inventory(facts)} {one.name}`, or deploy"
            yield _of_instance(
                one, f"{one.name} is stopped{_on(one.since)}", cure, "`systemctl stop`, not `rigwright stop`"
            )


def find_paused_instances(facts: CauseFacts, _failures: Failures) -> Found:
    """Instances whose process a signal has stopped."""
    for one in facts.instances:
        if one.paused:
            cure = f"`systemctl kill -s CONT {one.unit}` on the box"
            yield _of_instance(one, f"a signal has stopped the process of {one.name}", cure)


def _of_instance(one: InstanceFacts, headline: str, cure: str, evidence: str = "") -> Occurrence:
    return Occurrence(headline, cure, evidence, one.name, _instance_terms(one))


def _instance_terms(*instances: InstanceFacts) -> dict[str, Sequence[str]]:
    return {
        "down": [one.name for one in instances],
        "models": [name for one in instances for name in one.models],
        "own_units": [unit for one in instances for unit in one.units if unit.startswith(("rigwright-", "rigwright."))],
        "gate": [f"{one.unit}'s worker process {pid}" for one in instances for pid in one.gate],
        "unit": [one.unit for one in instances],
    }


def _inventory(facts: CauseFacts) -> str:
    return shlex.quote(facts.inventory)


def _on(moment: float | None) -> str:
    return f" on {format_day(moment)}" if moment else ""


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _is_below(path: str, point: str) -> bool:
    return f"{path}/".startswith(f"{point.rstrip('/')}/")


def _mentions(item: tuple[str, str], point: str) -> bool:
    return any(re.search(rf"{re.escape(point)}(?![\w.-])", text) for text in item)


def _describe_changes(changes: Sequence[PackageChange]) -> str:
    """Changes of packages in words: by whom, what, when."""
    if not changes:
        return ""
    last = changes[-1]
    names = list(dict.fromkeys(one.package for one in changes))
    more = f" and {len(names) - SHOWN} more packages" if len(names) > SHOWN else ""
    program = {"unattended-upgrade": "unattended-upgrades"}.get(last.program, last.program) or "dpkg"
    user = f" of {last.user}" if last.user else ""
    verb = "removed" if all(one.action in ("remove", "purge") for one in changes) else "replaced"
    return f"{program}{user} {verb} {', '.join(names[:SHOWN])}{more} on {format_day(last.moment)}"


def _iterate_rules() -> Iterator[CauseRule]:
    yield CauseRule(
        "not-deployed", find_undeployed, (Consequence(rf"(?!{SURROUNDINGS})[A-Z][0-9]{{2}}"),), is_first=True
    )
    yield CauseRule(
        "undeployed-edit",
        find_undeployed_edit,
        (
            Consequence("G01", expected="<intact_generation>"),
            Consequence("G02", "<mark>"),
            Consequence("U01", r"/etc/systemd/system/<changed_units> has different contents"),
            Consequence("U01", r"(/etc/systemd/system/)?<added_units> (is (not a link|not there|not-found))"),
            Consequence("U03", r"(?!<foreign>\Z)<changed_units> has .*"),
            Consequence("U04", r"\S+ does not want <added_units>"),
            Consequence("U09", "<added_units> is (inactive|not there)"),
            Consequence("S10", r"/etc/systemd/system/<removed_units>"),
            Consequence("S25", r"<added_units> has no process|<changed_units>'s (worker )?process .*"),
            Consequence("D02|H02|Q02", "<digests>"),
            Consequence("D02", "<added_units> (inactive|)"),
            Consequence("[AB][0-9]{2}|O02", "no user <added_users>"),
            Consequence("S02", "<digests>"),
            Consequence("S(03|04|08|11)", of_part="changed"),
            Consequence("S05", rf"{NO_SUCCESS} for (no|wrong) key", of_part="changed"),
            Consequence("S12", expected="a program in .*|the (arguments|variables) of its unit", of_part="changed"),
            Consequence("S13", expected="the model .*", of_part="changed"),
            Consequence("[A-Z][0-9]{2}", of_part="added"),
        ),
        is_first=True,
    )
    yield CauseRule("stopped-by-hand", find_stopped_by_hand, DOWN)
    yield CauseRule(
        "wrong-clock",
        find_wrong_clock,
        (
            Consequence("P01", "its clock is .*"),
            Consequence("O07", needs="behind"),
            Consequence("W03", expected="less than .* days ago, and not in the future"),
            Consequence("W05", expected="a past run|a run less than .*|the next run within .*"),
            Consequence("D06", expected="(from|until) .* or (earlier|later)"),
            Consequence("D10", "rotated at .*"),
            Consequence("N17|K05", ".*(not valid yet|invalid for another|expired|is not yet valid).*"),
        ),
    )
    yield CauseRule(
        "missing-mount",
        find_missing_mounts,
        (
            Consequence("W0[1-8]", of_part="weights"),
            Consequence("M0[56]|O0[18]|F[0-9]{2}|S02|P01|B02", r".*<path>(?![\w.-]).*"),
            *DOWN,
        ),
    )
    yield CauseRule(
        "lost-card",
        find_lost_cards,
        (
            Consequence(NVIDIA, expected=r".*<card>(?![0-9]).*"),
            Consequence(NVIDIA, expected=r".*<address>(?![0-9]).*"),
            Consequence("N01", expected="[0-9]+ cards on the PCI bus"),
            Consequence("P01", r"<card> is declared as .*"),
            Consequence(
                NVIDIA, ".*([Gg][Pp][Uu] is lost|fallen off the bus|Unable to determine the device handle).*", NO_SMI
            ),
            Consequence("N06", ".*<address>.*", "no warning of nvidia-smi"),
            *DOWN,
        ),
    )
    yield CauseRule(
        "driver-mismatch",
        find_driver_mismatch,
        (
            Consequence("N02|N09|N20|N30", r".*<library>.*|.*version mismatch.*"),
            Consequence("N02", expected=".*<module>.*"),
            Consequence(NVIDIA, ".*([Mm]ismatch|NVML).*", NO_SMI),
            Consequence("N1[34]|N20", r"(.*[ ,])?<packages>([ ,:=].*)?"),
            Consequence("N18", ".*(<packages>|pending).*", "no reboot to be pending"),
            *DOWN,
        ),
    )
    yield CauseRule(
        "lacking-module",
        find_lacking_modules,
        (
            Consequence("N(02|08)", "none", "a loaded kernel module `nvidia`", needs="running"),
            Consequence("N03", expected="the (device|driver) .*", needs="running"),
            Consequence("N(09|10|18|20|3[0135])|M1[01]", expected=r".*<kernel>.*"),
            Consequence("N(09|10|18|20|3[0135])|M1[01]", r".*<kernel>.*"),
            Consequence("N20", "none", "driver .*", needs="running"),
            Consequence(NVIDIA, expected=NO_SMI, needs="running"),
            *DOWN,
        ),
    )
    yield CauseRule(
        "full-disk",
        find_full_disks,
        (
            Consequence("O08", r"<paths> with [0-9]+ MiB free"),
            Consequence("P01", r".*<paths>(?![\w.-]).*"),
            Consequence("[A-Z][0-9]{2}", r".*<paths>.*No space left on device.*"),
        ),
    )
    yield CauseRule(
        "replaced-packages",
        find_replaced_packages,
        (
            Consequence("S21", r"\S+ (worker )?process [0-9]+ runs <files>, which was (deleted|replaced)"),
            Consequence("S21", r"\S+ (worker )?process [0-9]+ runs <files> \(deleted\), not .*"),
            Consequence("D02|H02", "another program", needs="programs"),
            Consequence("B0[34]|K0[38]|N1[345]|N(18|20)|T01", r"(.*[ ,(])?<packages>([ ,:;)=].*)?"),
            Consequence("N20", r"(.*[ ,])?<packages>([ ,].*)?"),
        ),
    )
    yield CauseRule(
        "dead-network",
        find_dead_network,
        (
            Consequence("N17|K05|P01|Q06", ".*(resolv|unreachable|[Cc]ould not connect|No route to host).*"),
            Consequence("R09", "the route to .*"),
        ),
    )
    yield CauseRule("exhausted-memory", find_exhausted_memory, DOWN)
    yield CauseRule(
        "unstarted-since-boot",
        find_unstarted_since_boot,
        (
            *DOWN,
            Consequence("U04", r"\S+ does not want <unit>"),
            Consequence("S01", "disabled|not wanted", of_part="down"),
        ),
    )
    yield CauseRule("failed-instance", find_failed_instances, DOWN)
    yield CauseRule("starting-instance", find_starting_instances, (*DOWN, Consequence("S1[89]|S21", r"<gate> .*")))
    yield CauseRule("stopped-instance", find_stopped_instances, DOWN)
    yield CauseRule(
        "paused-instance",
        find_paused_instances,
        (
            Consequence("S22", r"<unit>'s (worker )?process [0-9]+ is T .*"),
            Consequence("S05", rf"{NO_SUCCESS} for (no|wrong) key", of_part="down"),
            Consequence("S06|S13", NO_SUCCESS, of_part="down"),
            Consequence("D08", "left out", of_part="down"),
            Consequence("D07", rf"<models> \({NO_SUCCESS}\)"),
        ),
    )


CAUSE_RULES = tuple(_iterate_rules())
