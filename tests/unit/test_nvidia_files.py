"""Whether a driver's settings lie there as they are rendered."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from checks.nvidia.found_files import Found, FoundFile, as_rendered
from rigwright.nvidia.cards.files import Setting
from tests.unit.driver_hosts import C3090, box

RIG = box(C3090, managed=True, power_w=280)
UNATTENDED, SCRIPT = "/etc/apt/apt.conf.d/52rigwright-nvidia", "/etc/rigwright/cards/__main__.py"
SYSCTL = "/etc/sysctl.d/60-rigwright.conf"
FILES = (Setting(UNATTENDED, "x\n"), Setting(SCRIPT, "#!/bin/sh\n", "755"))
SOUND = Found(
    {
        one.path: FoundFile("file", one.mode, "root:root", hashlib.sha256(one.text.encode()).hexdigest())
        for one in FILES
    },
    {"nvidia-persistenced.service": "enabled", "rigwright-power.service": "enabled"},
)
SCRIPT_THERE = SOUND.files[SCRIPT]


def found(**files: FoundFile) -> Found:
    """The sound host with something else at the script's place."""
    return replace(SOUND, files=SOUND.files | {SCRIPT: files["script"]})


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (SOUND, []),
        (found(script=replace(SCRIPT_THERE, sha256="0")), [(f"{SCRIPT} as deployed", "different contents")]),
        (
            found(script=replace(SCRIPT_THERE, mode="644")),
            [(f"{SCRIPT} as deployed", "mode 644 of root:root")],
        ),
        (
            found(script=replace(SCRIPT_THERE, owner="ana:ana")),
            [(f"{SCRIPT} as deployed", "mode 755 of ana:ana")],
        ),
        (found(script=FoundFile("a link to /dev/null")), [(f"{SCRIPT} as deployed", "a link to /dev/null")]),
        (
            replace(SOUND, files={UNATTENDED: SOUND.files[UNATTENDED]}),
            [(f"{SCRIPT} as deployed", "nothing")],
        ),
        (replace(SOUND, files=SOUND.files | {SYSCTL: FoundFile("file")}), [(f"no {SYSCTL}", "one")]),
        (
            replace(SOUND, enabled=SOUND.enabled | {"rigwright-power.service": "masked"}),
            [("rigwright-power.service to start at boot", "masked")],
        ),
        (
            replace(SOUND, enabled={"rigwright-power.service": "enabled"}),
            [("nvidia-persistenced.service to start at boot", "nothing")],
        ),
    ],
    ids=str,
)
def test_each_file_and_unit_is_as_it_has_to_be_or_is_named(there: Found, said: list[tuple[str, str]]) -> None:
    assert [(one.expected, one.found) for one in as_rendered(RIG, FILES, there)] == said


def test_a_unit_that_the_rig_does_not_need_may_be_as_it_is() -> None:
    assert (
        as_rendered(box(C3090, managed=True), FILES, replace(SOUND, enabled={"nvidia-persistenced.service": "enabled"}))
        == []
    )
