"""The driver's operations on a host that is a shell of this machine: what is refused, done, kept and asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.driver.facts import DriverFacts
from rigwright.driver.wanted import Wanted
from rigwright.rig import Roots
from roles.operations import drivers, shell
from roles.operations.drivers import INSTALL, LOOK, _bring, _Host, _installation, _run, _settle
from tests.unit.driver_ours import KERNEL, LOCKED, NAMES, NEW, NEXT, OLD, WHOLE, asked, other, there
from tests.unit.driver_ours import rig as managed
from tests.unit.scripts import stand_in
from tests.unit.ssh_host import Host

COMES = [f"Inst {name} [{OLD}-1] ({NEW}-1 NVIDIA CUDA [amd64])" for name in NAMES]


class OnHost(_Host):
    """A host whose jobs do nothing but leave what a test says, and whose driver is what a test says."""

    def __init__(self, root: Path, wanted: Wanted, *seen: DriverFacts, consent: bool = False) -> None:
        made = replace(managed(), roots=Roots.model_construct(**Roots().model_dump() | {"state": str(root / "state")}))
        super().__init__(None, Host(), made, wanted, consent)
        self.seen, self.jobs_run, self.says, self.fails = list(seen), [], ["how archive", *COMES], ""

    def look(self) -> DriverFacts:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def job(self, unit: str, script: str) -> bool:
        self.jobs_run.append((unit, script))
        if unit == LOOK:
            done = Path(f"{self.jobs}/{LOOK}/done")
            done.parent.mkdir(parents=True, exist_ok=True)
            done.write_text("".join(f"{line}\n" for line in self.says))
        return unit != self.fails

    @property
    def units(self) -> list[str]:
        return [unit for unit, _ in self.jobs_run]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the operator is told; apt-mark and systemctl are stand-ins that remember."""
    lines: list[str] = []
    monkeypatch.setattr(
        drivers, "logger", SimpleNamespace(error=lines.append, info=lambda _: None, warning=lines.append)
    )
    monkeypatch.setattr(shell, "lease_of", lambda _: None)
    for name in ("apt-mark", "modprobe"):
        stand_in(tmp_path / "bin", name, f'echo "{name} $*" >> {tmp_path}/asked')
    stand_in(tmp_path / "bin", "systemctl", 'echo "${ACTIVE:-inactive}"; [ -n "$ACTIVE" ]')
    stand_in(tmp_path / "bin", "nvidia-modprobe", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "asked").touch()
    return lines


def told(root: Path) -> list[str]:
    return (root / "asked").read_text().splitlines()


def test_a_transaction_that_is_objected_to_does_not_happen(said: list[str], tmp_path: Path) -> None:
    one = OnHost(tmp_path, LOCKED, there())
    one.says.append("Remv theirs [1.0]")
    assert _bring(one) is False
    assert one.units == [LOOK]
    assert said[0].startswith("[box] refused: apt would remove theirs")
    assert not Path(one.store).exists()


def test_a_driver_is_looked_at_installed_held_and_written_down(said: list[str], tmp_path: Path) -> None:
    one = OnHost(tmp_path, LOCKED, there(), replace(WHOLE, held=frozenset({"theirs"})), WHOLE)
    assert _bring(one) is True
    assert (one.units, said) == ([LOOK, INSTALL], [])
    script = one.jobs_run[1][1]
    for name in NAMES:
        assert f"{name}={NEW}-1" in script
        assert script.count(f'"$work"/{name}_*.deb') == 1
    assert f"{one.store}/{NEW}" in script
    assert f"for kernel in {KERNEL} {NEXT}; do" in script
    assert f'[ "$kernel" = {NEXT} ]' in script
    # packages that were there are not ours
    assert "printf 'package" not in script
    assert Path(one.store, "held").read_text().split() == sorted(NAMES)
    assert Path(one.store, "installed").read_text().splitlines() == [f"{name} {NEW}-1" for name in sorted(NAMES)]
    assert told(tmp_path) == [f"apt-mark hold {' '.join(sorted(NAMES))}"]


def test_what_the_operator_has_held_is_not_ours_and_what_we_hold_no_more_is_let_go(
    said: list[str], tmp_path: Path
) -> None:
    before = replace(WHOLE, recorded=(), held=frozenset({"libcuda1"}))
    one = OnHost(tmp_path, LOCKED, before, before, WHOLE)
    Path(one.store).mkdir(parents=True)
    Path(one.store, "held").write_text("linux-image-generic\n")
    assert _bring(one) is True
    ours = sorted(set(NAMES) - {"libcuda1"})
    assert Path(one.store, "held").read_text().split() == ours
    assert told(tmp_path) == ["apt-mark unhold linux-image-generic", f"apt-mark hold {' '.join(ours)}"]


