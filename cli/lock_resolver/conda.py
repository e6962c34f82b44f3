"""An input of kind conda into rows of a lock: match specs, solved for hosts over the index of their channels."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from cli.lock_resolver.downloads import DownloadUnavailable
from rigwright.problems import format_value
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from roles.progress import progress

SOLVER = Path(__file__).with_name("conda_solver.py")
SOLVER_TIMEOUT_S = 300  # seconds, to read the channels' indexes and to solve; minutes on a slow line
# Of conda-forge's indexes the largest, uncompressed, has less than half a gigabyte.
DISK = 2 << 30  # bytes, of one file
MEMORY = 8 << 30  # bytes, of addresses: a thread of py-rattler's reserves some
SUBDIRS = ("linux-64", "noarch")

_REQUEST = re.compile(r"for url \(([^\s()]{1,300})\)")
MirrorLookup = Callable[[str], Sequence[str]]
"""Base addresses of a channel's mirrors, in order; none where conda's clients know where it is."""
SolvedResult = TypeVar("SolvedResult")


@dataclass(frozen=True)
class CondaResolver:
    """A resolver of conda packages."""

    mirrors: MirrorLookup

    def solve_input(self, name: str, wanted: Input, preferred: Sequence[Artefact] = ()) -> list[Artefact]:
        """The rows of an input, as its channels were on its day.

        Args:
            name: The input's.
            wanted: The input.
            preferred: Packages that stay where they can.

        Raises:
            DownloadUnavailable: there is no solution, a channel is not to be had, or says what cannot be.
        """

        def lock_rows(places: list[tuple[str, str]]) -> list[Artefact]:
            told = _run_solver(name, wanted, wanted.requirements, preferred, places)
            return [_lock_row(name, wanted, record, places) for record in told["found"]]

        return self._first_mirror(wanted, lock_rows)

    def present_packages(self, name: str, wanted: Input, rows: Sequence[Artefact]) -> frozenset[str]:
        """Of locked packages, the SHA-256 of those that their channels still have.

        Raises:
            DownloadUnavailable: a channel is not to be had.
        """
        return self._first_mirror(
            wanted, lambda places: frozenset(_run_solver(name, wanted, (), rows, places)["known"])
        )

    def _first_mirror(self, wanted: Input, attempt: Callable[[list[tuple[str, str]]], SolvedResult]) -> SolvedResult:
        failed: list[str] = []
        for places in self._channel_addresses(wanted):
            try:
                return attempt(places)
            except DownloadUnavailable as error:  # one mirror may be behind another
                failed.append(str(error))
        raise DownloadUnavailable(f"cannot be locked: {'; '.join(dict.fromkeys(failed))}")

    def _channel_addresses(self, wanted: Input) -> Iterator[list[tuple[str, str]]]:
        """(Channel, its address or name), all first mirrors first."""
        known = {channel: list(self.mirrors(channel)) or [channel] for channel in wanted.channels}
        for number in range(max(map(len, known.values()))):
            yield [(name, bases[min(number, len(bases) - 1)]) for name, bases in known.items()]


def _run_solver(
    name: str, wanted: Input, specs: Sequence[str], known: Sequence[Artefact], places: list[tuple[str, str]]
) -> Any:
    bases = [place for _, place in places]
    with (
        progress.task("lock", f"solving {name} from {', '.join(wanted.channels)}"),
        tempfile.TemporaryDirectory() as cache,
    ):
        asked = {
            "specs": specs,
            "channels": bases,
            "before": f"{wanted.as_of}T00:00:00+00:00" if wanted.as_of else None,
            "known": [{"name": row.name, "sha256": row.sha256} for row in known],
            "cache": cache,
            "disk": DISK,
            "memory": MEMORY,
        }
        command = [sys.executable, "-I", str(SOLVER)]
        try:
            done = subprocess.run(
                command, input=json.dumps(asked), capture_output=True, text=True, timeout=SOLVER_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise DownloadUnavailable(f"{', '.join(bases)}: no answer within {SOLVER_TIMEOUT_S} s") from None
    try:
        told = json.loads(done.stdout)
        failed = told.get("failed")
    except (ValueError, AttributeError):
        last = _strip_controls(done.stderr)[-300:]
        raise DownloadUnavailable(f"{', '.join(bases)}: the solver ended with {done.returncode}: {last}") from None
    if failed is not None:
        raise DownloadUnavailable(_describe_failure(bases, failed))
    return told


def _describe_failure(bases: Sequence[str], failed: str) -> str:
    """Why a solver failed: of a connection, the address and its last cause, and the way around it.

    Args:
        bases: Addresses or names of the channels.
        failed: Text of py-rattler's error, with a chain of `Caused by:` lines for a failed request.
    """
    causes = failed.split("\nCaused by: ")[1:]
    names = ", ".join(bases)
    if not causes or not (found := _REQUEST.search(failed)):
        return f"{names}: py-rattler reports: {_strip_controls(failed)}"
    reason = _strip_controls(re.sub(r" \(os error \d+\)", "", causes[-1]))
    return (
        f"channel {names} cannot be reached: {reason} ({_strip_controls(found[1])}). Check this machine's network and "
        'proxy, or name a mirror in the inventory: "mirrors": {"CHANNEL": ["https://..."]}'
    )


def _strip_controls(text: str) -> str:
    return " ".join(re.sub(r"[^ -~]+", " ", text).split())


def _lock_row(group: str, wanted: Input, record: dict[str, Any], places: list[tuple[str, str]]) -> Artefact:
    """One package's row; refused is what could not be found again below a mirror, or has no hash."""
    file = record["file"]
    channel = next((name for name, place in places if _is_in_channel(record["url"], place)), None)
    said = f"{format_value(file)} of {record['channel']}"
    if channel is None:
        raise DownloadUnavailable(f"{said} is not in the channel that lists it, but at {format_value(record['url'])}")
    if not record["sha256"]:
        raise DownloadUnavailable(f"{said} has no SHA-256 in the channel's index")
    built = f"{record['name']}-{record['version']}-{record['build']}"
    place = f"{record['subdir']}/{file}"
    names = (f"{built}.conda", f"{built}.tar.bz2")
    if file not in names or record["subdir"] not in SUBDIRS or not record["url"].endswith(f"/{place}"):
        raise DownloadUnavailable(
            f"{said} is refused: the file of {built} for Linux on x86_64 is {names[0]} or {names[1]}"
        )
    try:
        return Artefact(
            kind="conda",
            name=record["name"],
            version=record["version"],
            build=record["build"],
            group=group,
            as_of=wanted.as_of,
            selection=wanted.selection,
            file=file,
            sha256=record["sha256"],
            size=record["size"],
            sources=(f"{channel}:{place}",),
        )
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        at = ".".join(map(str, detail["loc"]))
        raise DownloadUnavailable(f"{said} has a {at} that is refused: {format_value(detail['input'])}") from None


def _is_in_channel(url: str, place: str) -> bool:
    """Whether an address is one of a channel's: of a mirror by its base, else by the channel's name."""
    if "://" in place:
        return url.startswith(f"{place.rstrip('/')}/")
    return f"/{place}/" in url
