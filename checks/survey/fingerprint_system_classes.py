"""Classes of the fingerprint: packages, kernel, boot, network and ordinary settings."""

from __future__ import annotations

from checks.survey.fingerprint_class import EntryClass, words

SYSTEM: tuple[EntryClass, ...] = (
    EntryClass(
        "apt_keys",
        "keys that apt trusts",
        words(
            """
            /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/** /etc/apt/keyrings/** /usr/share/keyrings/**
            /usr/local/share/keyrings/**
            """
        ),
    ),
    EntryClass(
        "apt_sources",
        "archives and preferences of apt",
        words(
            """
            /etc/apt/sources.list /etc/apt/sources.list.d/** /etc/apt/preferences /etc/apt/preferences.d/**
            /etc/apt/mirrors/** /etc/apt/mirrorlist*
            """
        ),
    ),
    EntryClass(
        "apt_credentials",
        "credentials of apt",
        words(
            """
            /etc/apt/auth.conf /etc/apt/auth.conf.d/**
            """
        ),
        secret=True,
    ),
    EntryClass(
        "apt_settings",
        "settings and hooks of apt and dpkg",
        words(
            """
            /etc/apt/** /usr/share/apt/** /etc/dpkg/** /root/.dpkg.cfg /var/lib/dpkg/diversions
            /var/lib/dpkg/statoverride /var/lib/dpkg/triggers/File /etc/needrestart/** /etc/apticron/**
            /etc/default/unattended* /etc/update-manager/** /etc/debconf.conf /etc/reprepro/** /etc/apt-cacher*/**
            /etc/auto-apt* /etc/default/apt* /etc/aptitude* /root/.aptitude/config
            """
        ),
    ),
    EntryClass(
        "maintainer_scripts",
        "scripts that dpkg runs when packages change",
        words(
            """
            /var/lib/dpkg/info/*.preinst /var/lib/dpkg/info/*.postinst /var/lib/dpkg/info/*.prerm
            /var/lib/dpkg/info/*.postrm /var/lib/dpkg/info/*.config
            """
        ),
    ),
    EntryClass(
        "module_settings",
        "settings of kernel modules",
        words(
            """
            /etc/modules /etc/modprobe.d/** /run/modprobe.d/** /usr/lib/modprobe.d/** /usr/local/lib/modprobe.d/**
            /etc/modules-load.d/** /run/modules-load.d/** /usr/lib/modules-load.d/**
            /usr/local/lib/modules-load.d/** /etc/depmod.d/** /run/depmod.d/** /usr/lib/depmod.d/**
            /usr/local/lib/depmod.d/** /etc/default/kmod /etc/modprobe.conf
            """
        ),
    ),
    EntryClass(
        "kernel_modules",
        "kernel modules that come from outside a kernel's package, and those loaded",
        words(
            """
            /usr/lib/modules/*/updates/** /usr/lib/modules/*/extra/** /usr/lib/modules/*/misc/**
            /usr/lib/modules/*/weak-updates/** /usr/lib/modules/*/modules.* /usr/lib/modules/*/* /var/lib/dkms/*
            /var/lib/dkms/*/* /var/lib/dkms/mok* /etc/dkms/** /usr/src/*/dkms.conf /usr/lib/modules/*/kernel/**
            /var/lib/shim-signed/**
            """
        ),
        readers=("foreign_modules",),
    ),
    EntryClass(
        "kernel_hooks",
        "hooks and settings of kernels and initramfs",
        words(
            """
            /etc/kernel/** /usr/lib/kernel/** /run/kernel/** /usr/share/kernel/** /etc/kernel-img.conf
            /etc/initramfs-tools/** /usr/share/initramfs-tools/** /etc/dracut.conf /etc/dracut.conf.d/**
            /usr/lib/dracut/** /etc/initramfs/** /etc/kexec* /etc/default/kexec* /etc/default/kdump*
            /etc/mkinitcpio* /etc/plymouth/** /etc/cryptsetup*/** /etc/default/linux* /etc/cmdline.d/**
            """
        ),
    ),
    EntryClass(
        "boot",
        "kernels, initramfs and boot loader",
        words(
            """
            /boot/** /efi/** /run/nextroot/** /etc/default/grub /etc/default/grub.d/** /etc/grub.d/** /etc/lilo.conf
            /etc/default/u-boot /etc/u-boot*/** /etc/extlinux* /etc/systemd/boot/**
            """
        ),
        readers=("kernel_command_line",),
    ),
    EntryClass(
        "sysctl",
        "kernel parameters: files and values in force",
        words(
            """
            /etc/sysctl.d/** /run/sysctl.d/** /usr/lib/sysctl.d/** /usr/local/lib/sysctl.d/** /etc/sysctl.conf
            /etc/sysfs.conf /etc/sysfs.d/**
            """
        ),
        readers=("kernel_parameters",),
    ),
    EntryClass(
        "mounts",
        "file systems: declared and mounted",
        words(
            """
            /etc/fstab /etc/crypttab /etc/auto.* /etc/auto.master.d/** /etc/autofs* /etc/exports /etc/exports.d/**
            /etc/mdadm/** /etc/lvm/** /etc/multipath* /etc/multipath/** /etc/iscsi/** /etc/zfs/** /etc/nfs.conf
            /etc/nfs.conf.d/** /etc/nfsmount.conf* /etc/idmapd.conf /etc/default/nfs* /etc/fuse.conf /etc/udisks2/**
            /etc/quota*
            """
        ),
        readers=("mounts",),
    ),
    EntryClass(
        "packet_filters",
        "packet filters: files and rules in force",
        words(
            """
            /etc/nftables.conf /etc/nftables.d/** /etc/nftables/** /etc/iptables/** /etc/default/ufw /etc/ufw/**
            /usr/lib/ufw/** /usr/share/ufw/** /etc/firewalld/** /usr/lib/firewalld/** /etc/fail2ban/** /etc/ipset*
            /etc/default/netfilter* /etc/shorewall*/** /etc/ferm/** /etc/arptables* /etc/ebtables*
            /usr/share/netfilter-persistent/** /etc/crowdsec/**
            """
        ),
        readers=("packet_filters",),
    ),
    EntryClass(
        "network_hooks",
        "network settings and scripts that run when an interface changes",
        words(
            """
            /etc/network/** /etc/networkd-dispatcher/** /usr/lib/networkd-dispatcher/** /etc/dhcp/**
            /etc/NetworkManager/** /usr/lib/NetworkManager/** /run/NetworkManager/conf.d/** /etc/ppp/**
            /run/NetworkManager/system-connections/** /etc/netplan/** /run/netplan/** /usr/lib/netplan/**
            /etc/systemd/network/** /run/systemd/network/** /usr/lib/systemd/network/** /etc/dhcpcd.conf
            /usr/local/lib/systemd/network/** /etc/wpa_supplicant/** /etc/wireguard/** /etc/openvpn/**
            /etc/iproute2/** /etc/ethertypes /etc/dhcpcd* /usr/lib/dhcpcd/** /etc/resolvconf/** /etc/strongswan*
            /etc/strongswan.d/** /etc/ipsec* /etc/ipsec.d/** /etc/swanctl/** /etc/frr/** /etc/keepalived/**
            /var/lib/tailscale/* /etc/default/tailscaled /etc/ifplugd/**
            """
        ),
        readers=("traffic_programs",),
    ),
    EntryClass(
        "trusted_cas",
        "certificate authorities that the host trusts, and OpenSSL's settings",
        words(
            """
            /etc/ssl/certs/** /etc/ca-certificates* /etc/ca-certificates/** /usr/share/ca-certificates/**
            /usr/local/share/ca-certificates/** /etc/ssl/*.cnf /etc/ssl/*.pem /etc/pki/** /etc/gnutls/**
            /etc/crypto-policies/** /usr/share/ca-certificates-*/** /etc/java*/security/**
            """
        ),
    ),
    EntryClass(
        "tls_keys",
        "private keys of certificates",
        words(
            """
            /etc/ssl/private/** /etc/letsencrypt/**
            """
        ),
        secret=True,
    ),
    EntryClass(
        "security_modules",
        "settings of AppArmor, SELinux and other security modules, and their state",
        words(
            """
            /etc/apparmor/** /etc/apparmor.d/** /etc/selinux/** /etc/tomoyo/** /etc/ima/** /var/lib/apparmor/*
            /etc/keys/** /etc/evm* /etc/default/apparmor /usr/share/apparmor/** /etc/aide/** /etc/tripwire/**
            /etc/falco/** /etc/security-limits*
            """
        ),
        readers=("security_modules",),
    ),
    EntryClass(
        "secret_copies",
        "readable copies of Rigwright's secrets in usual places, programs that have secrets open, keys in the kernel",
        readers=("secret_copies", "open_secrets", "kernel_keys"),
    ),
    EntryClass(
        "driver_settings",
        "settings of NVIDIA's driver and libraries",
        words(
            """
            /etc/nvidia/** /etc/OpenCL/** /etc/vulkan/** /usr/share/nvidia/** /etc/X11/** /root/.nv/** /etc/egl/**
            /etc/glvnd/** /etc/modprobe.d/nvidia* /etc/ld.so.conf.d/*cuda*
            """
        ),
    ),
)

