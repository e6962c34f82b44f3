"""The end of a rollout before all boxes are done: the markers on boxes are closed, and boxes return to rotation."""

from __future__ import annotations

from cli.exit_codes import InvalidRequest, exit_on_interrupt
from cli.inventory_loading import load_hosts
from cli.prog_name import prog_name
from cli.rollout_control import hold_rollout_lock, load_inventory_state, send_request
from cli.rollout_run import BoxBefore, BoxUnreachable
from cli.rollout_steps import BoxSteps
from cli.tables import print_prose
from rigwright.problems import printable
from rigwright.rollout.box_marker import BoxMarker, controller_name, describe_marker_refusal, format_moment, read_clock
from rigwright.rollout.state_file import RolloutState, request_path, save_state, state_path


def abort_rollout(inventory: str, replaced: str) -> RolloutState | None:
    """End the rollout of an inventory, and that of a controller that runs no more; returns the state, if there is one.

    Raises:
        InvalidRequest: there is no rollout to end.
    """
    state = load_inventory_state(inventory)
    if not replaced and (state is None or state.is_ended):
        raise InvalidRequest("no rollout to abort")
    send_request(inventory, "abort")
    with hold_rollout_lock(inventory, None):
        exit_on_interrupt()
        request_path(inventory).unlink(missing_ok=True)
        state = load_inventory_state(inventory) or state
        if state and state.phase != "finished":
            state = state.with_phase("aborted")
            save_state(state_path(inventory), state)
        state, closed = _close_markers(inventory, state, replaced)
        if state:
            save_state(state_path(inventory), state)
    if not state and not closed:
        raise InvalidRequest(f"no box has an open marker of {printable(replaced)}")
    words = f"the rollout is {state.phase}" if state else f"the rollout of {printable(replaced)} is aborted"
    print_prose(f"{words}; nothing is rolled back: `{prog_name()} rollback` does that")
    return state


def _close_markers(
    inventory: str, state: RolloutState | None, replaced: str
) -> tuple[RolloutState | None, dict[str, tuple[BoxMarker, str]]]:
    """Close the markers of a rollout, and return its boxes to rotation; returns the state and these markers."""
    steps, own = BoxSteps(inventory, "deploy"), controller_name(inventory)
    closed: dict[str, tuple[BoxMarker, str]] = {}
    names = state.boxes if state and not replaced else load_hosts(inventory, None)
    for name, box in steps.observe(names).items():
        if isinstance(box, BoxUnreachable):
            print_prose(f"{name}: not reached, its marker stays: {box}")
        elif (marker := _find_open_marker(box, state, replaced)) is not None:
            identifier = state.identifier if state else marker.rollout
            other = marker.controller != replaced and describe_marker_refusal(marker, identifier, own, replaced)
            if other:
                print_prose(f"{name}: its marker stays: {other}; --replace-controller with that name closes it")
                continue
            record = marker.record.advance({"is_out": False})
            changes = {"record": record, "is_closed": True, "controller": own, "process": None}
            changes["moment"] = format_moment(read_clock())
            closed[name] = (marker.model_copy(update=changes), box.digest)
    for name, digest in steps.mark(closed).items():
        if not isinstance(digest, str):
            print_prose(f"{name}: its marker stays: {digest or 'another controller has written it meanwhile'}")
        elif state and name in state.boxes and closed[name][0].rollout == state.identifier:
            state = state.with_records({name: closed[name][0].record})
    return state, closed


def _find_open_marker(box: BoxBefore, state: RolloutState | None, replaced: str) -> BoxMarker | None:
    marker = box.marker
    if marker is None or marker.is_closed:
        return None
    is_own = state is not None and marker.rollout == state.identifier
    return marker if is_own or marker.controller == replaced else None
