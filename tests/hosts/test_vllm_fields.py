"""What harmful request fields do to the real vLLM, asked directly; none of them arrives through the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.tunnel import tunnel
from tests.hosts import vllm_box
from tests.hosts.conftest import Boot
from tests.hosts.support import PORT, api_key, main_pid, until
from tests.hosts.vllm_box import Ground
from tests.unit.request_bodies import Example, refused_examples

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

LAN = 8000
GATEWAY = {
    "listeners": {
        "lan": {"address": "0.0.0.0", "port": LAN, "keys": False},
        "keyed": {"address": "127.0.0.1", "port": LAN + 1},
    },
    "cache_isolation": "key",
}
REFUSES, TAKES, BLOCKS = "refuses", "takes", "blocks"
"""What the engine does: answers 400 or 404, answers 200, or gives no answer in time."""
# Rules whose example was not sent to an engine yet.
UNMEASURED = {
    *("stop_token_ids", "allowed_token_ids", "bad_words", "thinking_token_budget", "references", "last_n"),
    *("structural_tag", "structural_tag_type", "structural_tag_size", "repetition_detection", "media_uuid"),
    "schema_counts",
}
DIRECT = {
    "chat_template": (REFUSES, "its option trust-request-chat-template is off; with it, one render blocks all others"),
    "chat_template_kwargs": (REFUSES, "likewise for a template on this path"),
    "mm_processor_kwargs": (TAKES, "the model has no images, so that nothing reads it"),
    "media_io_kwargs": (TAKES, "likewise"),
    "prompt_embeds": (REFUSES, "its option enable-prompt-embeds is off"),
    "embeds_parts": (REFUSES, "likewise"),
    "media_urls": (REFUSES, "the model has no images; with some, allowed-local-media-path is not set"),
    "prompts": (TAKES, "129 requests for one: slower, and as many as a client likes"),
    "inputs": (REFUSES, "a model for chats has no embeddings"),
    "n": (TAKES, "17 requests for one; its own limit is 16,384"),
    "use_beam_search": (TAKES, "a width of one"),
    "logprobs": (REFUSES, "its option max-logprobs is 20"),
    "stop": (TAKES, "65 texts are looked for"),
    "token_lists": (REFUSES, "texts are no token ids"),
    "schemas": (REFUSES, "no JSON Schema; a large one is compiled"),
    "tools": (REFUSES, "a text is no list"),
    "regex": (BLOCKS, "the expression is compiled where all requests wait"),
    "patterns": (BLOCKS, "likewise, out of a schema"),
    "grammar": (TAKES, "llama.cpp's field, where a few kilobytes of it block all requests"),
    "grammar_size": (REFUSES, "no grammar; a large one is compiled"),
    "structural_tag": (REFUSES, "no JSON"),
    "choices": (TAKES, "1,001 choices are few; 20,000 take more than 8 seconds"),
    "guided_decoding_backend": (TAKES, "it ignores the member"),
    "logits_processors": (TAKES, "its request models have no such field any more"),
    "kv_transfer_params": (TAKES, "it has no connector"),
    "vllm_xargs": (TAKES, "no extension reads it"),
    "priority": (TAKES, "its scheduling policy is fcfs"),
    "request_id": (TAKES, "there is no second one of the name"),
    "cache_salt": (TAKES, "it is a salt"),
    "previous_input_messages": (TAKES, "only models of the Harmony format read it"),
    "stored_responses": (REFUSES, "its store is off"),
    "background": (REFUSES, "likewise"),
    "id_slot": (TAKES, "llama.cpp's"),
    "lora": (TAKES, "llama.cpp's"),
    "server_internals": (TAKES, "llama.cpp's"),
}
"""What each rule's example does to vLLM 0.21.0 as it is declared here, and why no more."""
SECONDS = 5
"""In which an answer of a few tokens is there, or the engine is blocked."""


def completed(example: Example) -> dict[str, Any]:
    """A body that would be answered but for the members that a rule refuses."""
    talk: dict[str, dict[str, Any]] = {
        "chat/completions": {"messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 4},
        "completions": {"prompt": "Hello?", "max_tokens": 4},
        "responses": {"input": "Hello?", "max_output_tokens": 16},
        "embeddings": {"input": "Hello?"},
    }
    # without a thought, for which nothing is compiled
    quiet = {"chat_template_kwargs": {"enable_thinking": False}} if example.path == "chat/completions" else {}
    return {"model": "tiny", **talk[example.path], **quiet, **example.members}


def outcome(session: requests.Session, base: str, example: Example) -> str:
    try:
        said = session.post(f"{base}/v1/{example.path}", json=completed(example), timeout=SECONDS)
    except requests.Timeout:
        return BLOCKS
    return TAKES if said.status_code == 200 else REFUSES if said.status_code in (400, 404) else str(said.status_code)


def test_no_harmful_field_arrives_through_the_gateway(boot: Boot, vllm: Ground, tmp_path: Path) -> None:
    host = boot(*vllm.layers)
    vllm_box.deployed(vllm_box.write(tmp_path, host, vllm, gateway=GATEWAY), host, vllm)
    outside = f"http://{host.connection['ssh_hostname']}:{LAN}"
    hello = {"model": "tiny", "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 4}

    def answers(base: str, session: requests.Session) -> bool:
        try:
            return session.post(f"{base}/v1/chat/completions", json=hello, timeout=SECONDS).status_code == 200
        except requests.RequestException:
            return False

    with requests.Session() as client, requests.Session() as direct, tunnel(host, PORT) as local:
        engine = f"http://127.0.0.1:{local}"
        direct.headers["Authorization"] = f"Bearer {api_key(host)}"
        until(lambda: answers(outside, client), "served through the gateway")
        started, examples = main_pid(host), refused_examples()
        for example in examples:
            said = client.post(f"{outside}/v1/{example.path}", json=completed(example), timeout=SECONDS)
            if said.status_code == 404:
                assert "does not serve" in said.json()["error"]["message"]
                continue
            assert (said.status_code, said.json()["error"]["type"]) == (400, "invalid_request_error"), example
            assert "allow_fields = [" in said.text or example.rule == "cache_salt", said.text
        assert answers(outside, client) and main_pid(host) == started
        assert salted(client, direct, outside, engine) == [0, 0, True]

        found = {}
        for example in examples:
            found[example.rule] = outcome(direct, engine, example)
            until(lambda: answers(engine, direct), f"answered after {example.rule}", limit=240)
        known = {rule: found.get(rule) for rule in DIRECT}
        assert known == {rule: kind for rule, (kind, _) in DIRECT.items()}, json.dumps(found)
        assert {*found} - {*DIRECT} <= UNMEASURED


def salted(client: requests.Session, direct: requests.Session, outside: str, engine: str) -> list[object]:
    """What a prompt that the engine has kept has of it: through the gateway at first, and for the first time of another
    prompt; then whether the gateway's client finds its own one again.
    """

    def cached(session: requests.Session, base: str, prompt: str) -> int:
        said = session.post(f"{base}/v1/responses", json={"model": "tiny", "input": prompt}, timeout=30)
        return int(said.json()["usage"]["input_tokens_details"]["cached_tokens"])

    prompt = "a prompt of another client's, which is long enough for many blocks of the cache. " * 8
    cached(direct, engine, prompt)
    assert cached(direct, engine, prompt) > 0
    return [cached(client, outside, prompt), cached(client, outside, f"z{prompt}"), cached(client, outside, prompt) > 0]
