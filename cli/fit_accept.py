"""Records of starts' memory: read from boxes, judged and kept next to the inventory."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Sequence

from checks.connections import ConnectedHost, UnreachableHosts
from cli.exit_codes import InvalidRequest
from cli.instance_access import connect_boxes, select_instances
from cli.tables import print_prose
from rigwright.memory_records import (
    MOST_ANSWER,
    UnreadableRecords,
    load_accepted,
    parse_host_records,
    records_path,
    save_accepted,
)
from rigwright.problems import format_count
from roles import root_shell
from roles.root_shell import ConnectionGone

SECONDS = 60.0


def accept_records(inventory: str, limit: str | None, names: Sequence[str]) -> UnreachableHosts:
    """Read the records of instances and keep them; returns the hosts that were not reached.

    Raises:
        InvalidRequest: a file next to the inventory is invalid.
    """
    found, gone = connect_boxes(inventory, limit, names)
    for box in found:
        path = records_path(inventory, box.name)
        try:
            book = load_accepted(path)
        except UnreadableRecords as error:
            raise InvalidRequest(str(error)) from None
        before = sum(map(len, book.instances.values()))
        for _, instance in select_instances([box], names):
            try:
                text = read_record(box, instance.name)
            except ConnectionGone as error:
                print_prose(f"{box.name}: {error}", err=True)
                break
            if not text:
                print_prose(f"{box.name}: {instance.name} has no record: it has not started since the deploy", err=True)
                continue
            try:
                book = book.with_records(instance.name, parse_host_records(text))
            except UnreadableRecords as error:
                print_prose(f"{box.name}: the record of {instance.name} is refused: {error}", err=True)
        save_accepted(path, book)
        more = sum(map(len, book.instances.values())) - before
        print_prose(f"{box.name}: {format_count(more, 'new record')} in {path.name}", err=True)
    return gone


def read_record(box: ConnectedHost, instance: str) -> bytes:
    """An instance's file of records; empty where there is none, or the answer is not whole.

    Raises:
        ConnectionGone: the connection is.
    """
    path = shlex.quote(f"{box.rig.roots.memory_records}/{instance}.json")
    script = f"[ ! -f {path} ] || head -c {MOST_ANSWER} {path} | base64 -w 0"
    answer = root_shell.run_command(box.target, script, limit=SECONDS, most=2 * MOST_ANSWER)
    try:
        return base64.b64decode(answer.out, validate=True) if not answer.status else b""
    except (binascii.Error, ValueError):
        return b""
