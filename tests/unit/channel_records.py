"""The output of a script over the channel, made by hand, and the records in a real output."""

import base64
from collections.abc import Iterable

from rigwright.host.script_output import END


def encode_records(*records: tuple[str, ...]) -> list[str]:
    """Records as a script prints them."""
    fields = [field for record in records for field in (str(len(record)), *record)]
    return [base64.b64encode("".join(f"{field}\0" for field in fields).encode()).decode()]


def card_record(address: str, pci_id: str = "10de:2204", *more: str) -> tuple[str, ...]:
    """The record of a card on the PCI bus, with its further fields as far as they are known."""
    return ("card", address, pci_id, *more, *([""] * (8 - len(more))))


def channel_lines(*records: tuple[str, ...]) -> list[str]:
    """Records and the end after them."""
    return encode_records(*records, (END,))


def channel_lines_of(records: Iterable[tuple[str, ...]]) -> list[str]:
    """The same of records in a list."""
    return channel_lines(*records)


def decode_records(output: Iterable[str]) -> list[tuple[str, ...]]:
    """The records, untyped.

    Raises:
        ValueError: it holds no record.
    """
    fields = (
        base64.b64decode("\n".join(output).rstrip("\n").rpartition("\n")[2], validate=True).decode().split("\0")[:-1]
    )
    if not fields:
        raise ValueError("nothing is told")
    found = []
    while fields:
        count = int(fields[0])
        found.append(tuple(fields[1 : 1 + count]))
        del fields[: 1 + count]
    return found[:-1]
