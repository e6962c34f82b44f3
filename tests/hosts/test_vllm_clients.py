"""OpenAI's clients, unchanged, at a box that serves the real vLLM.

The client for Node.js comes by npm, with the hash in tests/hosts/node/package-lock.json, which
`npm install --package-lock-only --omit-lockfile-registry-resolved` writes. Without npm or a registry it is skipped.
"""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.ssh_tunnel import forward_port
from tests.hosts.client_libraries import ServerUnderTest, check_node_client, check_python_client
from tests.hosts.support import PORT, api_key

# the test is about the exchange between engine and clients
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]


def test_clients_of_others_are_answered(vllm_host: LabHost, tmp_path: Path, subtests: pytest.Subtests) -> None:
    key = api_key(vllm_host)
    with forward_port(vllm_host, PORT) as local:
        server = ServerUnderTest(f"http://127.0.0.1:{local}/v1", key)
        with subtests.test("openai for Python"):
            check_python_client(server)
        with subtests.test("openai for Node.js"):
            check_node_client(server, tmp_path / "node")
