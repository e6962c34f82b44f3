"""fs-verity: the kernel checks every block of a file against a hash tree whenever it reads it from the disk.

A file that has it cannot be written to any more, only replaced, and a read of a bad block fails. Numbers and errors
are from the kernel's documentation, filesystems/fsverity. It needs a kernel with CONFIG_FS_VERITY and a file system
with the feature (ext4 and f2fs that were made with it, btrfs). Unproven: no kernel that has it was at hand, so only its
refusal was seen.
"""

from __future__ import annotations

import errno
import os
import struct
from fcntl import ioctl
from pathlib import Path

from . import records
from .records import LockedFile

FOLDER = "verity"
# struct fsverity_enable_arg: version, algorithm, block size, salt size, salt, signature size, reserved, signature,
# reserved
ENABLE_ARGUMENT = struct.Struct("=IIIIQIIQ88x")
# _IOW('f', 133, struct fsverity_enable_arg) and _IOWR('f', 134, struct fsverity_digest)
FS_IOC_ENABLE_VERITY = 0x40806685
FS_IOC_MEASURE_VERITY = 0xC0046686
SHA256 = 1  # FS_VERITY_HASH_ALG_SHA256
SHA256_BYTES = 32
BLOCK = 4096  # bytes; smaller ones than a page need Linux 6.3
REASONS = {
    errno.ENOTTY: "its file system does not know fs-verity",
    errno.EOPNOTSUPP: "the kernel was built without fs-verity, or the file system was made without it",
}


def measure_verity(path: Path) -> str:
    """The digest that the kernel holds a file to; empty where it holds it to none.

    Raises:
        OSError: the file is not there, or its file system or the kernel cannot do it (REASONS).
    """
    answer = bytearray(struct.pack("=HH", 0, SHA256_BYTES) + bytes(SHA256_BYTES))
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        ioctl(handle, FS_IOC_MEASURE_VERITY, answer)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return ""
        raise
    finally:
        os.close(handle)
    return bytes(answer[4 : 4 + SHA256_BYTES]).hex()


def describe_unsupported(path: Path) -> str:
    """Why a file cannot have fs-verity; empty where it can. Changes nothing."""
    try:
        measure_verity(path)
    except OSError as error:
        return _describe_verity_error(error)
    return ""


def _describe_verity_error(error: OSError) -> str:
    return REASONS.get(error.errno or 0, error.strerror or str(error))


def enable_verity(folder: Path, root: Path, file: LockedFile) -> str:
    """Give a verified file fs-verity and note its digest beside the records; returns why not, or nothing.

    For after the file has its name and before its record is written: this changes its ctime, and a record of before
    would not hold any more.
    """
    path = root / file.path
    if why := describe_unsupported(path):
        return why
    argument = ENABLE_ARGUMENT.pack(1, SHA256, BLOCK, 0, 0, 0, 0, 0)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            ioctl(handle, FS_IOC_ENABLE_VERITY, argument)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        finally:
            os.close(handle)
        digest = measure_verity(path)
    except OSError as error:
        return _describe_verity_error(error)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    records.replace_text(folder / FOLDER / records.record_name(file), f"{digest}\n")
    return ""


def describe_verity_violation(folder: Path, record: str, path: Path) -> str:
    """The problem of a recorded file's fs-verity, where it was given any; empty where there is none."""
    try:
        noted = (folder / FOLDER / record).read_text().strip()
    except OSError:
        return ""
    try:
        found = measure_verity(path)
    except OSError as error:
        return f"expected fs-verity with {noted}, found none: {_describe_verity_error(error)}"
    return "" if found == noted else f"expected fs-verity with {noted}, found {found or 'none'}"
