"""Addresses beside the gateway's listeners: no other process listens there, and clients go on to the next address."""

import errno
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rigwright.gateway import address_reservations
from rigwright.gateway.address_reservations import RESERVATION_UNIT, Reservation, counterparts, split_place, unit_name
from rigwright.host.basic_facts import ListeningSocket
from roles.gateway.host import reserve


@pytest.mark.parametrize(
    ("places", "reserved"),
    [
        (["0.0.0.0:8001"], ["[::]:8001"]),
        (["127.0.0.1:8001"], ["127.0.1.1:8001", "[::1]:8001"]),
        (["127.0.0.5:8001", "127.0.0.1:8001"], ["127.0.1.1:8001", "[::1]:8001"]),
        (["192.0.2.7:8001"], ["0.0.0.0:8001-192.0.2.7", "127.0.0.1:8001", "127.0.1.1:8001", "[::]:8001"]),
        (["192.0.2.7:8001", "127.0.0.1:8001"], ["0.0.0.0:8001-127.0.0.1-192.0.2.7", "127.0.1.1:8001", "[::]:8001"]),
        (["[::1]:8001"], ["127.0.0.1:8001", "127.0.1.1:8001"]),
        (["127.0.0.1:8001", "[::1]:8001"], ["127.0.1.1:8001"]),
        (["[2001:db8::7]:8001"], ["0.0.0.0:8001", "[::1]:8001", "[::]:8001-[2001:db8::7]"]),
        # one family is held as far as it goes, the other by one address
        (["0.0.0.0:8001", "[::1]:8001"], ["[::]:8001-[::1]"]),
        (
            ["192.0.2.7:8001", "[::1]:8001"],
            ["0.0.0.0:8001-192.0.2.7", "127.0.0.1:8001", "127.0.1.1:8001", "[::]:8001-[::1]"],
        ),
        (["0.0.0.0:8001", "[2001:db8::7]:8001"], ["[::1]:8001", "[::]:8001-[2001:db8::7]"]),
        # both are declared, and held
        (["0.0.0.0:8001", "[::]:8001"], []),
        # root's alone
        (["0.0.0.0:443"], []),
        (["0.0.0.0:8002", "[::1]:8001", "0.0.0.0:80"], ["127.0.0.1:8001", "127.0.1.1:8001", "[::]:8002"]),
        ([], []),
    ],
)
def test_addresses_that_no_listener_of_a_port_has_are_reserved(places: list[str], reserved: list[str]) -> None:
    found = counterparts(places)
    assert sorted(map(str, found)) == sorted(reserved)
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    ("reserved", "address", "taken"),
    [
        (Reservation(8001, "::"), "::1", True),
        (Reservation(8001, "::"), "127.0.0.1", False),
        (Reservation(8001, "::", ("::1",)), "::1", False),
        (Reservation(8001, "::", ("::1",)), "2001:db8::7", True),
        (Reservation(8001, "::", ("::1",)), "::", True),
        (Reservation(8001, "::", ("::1",)), "*", True),
        (Reservation(8001, "0.0.0.0", ("127.0.0.1",)), "192.0.2.7", True),
        (Reservation(8001, "0.0.0.0", ("127.0.0.1",)), "::ffff:192.0.2.7", True),
        # no name leads there
        (Reservation(8001, "0.0.0.0", ("127.0.0.1",)), "127.0.0.53", False),
        (Reservation(8002, "0.0.0.0"), "192.0.2.7", False),
    ],
)
def test_a_process_at_an_address_of_the_host_takes_a_reservation(reserved, address, taken):
    assert reserved.is_taken_by(ListeningSocket(8001, "x", "", address), {"192.0.2.7", "2001:db8::7"}) is taken


def test_a_unit_keeps_one_set_of_addresses() -> None:
    first, second = unit_name([Reservation(8001, "::")]), unit_name([Reservation(8001, "::1")])
    assert RESERVATION_UNIT.fullmatch(first)
    assert first != second == unit_name([Reservation(8001, "::1")])


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
    [("0.0.0.0", "[::]", ["[::]", "[::1]"]), ("127.0.0.1", "[::1]", ["[::1]"]), ("[::1]", "127.0.0.1", ["127.0.0.1"])],
)
def test_no_other_process_listens_at_a_reserved_address_and_its_clients_are_refused(listener, reserved, tried):
    port = free_port()
    with closing(reserve.bind_socket(f"{reserved}:{port}")), closing(listening(f"{listener}:{port}")):
        assert [error_of(listening, f"{one}:{port}") for one in tried] == [errno.EADDRINUSE] * len(tried)
        assert error_of(socket.create_connection, split_place(f"{tried[-1]}:{port}")) == errno.ECONNREFUSED
        # a client of a name with both addresses arrives
        socket.create_connection(split_place(f"{listener}:{port}")).close()


