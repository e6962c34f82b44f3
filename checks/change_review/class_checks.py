"""The check of each class of entries: its id, what it calls the class, and what a change of it can do."""

from __future__ import annotations

from dataclasses import dataclass

PACKAGES = "packages"
"""Class of changes that are packages."""


@dataclass(frozen=True)
class ClassCheck:
    """A check of a class."""

    id: str
    """Stable, for waivers and reports name it: new ones are appended, and none is used again."""
    name: str
    """Name of the class."""
    label: str
    """Name of the class in lines of changes."""
    why: str
    """Consequence of a change without a review."""


CLASS_CHECKS = (
    ClassCheck("X03", PACKAGES, "packages", "a further package adds units, timers, accounts or rules"),
    ClassCheck("X04", "accounts", "accounts", "a further account, password or shell is a way to log in"),
    ClassCheck("X05", "groups", "groups", "members of groups such as sudo, docker or disk can become root"),
    ClassCheck("X06", "account_files", "defaults of accounts", "other ranges of ids let a user become another one"),
    ClassCheck("X07", "account_database_files", "account files", "a user that can write them makes itself root"),
    ClassCheck("X08", "sudo", "sudo rules", "a further rule lets its user become root"),
    ClassCheck("X09", "pam", "PAM services", "another module or option allows logins without the password"),
    ClassCheck("X10", "name_service", "name service", "another source of accounts can add users and groups"),
    ClassCheck("X11", "sshd", "SSH server", "another setting admits other users, keys or passwords"),
    ClassCheck("X12", "sshd_keys", "SSH server's keys", "with another key, the host can be impersonated"),
    ClassCheck("X13", "authorised_keys", "authorised keys", "the owner of a further key can log in"),
    ClassCheck("X14", "ssh_client", "SSH client", "root's connections to other hosts can be sent elsewhere"),
    ClassCheck("X15", "root_keys", "root's keys", "root's credentials reach other machines"),
    ClassCheck("X16", "polkit", "polkit rules", "a further rule lets a user act as root"),
    ClassCheck("X17", "dbus", "D-Bus services", "a D-Bus service runs as root when a user calls it"),
    ClassCheck("X18", "privileged_files", "setuid and capability files", "any user runs such a program as root"),
    ClassCheck("X19", "units", "systemd units", "a unit, timer or drop-in runs as root, or changes a service"),
    ClassCheck("X20", "systemd_programs", "systemd's programs", "they run as root at boot, sleep and shutdown"),
    ClassCheck("X21", "systemd_settings", "systemd's settings", "they set the environment and limits of all services"),
    ClassCheck("X22", "credentials", "credentials of services", "services start with other secrets"),
    ClassCheck("X23", "init_scripts", "boot scripts", "a boot runs them as root"),
    ClassCheck("X24", "cron", "cron and at jobs", "a further job runs at any time, most of them as root"),
    ClassCheck("X25", "udev", "udev rules", "a rule runs programs as root, or opens devices, when hardware appears"),
    ClassCheck("X26", "declared_files", "tmpfiles and sysusers", "a boot creates, opens or removes files as they say"),
    ClassCheck("X27", "logrotate", "logrotate scripts", "root runs the scripts once a day"),
    ClassCheck("X28", "shell_start", "shell start files", "root's next shell runs them"),
    ClassCheck("X29", "login_messages", "login scripts", "a login runs them as root"),
    ClassCheck("X30", "interpreter_start", "interpreter start files", "each program of that language runs them"),
    ClassCheck("X31", "root_tools", "settings of root's tools", "root's tools download or run other programs"),
    ClassCheck("X32", "cloud_init", "cloud-init", "a boot runs and applies it as root"),
    ClassCheck("X33", "programs", "programs", "root runs programs by their name on the PATH"),
    ClassCheck("X34", "libraries", "libraries", "the loader loads the first matching library into every program"),
    ClassCheck("X35", "loader", "dynamic loader", "its settings decide which libraries programs load"),
    ClassCheck("X36", "alternatives", "alternatives", "a link decides which program a name runs"),
    ClassCheck("X37", "containers", "container engines", "a container with rights on the host is root there"),
    ClassCheck("X38", "service_programs", "programs of services", "root's services run them at their next start"),
    ClassCheck(
        "X39",
        "slice_processes",
        "processes in Rigwright's slices",
        "they use memory, cards or names of Rigwright's services",
    ),
    ClassCheck("X40", "apt_keys", "apt's keys", "the owner of a further key signs packages that root installs"),
    ClassCheck("X41", "apt_sources", "apt's sources", "another archive or preference replaces packages"),
    ClassCheck("X42", "apt_credentials", "apt's credentials", "packages come from another account or mirror"),
    ClassCheck("X43", "apt_settings", "apt's settings", "hooks run as root at each update, and checks can be off"),
    ClassCheck("X44", "maintainer_scripts", "maintainer scripts", "root runs them when a package changes"),
    ClassCheck("X45", "module_settings", "kernel module settings", "options and commands apply when a module loads"),
    ClassCheck("X46", "kernel_modules", "kernel modules", "a further module has all rights of the kernel"),
    ClassCheck("X47", "kernel_hooks", "kernel hooks", "root runs them when a kernel or an initramfs is made"),
    ClassCheck("X48", "boot", "boot files", "the next boot starts another kernel, or root's programs before it"),
    ClassCheck("X49", "sysctl", "kernel parameters", "some of them run programs as root or open the network"),
    ClassCheck("X50", "mounts", "file systems", "a mount hides or replaces the files below it"),
    ClassCheck("X51", "packet_filters", "packet filters", "ports are open to other machines, or closed to clients"),
    ClassCheck("X52", "network_hooks", "network settings", "scripts run as root when an interface changes"),
    ClassCheck("X53", "trusted_cas", "trusted authorities", "a further authority can impersonate every archive"),
    ClassCheck("X54", "tls_keys", "keys of certificates", "with another key, a service can be impersonated"),
    ClassCheck("X55", "security_modules", "security modules", "a profile that is off confines nothing"),
    ClassCheck("X56", "secret_copies", "copies of secrets", "users of the host can read keys of the gateway"),
    ClassCheck("X57", "driver_settings", "driver settings", "every process that uses a card loads other libraries"),
    ClassCheck("X58", "listeners", "listeners", "a further listener is reachable from the network"),
    ClassCheck("X59", "host_names", "host names", "names lead to other machines"),
    ClassCheck("X60", "logging", "logging", "changes are no longer logged"),
    ClassCheck("X61", "ordinary_settings", "ordinary settings", "the host behaves differently"),
    ClassCheck("X62", "top_folder", "top folder", "programs and backups find other folders at /"),
    ClassCheck("X63", "etc", "other settings", "programs read settings without a review"),
    ClassCheck("X64", "ledger", "packages and folders of the ledger", "removing the rig removes them"),
)
