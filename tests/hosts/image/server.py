"""Stands in for `vllm serve`, in an image or in an environment: the same command line, the same paths, the middleware
that it is given, and a worker beside it. Its report is its command line.
"""

import asyncio
import ctypes
import importlib
import json
import os
import signal
import socketserver
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

REPLY_TEXT = "alive"
# Each of 256 threads writes the square of its own number.
SQUARES = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry squares(.param .u64 where)
{
  .reg .u32 %r<3>;
  .reg .u64 %rd<4>;
  ld.param.u64 %rd1, [where];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  mul.lo.u32 %r2, %r1, %r1;
  st.global.u32 [%rd3], %r2;
  ret;
}
"""
COUNT, HELD = 256, 600 << 20


def parse_options(words):
    """Name -> value of a command line's options."""
    found, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found[name] = value or True
        elif name:
            found[name], name = word, ""
    return found


def render_completion(given, body):
    """The answer to a request."""
    message = {"role": "assistant", "content": REPLY_TEXT}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    base = {"id": "1", "model": given["served-model-name"], "created": int(time.time()), "usage": usage}
    if body.get("stream"):
        part = {**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message}]}
        return "text/event-stream", f"data: {json.dumps(part)}\n\ndata: [DONE]\n\n".encode()
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    return "application/json", json.dumps({**base, "object": "chat.completion", "choices": [choice]}).encode()


def driver_folder():
    """Where the driver's libraries were mounted; nothing without a card."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return next((Path(place).parent for place in places if "/libcuda.so." in place), None)


def use_card():
    """Its card and the result of a computation there, by the driver's own interface; memory of it stays taken."""
    if not (folder := driver_folder()):
        # in an environment of a host with stand-in cards
        given = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        for name in [f"nvidia{one}" for one in given] + ["nvidia-uvm"] * bool(given):
            os.open(f"/dev/{name}", os.O_RDWR)
        return {"cards": len(given)} if given else {}
    # the driver asks for its compiler by a name that only a linker's cache leads from
    for name in ("libnvidia-nvvm.so.*", "libnvidia-ptxjitcompiler.so.*"):
        [ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL) for path in folder.glob(name)]
    cuda = ctypes.CDLL(str(next(folder.glob("libcuda.so.*"))))
    if not hasattr(cuda, "cuInit"):
        opened = [os.open(path, os.O_RDWR) for path in sorted(Path("/dev").glob("nvidia[0-9]"))]
        os.open("/dev/nvidia-uvm", os.O_RDWR)
        return {"cards": len(opened), "name": "a stand-in's, which computes nothing"}

    def call(name, *words):
        if status := getattr(cuda, name)(*words):
            raise SystemExit(f"{name}: CUDA's error {status}")

    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    module, function, place, held = (ctypes.c_void_p() for _ in range(4))
    name, found = ctypes.create_string_buffer(100), (ctypes.c_uint32 * COUNT)()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, 100, device)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    call("cuMemAlloc_v2", ctypes.byref(held), ctypes.c_size_t(HELD))
    call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(ctypes.sizeof(found)))
    call("cuModuleLoadData", ctypes.byref(module), SQUARES)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"squares")
    given = (ctypes.c_void_p * 1)(ctypes.addressof(place))
    call("cuLaunchKernel", function, 1, 1, 1, COUNT, 1, 1, 0, None, given, None)
    call("cuMemcpyDtoH_v2", found, place, ctypes.c_size_t(ctypes.sizeof(found)))
    return {"cards": count.value, "name": name.value.decode(), "computed": list(found)}


def describe_process(given):
    """Its command line, and its view."""
    return {
        "argv": sys.argv,
        "environ": dict(os.environ),
        "card": given["card"],
        "devices": sorted(path.name for path in Path("/dev").glob("nvidia*")),
        "uid": os.getuid(),
        "mark": Path("/etc/mark").read_text(),
        "cwd": str(Path.cwd()),
        "temporary": tempfile.gettempdir(),
        "interfaces": [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]],
    }


def make_application(given):
    """The ASGI application, within the middleware that was asked for."""

    async def app(scope, receive, send):
        body = json.loads((await receive()).get("body") or b"{}")
        kind, status = "application/json", 200
        if scope["path"] == "/v1/models":
            said = json.dumps(
                {"object": "list", "data": [{"id": given["served-model-name"], "object": "model"}]}
            ).encode()
        elif scope["path"] == "/v1/chat/completions":
            kind, said = render_completion(given, body)
        elif scope["path"] == "/about":
            said = json.dumps(describe_process(given)).encode()
        elif scope["path"] in ("/health", "/metrics"):
            said = b""
        else:
            status, said = 404, b"{}"
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": said})

    module, _, name = given["middleware"].rpartition(".")
    return getattr(importlib.import_module(module), name)(app)


def main():
    """Serve."""
    given = parse_options(sys.argv[1:])
    given["card"] = use_card()
    app = make_application(given)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            scope = {"type": "http", "path": self.path, "method": self.command, "headers": headers}
            told = []

            async def receive():
                return {"type": "http.request", "body": body}

            async def send(message):
                told.append(message)

            asyncio.run(app(scope, receive, send))
            self.send_response(told[0]["status"])
            for name, value in told[0]["headers"]:
                self.send_header(name.decode(), value.decode())
            self.send_header("Content-Length", str(len(told[1]["body"])))
            self.end_headers()
            self.wfile.write(told[1]["body"])

        do_POST = do_GET

        def address_string(self):
            return "client"

        def log_message(self, *words):
            pass

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    print("ready to serve", flush=True)
    first = os.getpid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while os.getppid() == first:
            time.sleep(0.2)
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Server(given["uds"], Handler).serve_forever()
