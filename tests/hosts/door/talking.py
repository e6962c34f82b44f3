"""Text on the way: headers, origins, metrics, TLS, and answers that stay inside."""

import asyncio
import json
import shutil
import ssl

from door.clients import posting, read_answer, secured
from door.world import ALICE, OFTEN, World, until

PREFLIGHT = "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: box\r\nConnection: close\r\n"
PREFLIGHT += "Access-Control-Request-Method: POST\r\n"
PREFLIGHT += "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n"

# Stands in for the module that nginx runs first: its loops run often in one start of a thousand or so.
BUSY = """
for _ = 1, 100000 do end
assert(io.open("{folder}/ran", "a")):write("x")
package.path = package.path:gsub("{folder}/%?.lua;", "")
package.loaded["resty.core"] = nil
return require("resty.core")
"""


async def no_lua_is_compiled_as_it_runs(world: World) -> None:
    folder = world.folder / "busy"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "resty").mkdir(parents=True)
    (folder / "resty/core.lua").write_text(BUSY.format(folder=folder))
    assert world.nginx
    world.nginx.terminate()
    world.nginx.wait(10)
    configured = (world.folder / "conf/nginx.conf").read_text()
    configured = configured.replace("/?.lua;;", f"/?.lua;{folder}/?.lua;;")
    worker = (
        f'assert(io.open("{folder}/" .. ngx.worker.pid(), "w")):write(tostring(jit.status())) require("gateway").begin'
    )
    (world.folder / "conf/busy.conf").write_text(configured.replace('require("gateway").begin', worker))
    await world.start_nginx("busy.conf")
    # a start anew of all that is Lua
    await world.reload("d2")
    assert (await world.post({"model": "tiny"}))[0] == 200
    assert (folder / "ran").read_text() == "xx"
    assert {(folder / str(pid)).read_text() for pid in world.workers()} == {"false"}


async def engines_are_told_what_they_need_and_no_more(world: World) -> None:
    sent = ("Accept: text/event-stream", "Cookie: a=b", "X-Forwarded-For: 1.2.3.4", "X-Api-Key: a", "User-Agent: x")
    sent = (
        *sent,
        "X-Rw-Upstream: a",
        "Authorization: Bearer ignored",
        "Expect: 100-continue",
        "TE: trailers",
        "Via: x",
    )
    world.unlink("two")
    assert (await world.post({"model": "tiny"}, *sent))[0] == 100
    await until(world.reached)
    ((line, headers, body),) = world.engines["one"].reached
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert headers == {
        "host": "localhost",
        "connection": "close",
        "authorization": "Bearer secret-of-one",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "accept": "text/event-stream",
    }
    world.link("two")
    world.unlink("one")
    assert (await world.post({"model": "tiny"}, "Authorization: Bearer ignored"))[0] == 200
    assert "authorization" not in world.engines["two"].reached[0][1]
    status, *_ = await world.post({"model": "tiny"}, path="/v1/chat/completions?api-version=1&x=%0d%0ay")
    assert status == 200 and world.engines["two"].reached[1][0] == "POST /v1/chat/completions HTTP/1.1"


async def clients_are_told_nothing_of_engines(world: World) -> None:
    status, headers, _ = await world.post({"model": "tiny"})
    assert status == 200
    assert set(headers) == {
        *("server", "date", "content-type", "content-length", "connection", "x-request-id", "vary"),
        "x-content-type-options",
    }, headers
    assert headers["server"] == "nginx"


