"""The files of a managed driver: which there are, and that the programs they are for can read them."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rigwright.model.roots import Roots
from rigwright.nvidia.cards import card_setting_files
from rigwright.nvidia.cards.card_setting_files import POWER, SYSCTL
from rigwright.nvidia.driver.driver_facts import MODPROBE, SOURCE
from rigwright.nvidia.driver.driver_files import (
    PATHS,
    PERSISTENCED,
    PREFERENCES,
    UNATTENDED,
    driver_release_values,
    managed_paths,
    render_driver_settings,
)
from rigwright.serving.instance_units import OWNED_HEADER
from tests.unit import short_programs
from tests.unit.driver_samples import C3090, C5090, driver_rig, driverless_host, make_driver_plan
from tests.unit.samples import OperatorFolder, sample_rig

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBF\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n"
ARCHIVE = ("http://192.0.2.1/nvidia/debian12/x86_64", "https://192.0.2.2/debian12/x86_64")
PROGRAM = {
    f"/etc/rigwright/cards/{name}"
    for name in ("__main__.py", "declared.json", "rigwright/nvidia/cards/power.py", "rigwright/nvidia/cards/smi.py")
}
ALWAYS = {PREFERENCES, UNATTENDED, MODPROBE, PERSISTENCED}


def files(system: str = "ubuntu-24.04", pin: str = "", nvidia: bool | None = None, **keys: Any) -> dict[str, str]:
    """Path -> text, of a rig with two cards."""
    one = driver_rig(C3090, C3090, managed=True, **keys)
    plan = make_driver_plan(one, driverless_host(system, "10de:2204", "10de:2204"))
    from_nvidia = system.startswith("debian") if nvidia is None else nvidia
    way: dict[str, Any] = {"archive": ARCHIVE, "key": KEY} if from_nvidia else {}
    found = render_driver_settings(one.roots, one.cards, one.driver, plan, pin=pin, **way)
    assert all(one.text.strip() for one in found)
    assert {one.path for one in found} <= set(managed_paths(one.roots))
    return {one.path: one.text for one in found}


@pytest.mark.parametrize(
    ("system", "keys", "more"),
    [
        ("ubuntu-24.04", {}, set()),
        ("debian-12", {}, {SOURCE}),
        ("ubuntu-24.04", {"sysctl": {"vm.swappiness": 10}}, {SYSCTL}),
        ("ubuntu-24.04", {"power_w": 280}, {POWER, *PROGRAM}),
        ("ubuntu-24.04", {"clocks_mhz": (210, 1695)}, {POWER, *PROGRAM}),
        ("debian-13", {"power_w": (280, 300), "sysctl": {"vm.swappiness": 1}}, {SOURCE, POWER, *PROGRAM, SYSCTL}),
    ],
)
def test_there_are_the_files_that_the_rig_needs(system: str, keys: dict[str, Any], more: set[str]) -> None:
    assert set(files(system, **keys)) == ALWAYS | more


def test_a_key_without_its_archive_is_refused() -> None:
    one = driver_rig(C3090, managed=True)
    with pytest.raises(ValueError, match="archive and key go together"):
        render_driver_settings(
            one.roots, one.cards, one.driver, make_driver_plan(one, driverless_host("debian-12", "10de:2204")), key=KEY
        )


def test_no_archive_of_nvidias_is_added_for_a_distributions_driver() -> None:
    assert SOURCE not in files("ubuntu-24.04", nvidia=True)


def test_the_program_lies_below_the_rigs_own_folder() -> None:
    one = driver_rig(C3090, managed=True, power_w=280)
    plan = make_driver_plan(one, driverless_host("ubuntu-24.04", "10de:2204"))
    moved = sample_rig(cards=one.cards, driver=one.driver, roots=Roots(config="/etc/mine"))
    found = {setting.path: setting for setting in render_driver_settings(moved.roots, moved.cards, moved.driver, plan)}
    program = "/usr/bin/python3 -I -B /etc/mine/cards"
    assert f"ExecStart={program} set\nExecStop={program} reset\n" in found[POWER].text
    assert {one.mode for one in found.values()} == {"644"}
    assert set(managed_paths(moved.roots)) == {*PATHS, *card_setting_files.managed_paths(moved.roots)}
    # a folder that is missing would fail the first file in it
    assert {path.rpartition("/")[0] for path in found if path.startswith("/etc/mine")} <= set(
        card_setting_files.managed_folders(moved.roots, moved.driver)
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, set()),
        ({"sysctl": {"vm.swappiness": 10}}, {SYSCTL}),
        ({"power_w": 280}, {POWER, *PROGRAM}),
        ({"clocks_mhz": (210, 1695), "sysctl": {"vm.swappiness": 10}}, {POWER, SYSCTL, *PROGRAM}),
    ],
)
def test_an_operators_own_driver_has_its_cards_settings_alone(keys: dict[str, Any], expected: set[str]) -> None:
    one = driver_rig(C3090, managed=False, **keys)
    assert {
        setting.path for setting in card_setting_files.render_card_settings(one.roots, one.cards, one.driver)
    } == expected


def test_settings_for_an_operators_driver_stay_where_ours_is_released() -> None:
    one = driver_rig(C3090, managed=False, power_w=280)
    kept = driver_release_values(one.roots, keep=card_setting_files.declared_paths(one.roots, one.cards, one.driver))
    assert (kept["power"], kept["driver_records"]) == ("", [])
    assert POWER not in kept["driver_files"]  # type: ignore[operator]
    assert SYSCTL in kept["driver_files"]  # type: ignore[operator]
    everything = driver_release_values(one.roots)
    assert everything["power"] == POWER
    assert {POWER, *PROGRAM} <= set(everything["driver_files"])  # type: ignore[call-overload]
    assert everything["driver_records"] == ["/etc/rigwright/driver.json"]


def test_no_file_begins_like_a_generations_units_which_would_remove_it() -> None:
    texts = files("debian-12", power_w=280, sysctl={"vm.swappiness": 10}).values()
    assert all(not text.startswith(OWNED_HEADER) for text in texts)
    assert all("Written by rigwright" in text.splitlines()[0] for text in texts if not text.startswith("{"))


@pytest.mark.parametrize(("declared", "expected"), [(None, (None, None)), (280, (280, 280)), ((280, 300), (280, 300))])
def test_limits_are_by_slot(declared: Any, expected: tuple[int | None, ...]) -> None:
    assert (
        driver_rig(C3090, C5090, power_w=declared).driver.power_limits(
            len(driver_rig(C3090, C5090, power_w=declared).cards)
        )
        == expected
    )


def test_module_options_are_one_line_and_nouveau_stays_away() -> None:
    text = files(module_options={"NVreg_EnableResizableBar": 1, "NVreg_DeviceFileMode": 432})[MODPROBE]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        "blacklist nouveau",
        "options nouveau modeset=0",
        "options nvidia NVreg_DeviceFileMode=432 NVreg_EnableResizableBar=1",
    ]
    assert "options nvidia" not in files()[MODPROBE]


def test_sysctl_has_a_line_a_setting() -> None:
    text = files(sysctl={"vm.swappiness": 10, "kernel.numa_balancing": 0})[SYSCTL]
    assert text.splitlines()[1:] == ["kernel.numa_balancing = 0", "vm.swappiness = 10"]


def test_the_pin_is_the_plans_or_the_one_that_is_passed_in() -> None:
    assert "Pin: version 580.*\nPin-Priority: 990\n" in files()[PREFERENCES]
    exact = "Package: *nvidia*\nPin: version 580.178.04-1\nPin-Priority: 990\n"
    assert files(pin=exact)[PREFERENCES].endswith(f"deploy.\n{exact}")


def patterns(text: str) -> list[str]:
    return re.findall(r'^  "(.*)";$', text, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "ubuntu", "debian"),
    [
        ("nvidia-utils-580-server", True, True),
        ("libnvidia-compute-580-server", True, True),
        ("libcuda1", True, True),
        ("nvidia-kernel-open-dkms", True, True),
        ("linux-modules-nvidia-580-server-open-generic", True, True),
        ("linux-image-6.8.0-41-generic", True, False),
        ("linux-generic", True, False),
        ("linux-headers-amd64", True, False),
        ("linux-libc-dev", False, False),
        ("openssh-server", False, False),
    ],
)
def test_unattended_upgrades_leave_the_driver_alone_and_the_kernel_where_it_is_held(name, ubuntu, debian):
    for system, expected in (("ubuntu-24.04", ubuntu), ("debian-12", debian)):
        # as unattended-upgrades does: re.match of each
        found = any(re.match(pattern, name) for pattern in patterns(files(system)[UNATTENDED]))
        assert found == expected, system


def test_an_instance_cannot_take_the_units_name(tmp_path: Path) -> None:
    lines = OperatorFolder(tmp_path).refusal_lines(instances={"power": {"variant": "llamacpp/cpu", "port": 8020}})
    assert len(lines) == 1
    assert "instances.power: another name: rigwright-power.service is the unit that sets power limits" in lines[0]


def program_output(*command: str) -> str:
    done = short_programs.run_program(command)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("apt-config") is None, reason="no apt here")
def test_apt_reads_them(tmp_path: Path) -> None:
    texts = files("debian-12")
    for name, path in {"conf/52x": UNATTENDED, "parts/x.sources": SOURCE, "preferences": PREFERENCES}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(texts[path])
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    dumped = program_output("env", f"APT_CONFIG={tmp_path}/conf/52x", "apt-config", "dump")
    assert re.findall(r'Package-Blacklist:: "(.*)";', dumped) == patterns(texts[UNATTENDED])
    here = [
        f"Dir::Etc::SourceParts={tmp_path}/parts",
        "Dir::Etc::SourceList=/dev/null",
        f"Dir::State::Lists={tmp_path}/lists",
        f"Dir::Etc::Preferences={tmp_path}/preferences",
        "Dir::Etc::PreferencesParts=/dev/null",
        "APT::Architecture=amd64",
    ]
    options = [word for one in here for word in ("-o", one)]
    uris = program_output("apt-get", *options, "update", "--print-uris")
    assert all(f"'{one}/InRelease'" in uris for one in ARCHIVE)
    assert "E:" not in program_output("apt-cache", *options, "policy")


UBUNTU_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true

[Service]
Type=forking
ExecStart=/bin/true --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
DEBIAN_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon

[Service]
Type=forking
ExecStart=/bin/true --user nvpd

[Install]
WantedBy=multi-user.target
"""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", [UBUNTU_UNIT, DEBIAN_UNIT])
def test_the_persistence_daemon_can_be_enabled_with_a_unit_of_any_package(tmp_path: Path, unit: str) -> None:
    name = "nvidia-persistenced.service"
    for place, text in {f"usr/lib/systemd/system/{name}": unit, PERSISTENCED[1:]: files()[PERSISTENCED]}.items():
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    program_output("systemctl", f"--root={tmp_path}", "enable", name)
    link = tmp_path / f"etc/systemd/system/multi-user.target.wants/{name}"
    assert str(link.readlink()) == f"/usr/lib/systemd/system/{name}"


