"""Derived files, computed anew from their inputs: enablement links, alternatives, certificates, the loader's cache.

An input that nothing explains explains nothing: each link and file counts only with what it comes from.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from checks.survey.host import common, dpkg, packaged_modes
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.host_entry import HostEntry

UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
USER_UNITS = ("/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
ENABLED = re.compile(r"/etc/systemd/(system|user)/(?:([^/]+)\.(wants|requires|upholds)/)?([^/]+)")
INSTALL = {"wants": "WantedBy", "requires": "RequiredBy", "upholds": "UpheldBy"}
RC = re.compile(r"/etc/rc[0-6S]\.d/[SK][0-9]{2}([^/]+)")
NGINX_MODULE = re.compile(r"/etc/nginx/modules-enabled/[0-9]{2}-([a-z0-9-]+)[.]conf")
ADMIN = "/var/lib/dpkg/alternatives"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
AUTHORITIES = "/usr/share/ca-certificates"
LOCAL_AUTHORITIES = "/usr/local/share/ca-certificates"
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
LIBRARIES = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib32", "/usr/lib32", "/libx32", "/usr/libx32")
CACHE_MAGIC = b"glibc-ld.so.cache1.1"
LINKS: dict[str, dict[str, tuple[str, ...]]] = {
    "/etc/resolv.conf": {
        "/run/systemd/resolve/stub-resolv.conf": ("systemd-resolved", "systemd"),
        "/run/systemd/resolve/resolv.conf": ("systemd-resolved", "systemd"),
        "/run/resolvconf/resolv.conf": ("resolvconf",),
        "/run/NetworkManager/resolv.conf": ("network-manager",),
    },
    "/etc/mtab": {"/proc/self/mounts": ("",)},
    "/usr/local/man": {"/usr/local/share/man": ("base-files",)},
    "/etc/dpkg/origins/default": {
        "/etc/dpkg/origins/debian": ("base-files",),
        "/etc/dpkg/origins/ubuntu": ("base-files",),
    },
    "/etc/default/locale": {"/etc/locale.conf": ("systemd", "locales")},
    "/etc/vconsole.conf": {"/etc/default/keyboard": ("systemd", "keyboard-configuration")},
}
"""Link -> target -> packages that make it."""


def attribute_derivations(host: Attribution) -> None:
    """Explain derived entries."""
    left = [entry for entry in host.entries if not entry.origin and entry.path and entry.key == entry.path]
    # an alias of a unit may be what another link leads to
    for _ in range(2):
        for entry in left:
            if not entry.origin and (found := _derive(host, entry)):
                host.explain(entry, found)


def _derive(host: Attribution, entry: HostEntry) -> str:
    path = entry.path
    target = host.target(entry)
    if target:
        if matched := ENABLED.fullmatch(path):
            return _enablement(host, target, *(part or "" for part in matched.groups()))
        if matched := RC.fullmatch(path):
            script = f"/etc/init.d/{matched[1]}"
            return f"derived from {script}" if target == script and host.is_explained(script) else ""
        if path.startswith("/etc/runit/runsvdir/default/"):
            return (
                f"derived from {target}" if target.startswith("/etc/sv/") and host.is_explained(f"{target}/run") else ""
            )
        if path.startswith("/etc/alternatives/"):
            return _alternative(host, path.rpartition("/")[2], target)
        if target.startswith("/etc/alternatives/"):
            return _alternative_link(host, path, target.rpartition("/")[2])
        if path.startswith("/etc/ssl/certs/"):
            return _certificate_link(host, path, target)
        if path.startswith("/etc/nginx/"):
            return _nginx_link(host, path, target)
        if path == "/etc/localtime":
            known = target.startswith("/usr/share/zoneinfo/") and host.installed("tzdata")
            return "package tzdata" if known and host.is_explained(os.path.realpath(target)) else ""
        makers = LINKS.get(path, {}).get(target, ())
        return next(
            (
                f"package {name}" if name else "derived from proc(5)"
                for name in makers
                if not name or host.installed(name)
            ),
            "",
        )
    if re.fullmatch(r"/etc/ssh/ssh_host_\w+_key\.pub", path):
        return _public_key(host, entry)
    if path == BUNDLE:
        return _bundle(host, entry)
    if path == "/etc/ca-certificates.conf":
        return _authorities(host, entry)
    if path.startswith(f"{ADMIN}/"):
        return _alternatives_record(host, path.rpartition("/")[2])
    if path == "/etc/ld.so.cache":
        return _loader_cache(host, entry)
    if path.startswith(f"{dpkg.ADMIN}/info/"):
        return _maintainer_script(host, entry)
    if path in (f"{dpkg.ADMIN}/diversions", f"{dpkg.ADMIN}/statoverride", f"{dpkg.ADMIN}/triggers/File"):
        return _package_lists(host, entry)
    return ""


def _nginx_link(host: Attribution, path: str, target: str) -> str:
    """A link by which nginx's packages enable a module or their own site, when they are installed: a module's has the
    file's name after its number in the order of loading; of sites, the packages enable `default` alone.
    """
    module = NGINX_MODULE.fullmatch(path)
    known = module and target == f"/usr/share/nginx/modules-available/{module[1]}.conf"
    site = (path, target) == ("/etc/nginx/sites-enabled/default", "/etc/nginx/sites-available/default")
    return f"derived from {target}" if (known or site) and host.is_explained(target) else ""


def _maintainer_script(host: Attribution, entry: HostEntry) -> str:
    """Of an archived package: at first sight the file has the time of the package's build, which can be set; from then
    on it has the content of that time.
    """
    base = entry.path.rpartition("/")[2].rpartition(".")[0]
    try:
        status = os.lstat(f"{dpkg.ROOT}{entry.path}")
        built = os.stat(f"{dpkg.ROOT}{dpkg.ADMIN}/info/{base}.md5sums").st_mtime
    except OSError:
        return ""
    version = host.index.versions.get(base, "")
    is_known = host.index.has_first(entry.path, version)
    plain = status.st_uid == packaged_modes.OWNER and not status.st_mode & 0o7022
    if not plain or base not in host.index.archives or not (is_known or status.st_mtime <= built + 1):
        return ""
    if not entry.unread or not is_known:
        digest = entry.sha256 or hashlib.sha256(host.content(entry) or b"").hexdigest()
        if not host.index.is_first(entry.path, version, digest):
            return ""
    return f"package {base}"


def _public_key(host: Attribution, entry: HostEntry) -> str:
    """The public half of a host key, which the private one's file has in itself (PROTOCOL.key of OpenSSH)."""
    private = common.begin(f"{dpkg.ROOT}{entry.path.removesuffix('.pub')}")
    body = "".join(line for line in common.lines(private) if not line.startswith("-----"))
    words = host.text(entry).split()
    with suppress(ValueError, IndexError):
        same = bool(words[1]) and base64.b64decode(words[1]) in base64.b64decode(body)
        return f"derived from {entry.path.removesuffix('.pub')}" if same else ""
    return ""


