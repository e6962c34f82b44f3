"""A rollout's marker as tests need it."""

from typing import Any

from rigwright.rollout.box_marker import BoxMarker
from rigwright.rollout.state_file import BoxRecord

ADA, BOB = "ada@laptop:/x/fleet.py", "bob@desk:/y/it's a fleet.py"


def make_marker(**changes: Any) -> BoxMarker:
    """A marker of Bob's controller on a box that waits."""
    moment = "2026-11-29T07:00:00Z"
    values = {"rollout": "0123456789ab", "started": moment, "moment": moment, "controller": BOB, "record": BoxRecord()}
    return BoxMarker(**(values | changes))
