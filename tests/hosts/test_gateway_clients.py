"""Clients of others, unchanged, through one address of a gateway with two kinds of engines behind it."""

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from openai import APIStatusError, NotFoundError, OpenAI, RateLimitError

from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from tests.hosts import vllm_box
from tests.hosts.client_libraries import (
    SAID,
    ServerUnderTest,
    check_litellm_proxy,
    check_litellm_sdk,
    check_node_client,
    check_python_client,
)
from tests.hosts.gateway_box import (
    DEMO,
    ENDLESS,
    LAN,
    QUESTION,
    SLOW,
    TLS,
    GatewayBox,
    access_log,
    active_requests,
    ask_question,
    count_stream_pieces,
    make_key,
    new_log_lines,
    run_rigwright,
)
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.recorded_requests import PAGE, REQUESTS, RecordedClientRequest
from tests.hosts.support import wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

SLOTS = 4  # of each of the slow ones, which are equal
EQUAL = ["slow", "slow2"]
INSTANCES = {
    "chat": DEMO,
    **{name: {"variant": "llamacpp/slow", "port": 8022 + number} for number, name in enumerate(EQUAL)},
    # the engine's own name of the model is hidden from clients
    "thinker": {"variant": "vllm/tiny", "port": 8024},
}
HEADER = "X-Session-Id"
MODELS = {
    "tiny-rig": {"instances": ["chat"]},
    "qwen3": {"instances": ["thinker"]},
    SLOW: {"instances": EQUAL},
    "narrow": {"instances": EQUAL, "queue": 0},
    "by-header": {"instances": EQUAL, "sticky": f"header:{HEADER}"},
    "by-conversation": {"instances": EQUAL, "sticky": "conversation"},
}
ALIASES = {"gpt-4o": "tiny-rig", "gpt-3.5-turbo": "tiny-rig", "gpt-4o-mini": "qwen3"}
IMAGE = 3 << 20  # bytes of each picture
FULL = 262144  # tokens, of one byte each


@pytest.fixture(scope="module")
def box(
    lab: ThrowawayLab,
    release: str,
    first_run: ConvergedLayers,
    vllm: vllm_box.VllmServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GatewayBox]:
    """A host with llama.cpp and vLLM behind one gateway."""
    (host,) = lab.up([HostSpec(f"c{os.getpid()}", release, (*vllm.host_layers, first_run.layer))])
    made = GatewayBox(lab, host, tmp_path_factory.mktemp("clients"))
    made.prepare()
    front = made.gateway_entry(models=MODELS, aliases=ALIASES, origins=[PAGE], scrapers=[f"{lab.gateway}/32"])
    inventory = vllm_box.write_vllm_inventory(made.folder, host, vllm, instances=INSTANCES, gateway=front)
    vllm_box.deploy_and_save(inventory, host, vllm)
    yield made
    host.destroy()


@pytest.fixture(scope="module")
def authority(box: GatewayBox) -> Path:
    """The certificate that clients of the gateway have to trust."""
    path = box.folder / "ca.crt"
    path.write_text(run_rigwright("key", "ca", str(box.folder / "rig.py")).stdout)
    return path


