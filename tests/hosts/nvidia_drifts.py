"""Changes to the driver and cards of a host by others: the way to make them on a throwaway host, the check that
notices, the cure."""

from collections.abc import Callable

from tests.hosts.driver_box import C3090, KERNELS, NEW, OLD, DriverBox
from tests.stand_ins import card_faults
from tests.stand_ins.nvidia import kernel_packages
from tests.stand_ins.nvidia.card_models import bus_addresses
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.signing_keys import SigningKey

ONE, OTHER = bus_addresses([C3090, C3090])
DECLARED = {
    "power_w": 280,
    "clocks_mhz": (210, 1695),
    "pcie_link_width": [16, 16],
    "nvlinks": [(0, 1)],
    "module_options": {"NVreg_EnableResizableBar": 1},
    "sysctl": {"net.ipv4.tcp_fin_timeout": 61, "net.ipv4.tcp_keepalive_time": 600},
}
# of a branch without a request for it
ANOTHER = {"debian-12": "595.71.05", "debian-13": "610.43.02"}
PREFERENCES = "/etc/apt/preferences.d/rigwright-nvidia"
LIMITS = "/etc/rigwright/cards/declared.json"
UNIT = "/etc/systemd/system/rigwright-power.service"
MODPROBE = "/etc/modprobe.d/rigwright-nvidia.conf"
SOURCE = "/etc/apt/sources.list.d/rigwright-nvidia.sources"
RECORD = "/etc/rigwright/driver.json"
# every check that asks a driver that answers
ASKS = {"N01", "N02", "N04", "N05", "N06", "N07", "N21", "N22", "N23", "N24", "N27"}
HostAction = str | Callable[[DriverBox], object]


def change_second_card(**values: object) -> Callable[[DriverBox], None]:
    """Say something else of the second card."""
    return lambda box: card_faults.change_card(box.host, OTHER, **values)


def log_kernel_line(line: str) -> Callable[[DriverBox], None]:
    return lambda box: card_faults.log_kernel_line(box.host, line)


def fetch_command(name: str) -> str:
    """Words that fetch a package's file of the stand-in archive, and name it."""
    url = f'"$(sed -n "s/^URIs: //p" {SOURCE})/{name}"'
    return f"cd /var/tmp && /usr/lib/apt/apt-helper -q download-file {url} {name}"


def publish_archive(box: DriverBox, key: SigningKey | None = None) -> None:
    unattended = StandInDeb("unattended-upgrades", "99", "unattended-upgrades")
    box.publish(OLD[box.system], NEW[box.system], ANOTHER[box.system], key=key, also=(unattended,))


def sign_anew(box: DriverBox) -> None:
    """With a key that no lock has."""
    publish_archive(box, SigningKey.generate_key(box.folder / "another"))


def upgrade_by_hand(box: DriverBox) -> None:
    """One library alone."""
    file = f"libnvidia-nvvm4_{NEW[box.system]}-1_amd64.deb"
    box.host.run(f"{fetch_command(file)} && dpkg --force-depends,hold -i {file}")


def let_clocks_go(box: DriverBox) -> None:
    """Of a card that is at work."""
    card_faults.change_card(box.host, OTHER, clock=1900)
    box.host.run(f"nvidia-smi -i {OTHER} -rgc")


def reboot_box(box: DriverBox) -> None:
    box.host.reboot()


def power_cycle(box: DriverBox) -> None:
    """It brings back a card that has fallen off the bus."""
    card_faults.return_at_boot(box.host, OTHER)
    box.host.reboot()


def boot_nouveau(box: DriverBox) -> None:
    card_faults.bind_nouveau(box.host)
    box.host.reboot()


def boot_the_older_kernel(box: DriverBox) -> None:
    """With its headers, and so with a module."""
    kernel = KERNELS[box.system][0]
    file = f"linux-headers-{kernel}_{kernel_packages.package_version(kernel)}_amd64.deb"
    box.host.run(f"{fetch_command(file)} && dpkg -i {file}")
    card_faults.boot_with(box.host, kernel)
    box.host.reboot()


def lose_the_newest_module(box: DriverBox) -> None:
    kernel = KERNELS[box.system][1]
    box.host.run(f"rm -r /lib/modules/{kernel}/updates && depmod {kernel}")


def pack_without_blacklist(box: DriverBox) -> None:
    """The initial file system of the next boot alone, which is newer than our file."""
    box.host.run(
        f"mv {MODPROBE} /root/kept && update-initramfs -u -k {KERNELS[box.system][1]}; mv /root/kept {MODPROBE}"
    )


