"""What somebody or something does to a host, who must notice, what a deploy does, and the cure: data, and who runs it.

tests/hosts/drifts/AREA.toml has them, a table each, called what has happened:

    ["somebody changes the process's limits"]
    box = "serving"       # a host of tests/hosts/drift_boxes.py
    do = "prlimit ..."    # shell, as root on it
    red = ["S16"]         # exactly the checks that turn red
    deploy = "heals"      # or "refuses", or "leaves" it as it is
    cure = ""             # shell: what the red line says, where a deploy alone is none
    alone = true          # where it cannot be there together with others (default: false)

In `do` and `cure` a line that is `reboot` or `deploy` and nothing else is that, done from outside.
harmless.toml has what no check may mind: `box`, `do`, `undo`. elsewhere.toml says which checks no host here can turn
red, and what shows them red instead: `shown`.

By hand, against a throwaway host that is up: `python -m tests.hosts.drift_boxes INVENTORY [AREA] [-k WORDS]`.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lab.hosts import Host
from rigwright.toml import tomllib
from tests.hosts.support import deploy, red_lines

FOLDER = Path(__file__).with_name("drifts")
HARMLESS, ELSEWHERE = "harmless", "elsewhere"
TOGETHER = 12
"""Drifts of one batch, at most: of one that does not go as it should, each is looked at alone."""
SETTLES = 20.0  # seconds; a unit that fails again and again is never at rest
Identifier = Annotated[str, Field(pattern=r"^[A-Z][0-9]{2}$")]
BoxName = Literal["serving", "cards"]


class Row(BaseModel):
    """A table of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Drift(Row):
    """What happens to a host."""

    box: BoxName
    do: str
    red: list[Identifier] = Field(min_length=1)
    deploy: Literal["heals", "refuses", "leaves"]
    cure: str = ""
    alone: bool = False

    @model_validator(mode="after")
    def _one_cure(self) -> Drift:
        if (self.deploy == "heals") == bool(self.cure):
            raise ValueError("what a deploy heals has no other cure, and what it does not heal has one")
        if len(set(self.red)) < len(self.red):
            raise ValueError("red: a check is named twice")
        return self


class Harmless(Row):
    """What may happen to a host without a check that minds."""

    box: BoxName
    do: str
    undo: str


class Elsewhere(Row):
    """A check that no drift here turns red."""

    shown: str
    """The test that does, or why none can."""


def load(name: str, row: type[Row]) -> dict[str, Row]:
    """A file's tables.

    Raises:
        ValueError: one is not as it should be; says which, and what is wrong.
    """
    found: dict[str, Row] = {}
    for title, table in tomllib.loads((FOLDER / f"{name}.toml").read_text()).items():
        try:
            found[title] = row.model_validate(table)
        except ValueError as error:
            raise ValueError(f"{name}.toml: [{title!r}]: {error}") from None
    return found


def areas() -> list[str]:
    """The files of drifts."""
    return sorted({path.stem for path in FOLDER.glob("*.toml")} - {HARMLESS, ELSEWHERE})


def drifts(*wanted: str) -> dict[str, Drift]:
    """What has happened, with its area -> the drift; of some areas, or of all.

    Raises:
        ValueError: as `load`.
    """
    return {  # type: ignore[return-value]
        f"{area}: {title}": row for area in wanted or areas() for title, row in load(area, Drift).items()
    }


def harmless() -> dict[str, Harmless]:
    """What nobody may mind."""
    return load(HARMLESS, Harmless)  # type: ignore[return-value]


def elsewhere() -> dict[str, Elsewhere]:
    """Check -> what shows it red."""
    return load(ELSEWHERE, Elsewhere)  # type: ignore[return-value]


def batches(rows: dict[str, Drift]) -> list[dict[str, Drift]]:
    """Drifts that are there together: no two turn the same check red, and a deploy refuses one of them at most.

    The fullest first.
    """
    made: list[dict[str, Drift]] = []
    for name, row in rows.items():
        for batch in made:
            if len(batch) < TOGETHER and all(fits(row, other) for other in batch.values()):
                batch[name] = row
                break
        else:
            made.append({name: row})
    return sorted(made, key=len, reverse=True)


def fits(one: Drift, other: Drift) -> bool:
    """Whether two drifts can be there together.

    What a deploy heals may restart what suffers from what it leaves: those are looked at apart.
    """
    refused = one.deploy == other.deploy == "refuses"
    apart = (one.deploy == "leaves") != (other.deploy == "leaves")
    return not (one.alone or other.alone or refused or apart or set(one.red) & set(other.red))


class Differs(Exception):
    """What is red, or what a deploy does, is not what the drifts say."""


class Spoilt(Exception):
    """A host is not as declared any more, whatever its cures are."""


