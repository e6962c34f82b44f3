"""The effects of harmful request fields on the real vLLM, asked directly; none of them arrives through the gateway."""

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.ssh_tunnel import forward_port
from tests.hosts import vllm_box
from tests.hosts.conftest import BootHost
from tests.hosts.support import PORT, api_key, main_pid, wait_until
from tests.hosts.vllm_box import VllmServers
from tests.unit.request_bodies import RequestExample, refused_examples

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

LAN = 8000
GATEWAY = {
    "listeners": {
        "lan": {"address": "0.0.0.0", "port": LAN, "keys": False},
        "keyed": {"address": "127.0.0.1", "port": LAN + 1},
    },
    "cache_isolation": "key",
}
REFUSES, TAKES, FAILS, BLOCKS, ENDS = "refuses", "takes", "fails", "blocks", "ends"
"""The engine's reaction: it answers 400 or 404, 200, or 500; it gives no answer in time; or its process ends."""
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
    "last_n": (TAKES, "llama.cpp's"),
    "repetition_detection": (TAKES, "the answer is a few tokens; each one is compared with all before it"),
    "media_uuid": (REFUSES, "the model has no images"),
    "token_lists": (REFUSES, "texts are no token ids"),
    "stop_token_ids": (ENDS, "CVE-2026-116181"),
    "allowed_token_ids": (TAKES, "other clients' answers change only in the same batch"),
    "bad_words": (TAKES, "likewise"),
    "thinking_token_budget": (TAKES, "likewise"),
    "schemas": (TAKES, "a schema of one long text is compiled soon; a large one takes minutes"),
    "tools": (REFUSES, "a text is no list"),
    "tool_definitions": (REFUSES, "its request models have no such part of a content"),
    "regex": (BLOCKS, "the expression is compiled where all requests wait"),
    "patterns": (BLOCKS, "likewise, out of a schema"),
    "schema_counts": (TAKES, "xgrammar compiles a count as one; llguidance has a symbol for each entry"),
    "references": (TAKES, "the field is llama.cpp's"),
    "grammar": (TAKES, "llama.cpp's field, where a few kilobytes of it block all requests"),
    "grammar_size": (REFUSES, "no grammar; a large one is compiled"),
    "structural_tag": (FAILS, "the text is no JSON, and the engine parses it where it expects no error"),
    "structural_tag_type": (REFUSES, "the tag lacks its triggers; with them, it is compiled as a grammar"),
    "structural_tag_size": (REFUSES, "likewise"),
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
    "system_stamp": (TAKES, "llama.cpp's, and of another path"),
}
"""The effect of each rule's example on vLLM 0.21.0 as it is declared here, and why no more."""
SECONDS = 5
"""In which an answer of a few tokens is there, or the engine is blocked."""


def completed(example: RequestExample) -> dict[str, Any]:
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


def outcome(session: requests.Session, base: str, example: RequestExample) -> str:
    try:
        said = session.post(f"{base}/v1/{example.path}", json=completed(example), timeout=SECONDS)
    except requests.Timeout:
        return BLOCKS
    kinds = {200: TAKES, 400: REFUSES, 404: REFUSES, 500: FAILS}
    return kinds.get(said.status_code, str(said.status_code))


def test_no_harmful_field_arrives_through_the_gateway(boot: BootHost, vllm: VllmServers, tmp_path: Path) -> None:
    host = boot(*vllm.host_layers)
    vllm_box.deploy_and_save(vllm_box.write_vllm_inventory(tmp_path, host, vllm, gateway=GATEWAY), host, vllm)
    outside = f"http://{host.inventory_keys['ssh_hostname']}:{LAN}"
    hello = {"model": "tiny", "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 4}

    def answers(base: str, session: requests.Session) -> bool:
        try:
            return session.post(f"{base}/v1/chat/completions", json=hello, timeout=SECONDS).status_code == 200
        except requests.RequestException:
            return False

    with requests.Session() as client, requests.Session() as direct, forward_port(host, PORT) as local:
        engine = f"http://127.0.0.1:{local}"
        direct.headers["Authorization"] = f"Bearer {api_key(host)}"
        wait_until(lambda: answers(outside, client), "served through the gateway")
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
            before = main_pid(host)
            found[example.rule] = outcome(direct, engine, example)
            wait_until(lambda: answers(engine, direct), f"answered after {example.rule}", limit=240)
            if main_pid(host) != before:
                found[example.rule] = ENDS
        assert found == {rule: kind for rule, (kind, _) in DIRECT.items()}, json.dumps(found)


def salted(client: requests.Session, direct: requests.Session, outside: str, engine: str) -> list[object]:
    """The kept part of a prompt: through the gateway at first, and for the first time of another prompt; then whether
    the gateway's client finds its own one again.
    """

    def cached(session: requests.Session, base: str, prompt: str) -> int:
        said = session.post(f"{base}/v1/responses", json={"model": "tiny", "input": prompt}, timeout=30)
        return int(said.json()["usage"]["input_tokens_details"]["cached_tokens"])

    prompt = "a prompt of another client's, which is long enough for many blocks of the cache. " * 8
    cached(direct, engine, prompt)
    assert cached(direct, engine, prompt) > 0
    return [cached(client, outside, prompt), cached(client, outside, f"z{prompt}"), cached(client, outside, prompt) > 0]
