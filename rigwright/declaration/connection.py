"""Connections as declared: address, user, host keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from rigwright import local_files
from rigwright.address_types import SshHost, TcpPort
from rigwright.model.fleet_schema import FleetEntry
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.monitoring_schema import MonitoringServer
from rigwright.problems import (
    CausedError,
    InventoryModel,
    Problem,
    describe_violated_rule,
    format_value,
    translate_validation,
)
from rigwright.validated_types import LOCAL_PATH, LocalPath, matching

_CURVES = {"nistp256": 65, "nistp384": 97, "nistp521": 133}  # bytes of an uncompressed point (SEC 1, 2.3.3)
_EDWARDS = 32  # bytes of an Ed25519 public key (RFC 8032, 5.1.5)
_RSA_BITS = 1024  # shorter ones OpenSSH refuses (ssh_config, RequiredRSASize)
KINDS = ("ssh-ed25519", *(f"ecdsa-sha2-{curve}" for curve in _CURVES), "ssh-rsa")
RULE = f"a host's public key: {', '.join(KINDS[:-1])} or {KINDS[-1]}, a space, and the key in base64"


@dataclass(frozen=True)
class HostKey:
    """One public key."""

    kind: str
    blob: bytes
    """As it goes over the wire (RFC 4253, 6.6), its kind first."""

    def __str__(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip('=')}"

    @property
    def comparison_command(self) -> str:
        """The command that prints the fingerprint on the host itself, where Debian and Ubuntu have its keys."""
        noun = self.kind.removeprefix("ssh-").partition("-")[0]
        return f"ssh-keygen -lf /etc/ssh/ssh_host_{noun}_key.pub"


def parse_host_key(text: str) -> HostKey:
    """A key from a line of a `.pub` file; a comment after it is dropped.

    Raises:
        ValueError: it is invalid; the text tells why.
    """
    kind, _, rest = text.partition(" ")
    encoded, _, comment = rest.partition(" ")
    if kind not in KINDS or not comment.isprintable():
        raise ValueError(RULE)
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):  # the latter for what is not ASCII
        raise ValueError("the key is not base64") from None
    if not _is_complete(kind, _fields(blob)):
        raise ValueError(f"the base64 contains no key of type {kind}")
    return HostKey(kind, blob)


def is_host_key(value: object) -> bool:
    """Whether a value is the text of a key."""
    try:
        return isinstance(value, str) and bool(parse_host_key(value))
    except ValueError:
        return False


def _fields(blob: bytes) -> list[bytes]:
    """The strings that a blob holds, each after its length; none where that does not come out."""
    found = []
    while len(blob) >= 4:
        (size,) = struct.unpack(">I", blob[:4])
        found.append(blob[4 : 4 + size])
        if len(found[-1]) < size:
            return []
        blob = blob[4 + size :]
    return [] if blob else found


def _is_complete(kind: str, fields: list[bytes]) -> bool:
    if not fields or fields[0] != kind.encode():
        return False
    if kind == "ssh-ed25519":
        return [len(one) for one in fields[1:]] == [_EDWARDS]
    if kind == "ssh-rsa":
        return len(fields) == 3 and all(map(_is_positive, fields[1:])) and _bits(fields[2]) >= _RSA_BITS
    curve = kind.removeprefix("ecdsa-sha2-")
    return len(fields) == 3 and fields[1] == curve.encode() and len(fields[2]) == _CURVES[curve] and fields[2][0] == 4


def _is_positive(number: bytes) -> bool:
    """Whether it is a number above zero in the one form it may have (RFC 4251, mpint)."""
    return bool(number) and number[0] < 0x80 and not (number[0] == 0 and (len(number) == 1 or number[1] < 0x80))


def _bits(number: bytes) -> int:
    return int.from_bytes(number, "big").bit_length()


LARGEST = 64 << 10  # bytes of a private key; one of RSA with 16384 bits has 13,000


def _host_key(value: str) -> str:
    try:
        parse_host_key(value)
    except ValueError as error:
        cause = "" if str(error) == RULE else str(error)
        raise CausedError(f"{RULE}{_correct_host_key(value)}", cause) from None
    return value


def _correct_host_key(value: str) -> str:
    """The hint for a fingerprint, or for a line of known_hosts."""
    if re.match(r"SHA256:|(?:MD5:)?(?:[0-9a-f]{2}:){3}", value):
        return "; this is a fingerprint: `rigwright key host` prints the key of each host and its fingerprint"
    rest = value.partition(" ")[2]
    return f"; leave out the host's name before it: {rest}" if is_host_key(rest) else ""


_Path = Annotated[LocalPath, matching(r"(?s:[^-].*)", f"{LOCAL_PATH}, without a dash at its beginning")]


class ConnectionEntry(InventoryModel):
    """How a rig is reached: keys of pyinfra's ("SSH connector" in its documentation), and one of ours."""

    ssh_hostname: SshHost = Field(default="", description="Address; default: the rig's name.")
    ssh_port: TcpPort = Field(default=22, description="SSH port.")
    ssh_user: Annotated[
        str, matching(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,63}", "a user name: letters, digits and ._@-, no dash first")
    ] = Field(default="", description="Login user; default: your own user name.")
    ssh_key: _Path = Field(default="", description="Private key file; default: keys of your agent and `~/.ssh`.")
    ssh_host_key: Annotated[str, AfterValidator(_host_key)] = Field(
        default="", description="The only host key to accept."
    )
    ssh_config_file: _Path = Field(default="", description="SSH client configuration; default: `~/.ssh/config`.")
    ssh_known_hosts_file: _Path = Field(default="", description="Known host keys; default: `~/.ssh/known_hosts`.")
    ssh_strict_host_key_checking: Literal["yes", "no", "ask", "accept-new", "off"] = Field(
        default="yes", description="What to do if the host key is unknown."
    )
    ssh_forward_agent: bool = Field(default=False, strict=True, description="Whether to forward your SSH agent.")
    ssh_connect_retries: int = Field(default=0, ge=0, le=100, strict=True, description="Connection retries.")
    sudo: bool = Field(
        default=False, strict=True, alias="_sudo", description="Whether that user becomes root with sudo."
    )


