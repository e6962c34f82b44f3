"""Mornings on which many checks of a host fail for one reason: facts, failures, and the line that names the cause.

Failures of instances, units and packages are those that real hosts have shown; of cards, drivers, generations and the
clock, the real checks make them here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checks import Drift, test_generation, test_ours, test_preflight
from checks.cause_facts import (
    CauseFacts,
    FullDisk,
    InstanceFacts,
    collect_driver_versions,
    collect_lost_cards,
)
from checks.failure_causes import CheckFailure
from checks.nvidia.module_state import find_disk_differences, find_dkms_differences
from checks.survey.answers import SurveyAnswers
from checks.survey.managed_files import OURS
from checks.survey.recent_events import PackageChange
from checks.survey.serving import GENERATIONS, Generations, InstanceKeyFile, StartRecord, StoredGeneration
from checks.undeployed_edit import files_digest, find_edit
from rigwright.host.generation_layout import file_mode
from rigwright.serving.generation import Generation
from tests.unit.host_states import rig_target_state, target_generation, two_instance_rig
from tests.unit.nvidia_host import ADDRESSES, FACTS, RIG, NvidiaFolderHost
from tests.unit.samples import sample_build, sample_facts, sample_instance, sample_rig
from tests.unit.survey_samples import empty_answer
from tests.unit.test_nvidia_checks import ALL, run
from tests.unit.test_nvidia_modules import NEXT, RUNNING, STATE

BOOT = 1_800_000_000.0  # 2027-01-15 08:00 UTC
UNIT = "rigwright-chat.service"
UNITS = (UNIT, "rigwright-chat.slice", "rigwright_listener-8020.service", "rigwright_listener-8020.socket")
CHAT = InstanceFacts("chat", UNIT, UNITS, paths=("/srv/models/small/1/small.gguf",), models=("small",))
CODE = InstanceFacts("code", "rigwright-code.service", ("rigwright-code.service",))
FOREIGN = CheckFailure("O05", "", (("nothing else", "/etc/rigwright/notes.txt"),))
"""A drift that no cause explains; each morning has it."""


def failure(identifier: str, found: str, expected: str = "as declared", part: str = "") -> CheckFailure:
    return CheckFailure(identifier, part, ((expected, found),))


def of_drift(identifier: str, drift: Drift, part: str = "") -> CheckFailure:
    return CheckFailure(identifier, part, drift.shown_items)


def raised(identifier: str, check: Callable[[], object], part: str = "") -> list[CheckFailure]:
    """The failure of a check that runs here; none where it holds."""
    try:
        check()
    except Drift as drift:
        return [of_drift(identifier, drift, part)]
    return []


def down(state: str = "inactive", name: str = "chat") -> list[CheckFailure]:
    """A host's signs of an instance that does not run."""
    rows = [
        ("S01", f"{name} is stopped by hand since 2027-01-15 09:00 UTC", f"{name} is ready"),
        ("S02", "another key", "the key on disk now"),
        ("S12", "none", "a process"),
        ("S05", "no answer for no key and Connection reset by peer for wrong key", "401 for both"),
        ("S06", "No such file or directory", "one token from its socket"),
        ("S13", "No such file or directory", "the model tiny-rig"),
        ("R05", f"/run/rigwright/instances/{name}/api.sock is nothing", "a socket"),
        *((f"E0{number}", "nothing was tried: it took too long", "nothing reachable") for number in range(1, 6)),
        ("D08", state, "active"),
    ]
    return [failure(identifier, found, expected, name) for identifier, found, expected in rows]


def edited() -> tuple[CauseFacts, list[CheckFailure]]:
    """The memory of an instance was edited in the inventory; the real checks G01 and G02 run."""
    old, new = (
        target_generation(),
        two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021, memory_max="2G")),
    )
    desired = rig_target_state(new, sample_facts(), sample_build())
    found = stored(old)
    survey = SurveyAnswers({GENERATIONS.name: {"told": _json(found)}})
    (digest,) = (one.started_from for one in old.unit_states if one.unit == "rigwright-code.service")
    started = {"rigwright-code.service": StartRecord([digest], [], [], [], InstanceKeyFile("600", 0, True, []))}
    edit = find_edit(found, None, started, new, desired)
    assert edit
    failures = raised("G01", lambda: test_generation.test_current(survey, new.roots, desired.generation))
    assert [one.id for one in failures] == ["G01"]
    link = "/etc/systemd/system"
    failures += [
        failure("G02", old.mark, desired.generation.mark),
        CheckFailure(
            "U01",
            "",
            tuple(
                ("each", f"{link}/{one} has different contents")
                for one in ("rigwright-code.service", "rigwright.target")
            ),
        ),
        failure("U03", "rigwright-code.service has MemoryMax 22748848128, not 2147483648"),
        failure("S02", digest[:12], "9f64006e5cac", "code"),
        failure("S11", "22748848128 bytes", "2147483648 bytes", "code"),
    ]
    return replace(CauseFacts(instances=(CHAT, CODE)), edit=edit), failures


