"""Files that maintainer scripts make from packaged templates: compared with the template, or made anew from it."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterator

from checks.survey.host import common, dpkg
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.host_entry import HostEntry

COPIES = {
    "/etc/profile": ("/usr/share/base-files/profile",),
    "/etc/motd": ("/usr/share/base-files/motd",),
    "/root/.bashrc": ("/usr/share/base-files/dot.bashrc",),
    "/root/.profile": ("/usr/share/base-files/dot.profile",),
    "/etc/ssh/sshd_config": ("/usr/share/openssh/sshd_config",),
    "/etc/locale.gen": ("/usr/share/i18n/locale.gen",),
    "/etc/inputrc": ("/usr/share/readline/inputrc",),
    "/etc/rsyslog.conf": ("/usr/share/rsyslog/rsyslog.conf",),
    "/etc/apt/apt.conf.d/20auto-upgrades": ("/usr/share/unattended-upgrades/20auto-upgrades",),
    "/etc/apt/apt.conf.d/50unattended-upgrades": ("/usr/share/unattended-upgrades/50unattended-upgrades",),
    "/etc/initramfs-tools/modules": ("/usr/share/initramfs-tools/modules",),
    "/etc/nanorc": ("/usr/share/nano/nanorc",),
    "/etc/vim/vimrc": ("/usr/share/vim/vimrc",),
    "/etc/cron.d/popularity-contest": ("/usr/share/popularity-contest/cron.d",),
    "/etc/default/grub": ("/usr/share/grub/default/grub",),
    "/etc/rc.local": ("/usr/share/rc.local",),
    "/etc/chrony/chrony.conf": ("/usr/share/chrony/chrony.conf",),
}
"""File -> packaged templates that a maintainer script copies."""
EMPTY = {
    "/etc/environment": "libpam-modules",
    "/etc/security/opasswd": "libpam-modules",
    "/etc/subuid": "login",
    "/etc/subgid": "login",
    "/etc/.pwd.lock": "passwd",
    "/etc/nologin": "",
}
"""Files that packages make without content; a lock has none."""
WRITTEN = {
    "/etc/hosts.allow": "libwrap0",
    "/etc/hosts.deny": "libwrap0",
    "/etc/python3/debian_config": "python3",
    "/etc/networks": "netbase",
    "/etc/modules": "kmod",
    "/etc/default/locale": "locales",
}
"""Files whose text the scripts of a package write."""
STAMPS = ("/etc/.updated", "/var/.updated")
STAMP = re.compile(r"(?:#[^\n]*\n)+TIMESTAMP_NSEC=[0-9]+\n")
NSS = {
    "libnss-systemd": {"passwd": ["systemd"], "group": ["systemd"], "shadow": ["systemd"], "gshadow": ["systemd"]},
    "libnss-myhostname": {"hosts": ["myhostname"]},
    "libnss-mymachines": {"hosts": ["mymachines"], "passwd": ["mymachines"], "group": ["mymachines"]},
    "libnss-resolve": {"hosts": ["resolve", "[!UNAVAIL=return]"]},
    "libnss-mdns": {"hosts": ["mdns4_minimal", "[NOTFOUND=return]"]},
}
"""Words that packages add to nsswitch.conf(5)."""
NSS_TEMPLATES = ("/usr/share/libc-bin/nsswitch.conf", "/usr/share/base-files/nsswitch.conf")
RESOLVER = "/etc/resolv.conf"
LEASES = "/var/lib/dhcp/dhclient*.leases"
LEASED = re.compile(r"(?m)^\s*option domain-name-servers ([\d., ]+);")
RESOLVER_LINE = re.compile(r"(?:nameserver\s+(\S+)|(?:search|domain)\s.*|#.*|)\s*")
UCF = "/var/lib/ucf"
PAM = "/usr/share/pam"
PROFILES = "/usr/share/pam-configs"


def attribute_templates(host: Attribution) -> None:
    """Explain entries by their templates."""
    sums, owners = _ucf()
    for entry in host.entries:
        if entry.origin or not entry.path or entry.key != entry.path:
            continue
        found = _copied(host, entry) or _made(host, entry)
        owner = owners.get(entry.path, "")
        if not found and entry.md5 and sums.get(entry.path) == entry.md5 and host.installed(owner):
            # ucf has what the package brought last, as dpkg has of a setting of its own; of one version it is the same
            versions = host.index.versions
            version = next((versions[base] for base in versions if base.partition(":")[0] == owner), "")
            same = host.content(entry) is not None and host.index.is_first(f"ucf {entry.path}", version, entry.md5)
            found = f"package {owner}" if same else ""
        if found:
            host.explain(entry, found)
        elif entry.path in sums or entry.path in COPIES:
            entry.expected_from = entry.expected_from or f"template of {owner or 'its package'}"


def _copied(host: Attribution, entry: HostEntry) -> str:
    templates = COPIES.get(entry.path, ())
    skeleton = f"/etc/skel/{entry.path.rpartition('/')[2]}"
    if re.fullmatch(r"/home/[^/]+/\.(?:bashrc|profile|bash_logout)", entry.path):
        content = host.packaged(skeleton)
        # it is its user's, and the owner is known from elsewhere
        same = content is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() == entry.md5
        return f"derived from {skeleton}" if same else ""
    for template in templates:
        content = host.packaged(template)
        plain = re.sub(rb"(?m)^###.*\n", b"", content or b"")
        if content is not None and host.content(entry) in (content, plain):
            return f"package {host.index.owners[template].package}"
    package = EMPTY.get(entry.path)
    if package is not None and host.content(entry) == b"" and (not package or host.installed(package)):
        return f"package {package}" if package and package != "passwd" else "derived from nothing: an empty file"
    return ""


def _made(host: Attribution, entry: HostEntry) -> str:
    if entry.path == "/etc/nsswitch.conf":
        return _name_services(host, entry)
    if entry.path == "/etc/shells":
        return _shells(host, entry)
    if entry.path in WRITTEN:
        script, text = _words(_script(host, WRITTEN[entry.path])), _words(host.text(entry))
        return f"package {WRITTEN[entry.path]}" if text and text in script else ""
    if entry.path in STAMPS and STAMP.fullmatch(host.text(entry)) and host.installed("systemd"):
        return "derived by systemd-update-done(8)"
    if entry.path == RESOLVER:
        return _leased_resolver(host, entry)
    if entry.path == "/etc/timezone":
        zone = host.text(entry).strip()
        same = os.path.realpath("/etc/localtime").endswith(f"/zoneinfo/{zone}") and host.installed("tzdata")
        return "derived from /etc/localtime" if zone and same else ""
    if re.fullmatch(r"/etc/pam\.d/common-[a-z-]+", entry.path):
        return _pam(host, entry)
    return ""


def _leased_resolver(host: Attribution, entry: HostEntry) -> str:
    """Name servers of a network's lease, as dhclient-script(8) writes them."""
    leased: set[str] = set()
    for path in sorted(glob.glob(f"{dpkg.ROOT}{LEASES}")):
        leased.update(*(re.split(r"[,\s]+", found) for found in LEASED.findall(common.begin(path))))
    rows = [RESOLVER_LINE.fullmatch(line) for line in common.lines(host.text(entry))]
    servers = {row[1] for row in rows if row and row[1]}
    return "derived from a lease of dhclient(8)" if servers and all(rows) and servers <= leased else ""


