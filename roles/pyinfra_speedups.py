"""Faster forms of functions of pyinfra that take most of its time per host; importing this puts them in place."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from typing import Any

import pyinfra
from pyinfra.api import util
from pyinfra.api.arguments import all_argument_meta, all_global_arguments
from pyinfra.api.exceptions import ArgumentTypeError
from pyinfra.api.util import raise_if_bad_type
from pyinfra.context import ctx_config

GLOBAL_ARGUMENTS = tuple((key, kind, all_argument_meta[key]) for key, kind in all_global_arguments())
"""pyinfra's arguments of every operation and fact, with their types and descriptions."""


def find_argument_defaults(host: Any, config: Any) -> Mapping[str, Any]:
    """The values of global arguments that a call leaves out: those of the host's data, or of the configuration."""
    of_host = host.__dict__.get("argument_values")
    dynamic = any(key.startswith("_") for data in (host.data.override_datas, host.get_deploy_data()) for key in data)
    if of_host is None or dynamic:
        known = host.data.dict()
        of_host = {key: known[key] for key, _, _ in GLOBAL_ARGUMENTS if key in known}
        if not dynamic:
            host.argument_values = of_host
    settings, defaults = host.__dict__.get("argument_defaults", (None, {}))
    if settings != vars(config):
        defaults = {key: meta.default(config) for key, _, meta in GLOBAL_ARGUMENTS}
        host.argument_defaults = vars(config).copy(), defaults
    return {**defaults, **{key: copy(value) for key, value in of_host.items()}}


def pop_global_arguments(state: Any, host: Any, kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """As pyinfra's own, which looks up thirty values in all data of the host for each operation and fact.

    Raises:
        pyinfra.api.exceptions.ArgumentTypeError: a value is of another type.
    """
    config = ctx_config.get() or state.config
    defaults = find_argument_defaults(host, config)
    of_deploy = host.current_deploy_kwargs or {}
    arguments, names = dict(defaults), list[str]()
    for key, kind, meta in GLOBAL_ARGUMENTS:
        if not (key in kwargs or key in of_deploy or meta.handler):
            continue
        default = defaults[key]
        if key in kwargs:
            names.append(key)
            value = kwargs.pop(key)
        else:
            value = of_deploy.get(key, default)
        if meta.handler:
            value = meta.handler(config, value)
        # each operation has a name, and the general comparison of types takes longer than an operation
        if value != default and not (key == "name" and isinstance(value, str)):
            raise_if_bad_type(value, kind, ArgumentTypeError, f"Invalid argument `{key}`:")
        arguments[key] = value
    return arguments, names


def list_deploy_lines(state: Any) -> list[int]:
    """The lines from the deploy's file to the operation that is called; pyinfra's own reads each frame's source."""
    frames = []
    frame = sys._getframe(1)
    while frame:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    frames.reverse()
    files = [file for file, _ in frames]
    name = state.current_deploy_filename
    # without that file pyinfra begins at its last frame
    first = (files.index(name) if name in files else len(files) - 1) if name else 0
    lines = [line for file, line in frames[first:] if not file.startswith(util.PYINFRA_INSTALL_DIR)]
    return [state.current_op_file_number, *lines] if pyinfra.is_cli else lines


read_signature = cache(inspect.signature)
"""The signature of a function of a role, read once: pyinfra reads it for each host."""


def bind_fact_arguments(command: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """As inspect.getcallargs, of a fact's method.

    Raises:
        TypeError: the method does not take these arguments.
    """
    function, instance = getattr(command, "__func__", command), getattr(command, "__self__", None)
    bound = read_signature(function).bind(*([] if instance is None else [instance]), *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


# `pyinfra.api.operation` and `pyinfra.api.deploy` are the decorators of these names, too
for name in ("deploy", "facts", "operation"):
    sys.modules[f"pyinfra.api.{name}"].__dict__["pop_global_arguments"] = pop_global_arguments
sys.modules["pyinfra.api.operation"].__dict__["get_operation_order_from_stack"] = list_deploy_lines
sys.modules["pyinfra.api.operation"].__dict__["signature"] = read_signature
sys.modules["pyinfra.api.facts"].__dict__["getcallargs"] = bind_fact_arguments