def stored(made: Generation, number: int = 3) -> Generations:
    """A generation as it lies on a host."""
    files = {path: f"{test_generation.sha256(text)} {file_mode(text)}" for path, text in made.files.items()}
    files |= {path: f"-> {target}" for path, target in made.links.items()}
    texts = {path: text for path, text in made.files.items() if path.startswith(("units/", "env/", "manifest"))}
    kept = StoredGeneration(number, made.digest, files, [], True)
    assert files_digest(kept) == made.digest
    return Generations([kept], f"generations/{number}", False, [], texts)


def _json(found: Generations) -> dict[str, object]:
    kept = [vars(one) for one in found.kept]
    return {"kept": kept, "current": found.current, "activating": False, "beside": [], "texts": found.texts}


def replaced() -> tuple[CauseFacts, list[CheckFailure]]:
    libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    change = PackageChange(BOOT + 600, "upgrade", "libc6", "2.41-11", "2.41-12", "unattended-upgrade", "", [libc])
    other = replace(change, package="htop", files=["/usr/bin/htop"])
    deleted = [
        f"{unit}'s process {number} runs {libc}, which was deleted"
        for number, unit in enumerate((*UNITS[:1], "rigwright_router.service"), 7)
    ]
    first = replace(change, moment=BOOT - 600, program="")
    return CauseFacts(instances=(CHAT,), changes=(first, other, change)), [
        CheckFailure("S21", "", tuple(("the declared programs", one) for one in deleted))
    ]


def lost(folder: Path) -> tuple[CauseFacts, list[CheckFailure]]:
    """Card 0 fell off the bus: nvidia-smi lists the other one, and the instance has failed."""
    host = NvidiaFolderHost(folder)
    host.write("says/log", "NVRM: Xid (PCI:0000:00:06): 79, pid=1, GPU has fallen off the bus.\n")
    host.set_smi_answers(
        15, gpus="Unable to determine the device handle for GPU0: 0000:00:06.0: GPU is lost.\n", apps="GPU is lost.\n"
    )
    survey = host.run_survey()
    chat = replace(CHAT, state="failed", active="failed", cards=(ADDRESSES[0],))
    facts = CauseFacts(
        instances=(chat,),
        lost_cards=collect_lost_cards(survey, RIG, FACTS),
        driver=collect_driver_versions(survey, RIG),
    )
    return facts, [*_nvidia(survey), *down("failed")]


def mismatched(folder: Path) -> tuple[CauseFacts, list[CheckFailure]]:
    """The driver was upgraded, and the box not booted."""
    host = NvidiaFolderHost(folder)
    host.write("sys/module/nvidia/version", "580.126.09\n")
    text = "Failed to initialize NVML: Driver/library version mismatch\n"
    host.set_smi_answers(18, gpus=text, apps=text, recovery=text)
    survey = host.run_survey()
    change = PackageChange(
        BOOT + 60, "upgrade", "libnvidia-compute-580", "580.126.09-1", "580.159.04-1", "apt", "ana", []
    )
    chat = replace(CHAT, state="failed", active="failed", cards=(ADDRESSES[0],))
    facts = CauseFacts(
        instances=(chat,),
        changes=(change,),
        lost_cards=collect_lost_cards(survey, RIG, FACTS),
        driver=collect_driver_versions(survey, RIG),
    )
    return facts, [*_nvidia(survey), *down("failed")]


def lacking(folder: Path) -> tuple[CauseFacts, list[CheckFailure]]:
    """A new kernel runs, for which no module of the driver was built."""
    host = NvidiaFolderHost(folder)
    for name in ("sys/module/nvidia", *(f"proc/driver/nvidia/gpus/{one}" for one in ADDRESSES)):
        host.remove(name)
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    host.set_smi_answers(9, gpus=text, apps=text, recovery=text)
    survey = host.run_survey()
    bare = replace(STATE, running=NEXT, kernels=(replace(STATE.kernels[1], version="", license=""), STATE.kernels[0]))
    made = [*find_disk_differences("", bare), *find_dkms_differences(replace(bare, dkms=STATE.dkms[:1]))]
    failures = [*_nvidia(survey), *(of_drift("N09" if "DKMS" not in one.expected else "N10", one) for one in made)]
    driver = collect_driver_versions(survey, RIG)
    assert driver
    chat = replace(CHAT, state="failed", active="failed", cards=(ADDRESSES[0],))
    return CauseFacts(instances=(chat,), driver=replace(driver, kernel=NEXT)), [*failures, *down("failed")]


