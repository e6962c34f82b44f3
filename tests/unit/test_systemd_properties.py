"""Properties of units over systemd's own socket: requests, answers, and refusals."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checks.survey.host import systemd_properties

RETURN, FAILED, SIGNAL = 2, 3, 4


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def message(kind: int, answers: int, body: bytes, serial: int = 7) -> bytes:
    """As systemd sends it, with fields that are of no use here."""
    fields = b"\1\1o\0" + text("/org/freedesktop/systemd1")
    fields += bytes(-len(fields) % 8) + b"\5\1u\0" + struct.pack("<I", answers)
    fields += bytes(-len(fields) % 8) + b"\x08\1g\0\1v\0"
    head = b"l" + bytes([kind, 0, 1]) + struct.pack("<III", len(body), serial, len(fields)) + fields
    return head + bytes(-len(head) % 8) + body


def variant(kind: str, value: bytes) -> bytes:
    """A value after its type, at a place that its size divides."""
    head = bytes([len(kind)]) + kind.encode() + b"\0"
    return head + bytes(-len(head) % (8 if kind == "t" else 4)) + value


def texts(*values: str) -> bytes:
    found = b""
    for one in values:
        found += bytes(-len(found) % 4) + text(one)
    return struct.pack("<I", len(found)) + found


def sent_calls(data: bytes) -> list[tuple[str, str, str]]:
    """Path, interface and name of each call that was sent."""
    found = []
    while data:
        body, _, fields = struct.unpack("<III", data[4:16])
        at = 16 + fields + -fields % 8
        reader = systemd_properties.BusMessageReader(data[16 + 4 : at], "<")
        path = reader.text()
        said = systemd_properties.BusMessageReader(data[at : at + body], "<")
        found.append((path.rpartition("/")[2], said.text().rpartition(".")[2], said.text()))
        data = data[at + body :]
    return found


@contextmanager
def systemd(
    folder: Path, answer: Callable[[int, tuple[str, str, str]], bytes], login: bytes = b"OK x\r\n"
) -> Iterator[list[bytes]]:
    """A listener in systemd's place, which answers each call; the calls that it got."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "private"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5)
                data = b""
                while b"BEGIN\r\n" not in data:
                    data += connection.recv(1 << 16)
                head, _, data = data.partition(b"BEGIN\r\n")
                heard.append(head)
                connection.sendall(login)
                served = 0
                while piece := connection.recv(1 << 16):
                    data += piece
                    try:
                        calls = sent_calls(data)
                    except struct.error:
                        continue
                    for number, call in enumerate(calls[served:], served + 1):
                        connection.sendall(answer(number, call))
                    served = len(calls)
                    heard[1:] = [data]

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield heard
        thread.join(5)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(systemd_properties, "AT", str(tmp_path / "private"))
    return tmp_path


def test_each_property_is_asked_of_what_has_it_and_told_as_it_is(at: Path) -> None:
    values = {
        "Id": variant("s", text("rigwright-chat.service")),
        "MainPID": variant("u", struct.pack("<I", 42)),
        "DropInPaths": variant("as", texts("/etc/a", "/etc/bcd")),
        "ActiveEnterTimestamp": variant("t", struct.pack("<Q", 1 << 40)),
        "NeedDaemonReload": variant("b", struct.pack("<I", 1)),
    }
    with systemd(at, lambda number, call: message(RETURN, number, values[call[2]])) as heard:
        found = systemd_properties.properties(["rigwright-chat.service"], *values)
    assert found == {
        "rigwright-chat.service": {
            "Id": "rigwright-chat.service",
            "MainPID": 42,
            "DropInPaths": ["/etc/a", "/etc/bcd"],
            "ActiveEnterTimestamp": 1 << 40,
            "NeedDaemonReload": True,
        }
    }
    assert heard[0].startswith(b"\0AUTH EXTERNAL 3")
    path = "rigwright_2dchat_2eservice"
    kinds = {"Id": "Unit", "DropInPaths": "Unit", "MainPID": "Service", "ActiveEnterTimestamp": "Unit"}
    kinds["NeedDaemonReload"] = "Unit"
    assert sent_calls(heard[1]) == [(path, kinds[name], name) for name in values]


def test_missing_properties_are_left_out_and_signals_are_foreign(at: Path) -> None:
    def answer(number: int, call: tuple[str, str, str]) -> bytes:
        if call[2] == "MainPID":
            return message(FAILED, number, text("no such property"))
        return message(SIGNAL, 0, text("whatever")) + message(RETURN, number, variant("s", text("a.socket")))

    with systemd(at, answer):
        assert systemd_properties.properties(["a.socket"], "MainPID", "Id") == {"a.socket": {"Id": "a.socket"}}


def test_a_second_name_of_another_unit_has_nothing(at: Path) -> None:
    with systemd(at, lambda number, call: message(RETURN, number, variant("s", text("other.service")))):
        assert systemd_properties.properties(["a.service"], "Id") == {}


def test_no_server_is_asked_without_need(at: Path) -> None:
    assert systemd_properties.properties([], "Id") == {}


@pytest.mark.parametrize(
    ("login", "answer", "said"),
    [
        (b"REJECTED EXTERNAL\r\n", message(RETURN, 1, variant("s", text("a.service"))), "does not let"),
        (b"OK x\r\n", b"l\2\0\1" + struct.pack("<III", 1 << 30, 1, 8), "without end"),
        (b"OK x\r\n", message(RETURN, 1, variant("d", bytes(8))), "answers with 'd'"),
        # a text that is longer than what came
        (b"OK x\r\n", message(RETURN, 1, b"\1s\0"), "buffer"),
    ],
)
def test_an_invalid_answer_is_refused(at: Path, login: bytes, answer: bytes, said: str) -> None:
    with (
        systemd(at, lambda number, call: answer, login),
        pytest.raises((RuntimeError, ValueError, struct.error), match=said),
    ):
        systemd_properties.properties(["a.service"], "Id")


def test_without_a_listener_there_is_no_answer(at: Path) -> None:
    with pytest.raises(RuntimeError, match="private: No such file"):
        systemd_properties.properties(["a.service"], "Id")
