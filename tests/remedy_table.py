"""All commands that checks print as remedies, each with the drift whose host test runs it as printed, or the reason
that none does; and all instructions for a person, by the reason that no command can replace them.

The unit test compares both with the sources of the checks; tests/hosts/drift_host.py asserts that a drift prints the
command that it is named for.
"""

from __future__ import annotations

import re
from typing import Final

NO_HOST: Final = "no host test: "
FOLLOWS: Final = f"{NO_HOST}it follows an instruction for a person"

HOST_COMMANDS: Final[dict[str, str]] = {
    "apt-get install --reinstall --yes --allow-change-held-packages -o Dpkg::Options::=--force-confnew "
    "-o Dpkg::Options::=--force-confmiss {}": "fooled: a program with other bytes, and the list of its package touched",
    "apt-get install --yes {}": f"{NO_HOST}the kernels of the lab's hosts have headers while their driver has modules",
    "apt-get remove --yes {}": f"{NO_HOST}the stand-in archive has no transitional packages",
    "apt-mark unhold {}": FOLLOWS,
    "command -v chattr > /dev/null || apt-get install --yes e2fsprogs; chattr -ia -- {}": (
        "owned: a folder of records that takes no change"
    ),
    "chmod g-w,o= {}": "fooled: a log of the gateway's that everybody can write to",
    "chmod go= {}": "reach: everybody may read engines' keys",
    "chmod o+x -- {}": "trees: only root can enter /opt",
    "chown root {0}; chmod 644 {0}": f"{NO_HOST}no drift changes the owner of the ledger",
    "chown root {0}; chmod 755 {0}": "owned: a folder of weights that no service can enter",
    "chown root {0}; chmod go-w {0}": "trees: /opt has a foreign owner",
    "chown {1} {0}; chmod {2} {0}": f"{NO_HOST}a deploy heals its drifts",
    "command -v setfacl > /dev/null || apt-get install --yes acl; setfacl --remove-all --remove-default -- {}": (
        "trees: an access list on /opt lets a foreign user write"
    ),
    "dkms autoinstall --force": FOLLOWS,
    "dkms autoinstall -k {}": f"{NO_HOST}the kernels of the lab's hosts have headers while their driver has modules",
    "dkms install --force -m nvidia -v {} -k {}": "kernel: a module that was changed in its place",
    "dkms remove -m nvidia -v {} --all": "kernel: a module that DKMS never built",
    "dpkg --configure --pending": "doors: a half-installed package",
    "echo {} > {}": f"{NO_HOST}no drift writes to the control group of a slice",
    "dpkg-statoverride --remove {}": "fooled: a program that is everybody's by an override",
    "for kernel in {}; do chmod -R go-w /lib/modules/$kernel; dkms autoinstall --force -k $kernel; "
    "depmod $kernel; done": FOLLOWS,
    "for kernel in {}; do update-initramfs -u -k $kernel; done": f"{NO_HOST}a deploy heals its drift",
    "for name in {}; do version=$(dpkg-query -W -f '${{Version}}' $name); "
    "dpkg -i --force-confnew,confmiss {}/*/${{name}}_${{version#*:}}_*.deb; done": (
        "kernel: a byte behind the driver's library"
    ),
    "gpasswd --administrators '' {}": "owned: a foreign administrator of a service's group",
    "gpasswd --delete {} {}": "owned: a foreign user in a service's group",
    "groupmod --password '!' {}": "owned: a service's group with a password",
    "journalctl --no-pager --dmesg --boot --grep=NVRM": f"{NO_HOST}it only prints, before an instruction",
    "journalctl --no-pager --dmesg --boot --lines=50": f"{NO_HOST}it only prints, before an instruction",
    "journalctl --no-pager --lines=50 {}": "owned: a hashing that fails",
    "kill -CONT {}": "inforce: a stopped router",
    "kill {}": "inforce: a process that is traced",
    "ldconfig": FOLLOWS,
    "lspci -k -s {}": f"{NO_HOST}it only prints, before a reboot",
    "mount -o remount,exec {}": "trees: the root of software is mounted on itself without programs",
    "nvidia-modprobe -c {}": f"{NO_HOST}the lab's cards have no character devices that a program could make",
    "nvidia-modprobe -u -c 0": f"{NO_HOST}the lab's cards have no character devices that a program could make",
    "nvidia-smi": f"{NO_HOST}it only prints, before an instruction",
    "nvidia-smi nvlink --status": f"{NO_HOST}it only prints, before an instruction",
    "printf '%s\\n' {} >> {}": "owned: a ledger that lacks a folder of ours",
    "rm -f -- {0}; dpkg-divert --rename --remove {0}": (
        "fooled: a program that was diverted by hand, with another in its place"
    ),
    "rm -rf -- {0}; rmdir --ignore-fail-on-non-empty -- {1}; systemctl daemon-reload": (
        "inforce: a drop-in for an instance"
    ),
    "rm -f -- {}; systemctl restart {}": "owned: a timer that has gone off in a time to come",
    "rm -rf -- {}": "trees: a program lies beside host tools",
    "sed --in-place '/rigwright_gateway/d' /var/lib/logrotate/status": (
        "opened: the gateway's log counts as rotated until far in time"
    ),
    "shutdown -c": "kernel: a shutdown that is scheduled",
    "sysctl -w {}": f"{NO_HOST}an instruction completes it, for the setting comes back at a boot",
    "systemctl daemon-reexec": FOLLOWS,
    "systemctl daemon-reload": "inforce: a unit that systemd has read from a file that is no more",
    "systemctl reboot": FOLLOWS,
    "systemctl reload {}": "reach: nginx was given other settings by hand, which lie there no more",
    "systemctl reset-failed {0}; systemctl restart {0}": "inforce: a process that may open few files",
    "systemctl revert {0}; systemctl restart {0}": "inforce: a timer that never comes",
    "systemctl revert {}": "kernel: a persistence daemon without persistence, by a drop-in",
    "systemctl revert {} {}": "containers: something else writes the spec",
    "systemctl stop 'rigwright*'; for user in {}; do userdel --force $user; done": (
        "owned: a service's user with the number of people"
    ),
    "systemctl start {}": f"{NO_HOST}a deploy heals its drift",
    "systemctl stop {}": f"{NO_HOST}a deploy heals its drift",
    "systemctl stop {}; rm -rf -- {} {}": f"{NO_HOST}the engines of the drift hosts compile nothing",
    "systemctl thaw {}": "inforce: a frozen instance",
    "systemctl try-restart {}": "inforce: a drop-in for an instance",
    "systemctl unmask logrotate.timer; systemctl enable --now logrotate.timer": "reach: logs are not put away any more",
    "systemctl unmask {0}; systemctl enable {0}": "kernel: an sshd that no boot starts",
    "systemctl unmask {}; systemctl restart systemd-journald": "owned: a journal that no boot starts",
    "systemctl unmask {}; systemctl set-default multi-user.target": "inforce: a boot into the rescue shell",
    "systemctl unset-environment {}": "inforce: a variable for all services that start next",
    "timedatectl set-ntp true": f"{NO_HOST}hosts of the lab have this machine's clock",
    "timedatectl set-ntp true; touch -- {}": "owned: a record from a time to come",
    "touch -- {}": "owned: a byte of weights, and a record that says it was verified",
    "umount --lazy -- {}": "owned: a file mounted over weights",
    "umount -- {}": "reach: an instance's socket is mounted elsewhere",
    "update-grub": FOLLOWS,
    "update-initramfs -c -k {}": "kernel: an initial file system that is cut off",
}
"""Template of a command for the host's root -> `AREA: DRIFT` of tests/hosts/drifts, or why there is none."""

