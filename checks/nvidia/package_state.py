"""Whether the driver's packages are of one piece and stay so: checks N13 to N19."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from checks import DEPLOY, Drift, ItemText
from checks.nvidia.driver_status import REBOOT
from checks.remedy import host_command, instruction, rig_command
from rigwright.host import script_output
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.driver.kernel_facts import KernelFacts
from rigwright.nvidia.packages.locked_driver import held_kernel_images

# One package a version, which stay beside each other
FIRMWARE = "nvidia-firmware-"
# The branch that a package's name promises: nvidia-utils-580-server, libnvidia-compute-580
NAMED_BRANCH = re.compile(r".*?-([0-9]{3})(?:-.*)?")
# Of the libraries and modules there is a stack for servers and one for desktops, and the two exclude each other; a
# suffix of the desktop's names beyond the branch has no meaning
STACKED = re.compile(
    r"(?:libnvidia-(?:compute|cfg1|gl|decode|encode|fbc1|extra)|nvidia-(?:utils|compute-utils|dkms|kernel-common|"
    r"kernel-source|driver|headless|headless-no-dkms))-[0-9]{3}(-server)?(?:-open)?"
)
# A kernel is followed by the next one after four weeks (Ubuntu's cycle of stable updates): one of this age has had a
# successor for two weeks. When that came is nowhere on the host.
KERNEL_DAYS = 42
# Words of apt and of what it verifies with (apt 2.4 to 3.1: methods/gpgv.cc, methods/sqv.cc, apt-pkg/acquire-item.cc)
SIGNATURE = re.compile(
    r"NO_PUBKEY|BADSIG|ERRSIG|EXPKEYSIG|REVKEYSIG|is not signed|not bound|signatures? (?:were|was|is) invalid|"
    r"couldn't be verified|could not be verified|signature verification|no longer signed|"
    r"Conflicting values set for option Signed-By|sqv returned|gpgv returned|not valid yet|Release file .* expired",
    re.IGNORECASE,
)
UNREACHABLE = re.compile(
    r"Could not resolve|Temporary failure resolving|Could not connect|Unable to connect|Cannot initiate the connection|"
    r"Connection (?:failed|timed out|refused|reset)|Network is unreachable|No route to host|timed out|"
    r"Could not wait for server",
    re.IGNORECASE,
)
# timeout's own status, and the one of a command that only SIGKILL could end (coreutils manual)
TIMED_OUT = (124, 137)
MOVE = rig_command("deploy", "--upgrade-driver")


def format_names(names: Iterable[str]) -> str:
    """Names in a sentence, in order."""
    return ", ".join(sorted(names))


def find_mixed_packages(facts: DriverFacts) -> list[Drift]:
    """N13: all packages are of one driver version, of one stack, and what their names say.

    A driver that no package has brought has none to judge.
    """
    ones = [one for one in facts.packages if one.driver and not one.name.startswith(FIRMWARE)]
    found = []
    versions: dict[str, list[str]] = {}
    for one in ones:
        versions.setdefault(one.driver, []).append(one.name)
    if len(versions) > 1:
        said = "; ".join(f"{version}: {format_names(names)}" for version, names in sorted(versions.items()))
        found.append(Drift("one driver version in all packages", said, DEPLOY))
    stacks: dict[bool, list[str]] = {}
    for one in ones:
        if matched := STACKED.fullmatch(one.name):
            stacks.setdefault(bool(matched[1]), []).append(one.name)
    if len(stacks) > 1:
        found.append(
            Drift(
                "packages of one kind, server or desktop",
                f"{format_names(stacks[True])} beside {format_names(stacks[False])}",
                instruction("remove those that do not belong to the driver in use"),
            )
        )
    empty = [one for one in ones if (named := NAMED_BRANCH.fullmatch(one.name)) and not is_of_branch(one, named[1])]
    found += [
        Drift(
            f"a driver of the branch that {one.name} is named after",
            f"{one.driver}: it is a transitional package",
            host_command("apt-get remove --yes {}", one.name),
        )
        for one in empty
    ]
    return found


def is_of_branch(one: InstalledPackage, branch: str) -> bool:
    """Whether a package's driver is of a branch."""
    return one.driver.startswith(f"{branch}.")


def find_lock_differences(facts: DriverFacts, version: str, packages: Mapping[str, str]) -> list[Drift]:
    """N14: the installed driver is the locked one.

    Args:
        facts: The host.
        version: The locked driver's.
        packages: The locked version of each of its packages, as dpkg writes it.
    """
    library = facts.library
    if library is None:
        return [Drift(f"the packages of driver {version}", "none", DEPLOY)]
    there = {one.name: one.version for one in facts.packages}
    other = {name: there[name] for name in there.keys() & packages.keys() if there[name] != packages[name]}
    found = []
    said = format_names(f"{name} {which}" for name, which in other.items())
    if library.driver != version:
        driver = ItemText(library.driver, f"{library.driver}: {said}" if other else library.driver)
        found.append(Drift(f"the locked driver {version}", driver, MOVE))
    elif other:
        wanted = format_names(f"{name} {packages[name]}" for name in other)
        found.append(Drift(f"the locked {wanted}", said, MOVE))
    return found


