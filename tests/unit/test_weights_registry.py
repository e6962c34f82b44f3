"""Bringing blobs of images from registries: who is asked for a token, who gets it, and what becomes of a wrong blob."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.oci import File as Entry
from lab.oci import Image, image
from roles.weights.host.records import File
from tests.unit import tls
from tests.unit.file_server import cut, file_server, redirect, status, whole
from tests.unit.registry_server import REPOSITORY, TOKEN, Registry
from tests.unit.weights_world import CONTENT, HALF, Source, World, world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")
IMAGE = image({"lib/large": Entry(CONTENT)}, {"bin/two": Entry(b"two")})


@pytest.fixture
def host(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def wanted(host: World, one: Image = IMAGE) -> dict[File, list[Source]]:
    source = {"kind": "registry", "base": host.server.url, "repository": REPOSITORY}
    return {
        File(f"_packages/{digest[:16]}/blob", digest, len(content)): [source] for digest, content in one.blobs.items()
    }


@pytest.mark.parametrize("guarded", [False, True])
def test_blobs_come_with_a_token_where_one_is_asked_for_once(host: World, guarded: bool) -> None:
    Registry(host.server, guarded).push(IMAGE, "v1")
    files = wanted(host)
    done = host.bring(files)
    assert done.returncode == 0, done.stdout
    assert all(host.there(one) for one in files)
    assert len([one for one in host.server.asked if one.path.startswith("token")]) == int(guarded)


def test_a_token_stays_at_the_registry_when_a_blob_lies_elsewhere(host: World) -> None:
    Registry(host.server, guarded=True).push(IMAGE, "v1")
    with file_server() as storage:
        host.redirects = [storage.url]
        for digest, content in IMAGE.blobs.items():
            storage.serve(f"store/{digest}", whole(content))
            host.server.serve(f"v2/{REPOSITORY}/blobs/sha256:{digest}", redirect(f"{storage.url}/store/{digest}"))
        done = host.bring(wanted(host))
        assert done.returncode == 0, done.stdout
        assert {one.authorization for one in storage.asked} == {None}
    assert f"Bearer {TOKEN}" in {one.authorization for one in host.server.asked}


def test_what_was_cut_off_goes_on_where_it_was(host: World) -> None:
    Registry(host.server).push(IMAGE, "v1")
    large = max(wanted(host), key=lambda one: one.size)
    content = IMAGE.blobs[large.sha256]
    host.place(host.part(large), content[:HALF])
    assert host.bring({large: wanted(host)[large]}).returncode == 0
    asked = [one.range for one in host.server.asked if one.path.endswith(large.sha256)]
    assert asked == [f"bytes={HALF}-"]


def test_a_token_that_ends_before_a_blob_does_is_asked_for_anew(host: World) -> None:
    Registry(host.server, guarded=True).push(IMAGE, "v1")
    large = max(wanted(host), key=lambda one: one.size)
    content, path = IMAGE.blobs[large.sha256], f"v2/{REPOSITORY}/blobs/sha256:{large.sha256}"
    host.server.serve(path, cut(content, HALF), status(401), whole(content))
    done = host.bring({large: wanted(host)[large]})
    assert done.returncode == 0, done.stdout
    assert host.there(large)
    assert len([one for one in host.server.asked if one.path.startswith("token")]) == 2
    assert [one.range for one in host.server.asked if one.path == path] == [None, *[f"bytes={HALF}-"] * 2]


def test_another_blob_under_the_same_digest_is_refused(host: World) -> None:
    Registry(host.server).push(IMAGE, "v1")
    large = max(wanted(host), key=lambda one: one.size)
    other = bytes([IMAGE.blobs[large.sha256][0] ^ 1]) + IMAGE.blobs[large.sha256][1:]
    host.server.serve(f"v2/{REPOSITORY}/blobs/sha256:{large.sha256}", whole(other))
    done = host.bring({large: wanted(host)[large]})
    assert done.returncode != 0
    assert f"not the locked file: {large.size} bytes with SHA-256 {hashlib.sha256(other).hexdigest()}" in done.stdout
    assert not host.there(large)


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        ("Basic realm=x", "asks for user and password: name a file with them among the registries"),
        ("Negotiate", "asks for what nobody here can show"),
        ('Bearer realm="ftp://example.org/token"', "it leads to an invalid address"),
        ('Bearer realm="http://10.255.0.1/token"', "an address that is not public"),
        ('Bearer service="x"', "asks for what nobody here can show"),
    ],
)
def test_a_registry_that_lets_nobody_in_is_told(host: World, challenge: str, text: str) -> None:
    Registry(host.server).push(IMAGE, "v1")
    host.server.serve("v2/", lambda handler, start: handler.begin(401, 0, ("WWW-Authenticate", challenge)))
    done = host.bring(wanted(host))
    assert done.returncode != 0
    assert text in done.stdout


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"token": 5}', b'{"token": "a\\nb"}', b"[" * 100_000])
def test_a_token_server_that_gives_none_is_told(host: World, answer: bytes) -> None:
    registry = Registry(host.server, guarded=True)
    registry.push(IMAGE, "v1")
    place = next(path for path in host.server.answers if path.startswith("token"))
    host.server.serve(place, whole(answer) if answer else status(403))
    done = host.bring(wanted(host))
    assert done.returncode != 0
    assert "its token server" in done.stdout


LOGIN = base64.b64encode(b"robot:pass:word-0123").decode()


@pytest.mark.parametrize("given", [LOGIN, base64.b64encode(b"robot:another-0123").decode(), ""])
def test_a_login_is_shown_to_the_token_server_alone_and_over_https(host: World, tmp_path: Path, given: str) -> None:
    with file_server(certificate=tls.server()) as files:
        Registry(files, guarded=True, login=LOGIN).push(IMAGE, "v1")
        (tmp_path / "login-lan").write_text(given)
        host.environment |= {**tls.trusting(), "CREDENTIALS_DIRECTORY": str(tmp_path)}
        source = {"kind": "registry", "base": files.url, "repository": REPOSITORY}
        source |= {"login": "login-lan"} if given else {}
        done = host.bring({one: [source] for one in wanted(host)})
        assert (done.returncode == 0) == (given == LOGIN), done.stdout
        shown = {one.path.partition("?")[0]: one.authorization for one in files.asked}
        assert {value for path, value in shown.items() if value and value.startswith("Basic")} <= {f"Basic {given}"}
        assert not [path for path, value in shown.items() if value and value.startswith("Basic") and path != "token"]
        assert "pass:word" not in done.stdout


def test_a_login_is_not_sent_over_plain_http(host: World, tmp_path: Path) -> None:
    Registry(host.server, guarded=True, login=LOGIN).push(IMAGE, "v1")
    (tmp_path / "login-lan").write_text(LOGIN)
    host.environment |= {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    source = {"kind": "registry", "base": host.server.url, "repository": REPOSITORY, "login": "login-lan"}
    done = host.bring({one: [source] for one in wanted(host)})
    assert done.returncode != 0
    assert "the login is not sent over plain http" in done.stdout
    assert {one.authorization for one in host.server.asked} == {None}