RIG_COMMANDS: Final[dict[str, str]] = {
    "check": f"{NO_HOST}it only prints, for a check that reaches no verdict in a deploy",
    "check --accept": f"{NO_HOST}tests/hosts/test_host_changes.py accepts changes with it",
    "deploy": "owned: a byte of weights, and a record that says it was verified",
    "deploy --reboot": f"{NO_HOST}the kernel modules of the lab's hosts are stand-ins, which a boot loads as declared",
    "key sync --replace-newer": FOLLOWS,
    "deploy --upgrade-driver": f"{NO_HOST}tests/hosts/test_nvidia_driver.py upgrades the driver with it",
}
"""Verb and options of a command of the operator's machine -> the same."""

PROGRAMS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("chmod", "chown", "echo", "printf", "rm", "rmdir", "touch", "kill", "command"), "essential: coreutils, dash"
    ),
    **dict.fromkeys(("apt-get", "apt-mark", "dpkg", "dpkg-divert", "dpkg-query", "dpkg-statoverride"), "apt, dpkg"),
    **dict.fromkeys(("mount", "umount", "sed", "ldconfig"), "essential: mount, sed, libc-bin"),
    **dict.fromkeys(("gpasswd", "groupmod", "userdel"), "passwd, which the base role needs"),
    **dict.fromkeys(("journalctl", "systemctl", "shutdown", "timedatectl"), "systemd, systemd-sysv"),
    **dict.fromkeys(("modprobe", "depmod", "lspci", "sysctl", "udevadm"), "kmod, pciutils, procps, udev"),
    **dict.fromkeys(("nvidia-modprobe", "nvidia-smi", "dkms"), "the driver that the check is about"),
    **dict.fromkeys(("update-initramfs", "update-grub"), "what the check has seen: initramfs-tools, grub"),
    **dict.fromkeys(("sshd",), "the SSH server that the check is about"),
    **dict.fromkeys(("setfacl", "chattr"), "acl, e2fsprogs, which the command before it installs"),
}
"""Program of the commands for hosts -> what brings it on Debian 12 and 13 and Ubuntu 22.04 and 24.04."""


def command_pattern(template: str) -> re.Pattern[str]:
    """An expression that fits the commands of a template."""
    parts = re.split(r"(?<!\{)\{[0-9]?\}(?!\})", template)
    return re.compile(".+".join(re.escape(part.replace("{{", "{").replace("}}", "}")) for part in parts), re.DOTALL)