def _words(text: str) -> str:
    return " ".join(text.split())


def _script(host: Attribution, package: str) -> str:
    return next((host.script(base) for base in host.index.archives if base.partition(":")[0] == package), "")


def _ucf() -> tuple[dict[str, str], dict[str, str]]:
    """MD5 of each file that ucf(1) has put there, and the package that it belongs to."""
    sums = (line.split() for line in common.lines(common.begin(f"{dpkg.ROOT}{UCF}/hashfile")))
    owners = (line.split() for line in common.lines(common.begin(f"{dpkg.ROOT}{UCF}/registry")))
    return {row[1]: row[0] for row in sums if len(row) == 2}, {row[1]: row[0] for row in owners if len(row) == 2}


def _databases(text: str) -> dict[str, list[str]]:
    rows = (line.partition("#")[0].partition(":") for line in common.lines(text))
    return {name.strip(): value.split() for name, separator, value in rows if separator}


def _name_services(host: Attribution, entry: HostEntry) -> str:
    for template in NSS_TEMPLATES:
        content = host.packaged(template)
        if content is None:
            continue
        present, wanted = _databases(host.text(entry)), _databases(common.text(content))
        if present.keys() - wanted.keys():
            return ""
        for name, words in wanted.items():
            added = [
                word for package, tables in NSS.items() if host.installed(package) for word in tables.get(name, ())
            ]
            there = list(present.get(name, []))
            if [word for word in there if word not in added] != [word for word in words if word not in added]:
                return ""
        return f"derived from {template}"
    return ""


