"""A folder that stands in for a host with packages, and its entries, attributed."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from checks.survey.host import dpkg, entry_archives, entry_derivations, entry_files, entry_origins, packaged_modes
from checks.survey.host.entry_templates import render_pam
from checks.survey.host.host_entry import HostEntry

BUILT = 1_700_000_000.0
"""When all packages were built, in seconds since 1970."""
ARCHIVE = "archive stable"

CERTIFICATE = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
ONE, OTHER = CERTIFICATE.format("b25l"), CERTIFICATE.format("b3RoZXI=")
UNIT = "[Service]\nExecStart=/usr/bin/tool\n[Install]\nWantedBy=multi-user.target\nAlias=alias.service\n"
POSTINST = (
    "deb-systemd-helper enable tool.service\nsystemctl restart dormant.service\n"
    "update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5\nadduser --system --home /nonexistent svc\n"
)
ALTERNATIVE = "auto\n/usr/bin/awk\n\n/usr/bin/mawk\n5\n\n"
PROFILE = (
    "Name: Unix\nDefault: yes\nPriority: 256\nAuth-Type: Primary\n"
    "Auth:\n\t[success=end default=ignore]\tpam_unix.so x\n"
    "Auth-Initial:\n\t[success=end default=ignore]\tpam_unix.so\n"
)
TEMPLATE = "# auth\n$auth_primary\nauth\trequisite\tpam_deny.so\n$auth_additional\n"
KEY = base64.b64encode(b"openssh-key-v1 public half").decode()
PUBLIC = base64.b64encode(b"public half").decode()


class AttributedHost:
    """A host in a folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.signed: dict[str, str] = {}
        """Package -> the archive that has its version."""
        self._status: dict[str, str] = {}
        for module in (dpkg, entry_files):
            monkeypatch.setattr(module, "ROOT", str(root))
        monkeypatch.setattr(packaged_modes, "OWNER", os.getuid())
        monkeypatch.setattr(
            entry_archives,
            "find_archives",
            lambda versions: {name: self.signed[name] for name in versions if name in self.signed},
        )
        self.write("/var/lib/rigwright/self_check/x", "")
        self.write("/var/lib/dpkg/status", "")

    def place(self, path: str) -> Path:
        """Where a path of the host lies."""
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Write a file."""
        place = self.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        place.chmod(mode)

    def link(self, path: str, target: str, made: float = BUILT) -> None:
        """Make a link; one to an absolute path leads there on the host."""
        place = self.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)
        os.utime(place, (made, made), follow_symlinks=False)

    def package(
        self,
        name: str,
        files: dict[str, str],
        *,
        conffiles: tuple[str, ...] = (),
        links: tuple[str, ...] = (),
        version: str = "1",
        signed: bool = True,
        **scripts: str,
    ) -> None:
        """Install a package; programs below /usr/bin get mode 755."""
        for path, text in files.items():
            self.write(path, text, 0o755 if path.startswith("/usr/bin/") else 0o644)
        sums = {path: hashlib.md5(text.encode()).hexdigest() for path, text in files.items()}
        info = f"/var/lib/dpkg/info/{name}"
        rows = "".join(f"{sums[path]}  {path[1:]}\n" for path in files if path not in conffiles)
        self.write(f"{info}.md5sums", rows)
        self.write(f"{info}.list", "/.\n" + "".join(f"{path}\n" for path in (*files, *links)))
        for kind, text in scripts.items():
            self.write(f"{info}.{kind}", text, 0o755)
            os.utime(self.place(f"{info}.{kind}"), (BUILT, BUILT))
        os.utime(self.place(f"{info}.md5sums"), (BUILT, BUILT))
        kept = "".join(f"\n {path} {sums[path]}" for path in conffiles)
        self._status[name] = (
            f"Package: {name}\nStatus: install ok installed\nArchitecture: all\nVersion: {version}\n"
            + (f"Conffiles:{kept}\n" if kept else "")
        )
        self.write("/var/lib/dpkg/status", "\n".join(self._status.values()))
        if signed:
            self.signed[name] = ARCHIVE

    def entries(self) -> list[HostEntry]:
        """An entry for each file and link but dpkg's own records, and for each user and group."""
        found = []
        for folder, folders, names in os.walk(self.root):
            for name in (*names, *(one for one in folders if Path(folder, one).is_symlink())):
                path = f"{folder}/{name}".removeprefix(str(self.root))
                if path.startswith(("/var/lib/rigwright", "/var/lib/dpkg/status")) or path.endswith(
                    (".md5sums", ".list")
                ):
                    continue
                status = os.lstat(f"{self.root}{path}")
                entry = entry_files.describe_file("programs", path, status)
                if stat.S_ISREG(status.st_mode):
                    content = self.place(path).read_bytes()
                    entry.md5 = hashlib.md5(content).hexdigest()
                    entry.sha256 = hashlib.sha256(content).hexdigest()
                found.append(entry)
        for database, kind, word in (("passwd", "accounts", "user"), ("group", "groups", "group")):
            place = self.place(f"/etc/{database}")
            rows = [line.split(":") for line in place.read_text().splitlines()] if place.exists() else []
            states = [f"gid={row[2]} members={row[3]}" if kind == "groups" else "" for row in rows]
            found += [
                HostEntry(kind, f"{word} {row[0]}", state, f"/etc/{database}")
                for row, state in zip(rows, states, strict=True)
            ]
        return found

    def attribute(self, **ours: dict[str, str]) -> tuple[dict[str, HostEntry], list[dict[str, Any]]]:
        """Key -> entry, attributed; and packages."""
        entry_derivations.alternative_records.cache_clear()
        entries = self.entries()
        packages, _ = entry_origins.attribute(entries, {"folder": "/var/lib/rigwright/self_check", "ours": ours})
        return {entry.key: entry for entry in entries}, packages