def test_libraries_of_openai_are_answered_as_by_the_engine_itself(
    box: GatewayBox, authority: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    plain = ServerUnderTest(box.url(""), "ignored", "gpt-4o-mini", tuple(sorted(MODELS)), wrong=200)
    key = make_key(box, "thinker", "--models", "qwen3")
    keyed = ServerUnderTest(f"https://{box.address}:{TLS}/v1", key, "qwen3", ("qwen3",), authority=authority)
    for name, server in (("plain", plain), ("keyed", keyed)):
        with subtests.test(f"openai for Python, {name}"):
            check_python_client(server)
        with subtests.test(f"openai for Node.js, {name}"):
            check_node_client(server, tmp_path / name)
    with subtests.test("LiteLLM's SDK"):
        check_litellm_sdk(plain)
    with subtests.test("LiteLLM's proxy"):
        check_litellm_proxy(plain, tmp_path / "litellm")


def test_programs_without_a_library_are_answered(box: GatewayBox) -> None:
    before = len(access_log(box))
    asks = (("tiny-rig", ANSWER), ("gpt-4o", ANSWER), ("qwen3", SAID), ("gpt-4o-mini", SAID))
    for model, said in asks:
        body = {"model": model, "messages": QUESTION}
        reply = requests.post(box.url(), json=body, timeout=60)
        assert reply.json()["choices"][0]["message"]["content"].strip() == said
        # not one header of its own but Host and the body's length
        none = [word for header in ("User-Agent", "Accept", "Content-Type") for word in ("-H", f"{header}:")]
        done = subprocess.run(["curl", "-s", *none, "-d", json.dumps(body), box.url()], capture_output=True, text=True)
        assert json.loads(done.stdout)["choices"][0]["message"]["content"].strip() == said
    lines = [(line["model"], line["instance"]) for line in new_log_lines(box, before, 2 * len(asks))]
    # both engines say the same
    answered = {"tiny-rig": "chat", "gpt-4o": "chat", "qwen3": "thinker", "gpt-4o-mini": "thinker"}
    assert lines == [(model, answered[model]) for model, _ in asks for _ in range(2)]


@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in REQUESTS.items()])
def test_requests_of_programs_are_answered_as_they_read_it(box: GatewayBox, sent: RecordedClientRequest) -> None:
    with requests.Session() as session:
        session.headers.clear()
        reply = session.request(sent.method, box.url(sent.path), headers=sent.headers, json=sent.body, timeout=60)
    assert reply.ok, reply.text
    assert {name: reply.headers.get(name) for name in sent.allows} == sent.allows
    if sent.method == "OPTIONS":
        return
    if sent.body is None:
        assert [one["id"] for one in reply.json()["data"]] == sorted(MODELS)
    elif "stream" in sent.body:
        *parts, last = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
        assert last == "[DONE]"
        chunks = [json.loads(one) for one in parts]
        deltas = [one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"]]
        assert "".join(deltas).strip() == ANSWER
        assert ("usage" in chunks[-1]) == ("stream_options" in sent.body)
    else:
        assert reply.json()["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(("model", "instance"), [("gpt-4o", "chat"), ("gpt-4o-mini", "thinker")])
def test_pictures_and_whole_contexts_reach_an_engine_that_may_refuse_them(
    box: GatewayBox, model: str, instance: str
) -> None:
    picture = f"data:image/png;base64,{base64.b64encode(os.urandom(IMAGE)).decode()}"
    parts: list[dict[str, object]] = [{"type": "text", "text": "What is this?"}]
    parts += [{"type": "image_url", "image_url": {"url": picture}}] * 3
    for content, word in ((parts, "(?i)image|multimodal"), ("x" * FULL, "(?i)context|maximum|exceed")):
        before = len(access_log(box))
        with pytest.raises(APIStatusError, match=word) as refused:
            box.plain_client().chat.completions.create(model=model, messages=[{"role": "user", "content": content}])  # type: ignore[list-item]
        (line,) = new_log_lines(box, before)
        assert (line["instance"], line["status"]) == (instance, refused.value.status_code)


@pytest.mark.parametrize(("model", "said"), [("gpt-4o", ANSWER), ("gpt-4o-mini", SAID)])
def test_the_newer_api_answers(box: GatewayBox, model: str, said: str) -> None:
    client, before = box.plain_client(), len(access_log(box))
    reply = client.responses.create(model=model, input="Are you there?")
    assert reply.output_text.strip() == said
    events = list(client.responses.create(model=model, input="Are you there?", stream=True))
    assert "".join(one.delta for one in events if one.type == "response.output_text.delta").strip() == said
    assert events[-1].type == "response.completed"
    assert reply.usage
    for line in new_log_lines(box, before, 2):
        told = (line["prompt_tokens"], line["completion_tokens"])
        assert told == (reply.usage.input_tokens, reply.usage.output_tokens)


@pytest.mark.parametrize(("model", "instance", "said"), [("gpt-4o", "chat", ANSWER), ("gpt-4o-mini", "thinker", SAID)])
def test_anthropics_protocol_reaches_either_engine(box: GatewayBox, model: str, instance: str, said: str) -> None:
    before, url = len(access_log(box)), box.url("messages?beta=true")
    asked = {"model": model, "max_tokens": 64, "messages": QUESTION}
    reply = requests.post(url, json=asked, timeout=60).json()
    assert "".join(one["text"] for one in reply["content"] if one["type"] == "text").strip() == said
    events = requests.post(url, json=asked | {"stream": True}, timeout=60).text.strip().split("\n\n")
    data = [json.loads(one.partition("\ndata: ")[2]) for one in events]
    deltas = [one["delta"] for one in data if one["type"] == "content_block_delta"]
    assert "".join(one.get("text") or "" for one in deltas).strip() == said
    assert (data[0]["type"], data[-1]["type"]) == ("message_start", "message_stop")
    for line in new_log_lines(box, before, 2):
        assert (line["instance"], line["completion_tokens"]) == (instance, reply["usage"]["output_tokens"])
    counted = requests.post(box.url("messages/count_tokens"), json=asked, timeout=60).json()["input_tokens"]
    assert all(line["prompt_tokens"] == counted for line in new_log_lines(box, before, 3)[:2])
    # vLLM 0.21.0 takes a prompt that is too long for a fault of its own
    too_long = (500, "api_error") if instance == "thinker" else (400, "invalid_request_error")
    for content, wrong in ((7, (400, "invalid_request_error")), ("x" * FULL, too_long)):
        refused = requests.post(url, json=asked | {"messages": [{"role": "user", "content": content}]}, timeout=60)
        assert (refused.status_code, refused.json()["error"]["type"]) == wrong
        assert refused.json()["type"] == "error" and refused.json()["error"]["message"]
    if instance == "thinker":
        tool = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}
        *_, block = requests.post(url, json=asked | {"tools": [tool]}, timeout=60).json()["content"]
        assert (block["type"], block["name"], block["input"]) == ("tool_use", "look", {"at": "cards"})


@pytest.mark.parametrize("path", ["rerank", "embeddings"])
def test_missing_options_of_an_engine_are_refused_by_name(box: GatewayBox, path: str) -> None:
    for model in ("gpt-4o", "qwen3"):
        reply = requests.post(box.url(path), json={"model": model, "query": "q", "documents": ["d"]}, timeout=10)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "path_not_found")
        assert f"/v1/{path}" in reply.json()["error"]["message"]
        assert "/v1/chat/completions" in reply.json()["error"]["message"]