def find_hold_differences(state: KernelFacts, facts: DriverFacts, holds: Iterable[str]) -> list[Drift]:
    """N15: only a deploy upgrades the driver.

    Args:
        state: The host.
        facts: The installed packages.
        holds: The holds of the plan.
    """
    there = {one.name for one in facts.packages} | {name for name, _ in facts.kernel_packages}
    wanted = set(holds) & there
    found = []
    if loose := wanted - state.holds:
        found.append(Drift(f"a hold on {format_names(loose)}", "none", DEPLOY))
    if state.unattended:
        open_to = {name for name in wanted if not any(_matches(pattern, name) for pattern in state.blacklist)}
        if open_to:
            found.append(
                Drift(
                    f"unattended-upgrades to leave {format_names(open_to)} alone",
                    "no matching blacklist entry",
                    DEPLOY,
                )
            )
    return found


def _matches(pattern: str, name: str) -> bool:
    """As unattended-upgrades does it: from the beginning of the name."""
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


def find_branch_differences(state: KernelFacts, facts: DriverFacts) -> list[Drift]:
    """N16: apt's candidate is of the installed branch."""
    library = facts.library
    if library is None:
        return []
    branch = library.driver.partition(".")[0]
    installed = {one.name for one in facts.packages if one.driver}
    away = [
        f"{name} {version}"
        for name, version in state.candidates
        if name in installed
        and (candidate := InstalledPackage(name, version)).driver
        and not is_of_branch(candidate, branch)
    ]
    if not away:
        return []
    return [
        Drift(
            f"apt to offer only branch {branch}",
            format_names(away),
            DEPLOY,
        )
    ]


def find_archive_differences(status: int, printed: str) -> tuple[str, list[Drift]]:
    """N17: whether apt can verify NVIDIA's archive: why it cannot be told, if so, and what is wrong.

    Args:
        status: The exit status of apt's update of it: 0 also where files could not be fetched.
        printed: All that it printed.
    """
    lines = [script_output.free_text(line.strip()) for line in printed.splitlines()]
    bad = [line for line in lines if SIGNATURE.search(line)]
    if bad:
        return "", [
            Drift(
                "a signature by the locked key",
                ItemText(bad[0], *bad),
                instruction("check that the archive is for this system; no package comes from it") + DEPLOY,
            )
        ]
    away = [line for line in lines if UNREACHABLE.search(line)]
    if away or status in TIMED_OUT:
        return "the host cannot reach the archive", []
    wrong = [line for line in lines if line.startswith(("E:", "W:"))]
    if wrong or status != 0:
        return "", [
            Drift(
                "apt to read NVIDIA's archive",
                ItemText(wrong[0], *wrong) if wrong else f"status {status}",
                instruction("check its source file"),
            )
        ]
    return "", []


def find_pending_reboot(state: KernelFacts) -> list[Drift]:
    """N18: the installed driver is the running one."""
    newest = state.newest.release
    step = REBOOT
    if state.module(state.running).version and not state.newest.version:
        step = instruction(f"do not reboot yet: kernel {newest}, which boots next, has no driver module (N09)")
    found = []
    if newest != state.running:
        found.append(Drift(f"kernel {newest}, the newest that is installed", state.running, step))
    if state.reboot:
        said = f"for {format_names(state.reboot_for)}" if state.reboot_for else "one is pending"
        found.append(Drift("no reboot to be pending", said, step))
    return found


def find_missed_security(state: KernelFacts, facts: DriverFacts, holds: Iterable[str]) -> list[Drift]:
    """N19: a kernel that is held for the driver's sake does not miss security updates for long.

    Since when one waits is not known on the host, so the age of the kernel that runs is taken for it (KERNEL_DAYS).

    Args:
        state: The host.
        facts: The installed packages.
        holds: The holds of the plan. Where the host builds its modules that is no kernel, and the operator keeps one
            back that the driver does not build for: by a hold, or without what brings the next one.
    """
    if state.kernel_days is None or state.kernel_days < KERNEL_DAYS:
        return []
    ours = set(holds)
    later = instruction("allow the next kernel as soon as a driver builds for it")
    waiting = {
        name: version
        for name, version in reversed(state.security)
        if name in held_kernel_images(facts) and name in state.holds
    }
    found = [
        Drift(
            f"the security updates of {name}",
            f"{version} is available, and the running kernel was built {state.kernel_days} days ago",
            MOVE if name in ours else later + host_command("apt-mark unhold {}", name),
        )
        for name, version in sorted(waiting.items())
    ]
    # a kernel of the operator's own making has none beside those that are there
    if not facts.kernel_packages:
        found.append(
            Drift(
                "a metapackage for security updates",
                f"none for {state.running}, which was built {state.kernel_days} days ago",
                later + instruction("install the metapackage of its kernel, which installs later kernels"),
            )
        )
    return found
