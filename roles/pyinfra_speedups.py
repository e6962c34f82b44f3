"""Faster forms of two functions of pyinfra that take most of its time per host; importing this puts them in place."""

from __future__ import annotations

import sys
from typing import Any

import pyinfra
from pyinfra.api import util
from pyinfra.api.host import HostData

_find_host_value = HostData.__getattr__


def find_host_value(self: HostData, key: str) -> Any:
    """A value of a host's data. Each operation and fact asks for thirty arguments, of which hosts have few.

    Raises:
        AttributeError: the host has none.
    """
    if key.startswith("_"):
        keys = self.__dict__.get("inventory_keys")
        if keys is None:
            # an inventory is complete before its hosts are used
            *_, deploy_data = datas = self.datas[1:]
            keys = frozenset().union(*(data() for data in datas if data is not deploy_data))
            self.__dict__["inventory_keys"] = keys
        if key not in keys and key not in self.override_datas and key not in self.datas[-1]():
            raise AttributeError(key)
    return _find_host_value(self, key)


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


HostData.__getattr__ = find_host_value  # type: ignore[method-assign]
# `pyinfra.api.operation` is the decorator of that name, too
sys.modules["pyinfra.api.operation"].__dict__["get_operation_order_from_stack"] = list_deploy_lines