ORDINARY: tuple[EntryClass, ...] = (
    EntryClass(
        "listeners",
        "listening sockets and their programs",
        readers=("listeners",),
        reaches_us=False,
    ),
    EntryClass(
        "host_names",
        "host name",
        words(
            """
            /etc/hostname /etc/networks /etc/mailname /etc/machine-info /etc/machine-id
            /etc/hostid /etc/dnsmasq.conf /etc/dnsmasq.d/** /etc/unbound/** /etc/bind/** /etc/avahi/** /etc/services
            /etc/protocols /etc/rpc
            """
        ),
        reaches_us=False,
    ),
    EntryClass(
        "logging",
        "settings of logs and auditing",
        words(
            """
            /etc/rsyslog.conf /etc/rsyslog.d/** /etc/syslog-ng/** /etc/audit/** /etc/audisp/** /etc/logcheck/**
            /etc/default/rsyslog /etc/libaudit.conf /etc/acct*
            """
        ),
        reaches_us=False,
    ),
    EntryClass(
        "ordinary_settings",
        "messages, time, language and other ordinary settings",
        words(
            """
            /etc/motd /etc/motd.d/** /etc/issue* /etc/issue.d/** /etc/timezone /etc/localtime /etc/adjtime
            /etc/locale.* /etc/default/keyboard /etc/default/console-setup /etc/papersize /etc/console-setup/**
            /etc/vconsole.conf /etc/chrony/** /etc/ntp* /etc/ntpsec/** /etc/debian_version /etc/os-release
            /etc/lsb-release /etc/legal /etc/fonts/** /etc/terminfo/** /etc/calendar/** /etc/emacs/** /etc/groff/**
            /etc/magic* /etc/mime.types /etc/mke2fs.conf /etc/dictionaries-common/** /etc/sgml/** /etc/xml/**
            /etc/opt/** /etc/kernel/README* /etc/manpath.config /etc/popularity-contest.conf /etc/pager*
            /etc/default/hwclock
            """
        ),
        reaches_us=False,
    ),
    EntryClass(
        "top_folder",
        "entries of the file system's top folder",
        words(
            """
            /* /srv/* /mnt/* /media/*
            """
        ),
    ),
    EntryClass(
        "etc",
        "all other settings",
        ("/etc/**",),
    ),
)
