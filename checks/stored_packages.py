"""Package files that are kept, beside their lists and the lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from checks import ItemText
from checks.survey.packages import StoredDriver
from rigwright.supply.lock import Artefact


def find_stored_package_problems(
    folder: str, kept: Iterable[StoredDriver], locked: Mapping[str, Artefact], name: str
) -> Iterator[str]:
    """The package files that differ from the fetched ones, in words.

    Args:
        folder: Where the sets lie.
        kept: The sets of package files.
        locked: SHA-256 -> a row of the lock.
        name: The set that the lock has; empty for none.
    """
    for one in kept:
        where = f"{folder}/{one.version}"
        if one.listed is None:
            yield f"{where} has no list of files"
            continue
        sums = {line[66:]: line[:64] for line in one.listed.split("\n") if len(line) > 66}
        names = {file.name for file in one.files} - {"SHA256SUMS"}
        yield from (f"{where}/{file} is missing" for file in sorted(sums.keys() - names))
        yield from (f"{where}/{file} is not listed" for file in sorted(names - sums.keys()))
        for file in one.files:
            if file.name not in sums:
                continue
            row = locked.get(sums[file.name])
            if name and one.version == name and row is None:
                shown = f"{where}/{file.name} is listed with a different SHA-256 than the lock's"
                yield ItemText(shown, f"{shown}: {sums[file.name]}")
            elif (file.sha256 and file.sha256 != sums[file.name]) or (row and row.size and file.size != row.size):
                shown = f"{where}/{file.name} has different contents"
                if file.sha256:
                    yield ItemText(shown, f"{shown}: {file.sha256}")
                else:
                    yield ItemText.without_value(shown)
