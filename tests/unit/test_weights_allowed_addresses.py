"""Where a source of weights may lead its visitor: the real program, real curl and the hub's own client."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigwright.project_root import ROOT
from roles.weights.host import http, reach
from roles.weights.host.reach import UnsafeRedirect, is_public_address, redirect_options
from roles.weights.host.spec import FetchRefused, TransferLimits
from tests.hosts.download_servers import StandInMirror
from tests.unit import tls_certificates
from tests.unit.file_server import LoopbackFileServer, complete_file, redirect_to, run_file_server
from tests.unit.weights_world import CONTENT, HALF, WeightsFixture, client_python, make_weights_fixture, wanted_file
from tests.unit.weights_world import host as host

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


@pytest.fixture
def inner() -> Iterator[LoopbackFileServer]:
    """An undeclared service that only this host reaches."""
    with run_file_server() as made:
        made.serve("secret", complete_file(CONTENT))
        yield made


@pytest.mark.parametrize(
    ("address", "shared"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("192.0.2.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::127.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("2002:7f00:1::", False),
        ("2001::1", False),
        ("2001:db8::1", False),
        ("fc00::1", False),
        ("fd12::1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
    ],
)
def test_which_addresses_the_whole_internet_shares(address: str, shared: bool) -> None:
    assert is_public_address(address) is shared


@pytest.mark.parametrize(
    "url",
    [
        "ftp://mirror.example/a",
        "file:///etc/passwd",
        "http://user@127.0.0.1/a",
        "http://mirror.example\\@127.0.0.1/a",
        "http://mirror.example:99999/a",
        "http://mirror.example:8x/a",
        "http://[::zz]/a",
        "http://mirror.example%2f@127.0.0.1/",
        "http://mirror.example/a b",
        'http://mirror.example/a"\nurl = "file:///etc/passwd',
        "http:///a",
        "",
    ],
)
def test_an_ambiguous_address_is_not_followed(url: str) -> None:
    with pytest.raises(UnsafeRedirect):
        redirect_options(url, "http://mirror.example/", frozenset())


def resolve_names_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Have every name be at these addresses."""
    rows = [(socket.AF_INET6 if ":" in one else socket.AF_INET, 1, 6, "", (one, 0)) for one in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **options: rows)


def test_a_name_is_connected_to_at_the_addresses_that_were_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_names_to(monkeypatch, "8.8.8.8", "2606:4700::1111")
    options = redirect_options("https://cdn.example/a", "https://mirror.example/", frozenset())
    assert options == ['noproxy = "*"', 'resolve = "cdn.example:443:8.8.8.8,[2606:4700::1111]"']


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["fe80::1"]])
def test_a_name_with_an_address_that_is_not_public_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    resolve_names_to(monkeypatch, *addresses)
    with pytest.raises(
        UnsafeRedirect, match=r"at .*, an address that is not public: .* name http://cdn.example:8080 among"
    ):
        redirect_options("http://cdn.example:8080/a", "http://mirror.example/", frozenset({"http://cdn.example:80"}))
    assert (
        redirect_options("http://cdn.example/a", "http://mirror.example/", frozenset({"http://cdn.example:80"})) == []
    )


def test_behind_a_proxy_what_this_host_cannot_look_up_is_the_proxys(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*given: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UnsafeRedirect, match="has no address"):
        redirect_options("https://cdn.example/a", "https://mirror.example/", frozenset())
    monkeypatch.setenv("https_proxy", "http://10.0.0.9:3128")
    assert redirect_options("https://cdn.example/a", "https://mirror.example/", frozenset()) == [
        'proxy = "http://10.0.0.9:3128"'
    ]
    resolve_names_to(monkeypatch, "169.254.169.254")
    with pytest.raises(UnsafeRedirect, match="not public"):
        redirect_options("https://cdn.example/a", "https://mirror.example/", frozenset())


HELD = """
import socket, sys
from roles.weights.host.reach import only_public
port = int(sys.argv[1])

def reaches(name):
    try:
        socket.create_connection((name, port)).close()
    except socket.gaierror as error:
        return "not public" not in str(error)
    return True

with only_public(frozenset()):
    print(reaches("localhost"), reaches("127.0.0.1"), bool(socket.getaddrinfo("localhost", 3128)))
with only_public(frozenset({f"http://127.0.0.1:{port}"})):
    print(reaches("localhost"), reaches("127.0.0.1"))
print(reaches("localhost"))
"""


def test_a_process_that_is_held_connects_to_nothing_else(inner: LoopbackFileServer) -> None:
    command = [sys.executable, "-c", HELD, inner.url.rpartition(":")[2]]
    environment = os.environ | {"http_proxy": "http://localhost:3128", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == ["False False True", "True True", "True"]


@needs_root
def test_curl_does_not_look_up_the_address_again(
    host: WeightsFixture, inner: LoopbackFileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # a name that only this lookup knows, which is asked once
    asked: list[Any] = []
    port = int(inner.url.rpartition(":")[2])

    def lookup(name: str, *rest: object, **options: object) -> list[Any]:
        asked.append(name)
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(reach, "is_public_address", lambda address: True)
    url = host.server.serve("m", redirect_to(f"http://files.invalid:{port}/secret"))
    http.download_part(url, tmp_path / "part", len(CONTENT), TransferLimits(), last=True)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert asked == ["files.invalid"]


@needs_root
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "2130706433"])
def test_a_mirror_cannot_send_the_host_to_itself(host: WeightsFixture, inner: LoopbackFileServer, name: str) -> None:
    address = inner.url.replace("127.0.0.1", name)
    done = host.fetch_file(
        host.server.serve("bad", redirect_to(f"{address}/secret")), host.server.serve("good", complete_file(CONTENT))
    )
    assert inner.asked == []
    assert [one.path for one in host.server.asked] == ["bad", "good"]
    assert ": not followed: it leads to " in done.stdout
    assert "among the inventory's redirects" in done.stdout