def _package_lists(host: Attribution, entry: HostEntry) -> str:
    """dpkg's lists of what packages changed: each row is an archived package's."""
    rows = [line.split() for line in common.lines(host.text(entry)) if line.strip()]
    if entry.path.endswith("/diversions"):
        makers = [row[0] for row in rows[2::3] if row]
        return "derived from packages" if all(host.installed(name) for name in makers) else ""
    if entry.path.endswith("/File"):
        known = all(len(row) == 2 and host.installed(row[1].partition("/")[0].partition(":")[0]) for row in rows)
        return "derived from packages" if known else ""
    for row in rows:
        owner = host.index.owner(row[3]) if len(row) == 4 else ""
        if not owner or row[3] not in host.script(owner):
            return ""
    return "derived from packages"


def unit_install(text: str) -> dict[str, list[str]]:
    """The [Install] section of a unit: key -> words (systemd.unit(5))."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in common.lines(text.replace("\\\n", " ")):
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Install]" and "=" in line and line[:1] not in "#;":
            key, _, value = line.partition("=")
            words = value.split()
            found[key.strip()] = [*found.get(key.strip(), []), *words] if words else []
    return found


def _unit_text(host: Attribution, path: str) -> str:
    """The text of a unit that something explains; empty for any other."""
    real = os.path.realpath(f"{dpkg.ROOT}{path}").removeprefix(dpkg.ROOT)
    if not host.is_explained(path) and not host.is_explained(real):
        return ""
    return common.begin(f"{dpkg.ROOT}{path}")


def expanded(word: str, unit: str) -> str:
    """A name in [Install] with the specifiers that names of units have there."""
    prefix, at, rest = unit.partition("@")
    instance = rest.rpartition(".")[0] if at else ""
    values = {"%i": instance, "%I": instance, "%p": prefix if at else unit.rpartition(".")[0], "%n": unit, "%%": "%"}
    return re.sub("%.", lambda one: values.get(one[0], one[0]), word)


def _enablement(host: Attribution, target: str, scope: str, parent: str, kind: str, name: str) -> str:
    """A link that `systemctl enable` makes: the one of the unit's own [Install], where its package's scripts enable it.
    A dormant unit, of which packages have many, is enabled by another user or program.
    """
    places = UNITS if scope == "system" else USER_UNITS
    folder, _, unit = target.rpartition("/")
    if not any(place in dpkg.names(folder) for place in places):
        return ""
    install = unit_install(_unit_text(host, target))
    script = next((host.script(owner) for path in dpkg.names(target) if (owner := host.index.owner(path))), "")
    names = "|".join(map(re.escape, {unit, re.sub(r"@\.", "@tty1.", unit)}))
    if not install or not re.search(rf"(?m)\benable\b.*?(?<![\w.@-])(?:{names})(?![\w-])", script):
        return ""
    if not kind:
        aliases = [expanded(word, unit) for word in install.get("Alias", ())]
        return f"derived from {target}" if name in aliases else ""
    wanted = {expanded(word, name) for word in install.get(INSTALL[kind], ())}
    template = re.sub(r"@[^.]*\.", "@.", name)
    default = install.get("DefaultInstance", [""])[0]
    # a link to an instance leads to its template; which instances there are is the administrator's, but for the default
    same = name == unit or (template == unit and name == unit.replace("@.", f"@{default}."))
    return f"derived from {target}" if parent in wanted and same else ""


class AlternativeRecord:
    """A group of update-alternatives(1): its links, and the choices that packages made."""

    def __init__(self, text: str) -> None:
        lines = iter(common.lines(text))
        self.mode = next(lines, "")
        self.links = {"": next(lines, "")}
        names = []
        for line in lines:
            if not line:
                break
            names.append(line)
            self.links[line] = next(lines, "")
        self.choices: dict[str, tuple[int, dict[str, str]]] = {}
        for line in lines:
            if not line:
                break
            priority = next(lines, "")
            self.choices[line] = (
                int(priority) if re.fullmatch("-?[0-9]+", priority) else 0,
                {name: next(lines, "") for name in names},
            )

    def best(self) -> str:
        """The automatic choice: the first of those with the highest priority."""
        return max(self.choices, key=lambda path: self.choices[path][0], default="")


@lru_cache(maxsize=1)
def alternative_records(root: str) -> dict[str, tuple[str, AlternativeRecord]]:
    """Name of a link in /etc/alternatives -> its group's name, and the group."""
    found: dict[str, tuple[str, AlternativeRecord]] = {}
    with suppress(OSError):
        for group in sorted(os.listdir(f"{root}{ADMIN}")):
            record = AlternativeRecord(common.begin(f"{root}{ADMIN}/{group}"))
            found |= {name or group: (group, record) for name in record.links}
    return found