async def only_declared_origins_may_ask(world: World) -> None:
    for origin in ("https://chat.example", "chrome-extension://abcdef", "app://obsidian.md", "file://"):
        status, headers, body = await world.ask(f"{PREFLIGHT}Origin: {origin}\r\n\r\n".encode())
        assert (status, body) == (204, b"")
        assert headers["access-control-allow-origin"] == origin and headers["vary"] == "Origin"
        assert headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
        assert "POST" in headers["access-control-allow-methods"]
        for path, wanted in (("/v1/chat/completions", 200), ("/v1/none", 404)):
            status, headers, _ = await world.post({"model": "tiny"}, f"Origin: {origin}", path=path)
            assert (status, headers["access-control-allow-origin"]) == (wanted, origin)
    reached = world.reached()
    others = ("https://evil.example", "https://chat.example.evil", "null", "chrome-extension://abcdeg", "file://x")
    for origin in (*others, "app://obsidian.md.evil", "App://obsidian.md"):
        for text in (
            f"{PREFLIGHT}Origin: {origin}\r\n\r\n".encode(),
            posting(b'{"model":"tiny"}', f"Origin: {origin}"),
        ):
            status, headers, _ = await world.ask(text)
            assert status == 403 and not [name for name in headers if name.startswith("access-control")]
    assert world.reached() == reached
    assert "access-control-allow-origin" not in (await world.post({"model": "tiny"}))[1]


async def models_and_health_are_the_gateways_own(world: World) -> None:
    def get(path: str, *headers: str) -> bytes:
        given = "".join(f"{one}\r\n" for one in headers)
        return f"GET {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n{given}\r\n".encode()

    status, _, body = await world.ask(get("/v1/models"))
    assert status == 200
    assert [(one["id"], one["root"]) for one in json.loads(body)["data"]] == [("tiny", "tiny"), ("gpt-4o", "tiny")]
    for path, wanted in (("/v1/models/tiny", 200), ("/v1/models/%74iny", 200), ("/v1/models/none", 404)):
        assert (await world.ask(get(path)))[0] == wanted, path
    assert (await world.ask(get("/v1/models/a%0d%0aX-Rw-Key:%20x")))[0] in (400, 404)
    assert (await world.ask(get("/v1/models"), world.port + 1))[0] == 401
    assert (await world.ask(get("/v1/models", f"Authorization: Bearer {ALICE}"), world.port + 1))[0] == 200
    status, _, body = await world.ask(get("/health"))
    assert (status, json.loads(body)["status"]) == (200, "ok")
    for name in ("one", "two"):
        world.unlink(name)
    assert (await world.ask(get("/health")))[0] == 503
    assert world.reached() == 0


async def head_is_answered_as_get_is_without_the_body(world: World) -> None:
    paths = ("/", "/health", "/v1/models", "/v1/models/gpt-4o", "/v1/models/none", "/metrics", "/metrics/one", "/none")
    key = f"Authorization: Bearer {ALICE}\r\n"
    for port, path, header in (
        *((world.port, path, "") for path in paths),
        *((world.port + 1, path, key) for path in ("/v1/models", "/v1/models/none")),
        (world.port + 1, "/v1/models", ""),
        (world.port, "/v1/completions", ""),
        (world.port, "/health", "Origin: https://evil.example\r\n"),
    ):
        text = f" {path} HTTP/1.1\r\nHost: box\r\n{header}\r\n"
        end = "GET /v1/nothing HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"
        got, gets, _ = await world.ask(
            f"GET{text}".encode().replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), port
        )
        # another request on the same connection: the bytes after the headers are its answer, and no body
        status, headers, body = await world.ask(f"HEAD{text}{end}".encode(), port)
        assert (status, body[:13]) == (got, b"HTTP/1.1 404 "), (path, status, body)
        for name in ("content-type", "allow", "www-authenticate", "x-content-type-options"):
            assert headers.get(name) == gets.get(name), (path, name, headers, gets)
        # of metrics, which count the requests, nginx does not know the length beforehand
        assert headers.get("content-length") == gets.get("content-length"), path
    for name in ("one", "two"):
        world.unlink(name)
    for path in ("/health", "/metrics/one"):
        assert (await world.ask(f"HEAD {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n".encode()))[0] == 503
    often = f"HEAD /v1/models HTTP/1.1\r\nHost: box\r\nConnection: close\r\nAuthorization: Bearer {OFTEN}\r\n\r\n"
    assert [(await world.ask(often.encode(), world.port + 1))[0] for _ in range(2)] == [200, 429]
    with_body = b"HEAD /health HTTP/1.1\r\nHost: box\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    assert (await world.ask(with_body))[0] == 400