@needs_root
@pytest.mark.parametrize("named", [False, True])
def test_an_address_that_a_lock_names_is_judged_as_a_redirect_is(
    host: WeightsFixture, inner: LoopbackFileServer, named: bool
) -> None:
    host.redirects = [inner.url] if named else []
    source = {"kind": "http", "url": f"{inner.url}/secret", "locked": True}
    done = host.run_fetch({wanted_file(): [source]})
    assert (done.returncode, len(inner.asked)) == ((0, 1) if named else (1, 0)), done.stdout
    assert named or f"name {inner.url} among the inventory's redirects" in done.stdout


@needs_root
def test_an_origin_that_the_operator_names_is_followed(host: WeightsFixture, inner: LoopbackFileServer) -> None:
    host.redirects = [inner.url]
    host.fetch_file(host.server.serve("m", redirect_to(f"{inner.url}/secret")))


@needs_root
def test_each_step_is_judged(host: WeightsFixture, inner: LoopbackFileServer) -> None:
    with run_file_server() as named:
        host.redirects = [named.url]
        named.serve("on", redirect_to(f"{inner.url}/secret"))
        assert host.run_fetch_file(host.server.serve("m", redirect_to(f"{named.url}/on"))).returncode == 1
    assert [one.path for one in named.asked] == ["on"]
    assert inner.asked == []


@needs_root
def test_a_redirect_in_a_circle_ends(host: WeightsFixture) -> None:
    done = host.fetch_file(host.server.serve("m", redirect_to("m")), host.server.serve("good", complete_file(CONTENT)))
    assert "more than 10 redirects" in done.stdout


@needs_root
def test_the_words_of_a_redirect_are_no_bytes_of_the_file(host: WeightsFixture) -> None:
    host.server.serve("real", complete_file(CONTENT))
    host.place_file(host.part_path(), CONTENT[:HALF])
    host.fetch_file(host.server.serve("m", redirect_to("real", b"it is elsewhere")))
    assert [one.range for one in host.server.asked] == [f"bytes={HALF}-"] * 2
    assert host.is_fetched(wanted_file())


@needs_root
def test_no_redirect_leads_from_https_to_plain_http(tmp_path: Path, inner: LoopbackFileServer) -> None:
    with make_weights_fixture(tmp_path, private=True) as host:
        host.redirects.append(inner.url)
        private = StandInMirror(
            "127.0.0.1",
            lambda _: None,
            certificate=tls_certificates.server_certificate(),
            leads_to=f"{inner.url}/secret",
        )
        done = host.run_fetch_file(f"{private.url}/m")
    assert done.returncode == 1
    assert "it leads from https to plain http, to 127.0.0.1" in done.stdout
    assert inner.asked == []


@needs_root
@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_a_hub_cannot_send_the_host_to_itself_either(host: WeightsFixture, client: bool) -> None:
    host.python, host.redirects = client_python() if client else "", []
    done = host.run_fetch(host.commit_files({"x.gguf": CONTENT}))
    assert done.returncode == 1
    assert f"name {host.hub.cdn_url} among the inventory's redirects" in done.stdout.splitlines()[-1]
    assert not [one for one in host.hub.asked if one.path.startswith("/cdn/")]


@needs_root
def test_a_hub_that_is_not_the_hubs_own_names_no_addresses_of_xet(host: WeightsFixture) -> None:
    host.xet = False
    wanted = host.commit_files({"x.gguf": bytes(65 << 20)})
    host.fetch(wanted)
    assert not [one for one in host.hub.asked if "xet" in one.path]


def test_a_token_goes_over_tls_alone(tmp_path: Path) -> None:
    with pytest.raises(FetchRefused, match="not sent over plain http"):
        http.download_part("http://127.0.0.1:1/a", tmp_path / "part", 1, TransferLimits(), last=True, token="hf_secret")


@pytest.mark.parametrize(
    ("url", "declared", "followed"),
    [
        # a resolver that leads all names to one proxy
        ("https://files.example/a", "https://index.example:443", True),
        ("https://files.example:8443/a", "https://index.example:443", False),
        ("https://other.example/a", "https://index.example:443", False),
        ("https://files.example/a", "https://unknown.example:443", False),
    ],
)
def test_another_name_of_a_declared_server_is_followed(
    monkeypatch: pytest.MonkeyPatch, url: str, declared: str, followed: bool
) -> None:
    places = {"index.example": "10.0.0.5", "files.example": "10.0.0.5", "other.example": "10.0.0.6"}

    def lookup(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
        if host not in places:
            raise socket.gaierror
        return [(socket.AF_INET, 1, 6, "", (places[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    if followed:
        assert 'resolve = "files.example:443:10.0.0.5"' in redirect_options(
            url, "https://index.example/", frozenset({declared})
        )
    else:
        with pytest.raises(UnsafeRedirect):
            redirect_options(url, "https://index.example/", frozenset({declared}))