@dataclass
class Ground:
    """A converged host, and the inventory that says what it is."""

    host: Host
    inventory: Path
    words: dict[str, str] = field(default_factory=dict)
    """Variables that the shell of drifts has."""

    def act(self, script: str) -> None:
        """Do what a drift says."""
        for step in re.split(r"^(reboot|deploy)$", script, flags=re.MULTILINE):
            if step == "reboot":
                self.host.reboot()
            elif step == "deploy":
                self.deployed()
            elif step.strip():
                given = "".join(f"{name}={shlex.quote(value)}\n" for name, value in self.words.items())
                self.host.run(given + step.strip())

    def deployed(self) -> None:
        """Deploy, with whatever reboot that needs.

        Raises:
            Differs: it fails.
        """
        if said := self.refused():
            raise Differs(f"a deploy fails: {said}")

    def refused(self) -> str:
        """Deploy; the last of what it says where it fails."""
        run = deploy(self.inventory, "--yes", "--data", "reboot=true")
        return run.said[-2000:] or "nothing" if run.status else ""

    def settle(self) -> None:
        """Wait until no unit of ours is on its way."""
        ours = "systemctl list-units --no-legend --state=activating,deactivating,reloading 'rigwright*'"
        until = time.monotonic() + SETTLES
        while self.host.run(ours).strip() and time.monotonic() < until:
            time.sleep(0.1)

    def must_be(self, expected: Iterable[str], when: str) -> None:
        """Assert which checks are red.

        Raises:
            Differs: others are, or fewer.
        """
        self.settle()
        found, wanted = red_lines(self.inventory), set(expected)
        if set(found) == wanted:
            return
        lines = [f"{when}:"]
        if lacking := sorted(wanted - set(found)):
            lines.append(f"  not red: {' '.join(lacking)}")
        lines += [f"  red, too: {text}" for name in sorted(set(found) - wanted) for text in found[name]]
        raise Differs("\n".join(lines))

    def broken(self, rows: Sequence[Drift]) -> None:
        """Have drifts, see them red, and cured by what cures each.

        Raises:
            Differs: something of it is not so; the drifts may still be there.
        """
        for row in rows:
            self.act(row.do)
        self.must_be((one for row in rows for one in row.red), "once it has happened")
        for row in rows:
            if row.deploy == "refuses":
                if not self.refused():
                    raise Differs("a deploy is not refused")
                self.act(row.cure)
        if any(row.deploy != "refuses" for row in rows):
            self.deployed()
        if left := [row for row in rows if row.deploy == "leaves"]:
            self.must_be((one for row in left for one in row.red), "after a deploy")
            for row in left:
                self.act(row.cure)
        self.must_be((), "once it is cured")

    def restored(self, rows: Sequence[Drift]) -> None:
        """Put a host right of which something was not as it should be.

        Raises:
            Spoilt: it cannot be.
        """
        for row in rows:
            try:
                self.act(row.cure)
            except (RuntimeError, Differs) as error:
                print(f"{row.cure}: {error}")
        try:
            self.deployed()
            self.must_be((), "with every cure, and a deploy")
        except Differs as error:
            raise Spoilt(str(error)) from None

    def all(self, batch: dict[str, Drift]) -> dict[str, str]:
        """Have the drifts of a batch together, and each alone where that is not as it should be.

        Returns:
            What has happened -> what is not as it should be.

        Raises:
            Spoilt: the host is as declared no more.
        """
        failed = self.one([*batch.values()])
        if not failed or len(batch) == 1:
            return dict.fromkeys(batch, failed) if failed else {}
        print(f"together: {failed}", flush=True)
        alone = {}
        for name, row in batch.items():
            alone[name] = self.one([row])
            print(f"alone: {name}: {alone[name] or 'as it says'}", flush=True)
        return {name: reason for name, reason in alone.items() if reason}

    def one(self, rows: Sequence[Drift]) -> str:
        """Have drifts; what is not as it should be.

        Raises:
            Spoilt: the host is as declared no more.
        """
        try:
            self.broken(rows)
        except (Differs, RuntimeError) as error:
            self.restored(rows)
            return str(error)
        return ""

    def unminded(self, rows: dict[str, Harmless]) -> dict[str, str]:
        """Have what is harmless; what has happened -> the checks that mind."""
        for row in rows.values():
            self.act(row.do)
        try:
            self.must_be((), "with what is harmless")
            failed = ""
        except Differs as error:
            failed = str(error)
        for row in rows.values():
            self.act(row.undo)
        if not failed or len(rows) == 1:
            return dict.fromkeys(rows, failed) if failed else {}
        return {name: said for one, row in rows.items() for name, said in self.unminded({one: row}).items()}
