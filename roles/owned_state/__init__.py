"""Digests of what a deploy owns on a connected host, read and recorded."""

from __future__ import annotations

import shlex
from typing import Any

from rigwright.model.rig import Rig
from rigwright.plan.state_digests import (
    OwnedStateFacts,
    parse_owned_state,
    render_owned_state_query,
    render_seal_words,
)
from roles import root_shell

SECONDS = 60.0  # for a host to digest what is there, which takes a tenth of one


def read_owned_state(target: Any, rig: Rig) -> OwnedStateFacts:
    """The digests of a connected host now.

    Raises:
        ValueError: it reported something else.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    answer = root_shell.run_command(target, render_owned_state_query(rig), limit=SECONDS)
    return parse_owned_state(answer.lines)


def seal_owned_state(target: Any, rig: Rig, found: OwnedStateFacts, declared: str) -> None:
    """Have root write down digests after whose observation all checks have passed, unless something changed meanwhile.

    Raises:
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    root_shell.run_command(target, shlex.join(render_seal_words(rig, found, declared)), limit=SECONDS)
