"""The marker of a rollout on a box: from which rollout, by which controller, and how far the box is.

The controller writes it before each step, and only in place of the marker that it has read: a controller that another
one has replaced changes the box no more.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ValidationError

from rigwright.gateway.gateway_units import ADMIN, BOX_OUT, ROUTER_RUNTIME
from rigwright.host import script_output
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.host.script_output import free_text
from rigwright.model.roots import Roots
from rigwright.problems import FrozenModel
from rigwright.render import render
from rigwright.rollout.state_file import BoxRecord, RolloutMoment
from rigwright.validated_types import PLAIN, Digits, matching

MOST_BYTES = 1 << 16
Controller = Annotated[str, matching(rf"{PLAIN}{{1,4500}}", "a controller, as USER@MACHINE:INVENTORY")]


def read_clock() -> datetime:
    """The present moment."""
    return datetime.now(timezone.utc)


def format_moment(moment: datetime) -> str:
    """A moment as state files and markers have it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class BoxMarker(FrozenModel):
    """A box in a rollout, as the controller wrote it last."""

    format: Literal["rigwright rollout marker"] = "rigwright rollout marker"
    version: Literal[1] = 1
    rollout: Digits
    started: RolloutMoment
    """Of the rollout."""
    controller: Controller
    process: Digits | None = None
    """Of the controller's processes, the one that wrote it: two machines may have one name."""
    moment: RolloutMoment
    """Of this marker."""
    is_released: bool = False
    """Whether the controller has ended its run, by a pause or a stop: another one may continue the rollout."""
    is_closed: bool = False
    """Whether the rollout is over for this box."""
    record: BoxRecord

    @property
    def content(self) -> str:
        """One line of JSON."""
        return self.model_dump_json()

    def describe(self) -> str:
        """The rollout, its controller, and the step of the box."""
        return f"the rollout of {self.started} by {self.controller} ({self.record.state} since {self.moment})"


def controller_name(inventory: str) -> str:
    """This controller: USER@MACHINE:INVENTORY."""
    path = Path(inventory).absolute()
    return free_text(f"{getpass.getuser()}@{os.uname().nodename}:{path}")


def describe_marker_refusal(marker: BoxMarker | None, rollout: str, controller: str, replaced: str) -> str:
    """Why a controller may not continue on a box; empty if it may.

    Args:
        marker: The box's.
        rollout: The identifier of the controller's rollout.
        controller: Its name.
        replaced: The name of the controller that it replaces, by the operator's consent.
    """
    if marker is None or (marker.is_closed and marker.rollout != rollout):
        return ""
    if marker.rollout != rollout:
        return f"{marker.describe()} is not finished"
    if marker.is_closed:
        return "" if marker.record.state == "done" else f"{marker.describe()} was aborted"
    if marker.is_released or marker.controller in (controller, replaced):
        return ""
    return f"{marker.describe()} is another controller's"


DIGEST = script_output.optional(script_output.sha256)
MARKER_SCHEMA: script_output.Schema = {"marker": (script_output.sha256, script_output.text)}
"""The output of templates/rollout/marker.sh.j2: the digest of a marker, and its text."""
MARK_SCHEMA: script_output.Schema = {"marked": (), "digest": (DIGEST,)}
"""The output of templates/rollout/mark.sh.j2: the digest of the marker that is there afterwards."""
RETURN_SECONDS = 60
"""A gateway probes an instance that it leaves out every ten seconds, and such a probe loads no model."""
DRAIN_SCHEMA: script_output.Schema = {"left": (script_output.number,)}
"""The output of templates/rollout/drain.sh.j2: requests that did not end in time."""


def render_marker_query(roots: Roots) -> str:
    """The script that reports the marker of a box."""
    return render("rollout/marker.sh.j2", folder=roots.rollout, most=MOST_BYTES)


def parse_marker(output: Iterable[str]) -> tuple[BoxMarker | None, str]:
    """The marker of a box and its digest; None and "" without one.

    Raises:
        ValueError: it cannot be read.
    """
    rows = script_output.parse_output(output, MARKER_SCHEMA).many("marker")
    if not rows:
        return None, ""
    digest, text = rows[-1]
    return read_marker(text), digest


def read_marker(text: str) -> BoxMarker:
    """A marker from its text.

    Raises:
        ValueError: the text has another form.
    """
    try:
        return BoxMarker.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        fault = free_text(f"{'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}")
        raise ValueError(f"its rollout/marker.json is no rollout's marker: {fault}") from None


def render_mark_script(roots: Roots, marker: BoxMarker, expected: str) -> str:
    """The script that replaces the marker, and takes the box out of the rotation of other boxes' gateways or back.

    Args:
        roots: Directories on the host.
        marker: The marker.
        expected: The digest of the present one; empty for none.
    """
    return render(
        "rollout/mark.sh.j2",
        folder=roots.rollout,
        ledger=roots.ledger,
        locks=LOCKS,
        expected=expected,
        content=marker.content,
        is_out=marker.record.is_out,
        box_out=BOX_OUT,
    )


def parse_mark(output: Iterable[str]) -> tuple[bool, str]:
    """Whether the marker was replaced, and the digest of the marker that is there now.

    Raises:
        ValueError: the host reports something else.
    """
    found = script_output.parse_output(output, MARK_SCHEMA)
    return bool(found.many("marked")), found.one("digest")


def render_drain_script(seconds: int) -> str:
    """The script that waits for requests of other boxes' gateways."""
    return render("rollout/drain.sh.j2", admin=ADMIN, drain=seconds)


def render_return_script(instances: Iterable[str]) -> str:
    """The script with which a gateway's box waits until it sends requests to instances of other boxes, `BOX/NAME`."""
    # as the router names them (roles/gateway/host/router/settings.py)
    files = [f"{ROUTER_RUNTIME}/out/{one.replace('/', '_')}" for one in instances]
    return render("rollout/return.sh.j2", files=files, limit=RETURN_SECONDS)


def parse_left(output: Iterable[str]) -> int:
    """How many requests did not end in time, or instances are left out.

    Raises:
        ValueError: the host reports something else.
    """
    left: int = script_output.parse_output(output, DRAIN_SCHEMA).one("left")
    return left
