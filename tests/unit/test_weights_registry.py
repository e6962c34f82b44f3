"""Bringing blobs of images from registries: which server is asked for a token, which one gets it, and what becomes of a
wrong blob."""

import base64
import os
from pathlib import Path

import pytest

from roles.weights.host.records import LockedFile
from tests.stand_ins.oci_images import LayerEntry, OCIImage, build_image
from tests.unit import tls_certificates
from tests.unit.file_server import complete_file, error_status, redirect_to, run_file_server, truncated_file
from tests.unit.registry_server import REPOSITORY, TOKEN, LoopbackRegistry
from tests.unit.weights_world import CONTENT, HALF, Source, WeightsFixture
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")
IMAGE = build_image({"lib/large": LayerEntry(CONTENT)}, {"bin/two": LayerEntry(b"two")})


def wanted_blobs(host: WeightsFixture, one: OCIImage = IMAGE) -> dict[LockedFile, list[Source]]:
    source = {"kind": "registry", "base": host.server.url, "repository": REPOSITORY}
    return {
        LockedFile(f"_packages/{digest[:16]}/blob", digest, len(content)): [source]
        for digest, content in one.blobs.items()
    }


@pytest.mark.parametrize("guarded", [False, True])
def test_blobs_come_with_a_token_where_one_is_asked_for_once(host: WeightsFixture, guarded: bool) -> None:
    LoopbackRegistry(host.server, guarded).push_image(IMAGE, "v1")
    files = wanted_blobs(host)
    host.fetch(files)
    assert all(host.is_fetched(one) for one in files)
    assert len([one for one in host.server.asked if one.path.startswith("token")]) == int(guarded)


def test_a_token_stays_at_the_registry_when_a_blob_lies_elsewhere(host: WeightsFixture) -> None:
    LoopbackRegistry(host.server, guarded=True).push_image(IMAGE, "v1")
    with run_file_server() as storage:
        host.redirects = [storage.url]
        for digest, content in IMAGE.blobs.items():
            storage.serve(f"store/{digest}", complete_file(content))
            host.server.serve(f"v2/{REPOSITORY}/blobs/sha256:{digest}", redirect_to(f"{storage.url}/store/{digest}"))
        host.fetch(wanted_blobs(host))
        assert {one.authorization for one in storage.asked} == {None}
    assert f"Bearer {TOKEN}" in {one.authorization for one in host.server.asked}


def test_a_token_that_ends_before_a_blob_does_is_asked_for_anew(host: WeightsFixture) -> None:
    LoopbackRegistry(host.server, guarded=True).push_image(IMAGE, "v1")
    large = max(wanted_blobs(host), key=lambda one: one.size)
    content, path = IMAGE.blobs[large.sha256], f"v2/{REPOSITORY}/blobs/sha256:{large.sha256}"
    host.server.serve(path, truncated_file(content, HALF), error_status(401), complete_file(content))
    host.fetch({large: wanted_blobs(host)[large]})
    assert len([one for one in host.server.asked if one.path.startswith("token")]) == 2
    assert [one.range for one in host.server.asked if one.path == path] == [None, *[f"bytes={HALF}-"] * 2]


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        ("Basic realm=x", "asks for user and password: name a file with them among the registries"),
        ("Negotiate", "asks for credentials of an unknown kind"),
        ('Bearer realm="ftp://example.org/token"', "it leads to an invalid address"),
        ('Bearer realm="http://10.255.0.1/token"', "an address that is not public"),
        ('Bearer service="x"', "asks for credentials of an unknown kind"),
    ],
)
def test_a_registry_that_refuses_all_clients_is_reported(host: WeightsFixture, challenge: str, text: str) -> None:
    LoopbackRegistry(host.server).push_image(IMAGE, "v1")
    host.server.serve("v2/", lambda handler, start: handler.send_head(401, 0, ("WWW-Authenticate", challenge)))
    done = host.run_fetch(wanted_blobs(host))
    assert done.returncode != 0
    assert text in done.stdout


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"token": 5}', b'{"token": "a\\nb"}', b"[" * 100_000])
def test_a_token_server_that_gives_none_is_reported(host: WeightsFixture, answer: bytes) -> None:
    registry = LoopbackRegistry(host.server, guarded=True)
    registry.push_image(IMAGE, "v1")
    place = next(path for path in host.server.answers if path.startswith("token"))
    host.server.serve(place, complete_file(answer) if answer else error_status(403))
    done = host.run_fetch(wanted_blobs(host))
    assert done.returncode != 0
    assert "its token server" in done.stdout


LOGIN = base64.b64encode(b"robot:pass:word-0123").decode()


@pytest.mark.parametrize("given", [LOGIN, base64.b64encode(b"robot:another-0123").decode(), ""])
def test_a_login_is_shown_to_the_token_server_alone_and_over_https(
    host: WeightsFixture, tmp_path: Path, given: str
) -> None:
    with run_file_server(certificate=tls_certificates.server_certificate()) as files:
        LoopbackRegistry(files, guarded=True, login=LOGIN).push_image(IMAGE, "v1")
        (tmp_path / "login-lan").write_text(given)
        host.environment |= {**tls_certificates.trusting_environment(), "CREDENTIALS_DIRECTORY": str(tmp_path)}
        source = {"kind": "registry", "base": files.url, "repository": REPOSITORY}
        source |= {"login": "login-lan"} if given else {}
        done = host.run_fetch({one: [source] for one in wanted_blobs(host)})
        assert (done.returncode == 0) == (given == LOGIN), done.stdout
        shown = {one.path.partition("?")[0]: one.authorization for one in files.asked}
        assert {value for path, value in shown.items() if value and value.startswith("Basic")} <= {f"Basic {given}"}
        assert not [path for path, value in shown.items() if value and value.startswith("Basic") and path != "token"]
        assert "pass:word" not in done.stdout


def test_a_login_is_not_sent_over_plain_http(host: WeightsFixture, tmp_path: Path) -> None:
    LoopbackRegistry(host.server, guarded=True, login=LOGIN).push_image(IMAGE, "v1")
    (tmp_path / "login-lan").write_text(LOGIN)
    host.environment |= {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    source = {"kind": "registry", "base": host.server.url, "repository": REPOSITORY, "login": "login-lan"}
    done = host.run_fetch({one: [source] for one in wanted_blobs(host)})
    assert done.returncode != 0
    assert "the login is not sent over plain http" in done.stdout
    assert {one.authorization for one in host.server.asked} == {None}
