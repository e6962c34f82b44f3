"""Weights."""

import stat
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from checks import DEPLOY, Drift, check, expect
from checks.drift_text import format_day, format_first_lines
from checks.remedy import Remedy, host_command, instruction, remove_access_lists, remove_paths, restart_units, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.trees import WAYS
from checks.survey.weights import SERVICE, TIMER, WEIGHTS, WeightFileState, WeightFolder
from rigwright.model.instance import Instance, loaded_weights
from rigwright.model.roots import Roots
from rigwright.supply.lock import Artefact, Lock
from rigwright.weights.verification import DUE_DAYS, REHASH_STAMP

LATE_DAYS = 2 * DUE_DAYS + 1  # a box that is busy or off for days is no reason for alarm yet
LATE_HOURS = 3  # the timer goes off each hour, up to half an hour late
AHEAD = 600  # seconds that a clock may have been put back since
OTHERS = stat.S_IWGRP | stat.S_IWOTH
LIST = 0o005  # the rights that services need on a folder
# File systems that a boot empties
FLEETING = ("tmpfs", "ramfs", "overlay")
# Files that engines and loaders of theirs take from a model's folder without their names on a command line
TAKEN = (
    *(".json", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".py", ".model", ".jinja", ".tiktoken", ".npz"),
    *(".msgpack", ".h5", ".yaml", ".yml", "/merges.txt", "/vocab.txt"),
)


def looked_at(survey: SurveyAnswers, path: str) -> WeightFileState:
    """The object at a weight's path.

    Raises:
        Drift: the host does not say it.
    """
    found = survey.read(WEIGHTS).files.get(path)
    if found is None:
        raise Drift(f"an answer about {path}", "none", instruction("find the reason on the host"))
    return found


@check(
    "W01",
    "the weight file's bytes are the locked ones",
    severity="critical",
    why="a model with one wrong byte still answers",
)
def test_bytes(
    roots: Roots, survey: SurveyAnswers, weight: Artefact, record_property: Callable[[str, object], None]
) -> None:
    path = roots.weight_path(weight)
    file = looked_at(survey, path)
    found = f"a {file.kind}" if file.kind != "none" else "no file"
    expect(found, f"a file at {path}", remove_paths(path) + DEPLOY, holds=file.kind == "file")
    expect(f"{file.size} bytes", f"{weight.size} bytes at {path}", DEPLOY, holds=file.size == weight.size)
    if not file.read:
        record_property("how", "verified earlier and unchanged since; --deep reads it again")
        found = "verified" if file.is_untouched else "changed since, and not read"
        expect(found, f"verified bytes at {path}", DEPLOY, holds=file.is_untouched)
        return
    record_property("how", "all bytes were read")
    # a file that its record has as right is read again only after a change
    cure = host_command("touch -- {}", path) + DEPLOY if file.is_untouched else DEPLOY
    if file.read != weight.sha256:
        since = "" if file.is_untouched else format_day(file.changed)
        raise Drift(f"{weight.sha256} at {path}", file.read, cure, since)


@check(
    "W02",
    "the weight file is readable by the service and writable by no user",
    severity="high",
    why="a service could change its weights",
)
def test_mode(roots: Roots, survey: SurveyAnswers, weight: Artefact) -> None:
    path = roots.weight_path(weight)
    file = looked_at(survey, path)
    found = f"{stat.filemode(file.mode)} of user {file.uid}" if file.kind != "none" else "no file"
    right = "-r--r--r-- of user 0"
    expect(found, f"{right} at {path}", DEPLOY, holds=found == right)


@check(
    "W03",
    "the weight file was re-hashed on time",
    severity="high",
    why="disks lose bits without a change of size or time",
)
def test_hashed_again(roots: Roots, survey: SurveyAnswers, weight: Artefact) -> None:
    weights = survey.read(WEIGHTS)
    file = looked_at(survey, roots.weight_path(weight))
    expect(
        file.wrong or weight.sha256,
        weight.sha256,
        DEPLOY + instruction("check the disk, which has lost bytes (smartctl)"),
    )
    days = (weights.now - file.hashed) / 86_400 if file.hashed is not None else None
    expect(
        format_day(file.hashed),
        f"less than {LATE_DAYS} days ago, and not in the future",
        restart_units(SERVICE) + show_log(SERVICE),
        holds=days is not None and -AHEAD / 86_400 < days < LATE_DAYS,
    )


def _loose(place: WeightFolder) -> str:
    """The problem of a folder; empty where there is none."""
    if place.kind != "folder":
        return f"{place.path}: {'nothing' if place.kind == 'none' else f'a {place.kind}'}"
    if place.inherits:
        return f"{place.path}, which has a default access list"
    right = place.uid == 0 and not place.mode & OTHERS and place.mode & LIST == LIST
    return "" if right else f"{place.path} {stat.filemode(place.mode)} of user {place.uid}"


def _opening(place: WeightFolder) -> Remedy:
    """The command that gives a folder to root, open to all."""
    if place.kind != "folder":
        return remove_paths(place.path) + DEPLOY
    own = host_command("chown root {0}; chmod 755 {0}", place.path)
    return remove_access_lists(place.path) + own if place.inherits else own


