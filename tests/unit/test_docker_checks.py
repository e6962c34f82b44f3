"""Docker's daemon as the survey finds it here, and what is made of what its containers publish."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks.survey.host import containers, docker, systemd_properties

INFO = {"ServerVersion": "28.5.2", "Swarm": {"LocalNodeState": "active"}, "Secret": "x"}
PORT = {"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"}
ROW = {"Id": "0a", "Names": ["/web"], "Ports": [PORT]}
MORE = {"Name": "/web", "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}}
ANSWERS = {"/info": INFO, "/containers/json": [ROW, {"Id": 5}, "odd"], "/containers/0a/json": MORE}


@contextmanager
def daemon(root: Path, answers: dict[str, Any]) -> Iterator[Path]:
    """This process as Docker's daemon."""
    path = root / "docker.sock"
    with closing(socket.socket(socket.AF_UNIX)) as server, closing(socket.create_server(("127.0.0.1", 0))):
        server.bind(str(path))
        path.chmod(0o666)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    asked = client.recv(65536).split()[1].decode()
                    body = json.dumps(answers[asked]).encode() if asked in answers else b""
                    status = b"200 OK" if body else b"500 No"
                    client.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

        threading.Thread(target=serve, daemon=True).start()
        with patch.object(
            systemd_properties, "properties", lambda units, *_: {unit: {"MainPID": os.getpid()} for unit in units}
        ):
            yield path
        server.shutdown(socket.SHUT_RDWR)


def test_its_listeners_are_seen_with_any_words(tmp_path: Path) -> None:
    with daemon(tmp_path, ANSWERS) as path:
        found = docker.running(str(path))
    assert found
    assert any(one.startswith("127.0.0.1:") for one in found["listens"])  # type: ignore[attr-defined]
    assert found["sockets"][str(path)]["mode"] == 0o666  # type: ignore[index]
    assert (found["info"], found["swarm"]) == ({"ServerVersion": '"28.5.2"'}, True)
    assert found["carded"] == [["web", "cdi"]]


@pytest.mark.parametrize("answers", [{}, {"/info": [], "/containers/json": {"message": "no"}}])
def test_one_that_says_nothing_has_said_nothing_of_what_runs_on_it(tmp_path: Path, answers: dict[str, Any]) -> None:
    with daemon(tmp_path, answers) as path:
        found = docker.running(str(path))
    assert found
    assert (found["info"], found["carded"]) == ({}, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n", "nvidia.com/gpu"),
        ("kind: 'nvidia.com/gpu' # mine\n", "nvidia.com/gpu"),
        ('{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}', "nvidia.com/gpu"),
        ("kind: vendor.com/net\n", "vendor.com/net"),
        ("devices: []\n", ""),
    ],
)
def test_a_spec_is_known_in_whatever_way_it_is_written(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "x.json").write_text(text)
    (found,) = containers.specs([str(tmp_path)])
    assert found["kind"] == kind