async def a_wrong_path_is_answered_with_the_base_url(world: World) -> None:
    for path, base in (
        ("/v1/v1/chat/completions", "http://box/v1"),
        ("/chat/completions?key=rw-secret", "http://box/v1"),
        ("//v1/chat/completions", "http://box/v1"),
        ("/api/v1/models", "http://box/v1"),
        ("/v1/", "http://box/v1"),
        ("/api/chat", "OpenAI-compatible API with the base URL http://box/v1"),
    ):
        for port in (world.port, world.port + 1):
            text = posting(b'{"model":"tiny"}', f"Authorization: Bearer {OFTEN}", "X-Api-Key: rw-secret", path=path)
            status, headers, body = await world.ask(text, port)
            error = json.loads(body)["error"]
            assert (status, error["type"], error["code"]) == (404, "not_found_error", "path_not_found")
            assert error["message"].endswith(base) and b"secret" not in body and b"\\" not in body, body
            assert "location" not in headers
    _, _, body = await world.ask(posting(b"{}", path="/models"), world.port + 2)
    assert b"https://box/v1" in body
    status, _, body = await world.ask(b"GET / HTTP/1.1\r\nHost: box:8020\r\nConnection: close\r\n\r\n")
    assert (status, json.loads(body)["openai_base_url"]) == (200, "http://box:8020/v1")
    assert world.reached() == 0 and world.stderr() == ""


async def metrics_are_for_those_who_are_declared(world: World) -> None:
    text = b"GET /metrics%s HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"
    _, _, body = await world.ask(text % b"")
    for name in ("one", "two"):
        assert b'\nrigwright_gateway_first_content_seconds_count{instance="%s"} 0\n' % name.encode() in body, body
    assert (await world.post({"model": "tiny"}))[0] == 200
    status, headers, body = await world.ask(text % b"")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    assert b'\nrigwright_gateway_ready{instance="one"} 1\n' in body
    for line in body.decode().splitlines():
        assert line.startswith("# TYPE ") or float(line.rsplit(" ", 1)[1]) >= 0, line
    status, _, body = await world.ask(text % b"/one")
    assert (status, body) == (200, b"up{} 1\n\n")
    assert world.engines["one"].reached[-1][1]["authorization"] == "Bearer secret-of-one"
    reached = world.reached()
    for path in (b"", b"/one"):
        # its address is not one of theirs
        status, _, body = await world.ask(text % path, world.port + 1, host="::1")
        assert (status, json.loads(body)["error"]["type"]) == (403, "permission_error")
    world.unlink("one")
    assert (await world.ask(text % b"/one"))[0] == 503
    assert world.reached() == reached


async def the_router_may_ask_who_is_out(world: World) -> None:
    (world.folder / "out/one").touch()
    status, body = await world.admin("POST /probe/one", b'{"model": "tiny"}')
    assert status == 200 and b"from one" in body
    assert (await world.admin("POST /probe/three", b"{}"))[0] == 404
    assert (await world.admin("GET /probe/one"))[0] == 404
    world.unlink("one")
    assert (await world.admin("POST /probe/one", b'{"model": "tiny"}'))[0] == 503
    assert (await world.admin("POST /gone/../one"))[0] == 404
    assert (await world.admin("GET /gone/00"))[0] == 404


async def what_is_left_of_a_refused_body_is_no_request(world: World) -> None:
    inner = posting(b'{"model":"tiny"}')
    origin = "Origin: https://chat.example"
    refused = {
        "/v1/none": ("POST", 404, ()),
        "/v1/chat/completions": ("POST", 403, ("Origin: null",)),
        "/v1/completions": ("OPTIONS", 204, (origin, "Access-Control-Request-Method: POST")),
        "/v1/models": ("POST", 405, ()),
    }
    for path, (method, wanted, headers) in refused.items():
        text = posting(inner, *headers, path=path).replace(b"Connection: close", b"Connection: keep-alive", 1)
        after = b"GET /v1/other HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"
        status, _, body = await world.ask(text.replace(b"POST", method.encode(), 1) + after)
        assert status == wanted
        assert body.count(b"HTTP/1.1 404 ") == 1 and body.count(b"HTTP/1.1 ") == 1, body
    # by an invalid key, the body being there or on its way
    for port, said in ((world.port + 1, inner), (world.port + 1, inner + b"x" * 3_000_000)):
        text = posting(said).replace(b"Connection: close", b"Connection: keep-alive", 1)
        status, _, body = await world.ask(
            text + b"GET /v1/other HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n", port
        )
        assert status == 401 and body.count(b"HTTP/1.1 404 ") == body.count(b"HTTP/1.1 ") == 1, body
    assert world.reached() == 0


