"""Rigwright's own state on a host, by digests: whether anything of it has changed since all checks of it passed.

The checks themselves take as long as all that a deploy without changes asks. As long as no digest differs from those
that root wrote down when they passed, their verdicts hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rigwright.gateway.gateway_units import ROUTER_RUNTIME, RUNTIME
from rigwright.host import script_output
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.host.systemd import STARTED_FROM_FOLDER
from rigwright.model.rig import Rig
from rigwright.render import render

PROGRAM = Path(__file__).resolve().parents[2] / "roles/owned_state/host/state_fingerprint.py"
RECORD = f"{STARTED_FROM_FOLDER}/rigwright_agreed"
"""The record that root made when the checks passed; gone with a reboot, as everything there."""
TEMPLATE = "owned_state/look.sh.j2"
PACKAGES = (
    "/var/lib/dpkg/status",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/group",
    "/etc/gshadow",
    "/etc/logrotate.d/rigwright*",
)
DRIVER = (
    *("/dev/nvidia*", "/dev/nvidia-caps/*", "/etc/modprobe.d/*", "/etc/apt/preferences.d/*", "/etc/sysctl.d/*"),
    *("/usr/lib/x86_64-linux-gnu/lib*nvidia*", "/usr/lib/x86_64-linux-gnu/libcuda*", "/usr/bin/nvidia-*"),
    *("/lib/modules/*/updates/dkms/*", "/etc/apt/sources.list.d/*", "/etc/cdi/*", "/var/run/cdi/*", "/etc/docker/*"),
)
PART = script_output.one_of("units", "unit_files", "processes", "files", "folders", "host", "declared")


@dataclass(frozen=True)
class OwnedStateFacts:
    """Digests of parts of what a deploy owns; none on a host that has nothing yet."""

    digests: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    """Those of the last run whose checks passed, and their declaration at that time."""

    def is_agreed(self, declared: str) -> bool:
        """Whether nothing has changed since then, and the same is declared."""
        return bool(self.digests) and not self.find_changes(declared)

    def find_changes(self, declared: str) -> list[str]:
        """The parts that are not what they were then; all of them where no checks have passed since the boot."""
        now = {**self.digests, "declared": declared}
        return [part.replace("_", " ") for part, digest in now.items() if digest != self.recorded.get(part)]


SCHEMA: script_output.Schema = {
    "part": (PART, script_output.optional(script_output.sha256), script_output.tolerant(script_output.sha256))
}
"""The output of templates/owned_state/look.sh.j2: a part, its digest now, and the recorded one."""


def parse_owned_state(output: list[str]) -> OwnedStateFacts:
    """Read what the program has reported.

    Raises:
        ValueError: that is not what it was asked for.
    """
    rows = script_output.parse_output(output, SCHEMA).many("part")
    digests = {part: now for part, now, _ in rows if part != "declared"}
    return OwnedStateFacts(digests, {part: then for part, _, then in rows})


@cache
def _program_text() -> str:
    return PROGRAM.read_text()


def render_question(rig: Rig) -> str:
    """The program's questions about a rig's host."""
    roots = rig.roots
    store = [f"{roots.state}/{name}" for name in ("starts", "trees", "weights", "driver", "containers")]
    asked = {
        "word": "rigwright",
        "record": RECORD,
        "exact": [roots.config],
        "loose": [STARTED_FROM_FOLDER, RUNTIME, ROUTER_RUNTIME, roots.models, *store],
        "without": [RECORD, LOCKS],
        "files": [*PACKAGES, *(DRIVER if rig.cards or rig.containers or rig.driver.managed else ())],
    }
    return json.dumps(asked, sort_keys=True)


def owned_state_values(asked: str) -> dict[str, object]:
    """The values of the template."""
    return {"program": _program_text(), "asked": asked}


def render_owned_state_query(rig: Rig) -> str:
    """The script that reports the digests."""
    return render(TEMPLATE, **owned_state_values(render_question(rig)))


def render_seal_words(rig: Rig, found: OwnedStateFacts, declared: str) -> list[str]:
    """The command that has root record digests, unless one of them has changed since."""
    words = ["/usr/bin/python3", "-I", "-S", "-B", "-c", _program_text(), render_question(rig), "seal"]
    return [*words, json.dumps(dict(found.digests)), declared]
