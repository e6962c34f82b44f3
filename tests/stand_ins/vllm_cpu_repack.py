"""Wheels written anew with other requirements or another name; their files are copied as they are compressed."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping
from copy import copy
from email import message_from_bytes
from email.message import Message
from email.policy import compat32
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

EPOCH = (1980, 1, 1, 0, 0, 0)
"""When everything was written that is, so that the same wheel has the same bytes."""
RecordRow = tuple[str, str, str]
"""Of a RECORD (packaging.python.org, "Recording installed projects"): path, hash, bytes."""


def read_metadata(wheel: Path) -> Message:
    """A wheel's own metadata.

    Raises:
        KeyError: it says nothing.
    """
    with zipfile.ZipFile(wheel) as read:
        return message_from_bytes(read.read(f"{_dist_info_folder(read)}/METADATA"))


def parse_requirements(said: Message) -> list[Requirement]:
    """The requirements of a distribution."""
    return [Requirement(line) for line in said.get_all("Requires-Dist", [])]


def repack_wheel(wheel: Path, target: Path, required: Callable[[Requirement], bool]) -> None:
    """Write a wheel again without some of its requirements, under the name, version and tags that the new file has.

    Args:
        wheel: The one that is there.
        target: The new one.
        required: Whether a requirement stays.
    """
    name, version, _, tags = parse_wheel_filename(target.name)
    distribution, _, tagged = target.name.removesuffix(".whl").partition("-")
    said = read_metadata(wheel)
    kept = [str(one) for one in parse_requirements(said) if required(one)]
    for key in ("Requires-Dist", "Name", "Version"):
        del said[key]
    said["Name"], said["Version"] = name, str(version)
    for line in kept:
        said["Requires-Dist"] = line
    folder = f"{distribution}-{tagged.partition('-')[0]}.dist-info"
    with zipfile.ZipFile(wheel) as read, zipfile.ZipFile(target, "w") as write:
        old = _dist_info_folder(read)
        rows = [row for row in _parse_record(read.read(f"{old}/RECORD")) if not row[0].startswith(f"{old}/")]
        texts = {"METADATA": said.as_bytes(policy=compat32.clone(max_line_length=0))}
        tagging = message_from_bytes(read.read(f"{old}/WHEEL"))
        del tagging["Tag"]
        for tag in sorted(map(str, tags)):
            tagging["Tag"] = tag
        texts["WHEEL"] = tagging.as_bytes()
        files = sorted(read.infolist(), key=lambda one: one.header_offset)
        ends = [*(info.header_offset for info in files[1:]), read.start_dir]
        for info, end in zip(files, ends, strict=True):
            inner = info.filename.removeprefix(f"{old}/")
            if inner == info.filename:
                _copy_member(read, write, info, end)
            elif inner not in ("RECORD", *texts) and not info.is_dir():
                texts[inner] = read.read(info)
        write_dist_info(write, folder, texts, rows)


def write_dist_info(wheel: zipfile.ZipFile, folder: str, texts: Mapping[str, bytes], rows: list[RecordRow]) -> None:
    """Write a wheel's own folder, its list of files last.

    Args:
        wheel: The written wheel.
        folder: The folder's name.
        texts: Its files next to the list: name -> content.
        rows: The list's rows of all else.
    """
    for name, content in sorted(texts.items()):
        rows.append(write_member(wheel, f"{folder}/{name}", content))
    rows.append((f"{folder}/RECORD", "", ""))
    listed = io.StringIO()
    csv.writer(listed, lineterminator="\n").writerows(rows)
    write_member(wheel, f"{folder}/RECORD", listed.getvalue().encode())


def write_member(wheel: zipfile.ZipFile, path: str, content: bytes, mode: int = 0o644) -> RecordRow:
    """Write one file; returns its row."""
    info = zipfile.ZipInfo(path, EPOCH)
    info.external_attr = (0o100000 | mode) << 16
    wheel.writestr(info, content, zipfile.ZIP_DEFLATED)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return path, f"sha256={digest}", str(len(content))


def _dist_info_folder(wheel: zipfile.ZipFile) -> str:
    # a wheel's vendored packages have such folders deeper down
    (record,) = (name for name in wheel.namelist() if name.count("/") == 1 and name.endswith(".dist-info/RECORD"))
    return record.partition("/")[0]


def _parse_record(content: bytes) -> list[RecordRow]:
    return [(path, digest, size) for path, digest, size in csv.reader(io.StringIO(content.decode()))]


def _copy_member(read: zipfile.ZipFile, write: zipfile.ZipFile, info: zipfile.ZipInfo, end: int) -> None:
    """Copy one file with its own header: to compress a gigabyte again would take minutes."""
    if read.fp is None or write.fp is None:
        raise ValueError("one of the wheels is closed")
    read.fp.seek(info.header_offset)
    write.fp.seek(write.start_dir)
    moved = copy(info)
    moved.header_offset = write.start_dir
    left = end - info.header_offset
    while left:
        part = read.fp.read(min(left, 1 << 20))
        write.fp.write(part)
        left -= len(part)
    write.start_dir = write.fp.tell()
    write.filelist.append(moved)
    write.NameToInfo[moved.filename] = moved
