"""State, lock and requests of an inventory's rollout on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from cli.exit_codes import InvalidRequest
from cli.inventory_loading import load_host_rigs, load_hosts
from cli.prog_name import prog_name
from rigwright.file_lock import FileLockHeld, file_lock
from rigwright.local_files import read_content, write_atomically
from rigwright.problems import printable
from rigwright.rollout.batch_plan import BatchLimits, RolloutRefused, plan_batches
from rigwright.rollout.state_file import (
    Request,
    RolloutState,
    UnreadableState,
    describe_other_inputs,
    load_state,
    lock_path,
    request_path,
    state_path,
)

REQUEST_BYTES = 64


def load_inventory_state(inventory: str) -> RolloutState | None:
    """The state of an inventory's last rollout; None without one.

    Raises:
        InvalidRequest: the file is refused.
    """
    try:
        return load_state(state_path(inventory))
    except UnreadableState as error:
        raise InvalidRequest(str(error)) from None


def refuse_unfinished(inventory: str) -> None:
    """Refuse another rollout while one is unfinished.

    Raises:
        InvalidRequest: one is.
    """
    state = load_inventory_state(inventory)
    if state and not state.is_ended:
        phase = "was cut off" if state.phase == "running" else f"is {state.phase}"
        raise InvalidRequest(
            f"the rollout of {state.started} {phase}: `{rollout_command(inventory, '--resume')}` continues it, "
            f"`{rollout_command(inventory, '--abort')}` ends it"
        )


def find_changed_inputs(inventory: str, state: RolloutState) -> str:
    """Why the inputs are not those that a rollout began with; empty if they are."""
    from cli.rollout_plan import digest_inputs

    supplies = {name: rig.digest for name, rig in load_host_rigs(load_hosts(inventory, None)).items()}
    return describe_other_inputs(state, *digest_inputs(inventory, supplies))


def find_late_refusal(inventory: str, state: RolloutState, names: Collection[str]) -> str:
    """Why boxes may not begin after a wait for their window, by the inputs and by all boxes as they are now."""
    from cli.rollout_plan import survey_boxes
    from rigwright.rollout.box_marker import read_clock

    settings = state.settings
    try:
        if changed := find_changed_inputs(inventory, state):
            return changed
        boxes = survey_boxes(inventory, names, settings)
        # a box that failed may begin again: its own fault is not in its way
        boxes = [replace(box, fault="") if box.name in names else box for box in boxes]
        outages = frozenset(settings.allowed_outages)
        limits = BatchLimits(0, len(names), settings.max_unavailable, outages)
        batches = plan_batches(boxes, names, limits, read_clock())
    except RolloutRefused as error:
        return "; ".join(error.reasons)
    except click.ClickException as error:
        return printable(error.message)
    if len(batches) == 1:
        return ""
    return f"{', '.join(names)} may not change at the same time any more: abort, and start another rollout"


def load_resumable(inventory: str) -> RolloutState:
    """The state of a rollout to continue.

    Raises:
        InvalidRequest: there is none, or its inputs have changed.
    """
    state = load_inventory_state(inventory)
    if state is None or state.is_ended:
        phase = f"the last one is {state.phase}" if state else f"there is no {state_path(inventory).name}"
        raise InvalidRequest(f"no rollout to resume: {phase}")
    if changed := find_changed_inputs(inventory, state):
        raise InvalidRequest(
            f"refused: {changed}. Undo the change, or end that rollout with `{rollout_command(inventory, '--abort')}` "
            "and start another one"
        )
    return state


@contextmanager
def hold_rollout_lock(inventory: str, patience: float | None = 0.0) -> Iterator[None]:
    """Be the only controller of this inventory's rollout.

    Raises:
        InvalidRequest: another process is.
    """
    try:
        with file_lock(lock_path(inventory), f"rollout of {Path(inventory).name}", patience):
            yield
    except FileLockHeld as error:
        raise InvalidRequest(f"refused: another rollout is running: {error}; --pause stops it") from None


def send_request(inventory: str, word: str) -> bool:
    """Ask the running controller; whether there is one.

    Raises:
        InvalidRequest: `pause` without a running controller.
    """
    try:
        with file_lock(lock_path(inventory), "look for a rollout", 0.0):
            pass
    except FileLockHeld:
        write_atomically(request_path(inventory), f"{word}\n", private=True)
        return True
    if word == "pause":
        raise InvalidRequest("no rollout is running")
    return False


def read_request(path: Path) -> Request:
    """The request for the running controller; any other content is ignored."""
    try:
        word = read_content(path, REQUEST_BYTES).strip()
    except ValueError:
        return ""
    return "pause" if word == b"pause" else "abort" if word == b"abort" else ""


def rollout_command(inventory: str, *words: str) -> str:
    """The command line of a rollout, as an operator types it."""
    return shlex.join([prog_name(), "rollout", inventory, *words])


def describe_foreign_rollout(inventory: str, reasons: Mapping[str, str]) -> str:
    """Why a controller does not go on: another rollout, or another controller, is on boxes."""
    lines = [f"refused: {name}: {reason}" for name, reason in reasons.items()]
    resume, abort = (rollout_command(inventory, word) for word in ("--resume", "--abort"))
    lines.append(
        f"  If that controller runs no more: `{abort} --replace-controller NAME`, or with its "
        f"{state_path(inventory).name} next to this inventory `{resume} --replace-controller NAME`; NAME is "
        "USER@MACHINE:INVENTORY as above"
    )
    return "\n".join(lines)
