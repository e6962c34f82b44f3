"""A source as an attack: while it is fetched, compiled and tried, each of its attempts fails.

It looks like llama.cpp: a folder with CMakeLists.txt that makes a llama-server, in a second.
"""

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.download_servers import StandInMirror
from tests.hosts.support import PyinfraRun, deploy, deploy_command, run_deploy, wait_until, write_inventory
from tests.lock_files import render_sealed_lock

FILE = Path(__file__).with_name("engine_deploy.py")
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(evil C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
execute_process(COMMAND sh ${CMAKE_SOURCE_DIR}/attack.sh ${CMAKE_BINARY_DIR}/bin COMMAND_ERROR_IS_FATAL ANY)
add_executable(llama-server server.c)
"""
# its view goes into a file that is installed next to the server
ATTACK = """
mkdir -p "$1"
tried() { if "$@" 2>/dev/null >/dev/null; then echo "got $*"; else echo "not $*"; fi; }
{
  echo "uid $(id -u)"
  for path in /etc/evil /opt/rigwright/evil /var/lib/rigwright/evil /srv/models/evil /root/evil /run/evil; do
    tried touch "$path"
  done
  for path in /run/lock/evil /var/lib/evil; do
    tried touch "$path"
  done
  tried cat /etc/shadow
  tried ls /var/lib/rigwright
  tried ls /srv/models
  tried ls /root
  tried curl --max-time 5 --silent URL
  tried curl --max-time 5 --silent --unix-socket /run/dbus/system_bus_socket http://x --http0.9
  tried systemd-run true
  tried unshare --user true
  tried chmod u+s "$1"
} > "$1/report"
"""
SERVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/socket.h>
int main(void) {
  FILE *file = fopen("/opt/rigwright/engines/evil", "w");
  printf("tried as %s, writes %s, socket %s\n", getuid() ? "nobody" : "root", file ? "yes" : "no",
         socket(AF_INET, SOCK_STREAM, 0) < 0 && socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? "no" : "yes");
  return 0;
}
"""
CATALOG = """
[engines.evil]
kind = "llama.cpp"
source = "evil"
commit = "0123456789abcdef0123456789abcdef01234567"

[variants."evil/demo"]
engine = "evil"
model = "tiny-rig"
context = 4096
"""


class HostileSourceBox:
    """A box whose catalogue and lock are an attacker's."""

    def __init__(self, lab: ThrowawayLab, host: LabHost, folder: Path) -> None:
        self.lab, self.host, self.folder = lab, host, folder
        for noun in ("catalog", "locks"):
            (folder / noun).mkdir(parents=True)
        (folder / "catalog" / "evil.toml").write_text(CATALOG)
        instances = {"chat": {"variant": "evil/demo", "port": 8020}}
        self.mirror = StandInMirror(lab.gateway, lambda _: None, leads_to="http://127.0.0.1:8000/health")
        mirrors = {"shelf": [self.mirror.url, lab.shelf_url]}
        self.inventory = write_inventory(folder, lab, host, instances=instances, mirrors=mirrors)

    def source(self, attack: str = "") -> None:
        """Give it a source, whose configuration ends with these lines of shell in the folder of what is compiled."""
        script = ATTACK.replace("URL", f"{self.lab.shelf_url}/") + f'\ncd "$1"\n{attack}\n'
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in {"CMakeLists.txt": CMAKE, "attack.sh": script, "server.c": SERVER}.items():
                member = tarfile.TarInfo(f"evil/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        content = packed.getvalue()
        (self.lab.shelf_folder / "evil.tar.gz").write_bytes(content)
        row = f"""
[[artefact]]
kind = "source"
name = "evil"
version = "1"
file = "evil.tar.gz"
sha256 = "{hashlib.sha256(content).hexdigest()}"
size = {len(content)}
sources = ["shelf:evil.tar.gz"]
"""
        (self.folder / "locks" / "evil.lock.toml").write_text(render_sealed_lock(row))

    def deploy(self, attack: str = "", file: Path = FILE) -> PyinfraRun:
        """Deploy the engine."""
        self.source(attack)
        return run_deploy(self.inventory, file=file)

    def limited(self, limits: str) -> Path:
        """A deploy whose steps have these limits."""
        file = self.folder / "limited.py"
        lines = "from rigwright.engines import unprivileged_steps\n\n"
        lines += f"unprivileged_steps.LIMITS = unprivileged_steps.StepLimits({limits})\n"
        file.write_text(lines + FILE.read_text())
        return file

    def engine_folders(self) -> list[str]:
        """The folders of engines that are whole."""
        return self.host.run(
            "dirname $(ls /opt/rigwright/engines/*/build.json 2>/dev/null) 2>/dev/null || true"
        ).split()


BAD = {
    "a program that becomes root": "cp /bin/true tool && chmod 6755 tool || touch 'refused there'",
    "a link to a file": "ln -s /etc/shadow key",
    "a link out of the folder": "ln -s ../../../../etc etc",
    "a pipe": "mkfifo pipe",
    "two names of one file": "echo x > one && ln one two",
    "a name of several lines": "touch \"$(printf 'a\\nb')\"",
    "a folder that is a link": "cd .. && mv bin real && ln -s real bin",
}


@pytest.mark.all_only
def test_a_source_that_attacks_gets_nowhere(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    evil = HostileSourceBox(lab, host, tmp_path / "box")
    host.run("mkdir -p /srv/models/mine && date > /srv/models/mine/weights")
    host.run("systemd-run --unit=inner --socket-property=ListenStream=127.0.0.1:8000 touch /run/reached")
    run = evil.deploy()
    assert run.status == 0, run.said
    # its first mirror has sent the box to itself
    assert evil.mirror.asked
    assert "not followed: it leads to 127.0.0.1" in host.run("cat /var/lib/rigwright/jobs/rw-job-fetch-*/log")
    assert host.run("ls /run/reached 2>/dev/null; true") == ""
    host.run("curl --silent --max-time 1 http://127.0.0.1:8000/ || true")
    wait_until(lambda: host.run("ls /run/reached 2>/dev/null; true"), "reached by who is meant to")
    (folder,) = evil.engine_folders()
    uid, *tries = host.run(f"cat {folder}/bin/report").splitlines()
    assert (
        int(uid.removeprefix("uid ")) >= 61184
    )  # systemd.exec(5), DynamicUser=: a user that the host does not have otherwise
    assert len(tries) > 10
    assert [line for line in tries if not line.startswith("not ")] == []
    log = host.run(f"cat {folder}/build.log")
    assert "tried as nobody, writes no, socket no" in log
    assert host.run(f"find {folder} ! -user root -o -perm /6022 ! -type l") == ""
    assert host.run(f"cd {folder} && sha256sum --check --quiet files.sha256") == ""
    assert host.run("ls /var/lib/rigwright/build") == ""
    assert run_deploy(evil.inventory, file=FILE).changed_operations == []

    leaves_nothing(evil, "a program that becomes root")


@pytest.mark.all_only
def test_a_source_that_never_ends_nor_stops_writing_is_ended_and_the_limit_is_named(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    evil = HostileSourceBox(lab, host, tmp_path / "box")
    quick = evil.limited("seconds=10, log_bytes=1 << 20")
    run = evil.deploy("yes | head -c 9000000; exec sleep 600", quick)
    assert (run.status, "compile.service was ended: it exceeded its unit's time limit" in run.said) == (1, True), (
        run.said
    )
    log = host.run("stat -c %s /var/lib/rigwright/jobs/rw-job-evil-*/log")
    assert 1 << 20 < int(log) < 1_200_000
    small = evil.limited("work_kib=50 << 10, file_bytes=20 << 20")
    # beyond the size of one file, and in place of /var/tmp, where else it may write
    does = "n=0; while n=$((n + 1)); do head -c 30000000 /dev/zero > /var/tmp/$n; sleep 0.2; done"
    run = evil.deploy(does, small)
    assert (run.status, "compile.service was ended: it has written" in run.said) == (1, True), run.said
    # files that it has removed and still has open take room, too
    does = (
        'cd /var/tmp; for n in 3 4 5 6 7 8; do eval "exec $n> $n"; rm $n; eval "head -c 15000000 /dev/zero >&$n"; done'
        "; exec sleep 600"
    )
    run = evil.deploy(does, small)
    assert (run.status, "compile.service was ended: it has written" in run.said) == (1, True), run.said
    assert evil.engine_folders() == []
    assert host.run("ls -d /var/tmp/systemd-private-*-rw-job-* 2> /dev/null || true") == ""
    assert host.run("systemctl list-units --all --plain --no-legend 'rw-job-*-compile.service'") == ""


def leaves_nothing(evil: HostileSourceBox, *names: str) -> None:
    """Assert that what builds leave is refused, and nothing of it is installed."""
    before = evil.engine_folders()
    for name in names:
        run = evil.deploy(BAD[name])
        assert (run.status, "the build left" in run.said) == (1, True), (name, run.said)
        assert evil.engine_folders() == before, name


@pytest.mark.all_only
def test_no_build_leaves_special_files_and_a_refused_build_does_not_block_the_next(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    evil = HostileSourceBox(lab, boot(), tmp_path / "box")
    assert evil.deploy().status == 0
    leaves_nothing(evil, *BAD)
    killed(evil)
    assert len(evil.engine_folders()) == 2


def killed(evil: HostileSourceBox) -> None:
    """A job that is killed takes its step along, and the next one converges."""
    host, inventory = evil.host, evil.inventory
    evil.source("[ -e /etc/go ] || exec sleep 600")
    steps = "systemctl list-units --plain --no-legend 'rw-job-evil-*-compile.service'"
    with subprocess.Popen(
        deploy_command(inventory, "--yes", file=FILE), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as controller:
        wait_until(lambda: "running" in host.run(steps), "compiling")
        job = host.run(steps).split()[0].replace("-compile.service", ".service")
        host.run(f"systemctl kill --signal=KILL --kill-whom=main {job}")
        said = controller.communicate(timeout=60)[1]
    assert controller.returncode == 1, said
    wait_until(lambda: host.run(steps) == "", "without its step")
    host.run("touch /etc/go")
    run = deploy(inventory, file=FILE)
    assert "is already running" not in run.said
