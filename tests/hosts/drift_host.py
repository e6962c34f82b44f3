"""A host that drifts happen to: they are had, seen, and cured."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checks.required_check_ids import OWNED
from lab.hosts import LabHost
from tests.hosts.drift_tables import CHANGED_ONLY, DriftRow, HarmlessRow, load_drifts
from tests.hosts.support import describe_result, results_with_verdict, run_deploy
from tests.remedy_table import HOST_COMMANDS, command_pattern

SECOND = 8021
"""The port of the second instance of a host that serves."""
CLASSES = CHANGED_ONLY | {"X02"}
"""Checks of changes, and that of what is never accepted. In addition to the check that a row names, a change of a file
may turn them red, too; the rest after a cure is accepted before the next drifts."""
SETTLES = 20.0  # seconds; a unit that fails again and again is never at rest


class UnexpectedDrift(Exception):
    """The red checks, or the deploy's actions, differ from the drifts' rows."""


class HostDamaged(Exception):
    """A host is not as declared any more, whatever its cures are."""


BEYOND_LAB = ("rm -rf -- /opt/rigwright/engines/", "nvidia-modprobe ")
"""Beginnings of commands that no throwaway host can be cured by: minutes of compilation, which
tests/hosts/test_first_deploy.py has, and device files of real cards."""


def run_printed_command(command: str) -> None:
    """Run a command of this machine as a check has printed it.

    Raises:
        UnexpectedDrift: it fails.
    """
    _, *words = shlex.split(command)
    done = subprocess.run([sys.executable, "-m", "cli", *words], capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise UnexpectedDrift(f"{command}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def assert_remedy_is_printed(rows: Sequence[DriftRow], found: dict[str, list[dict[str, Any]]]) -> None:
    """Assert that of each drift that a deploy heals a check prints the deploy, or a command of the host.

    Raises:
        UnexpectedDrift: none does.
    """
    for row in rows:
        results = [result for name in row.red for result in found[name]]
        if not any(
            one["where"] == "host" or (one["where"] == "here" and " deploy " in one["text"])
            for result in results
            for one in result["steps"]
        ):
            raise UnexpectedDrift(
                "\n  ".join(["a deploy heals it, but no command does:", *map(describe_result, results)])
            )


def is_proof(row: DriftRow) -> bool:
    """Whether the table of remedies names a drift as the one whose commands run as printed."""
    there = load_drifts()
    return any(there.get(proof) == row for proof in HOST_COMMANDS.values())


def assert_named_commands(row: DriftRow, printed: Sequence[str]) -> None:
    """Assert that a drift has printed the commands that tests/remedy_table.py names it for.

    Raises:
        UnexpectedDrift: one is not among them.
    """
    rows = load_drifts()
    for template, proof in HOST_COMMANDS.items():
        if rows.get(proof) == row and not any(map(command_pattern(template).fullmatch, printed)):
            raise UnexpectedDrift(f"no check prints `{template}`, but: {printed}")


@dataclass
class DriftHost:
    """A converged host, and the inventory that says what it is."""

    host: LabHost
    inventory: Path
    words: dict[str, str] = field(default_factory=dict)
    """Variables that the shell of drifts has."""

    def run_script(self, script: str) -> None:
        """Do what a drift says."""
        for step in re.split(r"^(reboot|deploy)$", script, flags=re.MULTILINE):
            if step == "reboot":
                self.host.reboot()
            elif step == "deploy":
                self.deploy_converged()
            elif step.strip():
                given = "".join(f"{name}={shlex.quote(value)}\n" for name, value in self.words.items())
                self.host.run(given + step.strip())

    def deploy_converged(self) -> None:
        """Deploy, with whatever reboot that needs.

        Raises:
            UnexpectedDrift: it fails.
        """
        if said := self.deploy_error():
            raise UnexpectedDrift(f"a deploy fails: {said[-2000:]}")

    def add_earlier_generation(self) -> None:
        """Have a generation before the current one that differs from it in a port.

        Raises:
            UnexpectedDrift: a deploy fails.
        """
        other = self.inventory.with_name("other.py")
        other.write_text(self.inventory.read_text().replace(f"'port': {SECOND}", f"'port': {SECOND + 10}"))
        if (run := run_deploy(other, "--yes")).status:
            raise UnexpectedDrift(f"a deploy of another port fails: {run.said[-2000:]}")
        self.deploy_converged()

    def deploy_error(self) -> str:
        """Deploy; all that it prints where it fails."""
        status, printed = self.run_deploy()
        return printed or "nothing" if status else ""

    def run_deploy(self) -> tuple[int, str]:
        """Deploy as an operator does; the exit status and all that is printed."""
        command = [sys.executable, "-m", "cli", "deploy", str(self.inventory), "--reboot"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, f"{done.stdout}{done.stderr}"

    def wait_until_settled(self) -> None:
        """Wait until no unit of ours is on its way."""
        ours = "systemctl list-units --no-legend --state=activating,deactivating,reloading 'rigwright*'"
        until = time.monotonic() + SETTLES
        while self.host.run(ours).strip() and time.monotonic() < until:
            time.sleep(0.1)

    def failed(self) -> dict[str, list[dict[str, Any]]]:
        """The checks that are red: failures, and changes that are not accepted."""
        return results_with_verdict(self.inventory, "fail", "changed")

    def accept_changes(self) -> None:
        """Accept all that is there, as an operator does.

        Raises:
            HostDamaged: it is refused for another reason than entries that are never accepted.
        """
        command = [sys.executable, "-m", "cli", "check", str(self.inventory), "--accept", "--yes", "--author=tests"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "is never accepted" not in " ".join(done.stderr.split()):
            raise HostDamaged(f"{done.stdout[-1000:]}{done.stderr[-1000:]}")

    def assert_no_change(self, rows: Sequence[DriftRow]) -> None:
        """Assert that no class of changes that drifts are to turn red is red before them.

        Raises:
            UnexpectedDrift: one is.
        """
        wanted = {one for row in rows for one in row.red} & CLASSES
        if red := wanted & set(self.failed() if wanted else {}):
            raise UnexpectedDrift(f"red before it happens: {' '.join(sorted(red))}")

    def assert_red(self, rows: Sequence[DriftRow], when: str) -> dict[str, list[dict[str, Any]]]:
        """Assert that checks are red for these drifts, and no others; returns their results.

        Raises:
            UnexpectedDrift: others are, or fewer.
        """
        self.wait_until_settled()
        found, wanted = self.failed(), {one for row in rows for one in row.red}
        lacking = wanted - set(found)
        more = set(found) - wanted - {one for row in rows for one in row.may} - CLASSES
        if not lacking and not more:
            return found
        lines = [f"{when}:"]
        if lacking:
            lines.append(f"  not red: {' '.join(sorted(lacking))}")
        lines += [f"  red, too: {describe_result(one)}" for name in sorted(more) for one in found[name]]
        raise UnexpectedDrift("\n".join(lines))

    def assert_not_healed(self, rows: Sequence[DriftRow], printed: str) -> None:
        """Assert that a deploy healed none of some drifts entirely, brought nothing of its own, and named what it owns.

        Args:
            rows: The drifts.
            printed: The output of the deploy.

        Raises:
            UnexpectedDrift: it is otherwise.
        """
        self.wait_until_settled()
        found = self.failed()
        lines = [f"  heals what turns {' '.join(row.red)} red" for row in rows if not set(row.red) & set(found)]
        more = sorted(set(found) - {one for row in rows for one in (*row.red, *row.may)} - CLASSES)
        lines += [f"  red, too: {describe_result(one)}" for name in more for one in found[name]]
        owned = OWNED & set(found)
        lines += [f"  does not name {name}" for name in sorted(owned) if not re.search(rf"\b{name}\b", printed)]
        lines += (
            [f"  succeeds in spite of {' '.join(sorted(owned))}"] if owned and "deploy failed" not in printed else []
        )
        if lines:
            raise UnexpectedDrift("\n".join(["a deploy:", *lines]))

    def apply_and_cure(self, rows: Sequence[DriftRow]) -> None:
        """Have drifts, see them red, and cured by what cures each.

        Raises:
            UnexpectedDrift: something of it is not so; the drifts may still be there.
        """
        if any(row.earlier for row in rows):
            self.add_earlier_generation()
        self.accept_changes()
        self.assert_no_change(rows)
        for row in rows:
            self.run_script(row.do)
        found = self.assert_red(rows, "once it has happened")
        for row in rows:
            if row.deploy == "refuses":
                if not self.deploy_error():
                    raise UnexpectedDrift("a deploy is not refused")
                self.run_remedies([row], found)
        if proofs := [row for row in rows if row.deploy == "heals" and is_proof(row)]:
            self.run_remedies(proofs, found)
            self.assert_red([row for row in rows if row.deploy != "refuses" and row not in proofs], "as printed")
            for row in proofs:
                self.run_script(row.do)
        if any(row.deploy != "refuses" for row in rows):
            assert_remedy_is_printed([row for row in rows if row.deploy == "heals"], found)
            status, printed = self.run_deploy()
            if bool(status) != any(row.deploy == "names" for row in rows):
                raise UnexpectedDrift(f"a deploy ends with {status}: {printed[-2000:]}")
        for row in rows:
            self.run_script(row.cleanup)
        if left := [row for row in rows if row.is_left]:
            self.assert_not_healed(left, printed)
            self.run_remedies(left, found)
        self.assert_red((), "once it is cured")

    def run_remedies(self, rows: Sequence[DriftRow], found: dict[str, list[dict[str, Any]]]) -> None:
        """Run what the checks of drifts have printed, each command once; of a drift with an instruction for a person
        the row's cure instead.

        Args:
            rows: The drifts.
            found: The results of the red checks.
        """
        commands: dict[tuple[str, str], None] = {}
        for row in rows:
            # a deploy that is refused is P01's, which has no remedy but what removes the reason
            names = [name for name in row.red if name != "P01"] or row.red
            steps = [(one["where"], one["text"]) for name in names for result in found[name] for one in result["steps"]]
            assert_named_commands(row, [text for _, text in steps])
            # the command of a change accepts it
            by_hand = set(row.red) & CLASSES or any(where == "person" for where, _ in steps)
            if by_hand or any(text.startswith(BEYOND_LAB) for _, text in steps):
                self.run_script(row.cure)
            else:
                print(f"as printed by {' '.join(row.red)}: {'; '.join(text for _, text in steps)}", flush=True)
                commands |= dict.fromkeys(steps)
        # a deploy comes last: it finds the result of the host's commands
        for where, text in sorted(commands, key=lambda one: one[0] != "host"):
            if where == "host":
                # one that another drift's command has put right already may fail
                self.host.run(text, check=False)
            else:
                run_printed_command(text)

    def restore_host(self, rows: Sequence[DriftRow]) -> None:
        """Put a host right of which something was not as it should be.

        Raises:
            HostDamaged: it cannot be.
        """
        for row in rows:
            try:
                self.run_script(row.cure)
            except (RuntimeError, UnexpectedDrift) as error:
                print(f"{row.cure}: {error}")
        try:
            self.deploy_converged()
            self.assert_red((), "with every cure, and a deploy")
        except UnexpectedDrift as error:
            raise HostDamaged(str(error)) from None

    def run_batch(self, batch: dict[str, DriftRow]) -> dict[str, str]:
        """Have the drifts of a batch together, and each alone where that is not as it should be.

        Returns:
            Change -> the deviations from its row.

        Raises:
            HostDamaged: the host is as declared no more.
        """
        failed = self.run_drifts([*batch.values()])
        if not failed or len(batch) == 1:
            return dict.fromkeys(batch, failed) if failed else {}
        print(f"together: {failed}", flush=True)
        alone = {}
        for name, row in batch.items():
            alone[name] = self.run_drifts([row])
            print(f"alone: {name}: {alone[name] or 'as it says'}", flush=True)
        return {name: reason for name, reason in alone.items() if reason}

    def run_drifts(self, rows: Sequence[DriftRow]) -> str:
        """Have drifts; the deviations from their rows.

        Raises:
            HostDamaged: the host is as declared no more.
        """
        try:
            self.apply_and_cure(rows)
        except (UnexpectedDrift, RuntimeError) as error:
            self.restore_host(rows)
            return str(error)
        return ""

    def assert_changed(self, rows: Sequence[HarmlessRow]) -> None:
        """Assert that no check fails for what is harmless, and that changes that count are the ones of its rows.

        Raises:
            UnexpectedDrift: it is otherwise.
        """
        self.wait_until_settled()
        found, wanted = self.failed(), {one for row in rows for one in row.changed}
        counting = {
            name
            for name, results in found.items()
            if any(one["verdict"] == "fail" or any(change["counts"] for change in one["changes"]) for one in results)
        }
        lines = [f"  not changed: {name}" for name in sorted(wanted - set(found))]
        lines += [f"  red: {describe_result(one)}" for name in sorted(counting - wanted) for one in found[name]]
        if lines:
            raise UnexpectedDrift("\n".join(["with what is harmless:", *lines]))

    def run_harmless(self, rows: dict[str, HarmlessRow]) -> dict[str, str]:
        """Have what is harmless, all of it together, but what does not outlive a reboot not with one.

        Returns:
            Change -> the checks that report it.
        """
        boots = {name: row for name, row in rows.items() if "reboot" in row.do.splitlines()}
        rest = {name: row for name, row in rows.items() if name not in boots}
        return {name: said for some in (rest, boots) if some for name, said in self._run_harmless_rows(some).items()}

    def _run_harmless_rows(self, rows: dict[str, HarmlessRow]) -> dict[str, str]:
        self.accept_changes()
        for row in rows.values():
            self.run_script(row.do)
        try:
            self.assert_changed([*rows.values()])
            failed = ""
        except UnexpectedDrift as error:
            failed = str(error)
            print(failed, flush=True)
        for row in rows.values():
            self.run_script(row.undo)
        if not failed or len(rows) == 1:
            return dict.fromkeys(rows, failed) if failed else {}
        return {name: said for one, row in rows.items() for name, said in self._run_harmless_rows({one: row}).items()}
