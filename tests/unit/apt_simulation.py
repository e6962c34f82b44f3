"""Lines of `apt-get --simulate` for tests that are about some of them."""

from collections.abc import Iterable


def simulation_lines(lines: Iterable[str]) -> list[str]:
    """These lines with apt's count of what they list, unless they have one or apt complains."""
    rows = list(lines)
    if any(row.startswith("E: ") or row.endswith("not upgraded.") for row in rows):
        return rows
    there = [row.split(" ") for row in rows]
    came = sum(row[0] == "Inst" and row[2][:1] == "(" for row in there)
    moved = sum(row[0] == "Inst" and row[2][:1] == "[" for row in there)
    gone = sum(row[0] in ("Remv", "Purg") for row in there)
    return [f"{moved} upgraded, {came} newly installed, {gone} to remove and 0 not upgraded.", *rows]
