"""Addresses beside the gateway's listeners: no other process listens there, and clients go on to the next address."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from rigwright.gateway import reservations
from rigwright.gateway.reservations import UNIT, counterparts, split_place, unit_name
from roles.gateway.host import reserve


@pytest.mark.parametrize(
    ("places", "reserved"),
    [
        (["0.0.0.0:8001"], ["[::]:8001"]),
        (["127.0.0.1:8001"], ["[::1]:8001"]),
        (["127.0.0.5:8001", "127.0.0.1:8001"], ["[::1]:8001"]),
        (["192.0.2.7:8001"], ["[::]:8001"]),
        (["192.0.2.7:8001", "127.0.0.1:8001"], ["[::]:8001"]),
        (["[::1]:8001"], ["127.0.0.1:8001"]),
        (["[2001:db8::7]:8001"], ["0.0.0.0:8001"]),
        # both are declared, and held
        (["0.0.0.0:8001", "[::]:8001"], []),
        (["192.0.2.7:8001", "[2001:db8::7]:8001"], []),
        # root's alone
        (["0.0.0.0:443"], []),
        (["0.0.0.0:8002", "[::1]:8001", "0.0.0.0:80"], ["127.0.0.1:8001", "[::]:8002"]),
        ([], []),
    ],
)
def test_the_other_family_of_a_port_is_reserved(places: list[str], reserved: list[str]) -> None:
    assert list(counterparts(places)) == reserved


def test_a_unit_keeps_one_set_of_addresses() -> None:
    first, second = unit_name(["[::]:8001"]), unit_name(["[::1]:8001"])
    assert UNIT.fullmatch(first)
    assert first != second == unit_name(["[::1]:8001"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def listening(place: str) -> socket.socket:
    """A socket as another user would have it, with all that may share an address."""
    address, port = split_place(place)
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if ":" in address:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((address, port))
        one.listen()
    except OSError:
        one.close()
        raise
    return one


def error_of(attempt: Any, *arguments: object) -> int:
    try:
        attempt(*arguments).close()
    except OSError as error:
        return error.errno or 0
    return 0


@pytest.mark.parametrize(
    ("listener", "reserved", "tried"),
    [
        ("0.0.0.0", "[::]", ["[::]", "[::1]"]),
        ("127.0.0.1", "[::1]", ["[::1]"]),
        ("[::1]", "127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_no_other_process_listens_at_a_reserved_address_and_its_clients_are_refused(
    listener: str, reserved: str, tried: list[str]
) -> None:
    port = free_port()
    with closing(reserve.bind_socket(f"{reserved}:{port}")), closing(listening(f"{listener}:{port}")):
        assert [error_of(listening, f"{one}:{port}") for one in tried] == [errno.EADDRINUSE] * len(tried)
        address = split_place(f"{tried[-1]}:{port}")
        assert error_of(socket.create_connection, address) == errno.ECONNREFUSED
        # a client of a name with both addresses arrives
        socket.create_connection(split_place(f"{listener}:{port}")).close()


def test_an_address_that_another_process_has_is_kept_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"[::1]:{free_port()}"
    other = listening(place)
    waits: list[float] = []

    def free(seconds: float) -> None:
        waits.append(seconds)
        other.close()

    monkeypatch.setattr(reserve.time, "sleep", free)
    found = reserve.reserve([place])
    assert waits == [reserve.AGAIN]
    with closing(found[place]):
        assert error_of(listening, place) == errno.EADDRINUSE


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EACCES])
def test_a_host_without_the_address_has_nothing_to_keep(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def without(place: str) -> socket.socket:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(reserve, "bind_socket", without)
    assert reserve.reserve(["[::]:8001", "[::1]:8002"]) == {}


def test_the_program_needs_the_standard_library_alone() -> None:
    place = f"[::1]:{free_port()}"
    command = [sys.executable, "-I", "-S", str(reservations.PROGRAM), place]
    with closing(listening(place)), subprocess.Popen(command, stderr=-1, text=True) as process:
        assert process.stderr
        assert process.stderr.readline() == f"{place}: {os.strerror(errno.EADDRINUSE)}\n"
        process.terminate()
