#!/usr/bin/python3 -I
"""toy-server SOCKET KEY_FILE MODEL WORD...: answers with what it was started with; a worker holds the model open."""

import json
import os
import socketserver
import sys
import time
from http.server import BaseHTTPRequestHandler

if sys.argv[1:] == ["--version"]:
    print("toy 1")
    sys.exit()

with open(sys.argv[2]) as file:
    KEY = file.read().strip()
if os.fork() == 0:
    with open(sys.argv[3], "rb") as weights:
        weights.read(1)
        while os.getppid() != 1:
            time.sleep(0.2)
    sys.exit()
warmed = 0


class ToyHandler(BaseHTTPRequestHandler):
    """One answer to everything."""

    def do_GET(self):
        if self.path == "/health":
            return self.answer(200, {})
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            return self.answer(401, {})
        said = {"argv": sys.argv[4:], "greeting": os.environ["GREETING"], "warmed": warmed}
        return self.answer(200, said)

    def do_POST(self):
        global warmed
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        warmed += self.path == "/warm" and isinstance(json.loads(body), dict)
        self.do_GET()

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


socketserver.UnixStreamServer(sys.argv[1], ToyHandler).serve_forever()