def packaged_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AttributedHost:
    """A host on which all is explained but its SSH key."""
    made = AttributedHost(folder, monkeypatch)
    made.package(
        "tool",
        {
            "/usr/bin/tool": "tool",
            "/usr/bin/mawk": "mawk",
            "/usr/bin/other": "other",
            "/etc/tool.conf": "a = 1\n",
            "/usr/lib/systemd/system/tool.service": UNIT,
            "/usr/lib/systemd/system/dormant.service": UNIT,
            "/usr/lib/systemd/system/static.service": "[Service]\nExecStart=/usr/bin/tool\n",
        },
        conffiles=("/etc/tool.conf",),
        links=("/usr/bin/t",),
        postinst=POSTINST,
    )
    made.link("/usr/bin/t", "tool")
    made.package("libc6", {"/usr/lib64/ld.so": "ld"}, links=("/lib64", "/usr/lib64"))
    made.link("/lib64", "usr/lib64")
    made.package("openssh-server", {"/usr/share/openssh/sshd_config": "UsePAM yes\n"})
    made.package(
        "ca-certificates",
        {"/usr/share/ca-certificates/m/One.crt": ONE, "/usr/share/ca-certificates/m/Other.crt": OTHER},
    )
    made.package("libc-bin", {"/usr/share/libc-bin/nsswitch.conf": "passwd: files\nhosts: files dns\n"})
    made.package("debianutils", {"/usr/share/debianutils/shells": "/bin/sh\n/bin/dash\n"})
    made.package("libpam-runtime", {"/usr/share/pam/common-auth": TEMPLATE, "/usr/share/pam-configs/unix": PROFILE})
    made.package("base-passwd", {"/usr/share/base-passwd/passwd.master": "root:*:0:0:root:/root:/bin/bash\n"})
    made.write("/etc/pam.d/common-auth", render_pam(TEMPLATE, "auth", [dict(_profile_fields(PROFILE))]))
    made.write("/etc/nsswitch.conf", "passwd: files\nhosts: files dns\n")
    made.write("/etc/shells", "# shells\n/bin/sh\n/usr/bin/dash\n")
    made.write("/etc/ssh/sshd_config", "UsePAM yes\n")
    made.write("/etc/ca-certificates.conf", "# list\nm/One.crt\nm/Other.crt\n")
    made.write("/etc/ssl/certs/ca-certificates.crt", ONE + OTHER)
    made.link("/etc/ssl/certs/One.pem", "/usr/share/ca-certificates/m/One.crt")
    made.link("/etc/ssl/certs/01234567.0", "One.pem")
    made.link("/etc/systemd/system/multi-user.target.wants/tool.service", "/usr/lib/systemd/system/tool.service")
    made.link("/etc/systemd/system/alias.service", "/usr/lib/systemd/system/tool.service")
    made.write("/var/lib/dpkg/alternatives/awk", ALTERNATIVE)
    made.link("/etc/alternatives/awk", "/usr/bin/mawk")
    made.link("/usr/bin/awk", "/etc/alternatives/awk")
    made.write("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nsvc:x:150:150::/nonexistent:/usr/sbin/nologin\n")
    made.write("/etc/shadow", "root:*:1::::::\nsvc:!:1::::::\n", 0o640)
    made.write("/etc/group", "svc:x:150:\n")
    made.write("/etc/ssh/ssh_host_ed25519_key", f"-----BEGIN\n{KEY}\n-----END\n", 0o600)
    made.write("/etc/ssh/ssh_host_ed25519_key.pub", f"ssh-ed25519 {PUBLIC} root@h\n")
    return made


def _profile_fields(text: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith("\t"):
            found[key] = f"{found[key]}\n{line.strip()}".strip("\n")
        else:
            key, _, value = line.partition(":")
            found[key] = value.strip()
    return [*found.items()]