@check(
    "W04",
    "the service can reach the weight file, and only root can replace it",
    severity="high",
    why="write access to a directory allows replacing every file in it, regardless of modes",
)
def test_folders(roots: Roots, survey: SurveyAnswers, weight: Artefact) -> None:
    above = {str(path) for path in PurePosixPath(roots.weight_path(weight)).parents}
    places = {one.path: one for one in survey.read(WEIGHTS).folders}
    below = [path for path in sorted(above) if path.startswith(f"{roots.models}/")]
    odd = [_loose(places[path]) if path in places else f"{path}: nothing" for path in below]
    found = format_first_lines(list(filter(None, odd)))
    loose = [places[path] for path in below if path in places and _loose(places[path])]
    cure = sum(map(_opening, loose), Remedy(())) if len(loose) == len(list(filter(None, odd))) else DEPLOY
    expect(found or "directories owned by root", "directories owned by root", cure)


@check(
    "W05",
    "weights are re-hashed weekly",
    severity="high",
    why="without re-hashing, lost bytes of a disk stay undetected",
)
def test_timer(declared_instances: tuple[Instance, ...], survey: SurveyAnswers) -> None:
    if not loaded_weights(declared_instances):
        pytest.skip("the rig has no weights")
    weights = survey.read(WEIGHTS)
    none = dict.fromkeys(("LoadState", "ActiveState", "UnitFileState", "Result", "ConditionTimestamp"), "unknown")
    timer, service = none | weights.units.get(TIMER, {}), none | weights.units.get(SERVICE, {})
    found = f"{timer['UnitFileState'] or timer['LoadState']} and {timer['ActiveState']}"
    expect(found, "enabled and active", DEPLOY)
    expect(service["LoadState"], "loaded", DEPLOY)
    see = restart_units(SERVICE) + DEPLOY + show_log(SERVICE)
    failed = service["ActiveState"] == "failed" or service["Result"] != "success"
    expect(f"a run that ended with {service['Result']}" if failed else "success", "success", see)
    idle = service["ConditionTimestamp"] and service.get("ConditionResult") == "no"
    expect("a run without a records directory" if idle else "success", "success", see)
    begun = weights.stamp or 0.0
    stamps = host_command("rm -f -- {}; systemctl restart {}", REHASH_STAMP, TIMER)
    expect(format_day(begun), "a past run", stamps, holds=begun <= weights.now + AHEAD)
    # while a run lasts, the timer begins none; where it has begun none since it was started, it waits since then
    waited = (weights.now - max(begun, weights.unit_moment(TIMER, "ActiveEnterTimestamp"))) / 3600
    runs = service["ActiveState"] == "activating"
    other = host_command("systemctl revert {0}; systemctl restart {0}", TIMER)
    expect(f"{waited:.1f} hours", f"a run less than {LATE_HOURS} hours ago", other, holds=waited < LATE_HOURS or runs)
    coming = weights.unit_moment(TIMER, "NextElapseUSecRealtime")
    soon = weights.now - 60 < coming < weights.now + LATE_HOURS * 3600
    expect(format_day(coming or None), f"the next run within {LATE_HOURS} hours", other, holds=soon or runs)


@check(
    "W06",
    "the weight file has the record of a verified file",
    severity="high",
    why="without a record, the next deploy reads the whole file first, and nothing re-hashes it until then",
)
def test_record(
    roots: Roots, survey: SurveyAnswers, weight: Artefact, record_property: Callable[[str, object], None]
) -> None:
    path = roots.weight_path(weight)
    file = looked_at(survey, path)
    found = f"a record of {file.record_of or 'nothing'}" if file.recorded else "no record"
    expect(found, f"a record of {path}", DEPLOY)
    if not file.is_untouched and file.kind == "file":
        record_property("how", f"changed since, on {format_day(file.changed)}; the next deploy records it again")


@check(
    "W07",
    "weight directories contain no extra files that an engine would load",
    severity="high",
    why="engines read a model's whole directory: another file there is another template, or code",
)
def test_beside(roots: Roots, declared_instances: tuple[Instance, ...], lock: Lock, survey: SurveyAnswers) -> None:
    if not loaded_weights(declared_instances):
        pytest.skip("the rig has no weights")
    weights = survey.read(WEIGHTS)
    # an engine gets each of its own files by its name
    whole = {str(PurePosixPath(path).parent) for path in weights.files if not path.endswith(".gguf")}
    rows = [*lock.artefacts.values(), *(one for group in lock.groups.values() for one in group)]
    kept = {roots.weight_path(one) for one in rows if one.kind == "weight"}
    extra = [
        path
        for path in weights.extra
        if str(PurePosixPath(path).parent) in whole and path not in kept and path.endswith(TAKEN)
    ]
    expect(format_first_lines(extra) or "nothing", "nothing", remove_paths(*extra))


@check(
    "W08",
    "no mount covers the weight file",
    severity="critical",
    why="services read the mounted file instead of the verified one, and another one after a boot",
)
def test_mounts(roots: Roots, survey: SurveyAnswers, weight: Artefact) -> None:
    path = roots.weight_path(weight)
    odd, over = [], []
    for one in survey.read(WAYS).mounts:
        if not one.point.startswith(f"{roots.models}/"):
            continue
        # a disk for some models is its operator's, where a boot mounts it too
        disk = one.boot and one.kind not in FLEETING and (one.root == "/" or one.kind == "btrfs")
        if f"{path}/".startswith(f"{one.point}/") and not disk:
            odd.append(f"{one.root} of a {one.kind} at {one.point}")
            over.append(one.point)
    cure = host_command("umount --lazy -- {}", over) + DEPLOY
    expect(format_first_lines(odd) or "nothing", "nothing", cure)
