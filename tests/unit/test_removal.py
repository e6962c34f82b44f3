"""The removal script on a folder, over stand-ins for systemd's and apt's programs: removed and kept objects."""

import os
from pathlib import Path

import pytest

from rigwright.render import render
from rigwright.serving.instance_units import listener_units
from tests.unit import short_programs
from tests.unit.host_states import CHAT
from tests.unit.rendered_scripts import write_stand_in

REMEMBER = 'echo "$(basename "$0") $*" >> "$(dirname "$0")/asked"'
# of our packages cmake is needed by something else, ninja-build is gone already
APT_GET = f'{REMEMBER}\ncase "$*" in *autoremove*) [ "$1" != -s ] || echo \'Remv g++ [12]\' ;; esac'
DPKG = 'case "$*" in *ninja-build) exit 1 ;; *) printf installed ;; esac'


class FormerRigHost:
    """A host that was a rig."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, body in {
            "systemctl": REMEMBER,
            "apt-mark": REMEMBER,
            "apt-get": APT_GET,
            "dpkg-query": DPKG,
            "userdel": REMEMBER,
            "getent": '[ "$2" = svc ] && echo svc',
            "nsenter": f'{REMEMBER}\nshift\nexec "$@"',
        }.items():
            write_stand_in(root / "bin", name, body)
        for path in (
            "etc/generations/1/x",
            "etc/self_check/rigwright_self_check/x",
            "opt/tools-1/x",
            "opt/engines/e/x",
            "srv/a/1/a.gguf",
            "srv/b/1/b.gguf.part",
        ):
            (root / path).parent.mkdir(parents=True)
            (root / path).touch()
        (root / "units/multi-user.target.wants").mkdir(parents=True)
        (root / "units/multi-user.target.wants/rigwright.target").symlink_to("../rigwright.target")
        (root / "units" / CHAT).symlink_to("/gone")
        (root / "units/rigwright_self_check.timer").touch()
        (root / "etc/udev.rules").touch()
        (root / "run/rigwright").mkdir(parents=True)
        folders = [
            "etc",
            "etc/generations",
            "etc/self_check",
            "opt",
            "opt/engines",
            "srv",
            "srv/a",
            "srv/a/1",
            "srv/b",
            "srv/b/1",
        ]
        self.ledger = root / "owned"
        self.ledger.write_text(
            "".join(f"dir {root / folder}\n" for folder in folders)
            + f"tree {root}/opt/tools-1\nfile {root}/srv/a/1/a.gguf\nfile {root}/srv/b/1/b.gguf\nuser svc\nuser gone\n"
            + "package g++\npackage cmake\npackage ninja-build\npackage g++\n"
        )

    def holds(self, *names: str) -> None:
        """Have packages held, by us, until they are let go."""
        (self.root / "opt/driver").mkdir(exist_ok=True)
        for place in ("opt/driver/held", "bin/holds"):
            (self.root / place).write_text("".join(f"{name}\n" for name in names))
        keep = f'[ "$1" != showhold ] || {{ cat {self.root}/bin/holds; exit; }}\n{REMEMBER}'
        write_stand_in(self.root / "bin", "apt-mark", f"{keep}\ncase $* in *unhold*) : > {self.root}/bin/holds ;; esac")

    def remove(self, keep_weights: bool = False) -> str:
        script = render(
            "removal/remove.sh.j2",
            caches=[self.root / "cache" / "instances"],
            mounted=[self.root / "run/rigwright_gateway"],
            compiled=self.root / "cache" / "compiled",
            containers=self.root / "run/rigwright/containers",
            units=[CHAT],
            helpers=["rigwright_rehash.timer"],
            self_check_units=["rigwright_self_check.timer"],
            self_check_files=[self.root / "etc/udev.rules"],
            self_check_trees=[self.root / "etc/self_check"],
            stamp=self.root / "stamp",
            unit_folder=self.root / "units",
            links=[self.root / "etc/current"],
            trees=[self.root / "etc/generations", self.root / "opt/engines"],
            models=self.root / "srv",
            run=self.root / "run",
            token="hub-token",
            ledger=self.ledger,
            started_from=self.root / "run/rigwright",
            keep_weights=keep_weights,
            theirs=self.root / "lib/theirs",
            power=self.root / "units/rigwright-power.service",
            power_unit="rigwright-power.service",
            driver_files=[self.root / "etc/rigwright-nvidia", self.root / "units/rigwright-power.service"],
            driver_store=self.root / "opt/driver",
            driver_records=[self.root / "etc/driver.json"],
            preferences=self.root / "etc/preferences",
            persistence_link=self.root / "units/persistence",
            share_unit="rigwright_share.service",
            share_config=self.root / "etc/share.conf",
            share_path=self.root / "units/rigwright_share.service",
            share_record=self.root / "run/rigwright/rigwright_share.service",
            going={"rigwright_node.service": [self.root / "units/rigwright_node.service", self.root / "srv/metrics"]},
            going_folders=[self.root / "etc/monitoring"],
            container_store=self.root / "opt/containers",
            container_files=[self.root / "etc/rigwright-containers"],
            container_preferences=self.root / "etc/container-preferences",
            container_spec=self.root / "run/nvidia.yaml",
            container_folders=[self.root / "etc/containers"],
            in_force=self.root / "run/rigwright-docker",
            daemon_json="",
            daemon_notes=[],
        )
        environment = {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        done = short_programs.run_program(["sh", "-c", script], env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    @property
    def systemctl_commands(self) -> list[str]:
        return (self.root / "bin/asked").read_text().splitlines()

    def left(self) -> set[str]:
        """The remains in the folders that were ours, and in the one of units."""
        places = (self.root / name for name in ("etc", "opt", "srv", "units", "run", "owned"))
        paths = [path for place in places for path in (place, *place.rglob("*")) if path.exists() or path.is_symlink()]
        return {str(path.relative_to(self.root)) for path in paths}


@pytest.fixture
def host(tmp_path: Path) -> FormerRigHost:
    return FormerRigHost(tmp_path)


# the deploy lock lies in the last one, and is held while this runs
EMPTY = {"units", "units/multi-user.target.wants", "run", "run/rigwright"}


def test_everything_of_ours_goes(host: FormerRigHost) -> None:
    host.remove()
    assert host.left() == EMPTY
    assert f"systemctl stop {CHAT}" in host.systemctl_commands
    assert [line for line in host.systemctl_commands if line.startswith("userdel")] == ["userdel svc"]


def test_records_of_processes_go(host: FormerRigHost) -> None:
    for unit in (CHAT, *listener_units(8020)):
        (host.root / "run/rigwright" / unit).touch()
    host.remove()
    assert host.left() == EMPTY


def test_folders_of_a_container_go(host: FormerRigHost) -> None:
    (host.root / "run/rigwright/containers/chat/graph").mkdir(parents=True)
    host.remove()
    assert host.left() == EMPTY


def test_mounts_are_removed_in_the_hosts_namespace(host: FormerRigHost) -> None:
    """A job has mounts of its own: a path that is unmounted only there is busy."""
    bin_ = host.root / "bin"
    (bin_ / "mounted").touch()
    write_stand_in(bin_, "nsenter", f'{REMEMBER}\nshift\nOURS=no exec "$@"')
    write_stand_in(bin_, "mountpoint", f'[ "$OURS" = no ] && [ "$2" != "${{2%gateway}}" ] && [ -e {bin_}/mounted ]')
    write_stand_in(bin_, "umount", f'[ "$OURS" = no ] && rm {bin_}/mounted')
    host.remove()
    assert [line for line in host.systemctl_commands if "umount" in line] == [
        f"nsenter --mount=/proc/1/ns/mnt umount --lazy {host.root}/run/rigwright_gateway"
    ]


def test_foreign_files_there_stay_and_are_named(host: FormerRigHost) -> None:
    (host.root / "srv/a/theirs.gguf").touch()
    (host.root / "units/theirs.service").touch()
    said = host.remove()
    assert host.left() == EMPTY | {"srv", "srv/a", "srv/a/theirs.gguf", "units/theirs.service"}
    assert f"{host.root}/srv/a stays: it is not empty" in said


@pytest.mark.parametrize("keep_weights", [False, True])
def test_takeovers_are_named_with_the_command_that_undoes_them(host: FormerRigHost, keep_weights: bool) -> None:
    record = host.root / "lib/theirs/vllm.service"
    record.parent.mkdir(parents=True)
    record.write_text("before -\nstate running\nback systemctl enable --now vllm.service\n")
    done = host.remove(keep_weights=keep_weights)
    said = "note: vllm.service was taken over: `systemctl enable --now vllm.service` restores it"
    assert said in done.splitlines()
    assert not record.parent.exists()


def test_weights_can_be_kept(host: FormerRigHost) -> None:
    host.remove(keep_weights=True)
    weights = {"srv/a", "srv/a/1", "srv/a/1/a.gguf", "srv/b", "srv/b/1", "srv/b/1/b.gguf.part"}
    assert host.left() == EMPTY | {"srv", "owned"} | weights
    # and go with a later removal
    host.remove()
    assert host.left() == EMPTY


@pytest.mark.parametrize("keep_weights", [False, True])
def test_remains_of_a_killed_fetch_go(host: FormerRigHost, keep_weights: bool) -> None:
    for path in (
        "srv/.progress.json",
        "srv/.progress.json.new",
        "srv/.hub-x/files/y",
        "run/rw-job-weights-1.hub-token",
    ):
        (host.root / path).parent.mkdir(exist_ok=True, parents=True)
        (host.root / path).touch()
    host.remove(keep_weights)
    assert not [path for path in host.left() if "/." in path or "token" in path]
    assert keep_weights or host.left() == EMPTY


def test_packages_that_something_else_needs_stay(host: FormerRigHost) -> None:
    said = host.remove()
    assert "cmake stays: something else needs it" in said
    assert "apt-mark auto cmake g++" in host.systemctl_commands
    (purge,) = [line for line in host.systemctl_commands if " purge " in line]
    assert purge.endswith("--no-auto-remove purge g++")


def test_a_driver_of_ours_is_let_go_before_its_packages_are_removed(host: FormerRigHost) -> None:
    ours = ("etc/rigwright-nvidia", "etc/driver.json", "opt/driver/595.71.05/libcuda1.deb")
    for path in (*ours, "units/rigwright-power.service"):
        (host.root / path).parent.mkdir(parents=True, exist_ok=True)
        (host.root / path).touch()
    host.holds("g++", "libcuda1")
    host.remove()
    assert host.left() == EMPTY
    assert "systemctl disable --quiet --now rigwright-power.service" in host.systemctl_commands
    steps = [line.split()[-2:] for line in host.systemctl_commands if "unhold" in line or " purge " in line]
    assert steps == [["g++", "libcuda1"], ["purge", "g++"]]


def test_a_host_without_a_driver_of_ours_is_not_asked_about_one(host: FormerRigHost) -> None:
    host.remove()
    assert not [line for line in host.systemctl_commands if "unhold" in line or "rigwright-power" in line]


def test_a_driver_is_let_go_though_weights_are_kept(host: FormerRigHost) -> None:
    host.holds("libcuda1")
    host.remove(keep_weights=True)
    assert "apt-mark -qq unhold libcuda1" in host.systemctl_commands
    assert not (host.root / "opt/driver").exists()


def test_a_weight_share_is_stopped_and_goes(host: FormerRigHost) -> None:
    files = ("units/rigwright_share.service", "etc/share.conf", "run/rigwright/rigwright_share.service")
    for path in files:
        (host.root / path).touch()
    host.remove()
    assert host.left() == EMPTY
    stops = [line for line in host.systemctl_commands if "rigwright_share" in line]
    assert stops == [f"systemctl {verb} rigwright_share.service" for verb in ("disable --quiet", "stop")]


@pytest.mark.parametrize("theirs", [False, True], ids=["ours", "theirs by now"])
def test_a_unit_that_was_kept_from_starting_is_let_go_after_its_package(host: FormerRigHost, theirs: bool) -> None:
    with host.ledger.open("a") as ledger:
        ledger.write("mask nginx.service\n")
    (host.root / "units/nginx.service").symlink_to("/opt/theirs.service" if theirs else "/dev/null")
    host.remove()
    assert host.left() == EMPTY | ({"units/nginx.service"} if theirs else set())
    asked = [line.split()[0:2] for line in host.systemctl_commands if "purge" in line or "nginx" in line]
    assert asked == [["apt-get", "-q"]] + ([] if theirs else [["systemctl", "disable"]])


def test_monitoring_goes_with_its_data(host: FormerRigHost) -> None:
    for path in ("units/rigwright_node.service", "srv/metrics/check.prom"):
        (host.root / path).parent.mkdir(exist_ok=True)
        (host.root / path).touch()
    host.remove()
    assert host.left() == EMPTY
    stops = [line for line in host.systemctl_commands if "rigwright_node" in line]
    assert stops == [f"systemctl {verb} rigwright_node.service" for verb in ("disable --quiet", "stop")]


@pytest.mark.parametrize(("package", "goes"), [("gone", True), ("there", False)])
def test_a_user_that_packages_have_made_goes_with_the_last_of_them(
    host: FormerRigHost, package: str, goes: bool
) -> None:
    write_stand_in(host.root / "bin", "dpkg-query", 'case "$*" in *gone) exit 1 ;; *) printf installed ;; esac')
    write_stand_in(host.root / "bin", "getent", '[ "$2" != gone ] && echo "$2"')
    with host.ledger.open("a") as ledger:
        ledger.write(f"account prometheus gone\naccount prometheus {package}\naccount prometheus2 gone\n")
    host.remove()
    assert ("userdel prometheus" in host.systemctl_commands) == goes
    assert "userdel prometheus2" in host.systemctl_commands


def test_a_second_removal_finds_nothing(host: FormerRigHost) -> None:
    host.remove()
    host.ledger.touch()
    (host.root / "bin/asked").unlink()
    host.remove()
    assert host.left() == EMPTY
    assert not [line for line in host.systemctl_commands if line.split()[0] in ("userdel", "apt-get")]
