"""A check for each thing that drifts: red when it is broken, green again after a deploy or the cure it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.hosts import Host
from lab.labs import Lab
from tests.hosts.support import KEY_FILE, PORT, check, deploy, red, write_inventory

ENGINE = "/etc/rigwright/current/engines/llama.cpp"
RESTART = "systemctl daemon-reload; systemctl restart rigwright-chat"
UNIT = "/etc/rigwright/current/units/rigwright-chat.service"
LINK = "/etc/systemd/system/rigwright-chat.service"
CARRIER, HOLDER = (f"rigwright_listener-{PORT}.{kind}" for kind in ("service", "socket"))
MODEL = "/srv/models/tiny-rig/1/tiny-rig.gguf"
RECORDS, LOCKS = "/var/lib/rigwright/weights", "/run/rigwright/locks"
REHASH = f"PYTHONPATH=/opt/rigwright/weights python3 -m rigwright_weights.rehash {RECORDS} {LOCKS} --now"

# what somebody or something does to the host, the checks that must notice, and the cure: none is a deploy alone
DRIFTS = {
    "a listener of somebody else's": (
        f"systemctl stop {HOLDER}; systemd-run -q --unit=foreign --socket-property=Accept=yes "
        f"--socket-property=ListenStream=127.0.0.1:{PORT} true",
        {"P01", "S04", "S05", "S06"},
        "systemctl stop foreign.socket",
    ),
    "a user of an instance with a shell": ("usermod --shell /bin/bash rigwright-chat", {"B01"}, ""),
    "a user who can speak to an instance past its port": (
        "useradd eve && usermod -aG rigwright-chat eve",
        {"B01"},
        "userdel eve",
    ),
    "an engine that anybody can write": (f"chmod o+w {ENGINE}/bin/llama-server", {"B02", "F08"}, ""),
    "a half-installed package": ("dpkg --unpack /var/tmp/half.deb", {"B03"}, "dpkg --purge half"),
    "another version of a tool": (
        "cd /etc/rigwright/current/tools/lib/python3*/site-packages; "
        "sed -i 's/^Version: .*/Version: 0.0.1/' pathspec-*/METADATA; mv pathspec-* pathspec-0.0.1.dist-info",
        {"F07", "T01", "T02"},
        "rm -r /opt/rigwright/tools-*",
    ),
    "an engine's library with one more byte": (
        f"printf x >> {ENGINE}/bin/libllama.so",
        {"L02"},
        f"truncate --size=-1 $(readlink -f {ENGINE}/bin/libllama.so)",
    ),
    "a missing library": (
        f"mv {ENGINE}/bin/libggml-base.so.0 /root/",
        {"L02", "L03"},
        f"mv /root/libggml-base.so.0 {ENGINE}/bin/",
    ),
    "a generation whose link leads to another build": ("ln -sfn /bin /etc/rigwright/current/tools", {"G01"}, ""),
    "an unfinished activation": ("echo 1 2 > /etc/rigwright/activating", {"G01"}, ""),
    "an older generation that lost what it needs": (
        "cd /etc/rigwright/generations; cp -a $(readlink -f ../current) 90; echo x >> 90/ready",
        {"G03"},
        "",
    ),
    "a build record of another source": (
        f'sed -i \'s/"sha256": "832d/"sha256": "932d/\' {ENGINE}/build.json',
        {"L01", "L02"},
        f'sed -i \'s/"sha256": "932d/"sha256": "832d/\' {ENGINE}/build.json',
    ),
    "weights with another byte": (f"printf x | dd of={MODEL} bs=1 seek=700000 conv=notrunc status=none", {"W01"}, ""),
    # a record that says the same of the new bytes: what nobody has written, a disk changes so
    "weights of which a disk has lost a byte": (
        f"printf x | dd of={MODEL} bs=1 seek=700000 conv=notrunc status=none; "
        f"stat -c '%s %.9Y %.9Z %i %n' {MODEL} > $(find {RECORDS} -maxdepth 1 -type f); {REHASH} || true",
        {"W01", "W03"},
        "",
    ),
    "weights in a folder that anybody can write": (
        "chmod o+w /srv/models/tiny-rig",
        {"W04", "B02"},
        "chmod o-w /srv/models/tiny-rig",
    ),
    "weights that are never hashed again": ("systemctl -q disable --now rigwright_rehash.timer", {"W05"}, ""),
    "weights that the service can write": (
        f"chown rigwright-chat {MODEL}; chmod 644 {MODEL}",
        {"W01", "W02", "B02"},
        "",
    ),
    "a stopped service": (
        "systemctl stop rigwright-chat",
        {"S01", "S02", "S05", "S06", "S12", "S13", "E01", "E02", "E03", "E04", "E05"},
        "",
    ),
    "a port that nobody holds": (f"systemctl stop {HOLDER}", {"S04", "S05", "S06"}, ""),
    "services that will not start at boot": ("systemctl -q disable rigwright.target", {"G02", "S01"}, ""),
    "an edited unit": (
        f"sed -i 's/^ProtectSystem=.*/ProtectSystem=no/' {UNIT}; systemctl daemon-reload",
        {"G01"},
        "",
    ),
    "a unit file in the link's place": (
        f"cp --remove-destination {UNIT} {LINK}; systemctl daemon-reload",
        {"G02"},
        "",
    ),
    "a drop-in that opens the sandbox": (
        f"mkdir {LINK}.d; printf '[Service]\\nNoNewPrivileges=no\\nPrivateUsers=no\\nSystemCallFilter=\\nUser=root\\n"
        "PrivateDevices=no\\nDevicePolicy=auto\\nCapabilityBoundingSet=~\\nIPAddressDeny=\\nPrivateNetwork=no\\n"
        "RestrictAddressFamilies=\\nTemporaryFileSystem=\\nProtectSystem=no\\nMemoryDenyWriteExecute=no\\n"
        f"RestrictSUIDSGID=no\\n' > {LINK}.d/x.conf; {RESTART}",
        {"S02", "S03", "S12", "E01", "E02", "E03", "E04", "E05"},
        f"rm -r {LINK}.d; systemctl daemon-reload; systemctl restart rigwright-chat",
    ),
    "a port on every interface": (
        f"sed -i 's/=127.0.0.1:/=0.0.0.0:/' /etc/rigwright/current/units/{HOLDER}; systemctl daemon-reload; "
        f"systemctl stop {HOLDER}; systemctl start {HOLDER}; systemctl start {CARRIER}",
        {"G01", "S04"},
        "",
    ),
    "an instance without a limit": (
        "systemctl set-property --runtime rigwright-chat MemoryMax=infinity",
        {"S02", "S11"},
        "rm -r /run/systemd/system.control/rigwright-chat.service.d; systemctl daemon-reload; "
        "systemctl restart rigwright-chat",
    ),
    "a service without a key": (
        f"sed -i 's/ --api-key-file [^ ]*//' {UNIT}; {RESTART}",
        {"G01", "S02", "S05", "S12"},
        "",
    ),
    "a key that anybody can read": (f"chmod 644 {KEY_FILE}", {"S07"}, ""),
    "a key in an environment": (
        f"systemd-run -q --unit=leak --setenv=KEY=$(cat {KEY_FILE}) sleep 600",
        {"S07"},
        "systemctl stop leak",
    ),
    "a server that no unit started": (
        f"systemd-run -q --unit=stray {ENGINE}/bin/llama-server -m {MODEL} --port 9999",
        {"S09"},
        "systemctl stop stray",
    ),
    "weights that nobody declared to be shared": (
        "printf '[Service]\\nExecStart=/bin/sleep 600\\n' > /etc/systemd/system/rigwright_share.service",
        {"H09"},
        "",
    ),
    "an instance nobody declared": (
        f"sed 's/chat/two/g' {UNIT} > /etc/systemd/system/rigwright-two.service",
        {"G02", "S10"},
        "",
    ),
}
# Drifts that are there together: of different things, so that each is seen by its own checks alone.
ROUNDS = (
    (
        "a user of an instance with a shell",
        "an engine that anybody can write",
        "a half-installed package",
        "another version of a tool",
        "an engine's library with one more byte",
        "a build record of another source",
        "weights with another byte",
        "weights that are never hashed again",
        "a key that anybody can read",
        "a server that no unit started",
        "weights that nobody declared to be shared",
        "an unfinished activation",
        "an instance nobody declared",
    ),
    (
        "a missing library",
        "a user who can speak to an instance past its port",
        "a generation whose link leads to another build",
        "an older generation that lost what it needs",
        "weights in a folder that anybody can write",
        "a key in an environment",
        "services that will not start at boot",
    ),
    ("a stopped service", "weights of which a disk has lost a byte"),
    ("a listener of somebody else's", "weights that the service can write"),
    ("a drop-in that opens the sandbox", "a unit file in the link's place"),
    ("a port on every interface",),
    ("an instance without a limit",),
    ("a port that nobody holds",),
)
HALF = (
    "Package: half\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: never configured\n"
)


@pytest.fixture
def drifting(converged: Host) -> Host:
    """A converged host with what the drifts use."""
    converged.run(
        f"mkdir -p /root/half/DEBIAN && printf '{HALF}' > /root/half/DEBIAN/control "
        "&& dpkg-deb --build /root/half /var/tmp/half.deb"
    )
    return converged


def drift(host: Host, inventory: Path, *whats: str) -> None:
    """Have some drifts at once, look who notices, and put them right."""
    rows = [DRIFTS[what] for what in whats]
    for break_it, _, _ in rows:
        host.run(break_it)
    assert red(inventory) == set().union(*(expected for _, expected, _ in rows))
    for _, _, cure in rows:
        host.run(cure or "true")
    run = deploy(inventory)
    assert run.status == 0, run.said


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_drifts_of_different_things_turn_their_checks_red_together(
    lab: Lab, drifting: Host, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    inventory = write_inventory(tmp_path, lab, drifting)
    assert red(inventory) == set()
    for whats in ROUNDS:
        with subtests.test(", ".join(whats)):
            expected = [DRIFTS[what][1] for what in whats]
            assert len(set().union(*expected)) == sum(map(len, expected)), "two drifts of one round have one check"
            drift(drifting, inventory, *whats)
    # each round's exact set of red checks says that the one before it was cured; this says so of the last
    assert red(inventory) == set()
    assert {one for whats in ROUNDS for what in whats for one in DRIFTS[what][1]} == green(inventory)


@pytest.mark.all_only
def test_each_drift_turns_its_check_red_and_its_cure_turns_it_green(
    lab: Lab, drifting: Host, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    inventory = write_inventory(tmp_path, lab, drifting)
    assert red(inventory) == set()
    for what in DRIFTS:
        with subtests.test(what):
            drift(drifting, inventory, what)
    assert red(inventory) == set()
    assert {identifier for _, expected, _ in DRIFTS.values() for identifier in expected} == green(inventory)


def green(inventory: Path) -> set[str]:
    """Every check that can run here: none may be without a drift that turns it red."""
    return {identifier for identifier, word in check(inventory).items() if word == "ok"}
