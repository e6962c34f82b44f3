#!/usr/bin/env python3
"""A stand-in for llama-server: takes its model's size in RAM, and answers the paths that a trial asks."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

OPTIONS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))


class Answers(BaseHTTPRequestHandler):
    """Any request succeeds."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        """Read the request, and answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


if OPTIONS["--ctx-size"] == "666":
    sys.exit("out of memory")
weights = bytearray(Path(OPTIONS["--model"]).stat().st_size)
cache = b"x" * (int(OPTIONS["--ctx-size"]) * 1024)
print("0.1 I load_tensors:   CPU_Mapped model buffer size =     1.00 MiB", flush=True)
HTTPServer(("127.0.0.1", int(OPTIONS["--port"])), Answers).serve_forever()