def _shells(host: Attribution, entry: HostEntry) -> str:
    """Shells that packages list; a state that update-shells(8) has of shells of root's own is no package's."""
    listed = {"/bin/sh", "/usr/bin/sh"}
    for path in ("/usr/share/debianutils/shells", *_below("/usr/share/debianutils/shells.d")):
        content = host.packaged(path) or b""
        listed |= {line for line in common.lines(common.text(content)) if line.startswith("/")}
    # packages of older releases have add-shell(8) called
    for line in common.lines(host.text(entry)):
        if line.startswith("#") or not line.strip() or line in listed:
            continue
        if set(dpkg.names(line)) & listed:
            continue
        owner = next(filter(None, map(host.index.owner, dpkg.names(line))), "")
        if not re.search(r"\badd-shell\b", host.script(owner)):
            return ""
    return "derived from shells of packages"


def _below(folder: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(f"{dpkg.ROOT}{folder}"))
    except OSError:
        names = []
    yield from (f"{folder}/{name}" for name in names)


def pam_profiles(host: Attribution) -> list[dict[str, str]]:
    """Packaged profiles of pam-auth-update(8) that are on by default, as it orders them."""
    found = []
    for path in _below(PROFILES):
        content = host.packaged(path)
        if content is None:
            continue
        fields: dict[str, str] = {}
        key = ""
        for line in common.lines(common.text(content)):
            if line[:1] in (" ", "\t"):
                fields[key] = f"{fields.get(key, '')}\n{line.strip()}".strip("\n")
            elif ":" in line:
                key, _, value = line.partition(":")
                fields[key] = value.strip()
        found.append({**fields, "file": path.rpartition("/")[2]})
    found.sort(key=lambda one: one["file"])
    return sorted(found, key=lambda one: -int(one.get("Priority", "0") or 0))


def render_pam(template: str, kind: str, profiles: list[dict[str, str]]) -> str:
    """A file as pam-auth-update makes it.

    Args:
        template: Its template's text.
        kind: "auth", "account", "password", "session" or "session-noninteractive".
        profiles: The profiles that are on, by priority.
    """
    group = kind.partition("-")[0]
    used = [
        one
        for one in profiles
        if not (kind.endswith("noninteractive") and one.get("Session-Interactive-Only") == "yes")
    ]
    blocks = {"Primary": "", "Additional": ""}
    for block in blocks:
        members = [
            one
            for one in used
            if one.get(f"{group.title()}-Type", "") == block
            and (group.title() in one or f"{group.title()}-Initial" in one)
        ]
        rows = []
        for place, one in enumerate(members):
            initial = one.get(f"{group.title()}-Initial")
            rows.append((initial if initial is not None and place == 0 else one.get(group.title(), "")).split("\n"))
        lines = [line for row in rows for line in row]
        for number, line in enumerate(lines):
            lines[number] = line.replace("=end", f"={len(lines) - number}") if block == "Primary" else line
        blocks[block] = "".join(f"{group}\t{line}\n" for line in lines if line)
    # without a module of its own, a stack jumps over the refusal that follows
    blocks["Primary"] = blocks["Primary"] or f"{group}\t[default=1] pam_permit.so\n"
    text = template
    for block, name in (("Primary", "primary"), ("Additional", "additional")):
        text = text.replace(f"${group}_{name}\n", blocks[block])
        text = text.replace(f"${group}_nonint_{name}\n", blocks[block])
    return text


def _pam(host: Attribution, entry: HostEntry) -> str:
    kind = entry.path.rpartition("common-")[2]
    content = host.packaged(f"{PAM}/common-{kind}")
    if content is None:
        return ""
    template, present = common.text(content), host.text(entry)
    profiles = pam_profiles(host)
    switched = [one for one in profiles if one.get("Default") == "yes"]
    if _plain(render_pam(template, kind, switched)) == _plain(present):
        return "derived from " + ", ".join([f"{PAM}/common-{kind}", *(f"{PROFILES}/{one['file']}" for one in switched)])
    return ""


def _plain(text: str) -> list[list[str]]:
    """Lines that count, by their words."""
    return [words for line in common.lines(text) if (words := line.partition("#")[0].split())]
