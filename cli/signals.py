"""Ctrl-C in verbs that have nothing to tidy up: it ends the process at once, whatever that is doing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from cli.safe_output import escape_controls

INTERRUPTED_STATUS = 130  # what a shell gives a command that an interrupt has ended
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


def exit_on_interrupt(words: Callable[[], str] = str) -> None:
    """From here on an interrupt ends this process with exit status 130.

    Not by an exception: that would end one greenlet, or none. And not by way of Python's streams, nor gevent: either
    can be in the middle of something.

    Args:
        words: What is said then, on standard error; asked for as it happens.
    """
    from gevent.monkey import get_original

    select = get_original("select", "select")

    def interrupted(*_: object) -> None:
        try:
            text = words()
            said = (SHOW_CURSOR if text and os.isatty(2) else b"") + escape_controls(text).encode()
            # somebody may have stopped reading, and words that cannot be said must not keep the process
            if said and select([], [2], [], 0)[1]:
                os.write(2, said)
        finally:
            os._exit(INTERRUPTED_STATUS)

    signal.signal(signal.SIGINT, interrupted)