def _nvidia(survey: SurveyAnswers) -> list[CheckFailure]:
    return [
        one
        for name in ALL
        for one in raised(name, lambda name=name: run(name, survey), "chat" if name == "S08" else "")
    ]  # type: ignore[misc]


def wrong_clock(_folder: Path) -> tuple[CauseFacts, list[CheckFailure]]:
    """The box's clock is two days behind; the real checks P01 and O07 run."""
    now = time.time()
    made = sample_rig(sample_instance())
    desired = rig_target_state(made, sample_facts(clock=int(now) - 2 * 86400), sample_build())
    entry = {"path": "/var/lib/rigwright/owned", "kind": "file", "mode": 420, "uid": 0, "gid": 0, "mtime": now}
    ours = empty_answer(OURS.shape) | {"ahead": [entry]}
    survey = SurveyAnswers({OURS.name: {"told": ours}})
    failures = raised("P01", lambda: test_preflight.test_nothing_stands_in_the_way(desired))
    failures += raised("O07", lambda: test_ours.test_times(survey))
    assert [one.id for one in failures] == ["P01", "O07"]
    failures.append(failure("W03", "2027-01-15 08:00 UTC", "less than 9 days ago, and not in the future", "small"))
    return CauseFacts(instances=(CHAT,), now=BOOT, ahead_s=-2 * 86400.0), failures


def missing_mount(_folder: Path) -> tuple[CauseFacts, list[CheckFailure]]:
    path = CHAT.paths[0]
    weights = [
        failure("W01", "no file", "a file", "small"),
        failure("W04", f"{path} is nothing", "a file", "small"),
        failure("W06", "none", f"a record of {path}", "small"),
    ]
    chat = replace(CHAT, state="failed", active="failed")
    mounts = [
        failure("M06", "/dev/sdb1 for /srv/models", "the devices of all /etc/fstab entries"),
        failure("S02", path, "the weights on disk now", "code"),
    ]
    facts = CauseFacts(instances=(chat, CODE), unmounted=("/srv/models",), weights=(("small", path),))
    return facts, [*weights, *mounts, *down("failed")]


@dataclass(frozen=True)
class Morning:
    """The state of a host, the failures that follow, and the first line."""

    make: Callable[[Path], tuple[CauseFacts, list[CheckFailure]]]
    headline: str
    cure: str


def _instance(headline: str, cure: str, failures: list[CheckFailure], **changes: Any) -> Morning:
    chat = replace(CHAT, **changes)
    return Morning(lambda _: (CauseFacts("rig.py", instances=(chat, CODE), booted=BOOT), failures), headline, cure)


