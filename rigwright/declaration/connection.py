"""The keys of an inventory by which hosts are reached."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from rigwright import files
from rigwright.addresses import SshHost, TcpPort
from rigwright.declaration import host_key
from rigwright.problems import InventoryModel, Problem, describe_violated_rule, format_value, translate_validation
from rigwright.types import PLAIN, matching

LARGEST = 64 << 10  # bytes of a private key; one of RSA with 16384 bits has 13,000


def _host_key(value: str) -> str:
    if not host_key.is_host_key(value):
        raise ValueError(host_key.RULE)
    return value


_Path = Annotated[str, matching(rf"(?!-){PLAIN}{{1,4096}}", "a path, not beginning with a dash")]


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
    """What a key's value must be, where it is refused; empty where it is right."""
    try:
        ConnectionEntry.model_validate({key: value})
    except ValidationError as error:
        return describe_violated_rule(error)
    return ""


def find_connection_problems(
    file: str, name: str, given: dict[str, object], others: Collection[str], *, here: bool
) -> list[Problem]:
    """What is wrong with the keys of a rig's connection.

    Args:
        file: The inventory.
        name: The rig.
        given: The keys, as declared.
        others: Keys of a rig that are none of a connection, for suggestions.
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
            found.append(Problem(file, f"{name}.{key}", f"{format_value(value)} is refused: {faulty}"))
    return found


def describe_unusable_key(path: str) -> str:
    """Why a file cannot be logged in with; as pyinfra does, a path is taken from the folder that one is in."""
    try:
        text = files.read_content(path, LARGEST)
    except ValueError as error:
        return str(error)
    if not re.match(rb"\s*-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----", text):
        return "contains no private key: must begin with -----BEGIN ... PRIVATE KEY-----"
    # one of somebody else's is as they keep it (OpenSSH's authfile.c)
    return files.describe_exposure(path) if Path(path).stat().st_uid == os.getuid() else ""


def _describe_missing_file(path: str) -> str:
    try:
        files.refuse_special_file(path)
    except ValueError as error:
        return "" if path == os.devnull else str(error)
    return ""


_FILES = {
    "ssh_key": describe_unusable_key,
    "ssh_config_file": _describe_missing_file,
    "ssh_known_hosts_file": _describe_missing_file,
}
