"""Requests of other clients, unchanged, to a server of the tests' vLLM, and the answers that they must get."""

import json
import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, BadRequestError, OpenAI

from benchmarks import litellm
from lab.machine_requirements import CACHE
from tests.hosts.vllm_box import POSITIONS
from tests.stand_ins.vllm_model import ANSWER, THOUGHT

NODE = Path(__file__).with_name("node")
"""A program beside the lock of the client that it uses, which needs no other package."""
# The output of npm without a connection.
OUT_OF_REACH = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENOTCACHED")
MESSAGES = [{"role": "user", "content": "Are you there?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks at a part of the box.",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
        },
    }
]
SILENT = {"chat_template_kwargs": {"enable_thinking": False}}
SAID, THOUGHTS = ("".join(one).strip() for one in (ANSWER, THOUGHT))
CALL = {"name": "look", "arguments": {"at": "cards"}}


@dataclass(frozen=True)
class ServerUnderTest:
    """Where clients ask, and what there is."""

    url: str
    key: str
    model: str = "tiny"
    """As it is called there."""
    models: tuple[str, ...] = ("tiny",)
    """All that this key may ask for."""
    wrong: int = 401
    """Status of what is asked with another key."""
    authority: Path | None = None
    """The certificate that clients have to trust, where there is TLS."""

    def open_client(self, key: str | None = None) -> OpenAI:
        """OpenAI's, with the key or another one."""
        web = None
        if self.authority:
            web = httpx2.Client(verify=ssl.create_default_context(cafile=self.authority), timeout=600)
        return OpenAI(base_url=self.url, api_key=key or self.key, max_retries=0, http_client=web)


def reasoning_text(part: object) -> str:
    """A model's thought, by vLLM's name for it or the one of LiteLLM's proxy."""
    return getattr(part, "reasoning", None) or getattr(part, "reasoning_content", None) or ""


def complete_answer(client: OpenAI, model: str, **asked: Any) -> dict[str, Any]:
    """An answer that comes at once."""
    reply = client.chat.completions.create(model=model, messages=MESSAGES, **asked)
    (choice,) = reply.choices
    return {
        "content": choice.message.content or "",
        "reasoning": reasoning_text(choice.message),
        "calls": [one.function.model_dump(include={"name", "arguments"}) for one in choice.message.tool_calls or ()],
        "finish": choice.finish_reason,
        "tokens": reply.usage.completion_tokens,
        "logprobs": [one.token for one in (choice.logprobs and choice.logprobs.content) or ()],
    }


def streamed_answer(client: OpenAI, model: str, **asked: Any) -> dict[str, Any]:
    """An answer that comes piece by piece."""
    found: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "pieces": 0, "finish": None, "tokens": None}
    usage = {"include_usage": True}
    for piece in client.chat.completions.create(
        model=model, messages=MESSAGES, stream=True, stream_options=usage, **asked
    ):
        found["tokens"] = piece.usage.completion_tokens if piece.usage else found["tokens"]
        for choice in piece.choices:
            found["pieces"] += 1
            found["content"] += choice.delta.content or ""
            found["reasoning"] += reasoning_text(choice.delta)
            found["finish"] = choice.finish_reason or found["finish"]
            for part in choice.delta.tool_calls or ():
                if part.index == len(found["calls"]):
                    found["calls"].append({"name": "", "arguments": ""})
                call = found["calls"][part.index]
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
    return found


def assert_answers(found: dict[str, Any], server: ServerUnderTest) -> None:
    """Compare a client's answer with the model's."""
    assert tuple(found["models"]) == server.models
    assert found["wrong"] == server.wrong
    for one in ("chat", "stream", "silent", "silent_stream"):
        thoughts = "" if one.startswith("silent") else THOUGHTS
        assert (found[one]["content"].strip(), found[one]["reasoning"].strip()) == (SAID, thoughts), one
        assert (found[one]["calls"], found[one]["finish"]) == ([], "stop"), one
    for one in ("tool", "tool_stream"):
        (call,) = found[one]["calls"]
        assert {**call, "arguments": json.loads(call["arguments"])} == CALL, one
        assert found[one]["finish"] == "tool_calls", one
    for one in ("stream", "silent_stream", "tool_stream"):
        assert found[one]["pieces"] > 2, one
        at_once = found["chat" if one == "stream" else one.removesuffix("_stream")]
        assert found[one]["tokens"] == at_once["tokens"] > len(ANSWER), one
    assert "".join(found["silent"]["logprobs"]).strip().startswith(SAID)
    assert found["chat"]["logprobs"] == []