def add_to_dkms(box: DriverBox) -> None:
    """A source that was never built."""
    box.host.run(
        f"cp -r /usr/src/nvidia-{OLD[box.system]} /usr/src/nvidia-999.10 && "
        "sed -i 's/^PACKAGE_VERSION=.*/PACKAGE_VERSION=\"999.10\"/' /usr/src/nvidia-999.10/dkms.conf && "
        "dkms add -m nvidia -v 999.10"
    )


def library_first(box: DriverBox) -> None:
    """Another one's than the driver's, in the loader's path."""
    found = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{OLD[box.system]}"
    box.host.run(
        f"mkdir /opt/old && cp {found} /opt/old/libcuda.so.470.57.02 && "
        "echo /opt/old > /etc/ld.so.conf.d/000-old.conf && ldconfig"
    )


def run_action(box: DriverBox, what: HostAction) -> None:
    """Do something to the host; an empty text is nothing."""
    if callable(what):
        what(box)
    elif what:
        box.host.run(what)


# The change, the checks that must notice it, and the cure, where no deploy cures it.
# Drifts of one round are there together: no two of them turn the same check red.
ROUNDS: dict[str, dict[str, tuple[HostAction, set[str], HostAction]]] = {
    "what a deploy or one command puts right": {
        "a library of another driver before ours": (
            library_first,
            {"N02", "N42"},
            "rm -r /opt/old /etc/ld.so.conf.d/000-old.conf && ldconfig",
        ),
        "persistence mode off": (f"nvidia-smi -i {OTHER} -pm 0", {"N05"}, ""),
        "a link with half of its lanes": (
            lambda box: card_faults.narrow_link(box.host, OTHER, 8),
            {"N07"},
            lambda box: card_faults.narrow_link(box.host, OTHER, 16),
        ),
        "a module that DKMS never built": (
            add_to_dkms,
            {"N10"},
            "dkms remove nvidia/999.10 --all && rm -r /usr/src/nvidia-999.10",
        ),
        "a hold that is gone": ("apt-mark unhold libcuda1", {"N15"}, ""),
        "preferences that let another branch in": (
            lambda box: box.host.run(f"sed -i 's/^Pin: .*/Pin: version {ANOTHER[box.system]}*/' {PREFERENCES}"),
            {"N16", "N28"},
            "",
        ),
        "a record that is gone": (f"rm {RECORD}", {"N20"}, ""),
        "a power limit that was reset": (f"nvidia-smi -i {OTHER} -pl 350", {"N21"}, ""),
    },
    "what cards say, and files": {
        "a foreign process on a card": (
            "systemd-run -q --unit=stranger sleep 600 && mkdir -p /run/lab/cards && "
            f"echo $(systemctl show -P MainPID stranger) 512 > /run/lab/cards/{OTHER}.apps",
            {"N04"},
            f"systemctl stop stranger; rm /run/lab/cards/{OTHER}.apps",
        ),
        "a card that asks for a reset": (
            change_second_card(recovery="Reset"),
            {"N06"},
            change_second_card(recovery="None"),
        ),
        "a setting of the kernel's": ("sysctl -q -w net.ipv4.tcp_fin_timeout=60", {"N12"}, ""),
        "unattended upgrades that nobody stops": (
            f"{fetch_command('unattended-upgrades_99_amd64.deb')} && dpkg -i unattended-upgrades_99_amd64.deb && "
            "rm /etc/apt/apt.conf.d/52rigwright-nvidia",
            {"N15", "N28"},
            "",
        ),
        "a foreign pin before ours": (
            lambda box: box.host.run(
                f"printf 'Package: libcuda1\\nPin: version {ANOTHER[box.system]}*\\nPin-Priority: 1001\\n' "
                "> /etc/apt/preferences.d/00-another"
            ),
            {"N16", "N45"},
            "rm /etc/apt/preferences.d/00-another",
        ),
        "a reboot that a package asks for": (
            "echo libc6 > /run/reboot-required.pkgs; touch /run/reboot-required",
            {"N18"},
            "rm /run/reboot-required*",
        ),
        "a record of another kernel": (f'sed -i \'s/"kernel": .*/"kernel": "6.0",/\' {RECORD}', {"N20"}, ""),
        "clocks that are held no more": (let_clocks_go, {"N22"}, "systemctl restart rigwright-power"),
        "a small window": (change_second_card(bar1_mib=256), {"N23"}, change_second_card(bar1_mib=32768)),
        "another VBIOS": (change_second_card(vbios="94.02.42.00.aa"), {"N27"}, ""),
    },
    "what cards say, and packages": {
        "memory that ECC could not correct": (
            change_second_card(uncorrected=3),
            {"N06"},
            change_second_card(uncorrected="[N/A]"),
        ),
        "a package of another version": (upgrade_by_hand, {"N13", "N14", "N15", "N16", "N20"}, ""),
        "an archive that another key signs": (sign_anew, {"N17"}, publish_archive),
        "a bridge with a link that is down": (change_second_card(nvlinks=3), {"N24"}, change_second_card(nvlinks=4)),
        "copies from card to card": (
            "systemd-run -q --unit=rigwright-peer --slice=rigwright.slice --setenv=GGML_CUDA_P2P=0 sleep 600",
            {"N25", "U06"},
            "systemctl stop rigwright-peer",
        ),
        "a hot card": (change_second_card(temperature=96), {"N27"}, change_second_card(temperature=40)),
        "a unit for power that is masked": (
            f"ln -sf /dev/null {UNIT} && systemctl daemon-reload",
            {"N28", "N47", "U01", "U04"},
            "",
        ),
    },
    "what is put right by a reboot": {
        "a device file that is gone": ("rm /dev/nvidia-uvm", {"N03"}, ""),
        "a memory error of a card, in the kernel's log": (
            log_kernel_line(f"NVRM: Xid (PCI:{OTHER[:-2]}): 48, pid=77, name=python3, DBE (double bit error)"),
            {"N06"},
            "",
        ),
        "a module of the other flavour": (
            "sed -i 's/Open Kernel Module for x86_64/x86_64 Kernel Module/' /proc/driver/nvidia/version",
            {"N08"},
            "",
        ),
        "an option that is not in force": (
            "sed -i 's/^EnableResizableBar: .*/EnableResizableBar: 0/' /proc/driver/nvidia/params",
            {"N12"},
            "",
        ),
        "a bus that corrects errors": (
            log_kernel_line(f"pcieport 0000:00:01.0: AER: Corrected error message received from {OTHER}"),
            {"N26"},
            "",
        ),
        "a program for power with other limits": (f"sed -i 's/280/350/' {LIMITS}", {"N28"}, ""),
    },
    "a card that falls off the bus": {
        "a card that falls off the bus": (
            lambda box: card_faults.remove_from_bus(box.host, OTHER),
            {"N01", "N03", "N06"},
            power_cycle,
        ),
        "a source that is gone, with its lists": (f"rm -r {SOURCE} /var/lib/apt/lists/*", {"N17", "N28"}, ""),
    },
    "a driver that was upgraded without a reboot": {
        "a module of another version": (
            lambda box: card_faults.load_version(box.host, NEW[box.system]),
            ASKS | {"N09", "N20"},
            "",
        ),
        "a unit for power that does not start at boot": ("systemctl -q disable rigwright-power", {"N28", "U04"}, ""),
    },
    "what only a deploy notices that looks": {
        "an initial file system without the blacklist": (pack_without_blacklist, {"N35"}, ""),
        "a library of the driver that is purged": ("dpkg --force-depends --purge libcuda1", {"N02", "N14", "N20"}, ""),
    },
    "nouveau": {
        "nouveau on the cards": (boot_nouveau, ASKS | {"N03", "N08", "N12", "N20", "N28", "N47", "N48", "U09"}, ""),
        "an old kernel that nothing brings updates for": (
            "cp -a /var/lib/dpkg /root/dpkg && dpkg --force-depends --remove linux-image-amd64 && "
            "touch -d '60 days ago' /boot/vmlinuz-$(uname -r)",
            {"N19"},
            "rm -r /var/lib/dpkg && mv /root/dpkg /var/lib/dpkg && touch /boot/vmlinuz-$(uname -r)",
        ),
    },
    "an older kernel": {
        "the older kernel after a reboot": (
            boot_the_older_kernel,
            {"N18", "N20"},
            lambda box: card_faults.boot_with(box.host, None),
        ),
        "a next kernel without the module": (lose_the_newest_module, {"N09", "N10"}, ""),
    },
    "another boot": {
        "a card that stays away": (
            lambda box: card_faults.remove_from_bus(box.host, OTHER),
            {"N01", "N47", "P01", "U09"},  # the others have their limits all the same
            lambda box: card_faults.return_at_boot(box.host, OTHER),
        ),
        "another kernel than at the last deploy": (reboot_box, {"N20"}, reboot_box),
    },
}
