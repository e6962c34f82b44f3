"""`rigwright init` against a booted host: its inventory loads, and a deploy accepts it."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.declaration.connection import parse_host_key
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.support import run_plan, write_inventory
from tests.lock_files import reseal_text

# one release is enough: the tested code runs on this machine and in shell scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-12"], indirect=True)

CARDS = ("10de:2204", "10de:2204")


def login_options(host: LabHost) -> list[str]:
    """The key to log in with, and the fingerprint that a host's console prints."""
    key = parse_host_key(str(host.inventory_keys["ssh_host_key"]))
    return ["--key", str(host.key), "--host-key", key.fingerprint]


def init(host: LabHost, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "init", f"root@{host.address}", *login_options(host), *options]
    environment = os.environ | {"HOME": str(home), "COLUMNS": "160"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=home, env=environment, stdin=subprocess.DEVNULL, check=False
    )


def test_a_box_is_looked_at_and_what_is_written_is_accepted_by_a_deploy(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot(cards=CARDS)
    server = '[Service]\\nExecStart=/bin/sh -c "exec sleep 1000" llama --api-key s3cret\\n'
    host.run(f"printf '{server}' > /etc/systemd/system/llama-old.service && systemctl start llama-old")
    # the demo's lock with addresses: an inventory that was just written names no mirrors
    lock = (ROOT / "locks/demo.lock.toml").read_text().replace("shelf:", f"{lab.shelf_url}/")
    for name in ("locks", "catalog"):
        (tmp_path / name).mkdir()
    (tmp_path / "locks/box.lock.toml").write_text(reseal_text(lock))
    asked = f'[inputs.tiny-rig]\nkind = "weight"\nversion = "1"\nsources = ["{lab.shelf_url}/{MODEL}"]\n'
    (tmp_path / "catalog/box.toml").write_text(asked)
    done = init(host, tmp_path, "--variant", "llamacpp/demo")
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = tmp_path.glob("*.py")
    assert written.stem == host.name
    text = written.read_text()
    ((name, data),) = runpy.run_path(str(written))["rigs"]
    assert (name, data["rig"]["entry"]["cards"]) == (host.name, ["rtx-3090", "rtx-3090"])
    assert data["rig"]["entry"]["instances"] == {"chat": {"variant": "llamacpp/demo", "port": 8020}}
    assert "#   22  sshd (ssh.service)" in text
    assert "#   llama-old.service (active), from /etc/systemd/system/llama-old.service" in text
    assert "s3cret" not in text + done.stdout
    # the box's key was new: the output names it, it stands in the file, and nowhere else
    key = host.run("cat /etc/ssh/ssh_host_ed25519_key.pub").strip()
    fingerprint = host.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert data["ssh_host_key"] == key
    assert f"Host key of root@{host.address}: {fingerprint} (ssh-ed25519)" in done.stdout
    assert not (tmp_path / ".ssh").exists()

    dry = subprocess.run(
        [sys.executable, "-m", "cli", "deploy", str(written), "--dry"],
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
        check=False,
    )
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert "tiny-rig.gguf" in dry.stdout + dry.stderr
    again = init(host, tmp_path)
    assert again.returncode == 2
    assert again.stderr == f"Error: {written.name} already exists: choose another with --output, or move it away\n"


def test_a_box_that_refuses_the_key_or_sudo_is_one_line(boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    host.run("useradd -m plain; cp -r /root/.ssh /home/plain/; chown -R plain: /home/plain/.ssh")
    command = [sys.executable, "-m", "cli", "init", *login_options(host)]
    environment = os.environ | {"HOME": str(tmp_path)}
    for target, said in (
        (f"nobody-here@{host.address}", "login as nobody-here is refused"),
        (f"plain@{host.address}", "; allow the user sudo without a password, or use --no-sudo"),
    ):
        done = subprocess.run(
            [*command, target, "--name", "b"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        assert (done.returncode, done.stdout.count("SHA256:")) == (3, 1)
        assert done.stderr.startswith(f"Error: cannot survey {target}: ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "b.py").exists()
    done = subprocess.run(
        [*command, f"plain@{host.address}", "--name", "b", "--no-sudo"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Inspected without root" in (tmp_path / "b.py").read_text()


def test_a_box_with_new_keys_is_refused_until_they_are_declared(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    inventory = write_inventory(tmp_path, lab, host)
    before = str(host.inventory_keys["ssh_host_key"])
    assert run_plan(inventory).status == 0
    # as after an installation from scratch, or as on another machine at this address
    host.run("rm /etc/ssh/ssh_host_*; ssh-keygen -q -A; systemctl restart ssh")
    refused = run_plan(inventory)
    found = (host.upper_folder / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
    key = f"{found[0]} {found[1]}"
    assert refused.status != 0
    assert f"expected {parse_host_key(before).fingerprint}, found {parse_host_key(key).fingerprint}" in refused.said
    command = [sys.executable, "-m", "cli", "key", "host", str(inventory)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout.splitlines()[-1]) == (1, f'  "ssh_host_key": "{key}",')
    inventory.write_text(inventory.read_text().replace(before, key))
    done = run_plan(inventory)
    assert done.status == 0
    assert "No host key" not in done.said
