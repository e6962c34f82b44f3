"""Whether a driver's settings lie there as they are rendered."""

import hashlib
from dataclasses import replace

import pytest

from checks.nvidia.driver_drift import SettingFileFacts, SettingsFacts, find_settings_differences
from rigwright.nvidia.cards.card_setting_files import SettingFile
from tests.unit.driver_samples import C3090, driver_rig

RIG = driver_rig(C3090, managed=True, power_w=280)
UNATTENDED, SCRIPT = "/etc/apt/apt.conf.d/52rigwright-nvidia", "/etc/rigwright/cards/__main__.py"
SYSCTL = "/etc/sysctl.d/60-rigwright.conf"
FILES = (SettingFile(UNATTENDED, "x\n"), SettingFile(SCRIPT, "#!/bin/sh\n", "755"))
SOUND = SettingsFacts(
    {
        one.path: SettingFileFacts("file", one.mode, "root:root", hashlib.sha256(one.text.encode()).hexdigest())
        for one in FILES
    },
    {"nvidia-persistenced.service": "enabled", "rigwright-power.service": "enabled"},
)
SCRIPT_THERE = SOUND.files[SCRIPT]


def host_with_script(**files: SettingFileFacts) -> SettingsFacts:
    """The sound host with something else at the script's place."""
    return replace(SOUND, files=SOUND.files | {SCRIPT: files["script"]})


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (SOUND, []),
        (host_with_script(script=replace(SCRIPT_THERE, sha256="0")), [(f"{SCRIPT} as deployed", "different contents")]),
        (
            host_with_script(script=replace(SCRIPT_THERE, mode="644")),
            [(f"{SCRIPT} as deployed", "mode 644 of root:root")],
        ),
        (
            host_with_script(script=replace(SCRIPT_THERE, owner="ana:ana")),
            [(f"{SCRIPT} as deployed", "mode 755 of ana:ana")],
        ),
        (
            host_with_script(script=SettingFileFacts("a link to /dev/null")),
            [(f"{SCRIPT} as deployed", "a link to /dev/null")],
        ),
        (replace(SOUND, files={UNATTENDED: SOUND.files[UNATTENDED]}), [(f"{SCRIPT} as deployed", "nothing")]),
        (replace(SOUND, files=SOUND.files | {SYSCTL: SettingFileFacts("file")}), [(f"no {SYSCTL}", "one")]),
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
def test_each_file_and_unit_is_as_it_has_to_be_or_is_named(there: SettingsFacts, said: list[tuple[str, str]]) -> None:
    assert [(one.expected, one.found) for one in find_settings_differences(RIG.roots, RIG.driver, FILES, there)] == said


def test_a_unit_that_the_rig_does_not_need_may_be_as_it_is() -> None:
    box_rig = driver_rig(C3090, managed=True)
    assert (
        find_settings_differences(
            box_rig.roots, box_rig.driver, FILES, replace(SOUND, enabled={"nvidia-persistenced.service": "enabled"})
        )
        == []
    )