def _packaged_choice(host: Attribution, name: str, path: str) -> str:
    """The archived package whose script installs a choice of a group; empty for none."""
    owner = host.index.owner(path)
    if not owner:
        return ""
    script = host.script(owner)
    named = "update-alternatives" in script and (name in script or path.rpartition("/")[2] in script)
    return owner if named and host.is_explained(os.path.realpath(f"{dpkg.ROOT}{path}").removeprefix(dpkg.ROOT)) else ""


def _alternatives_record(host: Attribution, name: str) -> str:
    record = AlternativeRecord(common.begin(f"{dpkg.ROOT}{ADMIN}/{name}"))
    if record.mode != "auto" or not record.choices:
        return ""
    makers = {_packaged_choice(host, name, path) for path in record.choices}
    return "" if "" in makers else f"derived from {', '.join(f'package {one}' for one in sorted(makers))}"


def _alternative(host: Attribution, name: str, target: str) -> str:
    """/etc/alternatives/NAME: the best choice of its group, where packages made all that is chosen from."""
    group, record = alternative_records(dpkg.ROOT).get(name, ("", None))
    if record is None or record.mode != "auto":
        return ""
    best = record.best()
    wanted = record.choices[best][1].get(name, "") if name != group and best else best
    owner = _packaged_choice(host, group, best) if target == wanted else ""
    return f"derived from package {owner}" if owner else ""


