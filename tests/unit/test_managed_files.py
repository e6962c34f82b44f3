"""The survey's facts about our own objects and the system below them, on made-up folders, and the checks' verdicts."""

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checks import test_base, test_ours
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import GROUND
from checks.survey.host import base_system, dpkg, managed_files
from checks.survey.managed_files import OURS
from checks.survey.section import SurveyScope
from rigwright.model.rig import Rig, account_names
from rigwright.model.roots import Roots
from rigwright.plan.plan_inputs import TargetState
from tests.unit import samples
from tests.unit.check_runner import red_checks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what is ours is root's")

OWN_FOLDERS = (
    "var/jobs",
    "var/build",
    "var/weights/deep",
    "var/starts",
    "var/memory",
    "opt/engines",
    "etc/generations/2/gateway",
)


class ManagedFilesFixture:
    """A host's folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = {"state": "var", "software": "opt", "config": "etc", "models": "models"}
        # a rig's own rule keeps roots out of /tmp
        roots = Roots.model_construct(**{key: str(folder / name) for key, name in names.items()})
        self.rig: Rig = samples.sample_rig(samples.sample_instance(), roots=roots)
        for name in (*OWN_FOLDERS, "models", "locks", "etc/credentials"):
            self.path(name).mkdir(parents=True)
        self.path("etc/credentials").chmod(0o700)
        parts = [self.rig.roots.jobs, self.rig.roots.builds, f"{roots.state}/weights", self.rig.roots.startup_records]
        parts += [self.rig.roots.memory_records]
        parts += [self.rig.roots.installations, self.rig.roots.generations, self.rig.roots.credentials]
        parts += [roots.state, roots.software, roots.config]
        lines = [*(f"user {name}" for name in account_names(self.rig)), *(f"dir {path}" for path in parts)]
        self.ledger = self.write("var/owned", "".join(f"{line}\n" for line in lines))
        self.key = self.write(f"etc/credentials/{self.rig.instances[0].key_name}", "key")
        self.key.chmod(0o600)
        self.write("proc/locks", "")
        self.write("proc/self/mountinfo", "1 0 0:1 / / rw - ext4 /dev/a rw\n")
        self.journald()
        self.said = {"dpkg": ""}
        self.installed = True

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, text: str) -> Path:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def journald(self, target: str = "/var/log/journal/a/system.journal") -> None:
        self.write("proc/7/comm", "systemd-journal\n")
        self.write("proc/7/cmdline", "/usr/lib/systemd/systemd-journald\0")
        self.path("proc/7/fd").mkdir(exist_ok=True)
        self.path("proc/7/fd/3").unlink(missing_ok=True)
        self.path("proc/7/fd/3").symlink_to(target)

    def run(self, *words: str, **options: object) -> str:
        return self.said[words[0]]

    def ended(self, *words: str, **options: object) -> tuple[int, str, str]:
        """dpkg 1.21 ends with 0 even where its audit lists packages."""
        return 0, self.said[words[0]], ""

    @property
    def scene(self) -> SurveyScope:
        return SurveyScope(self.rig, cast("TargetState", SimpleNamespace(facts=samples.sample_facts())))

    def packages(self) -> list[dpkg.DpkgPackage]:
        asked: Any = GROUND.asks(self.scene)
        state = "installed" if self.installed else "half-installed"
        return [dpkg.DpkgPackage(name, name, "1", "install", state, "", {}) for name in asked["packages"]]

    def red(self) -> dict[str, str]:
        scene = self.scene
        asked: Any = {"managed_files": OURS.asks(scene), "base_system": GROUND.asks(scene)}
        asked["base_system"] |= {"locks": str(self.path("locks"))}
        told = {
            "managed_files": {"told": managed_files.look(asked["managed_files"])},
            "base_system": {"told": base_system.look(asked["base_system"])},
        }
        survey = SurveyAnswers({**told, "accounts": {"failed": "x"}})
        found = red_checks(test_ours, survey, rig=self.rig) | red_checks(test_base, survey, rig=self.rig)
        del found["B01"]
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ManagedFilesFixture:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    made = ManagedFilesFixture(tmp_path)
    for name in ("ETC", "RUN", "USR"):
        monkeypatch.setattr(base_system, name, tmp_path / "host" / name.lower())
    monkeypatch.setattr(base_system, "PROC", tmp_path / "proc")
    monkeypatch.setattr(base_system.common, "run", made.run)  # type: ignore[attr-defined]
    monkeypatch.setattr(base_system.common, "ended", made.ended)  # type: ignore[attr-defined]
    monkeypatch.setattr(dpkg, "packages", made.packages)
    os.umask(before)
    return made


def test_a_sound_host_is_green(world: ManagedFilesFixture) -> None:
    assert world.red() == {}


def drop(name: str, lines: str) -> Callable[[ManagedFilesFixture], object]:
    return lambda world: world.write(name, lines)


def ledger(line: str) -> Callable[[ManagedFilesFixture], object]:
    return lambda world: world.ledger.write_text(f"{world.ledger.read_text()}{line}\n")


def mode(name: str, bits: int) -> Callable[[ManagedFilesFixture], object]:
    return lambda world: world.path(name).chmod(bits)


def without(world: ManagedFilesFixture) -> None:
    world.ledger.write_text(world.ledger.read_text().replace(f"user {account_names(world.rig)[0]}\n", ""))


def setting(line: str, name: str = "journald.conf.d/x.conf") -> Callable[[ManagedFilesFixture], object]:
    return drop(f"host/etc/systemd/{name}", f"[Other]\nStorage=auto\n[Journal]\n#Storage=auto\n{line}\n")


def lock(group: str) -> Callable[[ManagedFilesFixture], object]:
    def change(world: ManagedFilesFixture) -> None:
        held = world.write("locks/rehash", "")
        world.write(
            "proc/locks", f"1: FLOCK  ADVISORY  WRITE 99 00:1a:{held.stat().st_ino} 0 EOF\n2: -> FLOCK x\n3: y\n"
        )
        world.write("proc/99/comm", "flock\n")
        world.write("proc/99/cgroup", f"0::{group}\n")

    return change


def set_future_mtime(name: str) -> Callable[[ManagedFilesFixture], object]:
    return lambda world: os.utime(world.path(name), (time.time() + 1e6,) * 2)


def grant(world: ManagedFilesFixture) -> None:
    """Give user 33 what is written to the folder from now on (acl(5))."""
    rows = ((1, 7, -1), (2, 4, 33), (4, 0, -1), (16, 4, -1), (32, 0, -1))
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    os.setxattr(world.path("etc/credentials"), "system.posix_acl_default", value)


DRIFTS: dict[str, tuple[Callable[[ManagedFilesFixture], object], set[str], str]] = {
    "a folder for all": (mode("var/jobs", 0o777), {"B02"}, "jobs (folder, 777, of user 0)"),
    "a file of somebody's": (
        lambda world: os.chown(world.ledger, 7, -1),
        {"B02", "O02"},
        "owned (file, 644, of user 7)",
    ),
    "a folder that is shut": (mode("var/jobs", 0o700), {"O01"}, "(folder, 700, of user 0) instead of 755"),
    "secrets whose folder gives rights by default": (grant, {"O04"}, "expected no access list, found"),
    "secrets in an open folder": (mode("etc/credentials", 0o755), {"O01"}, "instead of 700"),
    "a folder that is gone": (lambda world: world.path("var/starts").rmdir(), {"O01"}, "(none, 0, of user 0)"),
    "a folder elsewhere": (
        lambda world: (world.path("var/starts").rename(world.path("x")), world.path("var/starts").symlink_to("../x")),
        {"O01"},
        "starts (link",
    ),
    "no ledger": (lambda world: world.ledger.unlink(), {"O02"}, "expected a file owned by root, found"),
    "an empty ledger": (lambda world: world.ledger.write_text(""), {"O02"}, "no user rigwright-"),
    "a ledger without a user": (without, {"O02"}, "found no user rigwright-"),
    "a line that has no end": (
        lambda world: world.ledger.write_text(world.ledger.read_text()[:-1]),
        {"O02"},
        "a truncated last line",
    ),
    "a user of others": (ledger("user bob"), {"O03"}, "found user bob"),
    "a file of others": (ledger("file /etc/passwd"), {"O03"}, "found file /etc/passwd"),
    "a tree of others": (ledger("tree /home"), {"O03"}, "found tree /home"),
    "a way out": (lambda world: ledger(f"tree {world.rig.roots.software}/../x")(world), {"O03"}, "/../x"),
    "what nobody knows": (ledger("everything /"), {"O03"}, "found everything /"),
    "a key for all": (lambda world: world.key.chmod(0o644), {"O04"}, "(file, 644, of user 0)"),
    "a key of nobody's": (
        lambda world: world.write("etc/credentials/x.api-key", "x").chmod(0o600),
        {"O04"},
        "x.api-key; as root on the host: rm -rf -- ",
    ),
    "a link to a key": (
        lambda world: (world.key.rename(world.path("key")), world.key.symlink_to("../../key")),
        {"O04"},
        "(link",
    ),
    "a file of somebody's beside": (drop("etc/x.conf", ""), {"O05"}, "found x.conf"),
    "an authority of somebody's": (drop("etc/ca.pem", "x"), {"O05", "O06"}, "expected no file"),
    "a ledger of a time to come": (set_future_mtime("var/owned"), {"O07"}, "owned of 20"),
    "a failing disk": (lambda world: os.environ.__setitem__("FLAG", "1"), {"O08"}, "read-only"),
    "no journald": (drop("proc/7/comm", "x\n"), {"O09"}, "no systemd-journald"),
    "a journal that was removed": (
        lambda world: world.journald("/var/log/journal/a/system.journal (deleted)"),
        {"O09"},
        "one that is not kept",
    ),
    "a journal of nothing": (setting("Storage=none"), {"O09"}, "Storage=none"),
    "a journal of what is worst": (setting("MaxLevelStore=err", "journald.conf"), {"O09"}, "MaxLevelStore=err"),
    "a journal without the kernel": (setting("ReadKMsg=no"), {"O09"}, "ReadKMsg=no"),
    "a journal that no boot starts": (
        lambda world: (
            world.path("host/etc/systemd/system").mkdir(parents=True),
            world.path("host/etc/systemd/system/systemd-journald.socket").symlink_to("/dev/null"),
        ),
        {"O09"},
        "found systemd-journald.socket",
    ),
    "a lock of somebody's": (lock("/system.slice/x.service"), {"O11"}, "rehash by flock (pid 99)"),
    "a package half done": (lambda world: world.said.update(dpkg="x is\nbroken"), {"B03"}, "x is broken"),
    "a package without its sums": (
        lambda world: world.said.update(dpkg="they need to be reinstalled:\nx"),
        {"B03"},
        "dpkg --configure --pending; then reinstall the packages",
    ),
    "a package that is gone": (lambda world: setattr(world, "installed", False), {"B04"}, "no ca-certificates"),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_drift_is_seen(world: ManagedFilesFixture, drift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, expected, text = DRIFTS[drift]
    monkeypatch.setenv("FLAG", "0")
    change(world)
    if os.environ["FLAG"] == "1":
        real = os.statvfs
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*[*real(path)][:8], os.ST_RDONLY, 255]))
    found = world.red()
    assert set(found) == expected, found
    assert text in " ".join(found.values())


HARMLESS: dict[str, Callable[[ManagedFilesFixture], object]] = {
    "a key of an earlier generation": lambda world: (
        world.write("etc/credentials/old.api-key", "x").chmod(0o600),
        world.write("etc/generations/2/references", f"{world.rig.roots.credentials}/old.api-key\n"),
    ),
    "a certificate of an earlier generation": lambda world: (
        world.write("etc/credentials/gateway-lan.pem", "x").chmod(0o600),
        world.write("etc/generations/2/gateway/tls", "lan\n"),
    ),
    "clients' keys of an earlier generation's gateway": lambda world: world.write(
        "etc/credentials/gateway-keys.json", "{}"
    ).chmod(0o600),
    "a user of the first versions": lambda world: ledger(f"user {world.rig.accounts.prefix}")(world),
    "a user of plugins' doctors": lambda world: ledger(f"user {world.rig.accounts.doctor}")(world),
    "what was cut off": drop("etc/current.rigwright-new", ""),
    "a file that is hashed again later": lambda world: set_future_mtime("var/weights/deep")(world),
    "a rehash that runs": lock("/system.slice/rigwright_rehash.service"),
    "a fetch that runs": lock("/system.slice/rw-job-weights-abc.service"),
    "a build of somebody's in a folder of root's alone": lambda world: (
        world.path("var/build/x").mkdir(mode=0o700),
        os.chown(world.write("var/build/x/y", ""), 7, 7),
    ),
    "a journal of another namespace": lambda world: (
        world.write("proc/8/comm", "systemd-journal\n"),
        world.write("proc/8/cmdline", "/usr/lib/systemd/systemd-journald\0x\0"),
    ),
    # as one that is closed between a look at the folder and one at what is in it: its link cannot be read
    "a file that journald has open for a moment": lambda world: world.write("proc/7/fd/0", ""),
    "names that nobody can read": lambda world: os.mkfifo(world.path("models") / "a\nb\x1b[2J"),
    "a later file of the same name": lambda world: (
        world.write("host/usr/lib/systemd/journald.conf.d/x.conf", "[Journal]\nStorage=none\n"),
        setting("Storage=auto")(world),
    ),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_harmless_states_turn_nothing_red(world: ManagedFilesFixture, what: str) -> None:
    HARMLESS[what](world)
    assert world.red() == {}


def test_a_folder_that_takes_no_change_is_reported(world: ManagedFilesFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: struct.pack("=II", 0x10, 0))
    assert set(world.red()) == {"O04", "O08"}
