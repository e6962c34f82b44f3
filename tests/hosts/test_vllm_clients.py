"""OpenAI's clients, unchanged, at a box that serves the real vLLM.

The client for Node.js comes by npm, with the hash in tests/hosts/node/package-lock.json, which
`npm install --package-lock-only --omit-lockfile-registry-resolved` writes. Without npm or a registry it is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.hosts import Host
from lab.tunnel import tunnel
from tests.hosts.asking import Server, asks_as_node, asks_as_python
from tests.hosts.support import PORT, api_key

# what is tested here is what engine and clients say to each other
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]


def test_clients_of_others_are_answered(vllm_host: Host, tmp_path: Path, subtests: pytest.Subtests) -> None:
    key = api_key(vllm_host)
    with tunnel(vllm_host, PORT) as local:
        server = Server(f"http://127.0.0.1:{local}/v1", key)
        with subtests.test("openai for Python"):
            asks_as_python(server)
        with subtests.test("openai for Node.js"):
            asks_as_node(server, tmp_path / "node")
