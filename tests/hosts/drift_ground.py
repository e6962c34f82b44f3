"""A host that drifts happen to: they are had, seen, and cured."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.hosts import Host
from tests.hosts.drifts import Drift, Harmless
from tests.hosts.support import deploy, red_lines

SECOND = 8021
"""The port of the second instance of a host that serves."""
SETTLES = 20.0  # seconds; a unit that fails again and again is never at rest


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

    def earlier(self) -> None:
        """Have a generation before the current one that differs from it in a port.

        Raises:
            Differs: a deploy fails.
        """
        other = self.inventory.with_name("other.py")
        other.write_text(self.inventory.read_text().replace(f"'port': {SECOND}", f"'port': {SECOND + 10}"))
        if (run := deploy(other, "--yes")).status:
            raise Differs(f"a deploy of another port fails: {run.said[-2000:]}")
        self.deployed()

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

    def must_be(self, rows: Sequence[Drift], when: str) -> None:
        """Assert that checks are red for these drifts, and no others.

        Raises:
            Differs: others are, or fewer.
        """
        self.settle()
        found, wanted = red_lines(self.inventory), {one for row in rows for one in row.red}
        lacking, more = wanted - set(found), set(found) - wanted - {one for row in rows for one in row.may}
        if not lacking and not more:
            return
        lines = [f"{when}:"]
        if lacking:
            lines.append(f"  not red: {' '.join(sorted(lacking))}")
        lines += [f"  red, too: {text}" for name in sorted(more) for text in found[name]]
        raise Differs("\n".join(lines))

    def must_be_left(self, rows: Sequence[Drift]) -> None:
        """Assert that a deploy has healed none of some drifts whole, and brought nothing of its own.

        Raises:
            Differs: it is otherwise.
        """
        self.settle()
        found = red_lines(self.inventory)
        lines = [f"  heals what turns {' '.join(row.red)} red" for row in rows if not set(row.red) & set(found)]
        more = sorted(set(found) - {one for row in rows for one in (*row.red, *row.may)})
        lines += [f"  red, too: {text}" for name in more for text in found[name]]
        if lines:
            raise Differs("\n".join(["a deploy:", *lines]))

    def broken(self, rows: Sequence[Drift]) -> None:
        """Have drifts, see them red, and cured by what cures each.

        Raises:
            Differs: something of it is not so; the drifts may still be there.
        """
        if any(row.earlier for row in rows):
            self.earlier()
        for row in rows:
            self.act(row.do)
        self.must_be(rows, "once it has happened")
        for row in rows:
            if row.deploy == "refuses":
                if not self.refused():
                    raise Differs("a deploy is not refused")
                self.act(row.cure)
        if any(row.deploy != "refuses" for row in rows):
            self.deployed()
        if left := [row for row in rows if row.deploy == "leaves"]:
            self.must_be_left(left)
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
        """Have what is harmless, all of it together, but what does not outlive a reboot not with one.

        Returns:
            What has happened -> the checks that mind.
        """
        boots = {name: row for name, row in rows.items() if "reboot" in row.do.splitlines()}
        rest = {name: row for name, row in rows.items() if name not in boots}
        return {name: said for some in (rest, boots) if some for name, said in self._unminded(some).items()}

    def _unminded(self, rows: dict[str, Harmless]) -> dict[str, str]:
        for row in rows.values():
            self.act(row.do)
        try:
            self.must_be((), "with what is harmless")
            failed = ""
        except Differs as error:
            failed = str(error)
            print(failed, flush=True)
        for row in rows.values():
            self.act(row.undo)
        if not failed or len(rows) == 1:
            return dict.fromkeys(rows, failed) if failed else {}
        return {name: said for one, row in rows.items() for name, said in self._unminded({one: row}).items()}
