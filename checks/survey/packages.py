"""Packages of a host: the installed ones, apt's plan, and files that differ from their packages'."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section
from rigwright.containers import container_facts
from rigwright.fetch_job_spec import job_network
from rigwright.host.package_states import KERNEL_PATTERNS, PackageStates
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.nvidia.driver import driver_files
from rigwright.nvidia.driver.driver_facts import OF_A_DRIVER, SOURCE
from rigwright.nvidia.driver.driver_files import store_folder
from rigwright.plan import host_probe

# The inputs of the next boot
BOOTED = ("linux-image-*", "linux-headers-*", "linux-modules-*", "linux-kbuild-*", "dkms", "kmod", "initramfs-tools*")
# The programs that root runs on the way up, at a deploy and for our services; not all of a host's, which are its
# operator's
RUN = (
    "apt", "base-files", "bash", "ca-certificates", "coreutils", "coreutils-*", "curl", "dash", "dpkg",
    "findutils", "gnu-coreutils", "gpgv", "grep", "grub-*", "gzip", "init", "iproute2", "iptables",
    "libapt-pkg*", "libc-bin", "libc6", "libcap2", "libcrypt1", "libcurl*", "libgcc-s1", "libgomp1", "libkmod2",
    "liblzma5", "libnftables1", "libnss-*", "libpam*", "libpcre2-8-0", "libpython3*", "libseccomp2",
    "libselinux1", "libssl3*", "libstdc++6", "libsystemd*", "libudev1", "libzstd1", "login", "mount",
    "nftables", "nginx*", "openssh-server", "openssh-sftp-server", "openssl", "passwd", "perl-base", "procps",
    "python3", "python3-minimal", "python3.*", "sed", "shim-signed*", "sqv", "sudo", "sudo-rs", "systemd*",
    "tar", "udev", "util-linux*", "zlib1g",
    # ...and what those are linked with or read, and what the gateway's nginx loads
    "cron", "cron-daemon-common", "dbus*", "debianutils", "diffutils", "gawk", "ifupdown", "init-system-helpers",
    "kmod", "libacl1", "libapparmor1", "libattr1", "libaudit1", "libblkid1", "libbpf1", "libbz2-1.0", "libcap-ng0",
    "libcom-err2", "libdb5.3*", "libdbus-1-3", "libelf1*", "libexpat1", "libffi8", "libgcrypt20", "libgmp10",
    "libgpg-error0", "libgssapi-krb5-2", "libk5crypto3", "libkeyutils1", "libkrb5*", "libluajit-5.1-2", "liblz4-1",
    "libmd0", "libmnl0", "libmount1", "libncursesw6", "libnftnl11", "libnginx-mod-*", "libpolkit-*", "libpopt0",
    "libreadline8*", "libsmartcols1", "libsqlite3-0", "libtinfo6", "libuuid1", "libxtables12", "libxxhash0",
    "logrotate", "lua-*", "mawk", "polkitd",
)  # fmt: skip

# The runtimes of containers next to the engines' own packages
RUNTIMES = ("aardvark-dns", "catatonit", "conmon", "containerd", "crun", "netavark", "runc", "tini")


@dataclass(frozen=True)
class AptPolicy:
    """apt's policy for a package."""

    candidate: str
    """The version that it would install; empty for none."""
    origin: str
    """The name that the archive with the installed version, or else the package, gives itself."""
    security: list[str]
    """Versions above the installed one that an archive of security updates has."""


@dataclass(frozen=True)
class KeptFile:
    """A file beside those that are kept of a driver."""

    name: str
    size: int
    """Bytes; -1 for what is no file."""
    sha256: str
    """Empty where its bytes were not read: it has not changed since the list was written."""


@dataclass(frozen=True)
class StoredDriver:
    """A driver whose package files are kept."""

    version: str
    listed: str | None
    """The list of their sums; None without one."""
    files: list[KeptFile]


@dataclass(frozen=True)
class AptPin:
    """A paragraph of apt's preferences."""

    path: str
    packages: str
    pin: str
    priority: str


@dataclass(frozen=True)
class PackageSurvey:
    """The installed packages of the driver and around it, and apt's plan."""

    os_id: str
    os_version: str
    architecture: str
    packages: PackageStates
    """Those of the driver's and of kernels."""
    policy: dict[str, AptPolicy]
    """Of the driver's and of held packages."""
    unattended: bool
    blacklist: list[str]
    reboot: bool
    reboot_for: list[str]
    sources: list[list[str]]
    """(release, file) of each source of NVIDIA's."""
    runs: list[str]
    """The files that an installation from a .run file has left."""
    recorded: list[list[str]]
    record: str
    kept: list[StoredDriver]
    pins: list[AptPin]


@dataclass(frozen=True)
class PackageFileFinding:
    """A package's file that is not as it was brought."""

    package: str
    path: str
    what: str


@dataclass(frozen=True)
class PackageFiles:
    """All that were found."""

    findings: list[PackageFileFinding]
    files: int
    """That were looked at."""
    strict: list[str]
    """The packages of which everything was."""
    moved: list[list[str]]
    """(path, where to, package) of diversions by hand."""
    overridden: list[str]
    """Paths whose mode and owner dpkg's statoverride sets."""


@dataclass(frozen=True)
class NvidiaArchiveUpdate:
    """The exit status and the output of apt's update of only NVIDIA's archive."""

    source: str
    """The file that names it; empty without one."""
    status: int
    said: str


def container_packages(container_supply: ContainerSupply) -> tuple[str, ...]:
    """The packages that containers run by."""
    return (*container_facts.relevant_packages(container_supply), *RUNTIMES)


PACKAGES: Section[PackageSurvey] = Section(
    "packages",
    PackageSurvey,
    lambda scene: {
        "packages": [*OF_A_DRIVER, *KERNEL_PATTERNS],
        "drivers": list(OF_A_DRIVER),
        "store": store_folder(scene.rig.roots),
        "record": driver_files.driver_record_path(scene.rig.roots),
        "deep": scene.deep,
    },
    limit=60.0,
    blind="packages installed without dpkg",
    start_order=7,
)
FILES: Section[PackageFiles] = Section(
    "package_file_changes",
    PackageFiles,
    lambda scene: {
        "strict": [*(OF_A_DRIVER if scene.rig.cards else ()), *BOOTED],
        "run": [
            *RUN,
            *host_probe.required_packages(scene.rig),
            *(container_packages(scene.rig.container_supply) if scene.rig.containers else ()),
        ],
        "deep": scene.deep,
    },
    limit=60.0,
    blind="packaged configuration files on which Rigwright does not depend",
    start_order=8,
)
ARCHIVE: Section[NvidiaArchiveUpdate] = Section(
    "nvidia_apt_source",
    NvidiaArchiveUpdate,
    lambda scene: (
        {
            "source": SOURCE,
            "authority": job_network(scene.rig.roots, scene.rig.network).authority,
            "proxy": job_network(scene.rig.roots, scene.rig.network).proxy,
            "none": job_network(scene.rig.roots, scene.rig.network).no_proxy,
        }
        if scene.rig.driver.managed
        else None
    ),
    limit=70.0,
    blind="a foreign package that an archive's signer signed",
    start_order=2,
)