MACHINE: Final = "work at the machine, or in its firmware"
OPERATOR: Final = "a file, line, account, process or rule of the operator's: a person decides whether it goes"
DECLARATION: Final = "a decision about what the box is declared to be"
DIAGNOSIS: Final = "the cause is not known to the check: a person has to find it"

INSTRUCTIONS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "allow protocol 112 (VRRP) between {} and {}",
            "check fans, dust and airflow",
            "check the disk, which has lost bytes (smartctl)",
            "follow the recovery action",
            "enable Above 4G Decoding and Resizable BAR in the firmware, whose updates disable them; an RTX 3090 may "
            "also need a newer VBIOS",
            "if it stays missing, check its power cables and reseat it",
            "if it was not updated, this is another card",
            "if the errors return, replace the card",
            "move one kind to another host",
            "reseat card and riser, or set the slot to a lower PCIe generation",
            "reseat the bridge",
            "reseat the card and its riser; check the firmware for a bifurcation or link width setting",
            "wait until no request is under way",
            "use the distribution's prebuilt modules, enrol DKMS's key at the console, or disable Secure Boot",
        ),
        MACHINE,
    ),
    **dict.fromkeys(
        (
            "`ip route` and `ip rule` show it: delete it",
            "add it to /etc/fstab",
            "add the address to its interface again",
            "correct it until `sshd -t` prints no error",
            "correct that file",
            "delete it with `tc qdisc del` on that interface",
            "delete the account or group that is not Rigwright's, or give it another GID",
            "delete the account that is not Rigwright's, or give it another UID",
            "free some space (`df -h`), or see in `dmesg` why it is read-only",
            "if the driver was not upgraded, remove that library",
            "make {} a folder of root's",
            "processes of type G belong to a desktop: have it use another card",
            "recreate it with --device nvidia.com/gpu=all, or with the driver cdi in a compose file",
            "reinstall the packages named as to be reinstalled",
            "remove Storage=none from /etc/systemd/journald.conf*",
            "remove all others from /etc/ld.so.conf.d",
            "remove it",
            "remove it from /dev/shm",
            "restore each file from its package or a backup, or review it, touch it and accept it",
            "repair what the text names, publish again, or deploy",
            "remove it from /etc/fstab and the mount units, or mount it now",
            "remove it from journald.conf or journald.conf.d",
            "remove it from that file",
            "remove it from that file, or choose the newest entry with grub-set-default",
            "remove it from the unit or from systemd's environment: its presence counts, not its value",
            "remove route_localnet from /etc/sysctl.d",
            "remove that",
            "remove that from docker.service, docker.socket or daemon.json",
            "remove that from the kernel command line",
            "remove that setting from the unit that contains it",
            "remove the directory from /etc/ld.so.conf.d, or the library from the directory",
            "remove the entry, or add nofail to it",
            "remove the files that come from neither a package nor DKMS",
            "remove the other flavour's module packages: the next boot loads it",
            "remove those lines",
            "remove those lines from {}",
            "remove those that do not belong to the driver in use",
            "remove {}: nvidia-modprobe makes the device file",
            "restore that file, or remove it",
            "restore them, and find the cause of the change",
            "restore {} from a backup",
            "stop it, and disable the unit or program that starts it",
            "stop its unit, or end its processes, and remove the directory",
            "stop that listener, and disable the unit or program that starts it",
            "stop your containers",
        ),
        OPERATOR,
    ),
    **dict.fromkeys(
        (
            "allow the next kernel as soon as a driver builds for it",
            "declare the actual width in driver.pcie_link_width",
            "declare the card that is there, or check whether ECC uses its memory",
            "do not reboot yet: kernel {}, which boots next, has no driver module (N09)",
            "install a driver of branch {} or newer",
            "install a newer driver",
            "install a suitable toolkit at {}",
            "install the driver, or reboot into it",
            "install the metapackage of its kernel, which installs later kernels",
            "install the packages of that flavour",
            "lock another version, or declare other cards",
            "provide a new cert_file",
            "remove it from the inventory: this driver does not have it",
            "remove it, or declare driver.branch",
            "remove or repair each of them; `check --accept` refuses them",
            "resolve each of these",
            "stop it, give it another card, or add the card to reserved_gpus",
            "fetch the newer file; or remove this one, and review all entries with `check --accept`",
            "take the newer file from the controller that changed the keys last, or replace the host's keys with these",
        ),
        DECLARATION,
    ),
    **dict.fromkeys(
        (
            "/var/log/apt/history.log may name the change",
            "N01 names the card that does not answer",
            "change the key, and find the cause",
            "check its source file",
            "check that the archive is for this system; no package comes from it",
            "compare power, temperatures and lanes (N07, N21, N27), then measure again; --accept makes it the baseline",
            "find out why that box, or unit, does not answer",
            "find the reason on the host",
            "fix the check, or the cause of its failure",
            "its log names the backends",
            "look up the code in NVIDIA's Xid catalogue",
        ),
        DIAGNOSIS,
    ),
}
"""Instruction for a person -> why no command can replace it."""