async def nothing_that_is_asked_is_written_down(world: World) -> None:
    secret = "a prompt, a query and a key"
    asked = {"model": "tiny", "messages": [{"content": secret}]}
    for body in (asked, asked | {"stand_in": {"closes": True}}, b'{"broken": "' + secret.encode()):
        await world.post(
            body, f"Authorization: Bearer {ALICE}", path="/v1/chat/completions?" + secret.replace(" ", "+")
        )
    text = (world.folder / "log").read_text() + world.stderr()
    assert secret not in text and ALICE not in text and "secret-of-one" not in text


async def tls_is_of_this_time(world: World) -> None:
    def context(**limits: ssl.TLSVersion) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(world.folder / "run/tls/tls.crt"))
        made.set_alpn_protocols(["h2", "http/1.1"])
        for name, version in limits.items():
            setattr(made, name, version)
        return made

    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with_version = context(minimum_version=version, maximum_version=version)
        text = posting(b'{"model":"tiny"}')
        first = await asyncio.to_thread(secured, world.port + 2, text, with_version)
        assert first.status == 200 and first.protocol in (None, "http/1.1")
        again = await asyncio.to_thread(secured, world.port + 2, text, with_version, first.session)
        assert again.status == 200 and again.resumed
        # a session of before a reload is one of after it
        await world.reload(f"{version}")
        later = await asyncio.to_thread(secured, world.port + 2, text, with_version, again.session)
        assert later.status == 200 and later.resumed
    old = context(minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
    try:
        await asyncio.to_thread(secured, world.port + 2, b"", old)
    except (ssl.SSLError, ConnectionError):
        pass
    else:
        raise AssertionError("TLS 1.1 is taken")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port + 2)
    status, _, body = await read_answer(reader, writer, posting(b'{"model":"tiny"}'))
    assert (status, json.loads(body)["error"]["message"]) == (400, "speak TLS to this port")


async def who_was_led_here_by_a_name_of_his_own_reads_nothing(world: World) -> None:
    """By DNS rebinding: where no key is wanted, the name that is asked for has to be a declared one, if any is."""
    for host, wanted in {
        **dict.fromkeys(("box", "BOX:443", "llm.example.org", "llm.example.org.", "one.rigs.example.org"), 200),
        **dict.fromkeys(("127.0.0.1", "127.0.0.1:443", "[::1]:443", "localhost"), 200),
        **dict.fromkeys(("evil.example", "rigs.example.org.evil.example", "xrigs.example.org", "127.0.0.1.evil"), 421),
        **dict.fromkeys(("evilbox", "localhost.evil.example", "1"), 421),
    }.items():
        for path in ("/v1/models", "/health"):
            asked = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            assert (await world.ask(asked, world.port + 2))[0] == wanted, host
            # a box without a declared name has the name that its network gives it
            assert (await world.ask(asked))[0] == 200
    asked = posting(b'{"model":"tiny"}').replace(b"Host: box", b"Host: evil.example")
    assert (await world.ask(asked, world.port + 2))[0] == 421
    assert not world.reached()


async def settings_that_cannot_be_read_change_nothing(world: World) -> None:
    before = world.workers()
    for text in ("", "{", '{"models": 3}', "[]"):
        (world.folder / "conf/settings.json").write_text(text)
        said = len(world.stderr())
        world.hang_up()
        await until(lambda said=said: "init_by_lua" in world.stderr()[said:])
        assert (await world.post({"model": "tiny"}))[0] == 200 and (await world.state())["digest"] == "d1"
    assert world.workers() == before
    await world.reload("d2")
    assert (await world.post({"model": "tiny"}))[0] == 200
