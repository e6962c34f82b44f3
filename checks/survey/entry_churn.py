"""Entries of the fingerprint that a host changes by itself: left out, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChurnRule:
    """Entries that are left out."""

    kind: str
    """Shell pattern of the names of their classes."""
    keys: tuple[str, ...]
    """Shell patterns of their keys; `**` takes slashes, too, and `*` none."""
    reason: str
    states: str = "*"
    """Shell pattern of their states: another state at this place stays an entry."""
    while_active: tuple[str, ...] = ()
    """Services of which one has to run for this; empty for none. A path stands for a program that has to be there."""


KUBERNETES = ("kubelet.service", "k3s.service", "k3s-agent.service", "snap.microk8s.daemon-kubelite.service")
CHURN: tuple[ChurnRule, ...] = (
    ChurnRule(
        "units",
        tuple(
            f"/run/systemd/transient/{name}{ending}"
            # no services: their files name a program
            for name in (
                *("run-[urp]*.scope", "session-*.scope", "user@*.service", "docker-*.scope"),
                *("libpod-*.scope", "crio-*.scope", "machine-*.scope", "snap.*.scope", "init.scope", "user-*.slice"),
            )
            for ending in ("", ".d/*")
        ),
        "transient units of sessions, containers and commands: they end with these",
    ),
    ChurnRule("units", ("/etc/systemd/system/snap-*.mount", "/etc/systemd/system/*.wants/snap-*.mount"), "snap mounts"),
    ChurnRule("mounts", ("mount /run/user/**",), "folders of users that are logged in"),
    ChurnRule("mounts", ("mount /snap/**", "mount /var/snap/**", "mount /run/snapd/**"), "snap mounts"),
    ChurnRule(
        "mounts",
        (
            *(
                "mount /var/lib/docker/**",
                "mount /run/docker/**",
                "mount /var/lib/containers/**",
                "mount /run/containerd/**",
            ),
            *("mount /var/lib/containerd/**", "mount /var/lib/kubelet/**", "mount /run/netns/**", "mount /run/netns"),
        ),
        "containers: come and go with them",
    ),
    ChurnRule("mounts", ("mount /run/credentials/**",), "credentials of services that are running", "*tmpfs *"),
    ChurnRule("mounts", ("mount /run/credentials/**",), "credentials of services that are running", "ramfs *"),
    *(
        ChurnRule("mounts", tuple(f"mount {place}" for place in places), "systemd mounts the kernel's own", f"{kind} *")
        for kind, places in (
            ("proc", ("/proc",)),
            ("sysfs", ("/sys",)),
            ("devtmpfs", ("/dev",)),
            ("devpts", ("/dev/pts",)),
            ("tmpfs", ("/dev/shm", "/run", "/run/lock")),  # noqa: S108 (names of places)
            ("cgroup2", ("/sys/fs/cgroup",)),
            ("hugetlbfs", ("/dev/hugepages",)),
            ("mqueue", ("/dev/mqueue",)),
            ("autofs", ("/proc/sys/fs/binfmt_misc",)),
            ("binfmt_misc", ("/proc/sys/fs/binfmt_misc",)),
            ("securityfs", ("/sys/kernel/security",)),
            ("debugfs", ("/sys/kernel/debug",)),
            ("tracefs", ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")),
            ("configfs", ("/sys/kernel/config",)),
            ("fusectl", ("/sys/fs/fuse/connections",)),
            ("pstore", ("/sys/fs/pstore",)),
            ("bpf", ("/sys/fs/bpf",)),
            ("efivarfs", ("/sys/firmware/efi/efivars",)),
            ("rpc_pipefs", ("/run/rpc_pipefs",)),
            ("nsfs", ("/run/**",)),
        )
    ),
    ChurnRule("listeners", ("udp *:ephemeral",), "ephemeral ports of clients"),
    *(
        ChurnRule("packet_filters", keys, "addresses that services shut out", while_active=services)
        for keys, services in (
            (
                ("* set f2b-*", "* set addr-set-*", "* set addr6-set-*", "* chain f2b-*", "*iptables* chain f2b-*"),
                ("fail2ban.service",),
            ),
            (("* set crowdsec*",), ("crowdsec.service", "crowdsec-firewall-bouncer.service")),
            (("* set sshguard*",), ("sshguard.service",)),
        )
    ),
    *(
        ChurnRule("packet_filters", keys, "chains that engines write for containers", while_active=services)
        for keys, services in (
            (
                (
                    *(
                        f"*table * chain DOCKER{name}"
                        for name in ("", "-ISOLATION*", "-FORWARD", "-BRIDGE", "-CT", "-INTERNAL")
                    ),
                    "*table * chain POSTROUTING masquerade **",
                ),
                ("docker.service", "snap.docker.dockerd.service"),
            ),
            (("* chain KUBE-*",), KUBERNETES),
            (("* chain CNI-*",), (*KUBERNETES, "containerd.service", "crio.service", "docker.service")),
            (("* chain NETAVARK*",), ("/usr/lib/podman/netavark", "/usr/libexec/podman/netavark")),
        )
    ),
    ChurnRule(
        "network_hooks",
        (
            "route ? ** dev docker*",
            "route ? ** dev br-*",
            "route ? ** dev veth*",
            "route ? ** dev cni*",
            "route ? ** linkdown*",
            *(
                f"address {name}* **"  # an address has a slash before its prefix's length
                for name in ("docker", "br-", "veth", "cni", "virbr", "lxc", "podman", "flannel", "cali", "kube-")
            ),
            *("address cilium* **", "address lo 127.0.0.1/8", "address lo ::1/128", "address * fe80:**"),
        ),
        "networks of containers, and addresses that the kernel gives",
    ),
    ChurnRule("network_hooks", ("/run/systemd/network/*-netif-*", "/etc/network/run/*"), "state of interfaces"),
    *(
        ChurnRule("network_hooks", (f"routing rule ? {number}",), "the kernel's own routing rules", state)
        for number, state in ((0, "from all lookup local"), (32766, "from all lookup main"))
    ),
    ChurnRule("network_hooks", ("routing rule ? 32767",), "the kernel's own routing rules", "from all lookup default"),
    ChurnRule("etc", ("/etc/resolv.conf.*",), "the resolver, which DHCP writes"),
    ChurnRule("name_service", ("/etc/resolv.conf",), "the resolver, which DHCP writes", "link to *run/*"),
    ChurnRule("network_hooks", ("/etc/resolvconf/run/**",), "the resolver, which DHCP writes"),
    ChurnRule(
        "root_tools",
        (
            *(
                "/root/.lesshst",
                "/root/.viminfo",
                "/root/.wget-hsts",
                "/root/.python_history",
                "/root/.node_repl_history",
            ),
            *("/root/.sqlite_history", "/root/.mysql_history", "/root/.psql_history", "/root/.rediscli_history"),
            *("/root/.Xauthority", "/root/.sudo_as_admin_successful", "/root/.motd_shown", "/root/.nvidia-settings-rc"),
            *(
                "/root/.*_history",
                "/root/.*-history",
                "/root/nohup.out",
                "/root/.ansible_galaxy",
                "/root/.ansible_async*",
            ),
        ),
        "state that programs keep of their use",
    ),
    ChurnRule(
        "shell_start",
        (
            "/root/.bash_history*",
            "/home/*/.bash_history*",
            "/root/.zsh_history*",
            "/home/*/.zsh_history*",
            *("/root/.lesshst", "/home/*/.lesshst"),
        ),
        "histories of shells",
    ),
    ChurnRule(
        "cron", ("/var/spool/cron/atjobs/.SEQ", "/var/spool/cron/atspool/*"), "the number of the next job, output"
    ),
    ChurnRule("cron", ("/var/spool/cron/anacron/*", "/var/spool/anacron/*"), "days of the last runs"),
    ChurnRule(
        "etc", ("/etc/mtab", "/etc/.pwd.lock", "/etc/.updated", "/etc/.java/**", "/etc/*.lock"), "marks of programs"
    ),
    ChurnRule(
        "etc",
        (
            "/etc/passwd-",
            "/etc/group-",
            "/etc/shadow-",
            "/etc/gshadow-",
            "/etc/subuid-",
            "/etc/subgid-",
            "/etc/*.ucf-old",
        ),
        "copies that a change of accounts makes",
    ),
    ChurnRule(
        "units",
        # it is the end of the name: `x.dpkg-y.service` is a service
        tuple(f"/etc/systemd/system/**.dpkg-{word}" for word in ("old", "dist", "new", "tmp", "bak", "remove")),
        "copies that dpkg keeps",
    ),
    ChurnRule("ordinary_settings", ("/etc/adjtime",), "how wrong the hardware clock is"),
    ChurnRule("mounts", ("/etc/lvm/archive/*", "/etc/lvm/backup/*", "/etc/lvm/cache/*"), "LVM's copies of its state"),
    ChurnRule("mounts", ("/etc/iscsi/nodes/**", "/etc/iscsi/send_targets/**"), "sessions of iSCSI"),
    ChurnRule(
        "boot", ("/boot/grub/grubenv", "/boot/efi/loader/random-seed", "/boot/loader/random-seed"), "marks of boots"
    ),
    ChurnRule(
        "security_modules",
        ("/var/lib/apparmor/cache*", "/etc/apparmor.d/cache/**", "/etc/apparmor.d/cache.d/**"),
        "caches",
    ),
    ChurnRule(
        "*",
        tuple(f"{folder}/.*.sw[px]" for folder in ("/etc", "/etc/**", "/root")),
        "files of an editor that is open: hidden, and none that runs",
        "file 0[046][046][046] root:root*",
    ),
)
