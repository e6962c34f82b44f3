"""Answers in the shape of OpenAI's API."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .http import Answer
from .settings import Settings

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    431: "invalid_request_error",
    500: "server_error",
}


LAST_RESORT = ".last"
"""Ends the name of a file for an instance that is asked where no other can be."""


ASLEEP, FAILED, STOPPED = "asleep", "failed", "stopped"
"""States of an instance on demand that is not loaded: the next request starts it, its last start or process failed, or
an operator has stopped it.
"""
MOST_STATES = 1 << 16
"""Bytes of the file of those that failed or were stopped."""
_STATE = re.compile(rf"([a-z0-9][a-z0-9-]{{0,47}}) ({FAILED}|{STOPPED}) ([01])\n")
_STATES = re.compile(rf"(?:{_STATE.pattern})*")


def json_answer(status: int, value: Any, *headers: tuple[str, str]) -> Answer:
    """An answer whose body is JSON, in ASCII."""
    return Answer(status, (("Content-Type", "application/json"), *headers), json.dumps(value).encode("ascii"))


def error(
    status: int, message: str, param: str | None = None, code: str | None = None, *headers: tuple[str, str]
) -> Answer:
    """An error as OpenAI's clients read it.

    Args:
        status: HTTP's.
        message: a sentence for a person.
        param: the member of the body that is wrong.
        code: for programs.
        headers: more of them.
    """
    value = {"message": message, "type": KINDS[status], "param": param, "code": code}
    return json_answer(status, {"error": value}, *headers)


def card(name: str, root: str) -> dict[str, object]:
    """A model as /v1/models has it, with vLLM's members for a model of several names (ModelCard of its protocol).

    Args:
        name: what clients ask for.
        root: the model's own name; another than `name` for an alias.
    """
    return {"id": name, "object": "model", "created": 0, "owned_by": "rigwright", "root": root, "parent": None}


def models(roots: Mapping[str, str]) -> Answer:
    """The list of models, from names to models' own names."""
    return json_answer(200, {"object": "list", "data": [card(name, root) for name, root in roots.items()]})


def health(settings: Settings) -> Answer:
    """What answers now: 200 as long as one model does, else 503."""
    found: dict[str, dict[str, object]] = {}
    states = _wake_states(settings)
    for name, model in settings.models.items():
        instances = {one: _instance(settings, states, one, one in model.on_demand) for one in model.instances}
        # the next request starts a failed one again, unless its pause lasts: a balancer has to send it one
        parts = {"last resort" if one == FAILED and states[key][1] else one for key, one in instances.items()}
        found[name] = {"status": _overall(parts), "instances": instances}
        if reasons := {one: rows for one in model.instances if (rows := _reasons(settings, one))}:
            found[name]["out_of_rotation"] = reasons
    # a box whose models all sleep serves each of them
    status = _overall({"ok" if one["status"] == ASLEEP else str(one["status"]) for one in found.values()})
    return json_answer(503 if status == "down" else 200, {"status": status, "models": found})


def linked(links: Path, instance: str) -> bool:
    """Whether an instance is ready: it has published its socket, or one that runs beside it has. Of one of another box
    its answers alone say that.
    """
    return "/" in instance or any(_socket(links / name) for name in (instance, f"{instance}.beside"))


def _socket(path: Path) -> bool:
    try:
        # as nginx has it: the link leads to a socket itself, not to a link that the engine has put there
        return stat.S_ISSOCK((path.parent / path.readlink()).lstat().st_mode)
    except OSError:
        return False


def _wake_states(settings: Settings) -> Mapping[str, tuple[str, bool]]:
    """Instances that failed or were stopped, each with its state, and whether the next request starts it all the same;
    none while the service that keeps the file begins anew, for requests wait for it.
    """
    if not settings.wake_states:
        return {}
    try:
        with settings.wake_states.open(encoding="ascii") as file:
            text = file.read(MOST_STATES + 1)
    except (OSError, ValueError):
        return {}
    if not _STATES.fullmatch(text):
        return {}
    return {name: (state, starts == "1") for name, state, starts in _STATE.findall(text)}


def _instance(settings: Settings, states: Mapping[str, tuple[str, bool]], name: str, is_on_demand: bool) -> str:
    if not linked(settings.links, name):
        if not is_on_demand or (settings.rotation / name).exists():
            return "down"
        if settings.wake_socket and not settings.wake_socket.exists():
            return "down"
        return states.get(name, (ASLEEP, True))[0]
    if settings.out_file(name).exists():
        return "down" if "/" in name else "wedged"
    if (settings.rotation / name).exists():
        return "out of rotation"
    return "last resort" if (settings.rotation / f"{name}{LAST_RESORT}").exists() else "ok"


def _reasons(settings: Settings, name: str) -> list[dict[str, object]]:
    """Why root keeps an instance out: a word, and since when. Its texts name paths, which are no client's business."""
    for file in (settings.rotation / name, settings.rotation / f"{name}{LAST_RESORT}"):
        try:
            rows = json.loads(file.read_text())["reasons"]
            return [{"reason": str(one["reason"]), "since": float(one["since"])} for one in rows]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return []


def _overall(parts: set[str]) -> str:
    if parts == {ASLEEP}:
        return ASLEEP
    parts = {"ok" if one == ASLEEP else one for one in parts}
    if parts == {"ok"}:
        return "ok"
    return "degraded" if parts & {"ok", "degraded", "last resort"} else "down"