KEYS = tuple(field.alias or name for name, field in ConnectionEntry.model_fields.items())


def describe_wrong_value(key: str, value: object) -> str:
    """The description of a key's valid values, where its value is refused; empty where it is right."""
    try:
        ConnectionEntry.model_validate({key: value})
    except ValidationError as error:
        return describe_violated_rule(error)
    return ""


def find_connection_problems(
    file: str, name: str, given: dict[str, object], others: Collection[str], *, here: bool
) -> list[Problem]:
    """The problems of the keys of a rig's connection.

    Args:
        file: The inventory.
        name: The rig.
        given: The keys, as declared.
        others: Keys of a rig outside of its connection, for suggestions.
        here: Whether this machine is to connect: the files that the keys name have to be there.
    """
    found = [
        Problem(file, f"{name}.{key}", "unknown key; passwords are not supported: use an SSH key")
        for key in given
        if "password" in key
    ]
    try:
        ConnectionEntry.model_validate({key: value for key, value in given.items() if "password" not in key})
    except ValidationError as error:
        found += translate_validation(error, ConnectionEntry, file, name, also=frozenset(others))
    idle = {"ssh_known_hosts_file", "ssh_strict_host_key_checking"} & {*given} if "ssh_host_key" in given else set()
    alone = "conflicts with ssh_host_key: only that key is accepted"
    found += [Problem(file, f"{name}.{key}", alone) for key in idle]
    for key, judge in _FILES.items() if here else ():
        value = given.get(key) if key not in idle else None
        if (
            isinstance(value, str)
            and not describe_wrong_value(key, value)
            and (faulty := judge(str(Path(value).expanduser())))
        ):
            path = Path(value).expanduser()
            start = "" if path.is_absolute() else f"; the path starts at the current folder, {Path.cwd()}"
            found.append(Problem(file, f"{name}.{key}", f"{format_value(value, key)} is refused: {faulty}{start}"))
    return found


def find_ssh_port_conflicts(
    file: str, name: str, connection: Mapping[str, object], declared: Mapping[str, object]
) -> list[Problem]:
    """Refuse ports of a rig that its SSH server has.

    Args:
        file: The inventory.
        name: The rig.
        connection: Keys of its connection.
        declared: Its other keys, valid or not.
    """
    ssh_port = connection.get("ssh_port", ConnectionEntry.model_fields["ssh_port"].default)
    tables = {f"instances.{key}": one for key, one in _items(declared.get("instances"))}
    gateway = dict(_items(declared.get("gateway")))
    tables |= {f"gateway.listeners.{key}": one for key, one in _items(gateway.get("listeners"))}
    for key, model in (("share", ShareEntry), ("fleet", FleetEntry), ("monitoring.server", MonitoringServer)):
        top, _, inner = key.partition(".")
        table = dict(_items(declared.get(top))).get(inner) if inner else declared.get(top)
        if isinstance(table, dict):
            tables[key] = {"port": model.model_fields["port"].default, **table}
    return [
        Problem(file, f"{name}.{key}.port", f"{port} is the SSH port of the rig (ssh_port): choose another")
        for key, one in tables.items()
        if (port := dict(_items(one)).get("port")) == ssh_port and type(port) is int
    ]


def _items(table: object) -> Iterable[tuple[object, object]]:
    return table.items() if isinstance(table, dict) else ()


def describe_unusable_key(path: str) -> str:
    """Why a file cannot be logged in with; as pyinfra does, a path is taken from the folder that one is in."""
    try:
        text = local_files.read_content(path, LARGEST)
    except ValueError as error:
        return str(error)
    if not re.match(rb"\s*-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----", text):
        return "contains no private key: must begin with -----BEGIN ... PRIVATE KEY-----"
    # sshd reads a file of another owner with the permissions that it has (OpenSSH's authfile.c)
    return local_files.describe_exposure(path) if Path(path).stat().st_uid == os.getuid() else ""


def _describe_missing_file(path: str) -> str:
    try:
        local_files.refuse_special_file(path)
    except ValueError as error:
        return "" if path == os.devnull else str(error)
    return ""


_FILES = {
    "ssh_key": describe_unusable_key,
    "ssh_config_file": _describe_missing_file,
    "ssh_known_hosts_file": _describe_missing_file,
}