def _alternative_link(host: Attribution, path: str, name: str) -> str:
    """A link such as /usr/bin/awk, where its group says so, and what the group leads to is explained."""
    if not host.is_explained(f"/etc/alternatives/{name}"):
        return ""
    group, record = alternative_records(dpkg.ROOT).get(name, ("", None))
    fits = record is not None and path in dpkg.names(record.links["" if name == group else name])
    return f"derived from {ADMIN}/{group}" if fits else ""


def _certificate_link(host: Attribution, path: str, target: str) -> str:
    """A link of update-ca-certificates(8) or of `openssl rehash` to a certificate that something explains."""
    if target.startswith("/etc/ssl/certs/"):
        hashed = re.fullmatch(r"/etc/ssl/certs/[0-9a-f]{8}\.[0-9]+", path)
        return f"derived from {target}" if hashed and host.is_explained(target) else ""
    return f"derived from {target}" if path.endswith(".pem") and host.is_explained(target) else ""


def _authorities(host: Attribution, entry: HostEntry) -> str:
    """The list of authorities: each is packaged, and none is switched off."""
    for line in common.lines(host.text(entry)):
        if line.strip() and not line.startswith("#") and host.packaged(f"{AUTHORITIES}/{line.strip()}") is None:
            return ""
    return "derived from package ca-certificates" if host.installed("ca-certificates") else ""


def _bundle(host: Attribution, entry: HostEntry) -> str:
    """The bundle: its certificates are those of the packaged files that are switched on, and of the administrator's,
    each of which is an entry itself.
    """
    listed = common.lines(common.begin(f"{dpkg.ROOT}/etc/ca-certificates.conf"))
    known: set[bytes] = set()
    for line in listed:
        if line.strip() and line[:1] not in "#!":
            known |= _certificates(host.packaged(f"{AUTHORITIES}/{line.strip()}") or b"")
    for path in glob.glob(f"{dpkg.ROOT}{LOCAL_AUTHORITIES}/**/*.crt", recursive=True):
        if path.removeprefix(dpkg.ROOT) in host.by_path:
            known |= _certificates(common.data(path) or b"")
    present = _certificates(host.content(entry) or b"")
    return f"derived from {AUTHORITIES}" if present and present == known else ""


def _certificates(content: bytes) -> set[bytes]:
    return {b"".join(one.split()) for one in CERTIFICATE.findall(content)}


def cached_libraries(content: bytes) -> list[str]:
    """Paths in the loader's cache (ldconfig(8)), as glibc writes it since 2.32.

    Raises:
        ValueError: it is no such cache.
    """
    start = content.find(CACHE_MAGIC)
    if start < 0:
        raise ValueError("no cache of the loader")
    count, _ = struct.unpack_from("=II", content, start + 20)
    found = []
    for number in range(count):
        _, _, value = struct.unpack_from("=III", content, start + 48 + 24 * number)
        end = content.find(b"\0", start + value)
        if end < 0:
            raise ValueError("a name in the loader's cache has no end")
        found.append(os.fsdecode(content[start + value : end]))
    return found


def _loader_cache(host: Attribution, entry: HostEntry) -> str:
    """The loader's cache: each library in it lies in a declared folder and is a package's or ours."""
    try:
        paths = cached_libraries(host.content(entry, 64 << 20) or b"")
    except (ValueError, struct.error):
        return ""
    folders = {*LIBRARIES, *_loader_folders()}
    if any(path.rpartition("/")[0] not in folders for path in paths):
        return ""
    host.index.load_more({*paths})
    for path in paths:
        end = os.path.realpath(f"{dpkg.ROOT}{path}").removeprefix(dpkg.ROOT)
        if not host.index.owner(path) and not host.index.owner(end) and not host.is_explained(end):
            return ""
    return "derived from libraries of packages"


def _loader_folders() -> Iterator[str]:
    """Folders that ld.so.conf(5) and what it includes name."""
    files = [f"{dpkg.ROOT}/etc/ld.so.conf"]
    with_parts = f"{dpkg.ROOT}/etc/ld.so.conf.d"
    if os.path.isdir(with_parts):
        files += sorted(f"{with_parts}/{name}" for name in os.listdir(with_parts) if name.endswith(".conf"))
    for path in files:
        for line in common.lines(common.begin(path)):
            word = line.partition("#")[0].strip()
            if word.startswith("/"):
                yield word.rstrip("/")
