"""A throwaway host: an overlay on a shared base image, booted with systemd-nspawn."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab import base_images, cgroups, gpu_passthrough, network, stand_in_pci

BOOT_LIMIT = 60  # seconds until sshd must answer; a boot takes about one
PATIENCE = 20  # seconds; of a busy machine the shortest connection takes one now and then
# A network with a certificate authority of its own has it here; hosts reach what this machine reaches.
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")


@dataclass(frozen=True)
class HostSpec:
    """The host to boot: a release, folders laid over its base image (topmost first) and stand-in cards by PCI id, or
    this machine's own.
    """

    name: str
    release: str = "debian-12"
    layers: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    gpus: bool = False
    """Whether the host gets this machine's own cards, in place of stand-ins."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path below the host's root, such as etc/motd -> text of a file that the host has before it boots."""
    disks: tuple[str, ...] = ()
    """Folders that lie on a disk rather than on an overlay, such as /var/lib/docker: a container's files can be laid
    over what is there on a disk alone."""


@dataclass(frozen=True)
class LabHost:
    """One throwaway host."""

    spec: HostSpec
    folder: Path
    namespace: str
    address: str
    key: Path

    @property
    def name(self) -> str:
        """The host's name, as in `lab ssh NAME`."""
        return self.spec.name

    @property
    def upper_folder(self) -> Path:
        """Where everything the host has written lies."""
        return self.folder / "upper"

    @property
    def inventory_keys(self) -> dict[str, object]:
        """An inventory's keys that lead to this host."""
        return {
            "ssh_hostname": self.address,
            "ssh_user": "root",
            "ssh_key": str(self.key),
            "ssh_host_key": self.known_hosts.read_text().strip().partition(" ")[2],
        }

    @property
    def known_hosts(self) -> Path:
        """The host's own key as OpenSSH's clients know hosts: the lab made it, so it needs no trust."""
        return self.folder / "known_hosts"

    def ssh_command(self, *command: str, user: str = "root", patience: int = PATIENCE) -> list[str]:
        """The ssh command line that runs a command there, or opens a shell.

        Args:
            command: The command; none for a shell.
            user: The login user.
            patience: Seconds that a connection may take.
        """
        options = (
            "BatchMode=yes",
            f"ConnectTimeout={patience}",
            "StrictHostKeyChecking=yes",
            f"UserKnownHostsFile={self.known_hosts}",
            "GlobalKnownHostsFile=none",
        )
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", "-q", "-i", str(self.key), *flags, f"{user}@{self.address}", *command]

    def run(self, command: str, check: bool = True) -> str:
        """Run a shell command as root there and return what it printed.

        Raises:
            RuntimeError: with check, the command failed.
        """
        return network.run_program(*self.ssh_command(command), check=check)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processors that all of its processes have taken."""
        return cgroups.cpu_seconds(self.namespace)

    def is_reachable(self) -> bool:
        """Whether sshd lets us in."""
        return subprocess.run(self.ssh_command("true", patience=1), capture_output=True, check=False).returncode == 0

    def wait(self) -> None:
        """Wait until sshd lets us in.

        Raises:
            RuntimeError: the boot has ended; its last words and exit status are in the text.
            TimeoutError: it does not within BOOT_LIMIT seconds.
        """
        self._wait_until(self.is_reachable, "does not answer")
        if self.spec.gpus:
            self.run("ldconfig")  # the driver's libraries are there only once it has booted

    def _wait_until(self, there: Callable[[], bool], lacking: str) -> None:
        deadline = time.monotonic() + BOOT_LIMIT
        while not there():
            if not cgroups.list_processes(self.namespace):
                raise RuntimeError(f"{self.name} has ended: {self.read_console_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} {lacking} after {BOOT_LIMIT} s: {self.read_console_tail()}")
            time.sleep(0.05)

    def read_console_tail(self) -> str:
        """The end of what systemd-nspawn and the boot printed."""
        return " / ".join((self.folder / "log").read_text(errors="replace").splitlines()[-3:])

    def reboot(self) -> None:
        """Reboot from inside and wait for the new boot.

        Raises:
            RuntimeError: the boot has ended; its last words and exit status are in the text.
            TimeoutError: it is not back within BOOT_LIMIT seconds.
        """
        started = "systemctl show --timestamp=us --property=UserspaceTimestamp"
        boot = self.run(started)
        self.run("systemctl reboot", check=False)
        asked = self.ssh_command(started, patience=1)
        self._wait_until(lambda: network.run_program(*asked, check=False) not in ("", boot), "has not come back")

    def changed_paths(self, since_ns: int = 0) -> list[str]:
        """Paths written, changed or removed on this host since a time (nanoseconds since the epoch), sorted."""
        found = []
        for folder, _, names in os.walk(self.upper_folder):
            for name in names:
                path = Path(folder, name)
                if path.lstat().st_ctime_ns > since_ns:
                    found.append("/" + str(path.relative_to(self.upper_folder)))
        return sorted(found)

    def boot(self, bridge: str, subnet: ipaddress.IPv4Network) -> None:
        """Make the host's files and network and start it; returns before it answers."""
        base = base_images.build_base(base_images.RELEASES[self.spec.release])
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        own = self.spec.gpus
        options = (
            gpu_passthrough.boot_options(self.upper_folder)
            if own
            else stand_in_pci.boot_options(self.folder, self.spec.cards)
        )
        for path in self.spec.disks:
            place = self.folder / "disks" / path.strip("/").replace("/", "-")
            place.mkdir(parents=True)
            options.append(f"--bind={place}:{path}")
        record = {"spec": asdict(self.spec), "namespace": self.namespace, "address": self.address}
        (self.folder / "host.json").write_text(json.dumps(record | {"boot_options": options}))
        self._write_identity()
        self._write_files(self.spec.files)
        lower = ":".join([*self.spec.layers, str(base)])
        layers = f"lowerdir={lower},upperdir={self.upper_folder},workdir={self.folder / 'work'}"
        network.run_program("mount", "-t", "overlay", self.namespace, "-o", layers, str(self.folder / "root"))
        network.create_namespace(bridge, self.namespace, f"{self.address}/{subnet.prefixlen}", str(subnet[1]))
        self.start()

    def start(self) -> None:
        """Start the supervisor of a host that is stopped or new.

        Raises:
            RuntimeError: it ends before it boots anything; its last words are in the text.
        """
        with open(self.folder / "log", "a") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "lab.host_supervisor", str(self.folder)],
                cwd=Path(__file__).resolve().parent.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # from here on a cgroup without a process means that the boot has ended, for every process that waits for the
        # host
        while not cgroups.list_processes(self.namespace):
            if (status := supervisor.poll()) is not None:
                raise RuntimeError(f"{self.name} has ended with exit status {status}: {self.read_console_tail()}")
            time.sleep(0.01)

    def _write_identity(self) -> None:
        """Give the host what must be its own: name, machine id (empty would mean "first boot"), trust, keys."""
        public_key = self.key.with_suffix(".pub").read_text()
        files = {
            "etc/hostname": f"{self.name}\n",
            "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n",
            "etc/machine-id": f"{uuid.uuid4().hex}\n",
            "etc/resolv.conf": "".join(f"nameserver {address}\n" for address in network.forwarded_nameservers()),
            "root/.ssh/authorized_keys": public_key,
            # no power cut of a lab loses what this machine's kernel has: dpkg need not wait for its disk
            "etc/dpkg/dpkg.cfg.d/lab": "force-unsafe-io\n",
        }
        self._write_files(files)
        for source in (*TRUSTED.parent.glob(TRUSTED.name), *OWN_CERTIFICATES.glob("*.crt")):
            target = self.upper_folder / source.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
        (self.upper_folder / "root").chmod(0o700)
        (self.upper_folder / "root/.ssh").chmod(0o700)
        own = self.upper_folder / HOST_KEY
        own.parent.mkdir(parents=True, exist_ok=True)
        network.run_program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(own))
        self.known_hosts.write_text(f"{self.address} {own.with_suffix('.pub').read_text().strip()}\n")

    def _write_files(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            target = self.upper_folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def kill(self) -> None:
        """End every process of this host at once, as a power cut would; its files stay."""
        cgroups.kill_cgroup(self.namespace)

    def destroy(self) -> None:
        """Stop the host and take every trace of it away; leftovers of a crashed one too."""
        self.kill()
        root = self.folder / "root"
        while os.path.ismount(root):
            network.run_program("umount", str(root))
        network.remove_namespace(self.namespace)
        shutil.rmtree(self.folder, ignore_errors=True)

    def freeze_layer(self, layer: Path) -> str:
        """Stop the host for good and keep what it has written as a layer for other hosts; returns its path."""
        self.kill()
        network.run_program("umount", str(self.folder / "root"))
        keys = (HOST_KEY, f"{HOST_KEY}.pub")
        for path in ("etc/hostname", "etc/hosts", "etc/machine-id", "etc/resolv.conf", *keys):
            (self.upper_folder / path).unlink(missing_ok=True)
        shutil.rmtree(self.upper_folder / "var/lib/lab", ignore_errors=True)  # the next host has cards of its own
        shutil.rmtree(layer, ignore_errors=True)
        layer.parent.mkdir(parents=True, exist_ok=True)
        self.upper_folder.rename(layer)
        self.destroy()
        return str(layer)