def test_an_address_that_another_process_has_is_kept_once_it_is_free() -> None:
    place = f"[::1]:{free_port()}"
    keeper = reserve.Keeper([place])
    with closing(listening(place)):
        assert keeper.update()
        assert keeper.kept == {}
    assert not keeper.update()
    with closing(keeper.kept[place, 0]):
        assert error_of(listening, place) == errno.EADDRINUSE


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EACCES])
def test_a_host_without_the_address_has_nothing_to_keep(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def without(place: str, scope: int) -> socket.socket:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(reserve, "bind_socket", without)
    keeper = reserve.Keeper(["[::]:8001", "[::1]:8002"])
    assert not keeper.update()
    assert keeper.kept == {}


def test_each_address_but_those_of_listeners_is_kept_as_long_as_the_host_has_it(monkeypatch, tmp_path):
    routes, port = tmp_path / "fib_trie", free_port()
    monkeypatch.setattr(reserve, "IPV4_ROUTES", str(routes))

    def have(*addresses: str) -> None:
        routes.write_text("".join(f"           |-- {one}\n              /32 host LOCAL\n" for one in addresses))

    have("127.0.0.1", "127.0.0.8", "127.0.0.9")
    keeper = reserve.Keeper([f"0.0.0.0:{port}-127.0.0.9", f"127.0.0.1:{port}"])
    with closing(listening(f"127.0.0.9:{port}")):
        assert keeper.update()
        assert set(keeper.kept) == {(f"127.0.0.1:{port}", 0), (f"127.0.0.8:{port}", 0)}
        assert error_of(listening, f"127.0.0.8:{port}") == errno.EADDRINUSE
        assert error_of(socket.create_connection, ("127.0.0.8", port)) == errno.ECONNREFUSED
        have("127.0.0.1", "127.0.0.7", "127.0.0.9")
        assert keeper.update()
        assert set(keeper.kept) == {(f"127.0.0.1:{port}", 0), (f"127.0.0.7:{port}", 0)}
        routes.unlink()
        assert keeper.update()
    assert set(keeper.kept) == {(f"127.0.0.1:{port}", 0)}
    keeper.kept.popitem()[1].close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_request_without_a_free_descriptor_is_tried_again(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def short(place: str, scope: int) -> socket.socket:
        raise OSError(number, os.strerror(number))

    keeper = reserve.Keeper([f"[::1]:{free_port()}"])
    with monkeypatch.context() as patched:
        patched.setattr(reserve, "bind_socket", short)
        assert keeper.update()
    assert not keeper.update()
    ((place, _), kept) = keeper.kept.popitem()
    with closing(kept):
        assert error_of(listening, place) == errno.EADDRINUSE


def test_addresses_that_cannot_be_read_stay_kept(monkeypatch, tmp_path, capsys):
    routes, port = tmp_path / "fib_trie", free_port()
    monkeypatch.setattr(reserve, "IPV4_ROUTES", str(routes))
    routes.write_text("           |-- 127.0.0.8\n              /32 host LOCAL\n")
    keeper = reserve.Keeper([f"0.0.0.0:{port}-127.0.0.9"])
    assert keeper.update()
    kept = dict(keeper.kept)

    def read_text(path: Path) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", read_text)
        assert keeper.update() and keeper.update()
        assert keeper.kept == kept
    assert capsys.readouterr().err == f"0.0.0.0:{port}-127.0.0.9: {os.strerror(errno.EMFILE)}\n"
    routes.write_text("")
    assert keeper.update()
    assert keeper.kept == {}


def test_sockets_that_take_all_descriptors_do_not_keep_addresses_from_being_read(tmp_path: Path) -> None:
    rows = [f"           |-- 127.0.1.{number}\n              /32 host LOCAL\n" for number in range(1, 100)]
    (tmp_path / "routes").write_text("".join(rows))
    (tmp_path / "later").write_text(rows[0])
    script = f"""
import os, resource, sys
sys.path.insert(0, {str(Path(reserve.__file__).parent)!r})
import reserve
reserve.IPV4_ROUTES = "routes"
keeper = reserve.Keeper(["0.0.0.0:{free_port()}-127.0.0.9"])
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
for _ in range(2):
    keeper.update()
print(0 < len(keeper.kept) < 40)
os.replace("later", "routes")
keeper.update()
print(*(place.split(":")[0] for place, _ in keeper.kept))
"""
    command = [sys.executable, "-I", "-S", "-B", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n127.0.1.1\n"


def test_addresses_of_this_machine_are_read() -> None:
    assert ("127.0.0.1", 0) in reserve.host_addresses("0.0.0.0")
    found = reserve.host_addresses("[::]")
    assert ("[::1]", 0) in found
    # a link-local one is bound with its interface, of which several may have the same one
    for address, scope in found:
        assert bool(scope) == address.startswith("[fe80:")
        reserve.bind_socket(f"{address}:{free_port()}", scope).close()


def test_a_link_local_address_of_two_interfaces_is_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = "fe800000000000000000000000000001 02 40 20 80 eth0\nfe800000000000000000000000000001 0a 40 20 80 eth0.7\n"
    (tmp_path / "if_inet6").write_text(rows)
    monkeypatch.setattr(reserve, "IPV6_ADDRESSES", str(tmp_path / "if_inet6"))
    assert reserve.expand("[::]:8000-[::1]") == {("[fe80::1]:8000", 2), ("[fe80::1]:8000", 10)}


def test_the_program_needs_the_standard_library_alone() -> None:
    place = f"[::1]:{free_port()}"
    command = [sys.executable, "-I", "-S", str(address_reservations.PROGRAM), place]
    with closing(listening(place)), subprocess.Popen(command, stderr=-1, text=True) as process:
        assert process.stderr
        assert process.stderr.readline() == f"{place}: {os.strerror(errno.EADDRINUSE)}\n"
        process.terminate()
