"""`rigwright lock` of repositories that cannot be locked: each reason is one sentence that says what to do."""

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from cli.lock_resolver import checkpoint_sources, downloads
from tests.stand_ins.hub.faults import ErrorStatus, replaced_text, too_many_requests
from tests.unit.file_server import LoopbackFileServer, complete_file
from tests.unit.hub_world import CONFIG, NAME, HubLockFixture, make_hub_fixture


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    with make_hub_fixture(tmp_path / "box", monkeypatch) as made:
        yield made


ERRORS: dict[str, tuple[Callable[[HubLockFixture], object], str]] = {
    "gone": (
        lambda world: world.hub.remove_repository(NAME),
        "the hub at URL has no repository org/name, or hides it: correct its name, or provide a token with the rig's "
        "hub_token_file",
    ),
    "revision": (
        lambda world: world.write_catalog('version = "v9"'),
        "org/name has no revision v9 at the hub at URL: correct version",
    ),
    "token": (
        lambda world: (
            world.write_token("hf_of_somebody_last_year"),
            world.hub.revoked.add("hf_of_somebody_last_year"),
        ),
        "the hub at URL no longer accepts the token: provide another one with the rig's hub_token_file",
    ),
    "often": (
        lambda world: world.hub.add_fault(too_many_requests(30, "api")),
        "the hub at URL is rate-limiting (429): lock again in 30 seconds; a token raises the limit",
    ),
    "broken": (
        lambda world: world.hub.add_fault(ErrorStatus(500, where="api")),
        "the hub at URL answers 500 for org/name: lock again later",
    ),
    "forbidden": (
        lambda world: world.hub.add_fault(ErrorStatus(403, where="api")),
        "the hub at URL refuses org/name (403): the token needs read access to repositories",
    ),
    "no hub": (
        lambda world: world.hub.add_fault(ErrorStatus(404, where="api")),
        "the hub at URL answers 404 for org/name: check its address",
    ),
    "dead": (
        lambda world: world.hub.close(),
        "the hub at URL cannot be reached: check the network, or add another one to the box's entry of the inventory: "
        '"mirrors": {"hub": ["http://..."]}',
    ),
    "nothing": (
        lambda world: world.write_catalog('include = ["*.safetensors"]'),
        "include and exclude select no file of org/name, which has .gitattributes, README.md, config.json, "
        "mmproj.gguf, q4/model.gguf",
    ),
    "empty": (lambda world: world.hub.add_commit(NAME, {"empty.json": b""}), "empty.json is empty: exclude it"),
    "empty large": (
        lambda world: world.hub.add_commit(NAME, {"empty.gguf": b""}),
        "empty.gguf: its size is refused: 0: exclude it",
    ),
    "small file": (
        lambda world: world.hub.add_fault(replaced_text(b"another"), NAME, "config.json"),
        "config.json: its server answers with another file than the hub lists: try again",
    ),
    "small file gone": (
        lambda world: world.hub.add_fault(ErrorStatus(404), NAME, "config.json"),
        "config.json: its server answers 404 Not Found",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_clear_sentence(world: HubLockFixture, case: str) -> None:
    change, text = ERRORS[case]
    change(world)
    assert world.lock_error() == f"cannot be locked: {text}"


def test_a_hub_that_does_not_answer_in_time(world: HubLockFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "TIMEOUT", (1.0, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        world.write_rig(mirrors={"hub": [url]})
        assert world.lock_error().startswith(f"cannot be locked: the hub at {url} timed out: ")


def test_a_hub_with_an_untrusted_certificate(world: HubLockFixture, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"https://127.0.0.1:{server.server_address[1]}"
        world.write_rig(mirrors={"hub": [url]})
        said = world.lock_error()
        server.shutdown()
        thread.join()
    assert said == (
        f"cannot be locked: the hub at {url} has an untrusted certificate: install its CA certificate on this machine"
    )


def test_a_client_that_is_asked_to_stay_offline(world: HubLockFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert world.lock_error() == (
        "cannot be locked: HF_HUB_OFFLINE forbids requests to the hub: unset it, and lock on a machine with a network"
    )


def test_a_server_that_is_no_hub(world: HubLockFixture, files: LoopbackFileServer) -> None:
    files.serve("pages/api/models/org/name/revision/main?blobs=true", complete_file(CONFIG))
    world.write_rig(mirrors={"hub": [f"{files.url}/pages"]})
    assert world.lock_error().endswith(" does not answer with a file list for org/name")


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "{}",
        '{"id": "org/name", "siblings": [{}]}',
        '{"id": "org/name", "siblings": [{"rfilename": 1}]}',
        '{"id": "org/name", "siblings": [{"rfilename": "x", "size": "many"}]}',
        '{"id": "org/name", "siblings": [{"rfilename": "x", "size": -1}]}',
        '{"id": "org/name", "siblings": [{"rfilename": "x", "lfs": {"sha256": "a", "size": 1}}]}',
        "<html>",
    ],
)
def test_an_answer_that_is_no_list_of_files(world: HubLockFixture, files: LoopbackFileServer, answer: str) -> None:
    files.serve("api/models/org/name/revision/main?blobs=true", complete_file(answer.encode()))
    world.write_rig(mirrors={"hub": [files.url]})
    said = f"the hub at {files.url} does not answer with a file list for org/name"
    assert world.lock_error() == f"cannot be locked: {said}"


@pytest.mark.parametrize(("sha", "hash_", "key"), [("main", "a" * 64, "commit"), ("a" * 40, "../x", "sha256")])
def test_the_hubs_header_does_not_count_as_a_hash(world, files, sha, hash_, key):
    listed = {"rfilename": "x.gguf", "lfs": {"sha256": hash_, "size": 1, "pointerSize": 1}}
    answer = json.dumps({"id": NAME, "sha": sha, "siblings": [listed]})
    files.serve("api/models/org/name/revision/main?blobs=true", complete_file(answer.encode()))
    world.write_rig(mirrors={"hub": [files.url]})
    assert {"commit": "names no commit of org/name, but 'main'", "sha256": "its sha256 is refused: '../x'"}[
        key
    ] in world.lock_error()


def test_a_large_file_without_a_hash_is_an_error(world: HubLockFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_sources, "SMALL", 7)
    assert world.lock_error() == (
        "cannot be locked: config.json has 8 bytes and no SHA-256 at the hub at URL: exclude it"
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("../x", "'../x' leads out of its folder"),
        ("a/../../b", "'a/../../b' leads out of its folder"),
        ("/etc/x", "'/etc/x' is an absolute path"),
        ("two\nlines", "'two\\nlines' is not a valid name: must be letters, digits and ._+-, a letter or digit first"),
        ("with space", "'with space' is not a valid name: must be letters, digits and ._+-, a letter or digit first"),
        ("a/.hidden", "'a/.hidden' is not a valid name: must be letters, digits and ._+-, a letter or digit first"),
        ("a//b", "'a//b' is not a valid name: must be letters, digits and ._+-, a letter or digit first"),
        ("config.json/x", "'config.json' is a file and a folder"),
        ("x~", "'x~' is not a valid name: must be letters, digits and ._+-, a letter or digit first"),
    ],
)
def test_names_that_would_not_stay_in_their_folder_are_refused(world: HubLockFixture, path: str, text: str) -> None:
    world.hub.add_commit(NAME, {"config.json": CONFIG, path: b"content"})
    assert f"{text}: exclude it" in world.lock_error()
    world.write_catalog('include = ["*.json"]')
    world.lock_lines()
    assert list(world.locked_rows) == ["config.json"]
