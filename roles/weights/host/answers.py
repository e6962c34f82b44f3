"""The meaning of a server's refusal, in one sentence with its remedy."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from time import time

LET_IN = "name a file with a token that may read it as hub_token_file"
LATER = "deploy again later"
MOST_SAID = 300
"""Characters of what a server says."""


def describe_http_error(status: int, code: str = "", message: str = "", *, hub: bool = False) -> str:
    """Why a server refuses.

    Args:
        status: HTTP status.
        code: its X-Error-Code header, as the hub sends it: GatedRepo, RepoNotFound, RevisionNotFound, EntryNotFound
            (huggingface_hub/utils/_http.py, hf_raise_for_status).
        message: its X-Error-Message header.
        hub: whether it is a hub's, which may ask for a token.
    """
    return _describe_hub_error(status, code, message) if hub else _describe_status(status)


def strip_unprintable(text: str) -> str:
    """A server's text, as a job's log may have it, and a terminal after that."""
    return "".join(one if one.isprintable() else " " for one in text)[:MOST_SAID]


def _describe_hub_error(status: int, code: str, message: str) -> str:
    words = strip_unprintable(message).strip().rstrip(".")
    said = f" ({words})" if words else ""
    if code == "GatedRepo":
        return (
            f"gated, answer {status}{said}: accept its terms on its page with your account, wait until access is "
            f"granted, and {LET_IN}"
        )
    if code == "RevisionNotFound":
        return f"the commit is not there any more, answer {status}{said}: lock the model anew"
    if code == "EntryNotFound":
        return f"the commit has no such file, answer {status}{said}: lock the model anew"
    # the hub does not tell a private repository from one that does not exist
    if code == "RepoNotFound" or status == 401:
        return f"no such repository, or not without a token, answer {status}{said}: check its name, and {LET_IN}"
    if status == 403:
        return f"refused, answer 403{said}: give the token of hub_token_file leave to read this repository"
    if status == 404:
        return f"has it not, answer 404{said}: check repository and commit, or lock the model anew"
    return _describe_status(status)


def _describe_status(status: int) -> str:
    if status in (401, 403, 407):
        return f"refused, answer {status}: check what its address and the network between need to let this host in"
    if status in (404, 410):
        return f"has it not, answer {status}"
    if status == 429:
        return f"too many requests, answer 429: {LATER}, or name a peer or a mirror that has the files"
    if status >= 500:
        return f"the server fails, answer {status}: {LATER}"
    return f"answer {status}"


def is_transient(status: int) -> bool:
    """Whether the same request may be answered otherwise soon."""
    return status in (408, 425, 429) or status >= 500


def retry_delay(retry_after: str, pause: float, most: float) -> float:
    """Seconds until the next try: the value of a Retry-After header, between `pause` and `most`.

    Args:
        retry_after: seconds or a date (RFC 9110, section 10.2.3), or nothing.
        pause: seconds without one.
        most: seconds.
    """
    try:
        asked = float(retry_after)
    except ValueError:
        try:
            asked = parsedate_to_datetime(retry_after).timestamp() - time()
        # of numbers that no date has
        except (TypeError, ValueError, OverflowError):
            asked = pause
    return max(pause, min(asked, most))
