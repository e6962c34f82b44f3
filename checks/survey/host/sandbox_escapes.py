"""Sandbox escapes, tried from inside: as the instance's user, in a unit with the same restrictions."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks.survey.host import common, systemd_properties

KINDS = ("processes", "network", "files", "devices", "privileges")
SETTING = re.compile("[A-Z][A-Za-z]*=")
# Settings of which an empty value takes all (systemd.exec(5)).
NONE_AT_ALL = re.compile("(CapabilityBoundingSet|AmbientCapabilities)=")
# Of a unit's settings, what is about its own process and not about what that may do.
ITS_OWN = re.compile(
    "(Type|Exec[A-Za-z]*|EnvironmentFile|LoadCredential|Restart[A-Za-z]*|Timeout[A-Za-z]*|KillMode|RuntimeDirectory"
    "[A-Za-z]*|Slice)="
)
# Devices that can be opened without a change: a watchdog's would have the box start again, a tape's would wind it back.
TRIED = re.compile(
    r"/dev/(mem|kmem|port|kmsg|kvm|fuse|net/tun|vfio/.*|dri/.*|nvidia.*|(sd|hd|vd|xvd|nvme|md|dm-|mmcblk|loop)[a-z0-9-]*)"
)
CARDS = re.compile(r"/dev/nvidia.*")
# Of /proc/net/unix: the listeners and their names; a name may have anything in it but a line's end.
LISTENS = re.compile(r"^\S+ \S+ \S+ 00010000 \S+ \S+ +[0-9]+ (/.*)$", re.MULTILINE)
# The program is run with what it is asked as its only word.
BEGIN = (
    "import sys, json; asked, text = json.load(sys.stdin); sys.argv[1:] = [asked]; "
    "exec(compile(text, 'sandbox_breakout.py', 'exec'), {'__name__': '__main__'})"
)
PATIENCE = 45.0  # seconds for one instance


def look(asked: dict[str, object]) -> dict[str, dict[str, list[str]]]:
    """By instance's service, what came through.

    Args:
        asked: `program`, what tries; `instances`: service -> its `own` paths, whether it has `cards`, and what else is
            `asked`; `units`, ours; `credentials`, folders of secrets; `name`, what begins the names of the units that
            this starts.
    """
    units: list[str] = asked["units"]  # type: ignore[assignment] # by the caller
    instances: dict[str, dict[str, object]] = asked["instances"]  # type: ignore[assignment]
    shown = systemd_properties.properties(sorted({*units, *instances}), "Id", "MainPID", "FragmentPath", "DropInPaths")
    mains = {unit: pid for unit, one in shown.items() if (pid := one.get("MainPID")) and unit in units}
    there = _there(asked["credentials"])  # type: ignore[arg-type]
    started, found = {}, {}
    for unit, one in instances.items():
        question = {**one["asked"], **_others(unit, one, mains, there)}  # type: ignore[dict-item]
        forbidden = _settings(_text(shown.get(unit, {})))
        if not any(setting.startswith("User=") for setting in forbidden):
            # it would be tried as root
            found[unit] = {kind: ["nothing was tried: its unit has no user"] for kind in KINDS}
            continue
        words = _inside(f"{asked['name']}{unit}", forbidden)
        started[unit] = subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-1)
        with suppress(OSError):
            started[unit].stdin.write(_render_input(question, str(asked["program"])))  # type: ignore[union-attr]
            started[unit].stdin.close()  # type: ignore[union-attr]
            started[unit].stdin = None
    return found | {unit: _parse_escapes(program) for unit, program in started.items()}


def _parse_escapes(program: subprocess.Popen[bytes]) -> dict[str, list[str]]:
    try:
        output, complaint = program.communicate(timeout=PATIENCE)
        found = json.loads(output)
        return {kind: [str(one) for one in found[kind]] for kind in KINDS}
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        program.kill()
        said = " ".join((complaint or output).decode(errors="replace").split())[-300:] if program.returncode else ""
        return {kind: [f"nothing was tried: {said or 'it took too long'}"] for kind in KINDS}


def _there(folders: list[str]) -> dict[str, list[str]]:
    """The objects on the host: sockets with listeners, devices, secrets."""
    secrets = [str(path) for folder in folders for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    devices = [str(path) for pattern in ("*", "*/*") for path in sorted(Path("/dev").glob(pattern)) if _device(path)]
    sockets = sorted(set(LISTENS.findall(common.read("/proc/net/unix") or "")))
    return {"sockets": sockets, "devices": devices, "secrets": secrets}


def _device(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)


def _others(unit: str, one: dict[str, object], mains: dict[str, int], there: dict[str, list[str]]) -> dict[str, object]:
    """The objects that are not an instance's own."""
    own: list[str] = one["own"]  # type: ignore[assignment]
    asked: dict[str, list[str]] = one["asked"]  # type: ignore[assignment]
    return {
        "processes": [1, *(pid for name, pid in mains.items() if name != unit)],
        "sockets": [path for path in there["sockets"] if path not in own],
        "secrets": [*asked["secrets"], *(path for path in there["secrets"] if path not in own)],
        # which of the cards' devices are its own, their driver decides
        "devices": [
            path for path in there["devices"] if TRIED.fullmatch(path) and not (one["cards"] and CARDS.fullmatch(path))
        ],
        "network": str(Path("/proc/1/ns/net").readlink()),
    }


def _text(shown: dict[str, Any]) -> str:
    """A unit's file and what is added to it, as systemd has them."""
    paths = [shown.get("FragmentPath", ""), *shown.get("DropInPaths", [])]
    return "\n".join(common.read(path) or "" for path in paths if path)


def _settings(text: str) -> list[str]:
    """The restrictions of a unit, drop-ins included, as their files have them one after the other."""
    section = ""
    found: list[str] = []
    for line in common.lines(text):
        if line.startswith("["):
            section = line
        elif section == "[Service]" and SETTING.match(line) and not ITS_OWN.match(line):
            if line.endswith("=") and not NONE_AT_ALL.match(line):
                # in a file it takes back what came before; in a transient unit it is an empty list
                found = [one for one in found if not one.startswith(line)]
            else:
                found.append(line)
    return found


def _render_input(question: dict[str, object], program: str) -> bytes:
    """The input of a sandbox: an argument may have 128 KiB, and a host any number of sockets."""
    return json.dumps([json.dumps(question), program]).encode()


def _inside(name: str, forbidden: list[str]) -> list[str]:
    """The command that runs what is written to it in a sandbox.

    Args:
        name: Of the unit that it starts.
        forbidden: The unit's settings.
    """
    options = ("--quiet", "--collect", "--pipe", "--wait", "--service-type=exec", f"--unit={name}")
    words = ("python3", "-I", "-S", "-c", BEGIN)
    return ["systemd-run", *options, *(f"--property={line}" for line in forbidden), "--", *words]
