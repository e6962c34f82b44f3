"""Anthropic's protocol through a gateway to a real llama-server: its library, and requests of Claude Code."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from benchmarks import comparison_environments
from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from rigwright.project_root import ROOT
from tests.hosts.gateway_box import DEMO, LAN, TLS, GatewayBox, access_log, make_key, new_log_lines, run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import check_verdicts, deploy

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

LOCK, VENV = ROOT / "locks/anthropic.txt", ROOT / ".venv-anthropic"
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "User-Agent": "claude-cli/2.1.101 (external, cli)",
}
KEPT = {"cache_control": {"type": "ephemeral"}}
BASH = {
    "name": "Bash",
    "description": "Runs a command.",
    "input_schema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
        "required": ["command"],
        "additionalProperties": False,
    },
}
AGENT: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 32000,
    "stream": True,
    "temperature": 1,
    "metadata": {"user_id": "user_0_account__session_0"},
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;"},
        {"type": "text", "text": "You are a coding agent.", **KEPT},
    ],
    "tools": [BASH],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "list the files", **KEPT}]}],
}
TURNS = [
    *AGENT["messages"],
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "text", "text": "a"}],
                "is_error": False,
            },
            {"type": "text", "text": "and now?", **KEPT},
        ],
    },
]
# Its small questions beside: whether there is quota left, and a title.
QUOTA = {"model": "claude-haiku-4-5", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
REQUESTS = {
    "the first turn": AGENT,
    "a turn after a tool": {**AGENT, "messages": TURNS, "tool_choice": {"type": "auto"}},
    "thinking": {**AGENT, "thinking": {"type": "enabled", "budget_tokens": 31999}},
    "effort": {**AGENT, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    "quota": QUOTA,
}
ALIASES = {"claude-sonnet-4-5": "tiny-rig", "claude-haiku-4-5": "tiny-rig"}


@pytest.fixture(scope="module")
def box(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayBox]:
    """A host with llama.cpp behind a gateway that calls its model as Claude Code does."""
    (host,) = lab.up([HostSpec(f"a{os.getpid()}", release, (first_run.layer,))])
    made = GatewayBox(lab, host, tmp_path_factory.mktemp("messages"))
    made.prepare()
    deploy(made.write_gateway_inventory({"chat": DEMO}, aliases=ALIASES))
    yield made
    host.destroy()


def test_anthropics_library_is_answered_and_refused_as_it_reads_it(box: GatewayBox) -> None:
    try:
        comparison_environments.install(LOCK, VENV)
    except RuntimeError as error:
        pytest.skip(f"Anthropic's library is not available: {error}")
    authority = box.folder / "ca.crt"
    authority.write_text(run_rigwright("key", "ca", str(box.folder / "rig.py")).stdout)
    places = {
        f"http://{box.address}:{LAN}": {"API_KEY": "ignored"},
        f"https://{box.address}:{TLS}": {"API_KEY": make_key(box, "claude"), "AUTHORITY": str(authority)},
    }
    for url, told in places.items():
        command = [VENV / "bin/python", Path(__file__).with_name("anthropic_client.py")]
        environment = os.environ | told | {"BASE_URL": url, "MODEL": "claude-sonnet-4-5"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["message"] == found["stream"] == found["bearer"] == ANSWER
        assert found["stops"] == ["end_turn", "end_turn"]
        assert found["counted"] > 10 and found["input"] > 10
        assert "tiny-rig" in found["models"]
        wrong = ["BadRequestError", 400, "invalid_request_error"]
        assert found["refused"] == {
            "model": ["NotFoundError", 404, "not_found_error"],
            "field": wrong,
            "schema": wrong,
            "image": wrong,
            "too long": wrong,
            "key": ["AuthenticationError", 401, "authentication_error"] if "AUTHORITY" in told else [],
            "other": ["NotFoundError", 404, "not_found_error"],
        }


@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in REQUESTS.items()])
def test_a_request_of_claude_code_is_answered(box: GatewayBox, sent: dict[str, Any]) -> None:
    before = len(access_log(box))
    url = box.url("messages?beta=true")
    reply = requests.post(url, json=sent, headers=HEADERS | {"Authorization": "Bearer ignored"}, timeout=60)
    assert reply.ok, reply.text
    (line,) = new_log_lines(box, before)
    assert (line["model"], line["instance"], line["status"]) == (sent["model"], "chat", 200)
    if not sent.get("stream"):
        assert reply.json()["type"] == "message" and reply.json()["stop_reason"] == "max_tokens"
        return
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in one.splitlines()) for one in reply.text.strip().split("\n\n")]
    data = [json.loads(one["data"]) for one in events]
    assert [one["event"] for one in events] == [one["type"] for one in data]
    assert (data[0]["type"], data[-1]["type"]) == ("message_start", "message_stop")
    assert (
        "".join(one["delta"].get("text", "") for one in data if one["type"] == "content_block_delta").strip() == ANSWER
    )
    usage = data[0]["message"]["usage"]
    assert line["prompt_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert line["completion_tokens"] == data[-2]["usage"]["output_tokens"] and line["first"] is not None


def test_claude_code_counts_tokens_and_probes_the_server(box: GatewayBox) -> None:
    before = len(access_log(box))
    body = {key: AGENT[key] for key in ("model", "system", "tools", "messages")}
    reply = requests.post(box.url("messages/count_tokens?beta=true"), json=body, headers=HEADERS, timeout=60)
    assert reply.json()["input_tokens"] > 10
    (line,) = new_log_lines(box, before)
    assert (line["instance"], line["prompt_tokens"]) == ("chat", None)
    # any answer shows that the server is there
    assert requests.head(f"http://{box.address}:{LAN}/", timeout=10).status_code in (200, 404)


def test_no_key_of_either_header_is_in_a_log_and_the_box_is_as_declared(box: GatewayBox) -> None:
    key = make_key(box, "quiet")
    url, trusted = f"https://{box.address}:{TLS}/v1/messages", str(box.folder / "ca.crt")
    Path(trusted).write_text(run_rigwright("key", "ca", str(box.folder / "rig.py")).stdout)
    for headers in ({"x-api-key": key}, {"Authorization": f"Bearer {key}"}):
        assert requests.post(url, json=QUOTA, headers=headers, verify=trusted, timeout=60).ok
    kept = box.host.run("cat /var/log/rigwright_gateway/*; journalctl")
    assert key not in kept and key.removeprefix("rw-") not in kept
    verdicts = check_verdicts(box.folder / "rig.py")
    assert {name: word for name, word in verdicts.items() if name[0] == "D" and word == "FAIL"} == {}
