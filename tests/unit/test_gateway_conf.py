"""nginx's configuration of a gateway: the declaration is in it, once, and nothing else can get in."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.gateway.nginx_conf import (
    PATHS,
    NginxFleetListener,
    NginxListener,
    NginxSettings,
    load_lua_modules,
    render_nginx_conf,
)

LAN = NginxListener("lan", ("0.0.0.0:8020", "[::]:8020"))
DOOR = NginxSettings(
    listeners=(LAN, NginxListener("office", ("192.0.2.7:443",), tls=True)),
    folder="/etc/rigwright/current/gateway",
    runtime="/run/rigwright_gateway",
    router="/run/rigwright/router",
    log="/var/log/rigwright_gateway/requests.log",
)
FLEET_DOOR = replace(
    DOOR,
    boxes={"two": "192.0.2.8:8555", "three": "[2001:db8::3]:8555"},
    fleet=NginxFleetListener("192.0.2.7:8555", ("four.front.rigwright",)),
)


def find_in_conf(pattern: str, door: NginxSettings = DOOR) -> list[str]:
    return re.findall(pattern, render_nginx_conf(door, "# ours"), re.MULTILINE)


def test_every_listener_listens_where_it_is_declared_and_nothing_else_does() -> None:
    assert find_in_conf(r"^ *listen (\S+)") == [
        "0.0.0.0:8020",
        "[::]:8020",
        "192.0.2.7:443",
        "unix:/run/rigwright_gateway/admin.sock;",
    ]
    assert find_in_conf(r"^ *server_name (.*);") == ["lan", "office"]


def test_tls_is_on_where_it_is_declared_alone() -> None:
    assert find_in_conf(r"^ *listen (\S+) ssl\b") == ["192.0.2.7:443"]
    assert find_in_conf(r"^ *ssl_certificate(?:_key)? (.*);") == [
        "/run/rigwright_gateway/tls/office.crt",
        "/run/rigwright_gateway/tls/office.key",
    ]


def test_nginx_asks_the_router_for_a_keys_owner_wherever_there_are_keys() -> None:
    open_to_all = replace(DOOR, listeners=(replace(LAN, keys=False),))
    assert not find_in_conf("auth_request", open_to_all)
    keyed = replace(DOOR, listeners=(*open_to_all.listeners, DOOR.listeners[1]))
    # each that posts, large bodies, and models
    assert len(find_in_conf(r"auth_request /_auth;", keyed)) == len(PATHS) + 2
    assert len(find_in_conf(r"auth_request /_auth;")) == 2 * (len(PATHS) + 2)


def test_text_of_an_engine_has_only_the_type_that_lua_gives_it() -> None:
    text = render_nginx_conf(DOOR, "# ours")
    asked = re.findall(r"location @(?:serve|again|scrape) \{(.*?)\n    \}", text, re.DOTALL)
    assert len(asked) == 3 * len(DOOR.listeners)
    assert all("proxy_hide_header Content-Type;" in one for one in asked)


@pytest.mark.parametrize("networks", [(), ("10.0.0.0/8", "fd00::/8")])
def test_metrics_are_open_to_scrapers_alone_on_every_listener(networks: tuple[str, ...]) -> None:
    door = replace(DOOR, scrapers=networks)
    (block,) = re.findall(r"geo \$rw_scraper \{(.*?)\n  \}", render_nginx_conf(door, "# ours"), re.DOTALL)
    assert re.findall(r"^ *(\S+) (\S+);", block, re.MULTILINE) == [("default", '""'), *((one, "1") for one in networks)]
    # Lua refuses the others: nginx's own `deny` would write a line to the journal for each request
    assert find_in_conf(r"location /metrics \{\s*content_by_lua_block \{ (.*) \}", door) == [
        'require("gateway").scrape()' for _ in door.listeners
    ]
    assert not find_in_conf(r"^\s*(?:allow|deny|limit_conn|limit_req)\b", door)


def test_the_router_gets_the_headers_that_requests_are_kept_together_by() -> None:
    door = replace(DOOR, sticky_headers=("x-session-id",))
    assert set(find_in_conf(r"proxy_set_header (x-session-id .*);", door)) == {"x-session-id $http_x_session_id"}
    assert len(find_in_conf(r"proxy_set_header x-session-id", door)) == len(door.listeners) * (len(PATHS) + 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("folder", "/etc/a b"),
        ("runtime", "/run/a;b"),
        ("router", "/run/${a}"),
        ("log", ""),
        ("scrapers", ("10.0.0.0/8; allow all",)),
        ("sticky_headers", ("x\nserver {}",)),
        ("listeners", (NginxListener("lan{", ("0.0.0.0:80",)),)),
        ("listeners", (NginxListener("lan", ("0.0.0.0:80 #",)),)),
    ],
)
def test_text_of_more_than_a_word_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match="not a single configuration word"):
        replace(DOOR, **{key: value})


def test_lua_finds_all_that_it_asks_for() -> None:
    texts = load_lua_modules()
    asked = {name for text in texts.values() for name in re.findall(r'require\("([a-z_]+)"\)', text)}
    # nginx asks for the second by itself
    roots = {"gateway.lua", "fleet.lua", "resty/core.lua"}
    assert {f"{name}.lua" for name in asked - {"cjson", "ffi"}} == set(texts) - roots
    for module in ("gateway", "fleet"):
        called = set(find_in_conf(rf'require\("{module}"\)\.([a-z]+)', FLEET_DOOR))
        assert called
        for name in called:
            wanted = rf"^  [^\n]*\b{name} = |^function {module}\.{name}\("
            assert re.search(wanted, texts[f"{module}.lua"], re.MULTILINE), name


def test_each_end_of_a_connection_between_boxes_verifies_the_other() -> None:
    assert find_in_conf(r"^ *listen (\S+ ssl)", FLEET_DOOR) == ["192.0.2.7:443 ssl", "192.0.2.7:8555 ssl"]
    assert find_in_conf(r"^ *ssl_verify_client (.*);", FLEET_DOOR) == ["on"]
    assert find_in_conf(r"^ *proxy_ssl_verify (.*);", FLEET_DOOR) == ["on"]
    assert find_in_conf(r"^ *upstream fleet-(\S+) \{\s+server (\S+);", FLEET_DOOR) == [
        ("three", "[2001:db8::3]:8555"),
        ("two", "192.0.2.8:8555"),
    ]
    assert find_in_conf(r'^ *"(CN=\S+)" (\S+);', FLEET_DOOR) == [("CN=four.front.rigwright", "four.front.rigwright")]
    # a box that has to do with none has none of it
    assert not find_in_conf(r"fleet-|rw_target|rw_front|proxy_ssl|ssl_verify")


def fleet_server() -> str:
    """The server for gateways of other boxes."""
    text = render_nginx_conf(FLEET_DOOR, "# ours")
    return next(one for one in re.split(r"^  server \{", text, flags=re.MULTILINE) if "ssl_verify_client on;" in one)


def test_a_certificate_is_verified_with_each_connection_of_a_gateway() -> None:
    assert "ssl_session_cache off;" in fleet_server()
    # clients have no certificates
    assert find_in_conf(r"^ *ssl_session_cache (.*);") == ["shared:tls:1m"]


def test_each_module_is_loaded_before_any_worker_starts() -> None:
    """Else a worker of earlier settings would load one of later ones to its own."""
    for door in (DOOR, FLEET_DOOR):
        (begin,) = find_in_conf(r"^ *init_by_lua_block \{([^}]*\}[^}]*)\}", door)
        assert ('require("fleet")' in begin) is (door is FLEET_DOOR)
        assert set(find_in_conf(r'require\("(\w+)"\)', door)) == set(re.findall(r'require\("(\w+)"\)', begin))


@pytest.mark.parametrize("door", [DOOR, FLEET_DOOR], ids=["alone", "fleet"])
def test_a_linter_of_nginxs_configurations_finds_nothing(tmp_path: Path, door: NginxSettings) -> None:
    written = tmp_path / "nginx.conf"
    written.write_text(
        render_nginx_conf(replace(door, scrapers=("10.0.0.0/8",), sticky_headers=("x-session-id",)), "# ours")
    )
    linter = Path(sys.executable).with_name("gixy")
    # it would warn that streams are not buffered, and that names in variables have no resolver: sockets and addresses
    # need none, and without one nginx asks nothing else
    skipped = "proxy_buffering_off,stale_dns_cache"
    said = subprocess.run(
        [linter, "--skips", skipped, "-f", "json", written], capture_output=True, text=True, check=False
    )
    assert json.loads(said.stdout) == [], said.stdout
    written.write_text(written.read_text().replace("merge_slashes off;", "merge_slashes off; server_tokens on;"))
    assert "server_tokens" in subprocess.run([linter, written], capture_output=True, text=True, check=False).stdout