INACTIVE = {"state": "stopped", "active": "inactive"}
FULL = CauseFacts(instances=(CHAT,), full=(FullDisk(("/tmp", "/var/tmp"), 0),))
MORNINGS = {
    "stopped by hand": _instance(
        "chat was stopped by hand on 2027-01-15 09:00 UTC",
        "`rigwright start rig.py chat`, or deploy",
        down(),
        stopped_at=BOOT + 3600,
        state="stopped by hand",
        active="inactive",
    ),
    "an edited inventory": Morning(
        lambda _: edited(), "the box runs generation 3; the inventory declares another", "`rigwright deploy INVENTORY`"
    ),
    "an unattended upgrade": Morning(
        lambda _: replaced(),
        "unattended-upgrades replaced libc6 on 2027-01-15 08:10 UTC",
        "`systemctl restart rigwright-chat.service rigwright_router.service` on the box",
    ),
    "a lost card": Morning(lost, "card 0 (0000:00:06.0) fell off the bus (Xid 79)", "turn the box off and on"),
    "a driver that was upgraded": Morning(
        mismatched,
        "the loaded NVIDIA module is 580.126.09, and its installed libraries are 580.159.04",
        "reboot the box: `rigwright deploy INVENTORY --reboot`",
    ),
    "a kernel without the module": Morning(
        lacking, f"kernel {NEXT} runs without a module of the NVIDIA driver", "`rigwright deploy INVENTORY`"
    ),
    "a kernel that awaits a reboot": Morning(
        lambda _: (
            CauseFacts(changes=(PackageChange(BOOT, "install", f"linux-image-{NEXT}", "", "6.8", "apt", "ana", []),)),
            [
                failure("N18", RUNNING, f"kernel {NEXT}, the newest that is installed"),
                failure("N33", "none", f"headers of kernel {NEXT}"),
            ],
        ),
        f"a reboot is pending: kernel {NEXT} is installed",
        "`rigwright deploy INVENTORY --reboot`",
    ),
    "a full disk": Morning(
        lambda _: (
            FULL,
            [
                CheckFailure("O08", "", (("space", "/tmp with 0 MiB free"), ("space", "/var/tmp with 0 MiB free"))),
                failure("P01", "/tmp has 0.0 GiB free: 2 GiB are needed"),
            ],
        ),
        "the file system of /tmp, /var/tmp is full (0 MiB free)",
        "free space there",
    ),
    "a wrong clock": Morning(wrong_clock, "the box's clock is 2 days behind this machine's", "set it on the box"),
    "a disk that is not mounted": Morning(missing_mount, "/srv/models is not mounted", "`mount /srv/models`"),
    "exhausted memory": _instance(
        "the kernel killed chat for want of memory on 2027-01-15 08:00 UTC",
        "raise memory_max of chat",
        [*down("failed"), failure("U09", f"{UNIT} has failed")],
        state="failed",
        active="failed",
        result="oom-kill",
        since=BOOT,
    ),
    "a boot that did not start it": _instance(
        "chat has not started since the boot on 2027-01-15 08:00 UTC",
        "`rigwright start rig.py chat`, or deploy",
        [
            *down(),
            failure("U04", f"rigwright.target does not want {UNIT}"),
            failure("U09", "rigwright-chat.slice is inactive"),
        ],
        ran_since_boot=False,
        **INACTIVE,
    ),
    "a failed instance": _instance(
        "chat has failed on 2027-01-15 08:00 UTC",
        "`rigwright doctor rig.py --instance chat` names the reason",
        [*down("failed"), failure("U09", f"{UNIT} has failed")],
        state="failed",
        active="failed",
        since=BOOT,
    ),
    "an instance that starts": _instance(
        "chat is starting since 2027-01-15 08:00 UTC",
        "wait until `rigwright status rig.py` shows it ready",
        [*down("activating"), failure("S18", f"{UNIT}'s worker process 8288 has the user ids 0, not 995")],
        state="starting",
        active="activating",
        since=BOOT,
        gate=(8288,),
    ),
    "a paused process": _instance(
        "a signal has stopped the process of chat",
        f"`systemctl kill -s CONT {UNIT}`",
        [
            failure("S22", f"{UNIT}'s process 8283 is T (stopped)"),
            failure("S06", "no answer in time", "one token from its socket", "chat"),
            failure("D07", "small (no answer in time)", "an answer for every name", "lan"),
        ],
        paused=True,
    ),
    "a silent instance": _instance(
        "chat is wedged",
        "`rigwright restart rig.py chat`",
        [
            failure("S05", "no answer in time for no key and no answer in time for wrong key", "401 for both", "chat"),
            failure("S06", "no answer in time", "one token from its socket", "chat"),
            failure("S13", "no answer in time", "the model small", "chat"),
            failure("D08", "left out", "in", "chat"),
        ],
        state="wedged",
    ),
    "no network": Morning(
        lambda _: (
            CauseFacts(default_routes=0),
            [
                failure("N17", "Temporary failure resolving 'archive'"),
                failure("R09", "the route to 192.0.2.1 is unreachable"),
            ],
        ),
        "the box has no default route",
        "see `ip route`",
    ),
    "a blank box": Morning(
        lambda _: (
            CauseFacts("rig.py", is_deployed=False, instances=(replace(CHAT, active=""),)),
            [failure("B01", "no user rigwright-chat"), failure("O02", "no file"), *down("not there")],
        ),
        "not deployed: no generation is current",
        "`rigwright deploy rig.py`",
    ),
    "a survey without an answer": Morning(
        lambda _: (
            CauseFacts(),
            [failure(name, "it took too long", "an answer about processes") for name in ("S16", "S17", "S18")],
        ),
        "the box answers nothing about processes: it took too long",
        "`rigwright doctor INVENTORY`",
    ),
}