def test_equal_instances_share_what_comes_as_declared(box: GatewayBox) -> None:
    client, before = box.plain_client(), len(access_log(box))
    for turn in range(2):
        for number in range(8):
            client.chat.completions.create(
                model="by-header", messages=QUESTION, max_tokens=1, extra_headers={HEADER: f"session {number}"}
            )
        for number in range(8):
            talk: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"I am {number}."}]
            later: Any = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Yes?"}]
            client.chat.completions.create(model="by-conversation", messages=talk + later * turn, max_tokens=1)
    lines = new_log_lines(box, before, 32)
    for model in ("by-header", "by-conversation"):
        instances = [line["instance"] for line in lines if line["model"] == model]
        assert instances[:8] == instances[8:]
        assert set(instances) == set(EQUAL)
    with ThreadPoolExecutor(SLOTS) as pool:
        streams = [pool.submit(count_stream_pieces, client, SLOW, 200) for _ in range(SLOTS)]
        wait_until(lambda: [active_requests(box)[name] for name in EQUAL] == [SLOTS // 2] * 2, "as many with each")
        assert all(one.result() > 1 for one in streams)


def test_a_request_to_a_full_queue_is_asked_to_come_later(box: GatewayBox) -> None:
    client = box.plain_client()
    streams = [
        client.chat.completions.create(
            model="narrow", messages=QUESTION, stream=True, max_tokens=8000, extra_body=ENDLESS
        )
        for _ in range(SLOTS * len(EQUAL))
    ]
    with pytest.raises(RateLimitError) as full:
        ask_question(client, "narrow")
    assert int(full.value.response.headers["Retry-After"]) > 0
    for stream in streams:
        stream.close()
    wait_until(lambda: sum(active_requests(box).values()) == 0, "nothing under way")
    assert ask_question(client, "narrow")


def test_a_key_has_its_limits_and_no_others(box: GatewayBox) -> None:
    def client(*limits: str) -> OpenAI:
        return box.tls_client(make_key(box, limits[0].strip("-"), *limits))

    few = client("--models", "tiny-rig")
    assert ask_question(few) == ask_question(few, "gpt-4o") == ANSWER
    assert [one.id for one in few.models.list()] == ["tiny-rig", "gpt-3.5-turbo", "gpt-4o"]
    with pytest.raises(NotFoundError, match="qwen3"):
        ask_question(few, "qwen3")

    seldom = client("--requests-per-minute", "3")
    for _ in range(3):
        assert ask_question(seldom) == ANSWER
    with pytest.raises(RateLimitError, match="too often") as often:
        ask_question(seldom)
    assert 0 < int(often.value.response.headers["Retry-After"]) <= 60

    single = client("--streams", "1")
    stream = single.chat.completions.create(
        model=SLOW, messages=QUESTION, stream=True, max_tokens=8000, extra_body=ENDLESS
    )
    with pytest.raises(RateLimitError, match="this key may have 1 "):
        ask_question(single)
    # the limits of one key are no matter of another's
    assert ask_question(few) == ANSWER
    stream.close()
    wait_until(lambda: sum(active_requests(box).values()) == 0, "nothing under way")
    assert ask_question(single) == ANSWER


def test_only_declared_clients_read_figures(box: GatewayBox, authority: Path) -> None:
    for at in (f"http://{box.address}:{LAN}", f"https://{box.address}:{TLS}"):
        found = {
            path: requests.get(f"{at}/metrics{path}", verify=str(authority), timeout=10)
            for path in ("", "/chat", "/thinker", "/nobody")
        }
        assert [one.status_code for one in found.values()] == [200, 200, 200, 404]
        assert 'rigwright_gateway_ready{instance="thinker"} 1' in found[""].text.splitlines()
        assert "llamacpp:" in found["/chat"].text
        assert "vllm:" in found["/thinker"].text
        for path in ("/metrics", "/metrics/chat"):
            inside = f"curl -sk -o /dev/null -w '%{{http_code}}' {at}{path}"
            assert box.host.run(inside) == "403"


def test_the_log_says_what_clients_saw_and_nothing_that_they_said(box: GatewayBox) -> None:
    key, before = make_key(box, "logged"), len(access_log(box))
    client = box.tls_client(key)
    secret = "xylophone"
    talk: Any = [{"role": "user", "content": f"{secret} " * 400}]
    began = time.monotonic()
    stream = client.chat.completions.create(
        model=SLOW,
        messages=talk,
        stream=True,
        max_tokens=50,
        extra_body=ENDLESS,
        stream_options={"include_usage": True},
    )
    seen, usage = 0.0, None
    for piece in stream:
        if not seen and piece.choices and piece.choices[0].delta.content:
            seen = time.monotonic() - began
        usage = piece.usage or usage
    took = time.monotonic() - began
    (line,) = new_log_lines(box, before)
    assert usage
    assert (line["prompt_tokens"], line["completion_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert (line["key"], line["listener"], line["model"], line["status"]) == ("logged", "office", SLOW, 200)
    assert line["instance"] in EQUAL
    # its clock goes by milliseconds; the client's further waiting is the way, and TLS
    assert seen / 2 < line["first"] <= seen + 0.01
    assert line["first"] < line["duration"] <= took + 0.01
    kept = box.host.run("cat /var/log/rigwright_gateway/*; journalctl -u rigwright_gateway -u rigwright_router")
    assert secret not in kept
    assert key not in kept
    assert key.removeprefix("rw-") not in kept