def test_packages_that_were_not_there_are_ours(said: list[str], tmp_path: Path) -> None:
    one = OnHost(tmp_path, LOCKED, there())
    one.says.append("Inst dkms (3.2.2-1 Debian:13/trixie [all])")
    script = _installation(one, there())
    assert script is not None
    assert "printf 'package %s\\n' dkms >>" in script


@pytest.mark.parametrize("unit", [LOOK, INSTALL])
def test_a_job_that_fails_ends_it(said: list[str], tmp_path: Path, unit: str) -> None:
    one = OnHost(tmp_path, LOCKED, there())
    one.fails = unit
    assert _bring(one) is False
    assert one.units[-1] == unit
    assert told(tmp_path) == []


def test_what_an_earlier_run_has_begun_is_watched_first(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTIVE", "active")
    one = OnHost(tmp_path, LOCKED, WHOLE)
    assert _bring(one) is True
    assert one.jobs_run == [(INSTALL, "")]
    one.fails = INSTALL
    assert _bring(one) is False


def test_a_host_that_is_still_not_whole_says_what_it_lacks(said: list[str], tmp_path: Path) -> None:
    one = OnHost(tmp_path, LOCKED, there(), replace(WHOLE, kernel_modules=((KERNEL, NEW), (NEXT, ""))))
    assert _bring(one) is False
    assert said == [f"[box] the driver is not whole: kernel {NEXT} has no module, and {NEW} is needed"]


def test_what_is_there_and_was_never_ours_is_held_and_written_down_without_apt(said: list[str], tmp_path: Path) -> None:
    facts = replace(WHOLE, recorded=())
    one = OnHost(tmp_path, asked(managed(), facts), facts)
    assert _bring(one) is True
    assert one.jobs_run == []
    assert Path(one.store, "installed").read_text().count("\n") == len(NAMES)


def test_modules_alone_need_no_apt(said: list[str], tmp_path: Path) -> None:
    facts = replace(WHOLE, kernel_modules=((KERNEL, NEW), (NEXT, "")))
    one = OnHost(tmp_path, LOCKED, facts)
    script = _installation(one, facts)
    assert one.jobs_run == []
    assert script is not None
    assert "dkms autoinstall" in script
    assert "==> installing the driver" not in script


def test_an_upgrade_that_finds_nothing_newer_installs_nothing(said: list[str], tmp_path: Path) -> None:
    newest = replace(asked(managed(), WHOLE), newest=True)
    one = OnHost(tmp_path, newest, WHOLE)
    one.says = ["how archive"]
    assert _bring(one) is True
    assert one.units == [LOOK]


def test_what_the_archive_has_dropped_comes_from_kept_files(said: list[str], tmp_path: Path) -> None:
    kept = replace(there(), kept=(NEW, "580.159.03"))
    one = OnHost(tmp_path, LOCKED, kept)
    one.says[0] = "how kept"
    script = _installation(one, kept)
    assert script is not None
    assert f"install {one.store}/{NEW}/*.deb\n" in script
    assert said == [f"[box] the archive has dropped {NEW}: it comes from kept files"]
    assert f"cd {one.store}/{NEW} && sha256sum" in one.jobs_run[0][1]
    # and only files of the driver that is wanted
    other_kept = OnHost(tmp_path, LOCKED, replace(there(), kept=(OLD,)))
    _installation(other_kept, replace(there(), kept=(OLD,)))
    assert "sha256sum --quiet" not in other_kept.jobs_run[0][1]


@pytest.mark.parametrize("there_", [True, False], ids=["there", "not there"])
def test_headers_come_first_where_they_are_not_there(said: list[str], tmp_path: Path, there_: bool) -> None:
    wanted = replace(LOCKED, plan=replace(LOCKED.plan, before=("linux-headers-amd64",)))
    facts = other(there(), linux_headers_amd64="6.12") if there_ else there()
    one = OnHost(tmp_path, wanted, facts)
    _installation(one, facts)
    assert ("headers linux-headers-amd64" in one.jobs_run[0][1]) is not there_


def folders(store: Path, *names: str) -> None:
    """Folders that were made in this order."""
    for number, name in enumerate(names, 1):
        (store / name).mkdir(parents=True)
        (store / name / "SHA256SUMS").touch()
        os.utime(store / name, (number, number))


@pytest.mark.parametrize(
    ("there_", "left"),
    [
        (("a",), {"a"}),
        (("a", "b"), {"a", "b"}),
        (("a", "b", "c"), {"b", "c"}),
        (("c", "b", "a"), {"a", "b"}),
        (("a", "fetched.x8Zq2p", "b"), {"a", "b"}),
        (("a", "b", "c.new", "fetched.1"), {"a", "b"}),
        ((), set()),
    ],
    ids=["one", "two", "three", "by age, not by name", "what a job has left", "what it was keeping", "none"],
)
def test_two_drivers_are_kept_the_one_before_among_them(
    said: list[str], tmp_path: Path, there_: tuple[str, ...], left: set[str]
) -> None:
    one = OnHost(tmp_path, LOCKED, WHOLE)
    folders(Path(one.store), *there_)
    _settle(one, WHOLE)
    assert {path.name for path in Path(one.store).iterdir()} == left | {"held", "installed"}


@pytest.fixture
def reboots(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why hosts were rebooted."""
    asked_: list[str] = []
    monkeypatch.setattr(drivers, "reboot", lambda host, why: asked_.append(why) or True)
    return asked_


STUCK = replace(WHOLE, module=OLD)
BARE = replace(WHOLE, module="", devices=False)


def test_a_reboot_needs_consent(said: list[str], reboots: list[str], tmp_path: Path) -> None:
    assert _run(OnHost(tmp_path, LOCKED, STUCK)) is False
    assert reboots == []
    assert said[0].startswith(f"[box] needs a reboot: the module {OLD} is loaded, and {NEW} is installed. Deploy again")


def test_with_consent_the_driver_runs_after_it(said: list[str], reboots: list[str], tmp_path: Path) -> None:
    assert _run(OnHost(tmp_path, LOCKED, STUCK, WHOLE, consent=True)) is True
    assert (said, reboots) == ([], [f"the module {OLD} is loaded, and {NEW} is installed"])
    assert told(tmp_path) == []


def test_a_reboot_that_is_refused_ends_it(said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "reboot", lambda *_: False)
    assert _run(OnHost(tmp_path, LOCKED, STUCK, WHOLE, consent=True)) is False


def test_a_reboot_that_does_not_help_is_said_and_not_repeated(
    said: list[str], reboots: list[str], tmp_path: Path
) -> None:
    after = replace(WHOLE, module="", kernel_modules=((KERNEL, ""), (NEXT, NEW)))
    assert _run(OnHost(tmp_path, LOCKED, STUCK, after, consent=True)) is False
    assert len(reboots) == 1
    assert said == [
        f"[box] after the reboot, kernel {KERNEL} runs, which has no module {NEW} (kernel {KERNEL} came up, and {NEXT} "
        "is the newest one): see what the boot loader starts"
    ]


@pytest.mark.parametrize("facts", [BARE, replace(WHOLE, devices=False)], ids=["no module", "no device files"])
def test_what_is_not_in_the_way_is_loaded(
    said: list[str], reboots: list[str], tmp_path: Path, facts: DriverFacts
) -> None:
    assert _run(OnHost(tmp_path, LOCKED, facts, WHOLE)) is True
    assert (told(tmp_path), reboots) == (["modprobe nvidia", "modprobe nvidia_uvm"], [])


def test_a_module_that_cannot_be_loaded_is_said(said: list[str], reboots: list[str], tmp_path: Path) -> None:
    assert _run(OnHost(tmp_path, LOCKED, BARE)) is False
    assert said == ["[box] the module nvidia cannot be loaded: read `journalctl -k -b -g NVRM`"]


@pytest.fixture
def noop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(drivers, "host", SimpleNamespace(noop=lines.append))
    return lines


@pytest.mark.parametrize(
    ("operation", "facts", "more", "quiet"),
    [
        ("brought", WHOLE, {}, True),
        ("brought", there(), {}, False),
        ("brought", replace(WHOLE, recorded=()), {}, False),
        ("running", WHOLE, {"consent": False}, True),
        ("running", STUCK, {"consent": False}, False),
        ("running", BARE, {"consent": False}, False),
        ("running", replace(WHOLE, devices=False), {"consent": False}, False),
        # the driver that is about to come is not the one that runs
        ("running", there(), {"consent": False}, False),
    ],
    ids=["whole", "older", "not ours", "runs", "stuck", "not loaded", "no devices", "older, and runs"],
)
def test_a_host_that_has_it_is_left_alone(
    noop: list[str], operation: str, facts: DriverFacts, more: dict[str, Any], quiet: bool
) -> None:
    inner: Callable[..., Any] = getattr(drivers, operation)._inner
    steps = list(inner(rig=managed(), wanted=LOCKED, facts=facts, **more))
    assert (len(steps), len(noop)) == ((0, 1) if quiet else (1, 0))


def test_an_upgrade_to_the_newest_is_always_looked_at(noop: list[str]) -> None:
    newest = replace(asked(managed(), WHOLE), newest=True)
    assert len(list(drivers.brought._inner(rig=managed(), wanted=newest, facts=WHOLE))) == 1  # type: ignore[attr-defined]
