"""Starts a command that serves OpenAI's interface at a unix socket, and times its first token.

Nothing but Python's own library: `python3 -I bare_start.py SOCKET KEY_FILE PROGRAM ARGUMENT...`. Prints the seconds
from the start of the process to the first event of a stream, and ends the process.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

PAUSE_S, LIMIT_S = 0.005, 600.0


def ask_first_token(path: str, key: str) -> bool:
    """Whether the server streams a token."""
    link = http.client.HTTPConnection("localhost", timeout=LIMIT_S)
    link.sock = socket.socket(socket.AF_UNIX)
    body = {"messages": [{"role": "user", "content": "start"}], "max_tokens": 1, "stream": True}
    try:
        link.sock.connect(path)
        link.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
        )
        answer = link.getresponse()
        return answer.status == 200 and any(line.startswith(b"data: ") for line in answer)
    except OSError:
        return False
    finally:
        link.close()


def main() -> int:
    """Time one start."""
    path, key_file, *command = sys.argv[1:]
    Path(path).unlink(missing_ok=True)
    key = Path(key_file).read_text().strip()
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while not ask_first_token(path, key):
                if server.poll() is not None or time.monotonic() - began > LIMIT_S:
                    return 1
                time.sleep(PAUSE_S)
            print(time.monotonic() - began)
        finally:
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