def check_python_client(server: ServerUnderTest) -> None:
    """Ask with the client for Python."""
    client, model, wrong = server.open_client(), server.model, 200
    try:
        server.open_client("wrong").models.list()
    except APIStatusError as error:
        wrong = error.status_code
    assert_answers(
        {
            "models": [one.id for one in client.models.list().data],
            "chat": complete_answer(client, model),
            "stream": streamed_answer(client, model),
            "silent": complete_answer(client, model, extra_body=SILENT, logprobs=True, top_logprobs=2),
            "silent_stream": streamed_answer(client, model, extra_body=SILENT),
            "tool": complete_answer(client, model, tools=TOOLS),
            "tool_stream": streamed_answer(client, model, tools=TOOLS),
            "wrong": wrong,
        },
        server,
    )
    for length in (POSITIONS * 3 // 4, POSITIONS * 5 // 4):
        function = {"name": "look", "arguments": json.dumps(CALL["arguments"])}
        returned = [
            *MESSAGES,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "x" * length},
        ]
        if length > POSITIONS:
            with pytest.raises(BadRequestError, match=str(POSITIONS)):
                client.chat.completions.create(model=model, messages=returned, tools=TOOLS)
            continue
        reply = client.chat.completions.create(model=model, messages=returned, tools=TOOLS)
        assert (reply.choices[0].message.content or "").strip() == SAID
        assert reply.usage.prompt_tokens > length
    assert complete_answer(client, model)["content"].strip() == SAID


def node_folder(folder: Path) -> Path:
    """A folder in which programs for Node.js find OpenAI's client, where that is to be had."""
    if not shutil.which("npm"):
        pytest.skip("there is no Node.js with npm here")
    shutil.copytree(NODE, folder)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    kept = ["--cache", str(CACHE.with_name("npm"))]
    installed = subprocess.run([*npm, *kept], cwd=folder, capture_output=True, text=True)
    if installed.returncode and any(one in installed.stderr for one in OUT_OF_REACH):
        pytest.skip(f"npm reaches no registry: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    return folder


def check_node_client(server: ServerUnderTest, folder: Path) -> None:
    """Ask with the client for Node.js, where that is to be had."""
    node_folder(folder)
    told = {"BASE_URL": server.url, "API_KEY": server.key, "MODEL": server.model}
    told |= {"NODE_EXTRA_CA_CERTS": str(server.authority)} if server.authority else {}
    done = subprocess.run(
        ["node", "ask.mjs"], cwd=folder, env=os.environ | told, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert_answers(json.loads(done.stdout), server)


def check_litellm_sdk(server: ServerUnderTest) -> None:
    """Ask with LiteLLM's SDK, where its packages are to be had."""
    if why := litellm.prepare():
        pytest.skip(f"LiteLLM is not available: {why}")
    told = {"BASE_URL": server.url, "API_KEY": server.key, "MODEL": server.model}
    told["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    command = [litellm.VENV / "bin" / "python", Path(__file__).with_name("litellm_client.py")]
    done = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["chat"], found["stream"], found["call"]) == (SAID, SAID, CALL)
    assert len(set(found["tokens"])) == 1


def check_litellm_proxy(server: ServerUnderTest, folder: Path) -> None:
    """Ask LiteLLM's proxy, which asks the server."""
    if why := litellm.prepare():
        pytest.skip(f"LiteLLM is not available: {why}")
    folder.mkdir()
    with litellm.proxy(folder, {server.model: (server.url, server.key)}, []) as proxy:
        # it looks for other keys in a database, and has none
        at = f"http://127.0.0.1:{litellm.PORT}/v1"
        check_python_client(ServerUnderTest(at, proxy.key, server.model, (server.model,), wrong=400))