@pytest.mark.parametrize(
    ("users", "expected"),
    [("nvidia-persistenced:x:105:", "nvidia-persistenced"), ("nvpd:x:106:", "nvpd"), ("", "root")],
)
def test_the_persistence_daemon_runs_as_the_user_that_its_package_made(users: str, expected: str) -> None:
    (line,) = re.findall("^ExecStart=/bin/sh -c '(.*)'$", files()[PERSISTENCED], re.MULTILINE)
    # systemd reads $$ as one, and would put a value of its own for one alone
    assert not re.search(r"(?<!\$)\$(?!\$)", line.replace("$$", ""))
    script = line.replace("$$", "$").replace("/usr/bin/nvidia-persistenced", "echo")
    getent = f"getent() {{ [ -z '{users}' ] || echo '{users}'; }}\n"
    assert program_output("sh", "-c", getent + script) == f"--user {expected} --persistence-mode --verbose\n"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_in_the_unit_for_power(tmp_path: Path) -> None:
    unit = tmp_path / "rigwright-power.service"
    unit.write_text(files(power_w=280)[POWER])
    assert program_output("systemd-analyze", "verify", str(unit)) == ""
    unit.write_text(unit.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))
    with pytest.raises(AssertionError):
        assert program_output("systemd-analyze", "verify", str(unit)) == ""
