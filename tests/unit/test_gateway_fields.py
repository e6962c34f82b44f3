"""Which fields of a request the gateway refuses: every rule, at every place, and what is allowed of them."""

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.gateway.gateway_units import render_gateway
from rigwright.gateway.request_rules import RequestRule, load_request_rules, rule_names
from rigwright.model.gateway_schema import Gateway
from roles.gateway.host.router import fields, regular_expressions
from roles.gateway.host.router.body import InvalidBody, read
from roles.gateway.host.router.routing import _judge_fields
from roles.gateway.host.router.settings import Model, Settings, read_settings
from tests.unit.gateway_router import model_entry
from tests.unit.request_bodies import (
    CLAUDE_CODE,
    RequestExample,
    example_at_place,
    passed_examples,
    refused_examples,
    refused_places,
)
from tests.unit.samples import sample_rig
from tests.unit.serving_samples import capable_instance

PATHS = ["chat/completions", "completions", "responses", "embeddings", "rerank", "messages", "messages/count_tokens"]
RULES = {rule.name: rule for rule in load_request_rules()}
BEHIND = {"grammar_size": ["grammar"], "structural_tag_size": ["structural_tag"]}
BEHIND |= {name: ["tool_definitions"] for name in ("patterns", "references", "schema_counts")}
"""Rules that are for what others let through only where they are allowed."""


def judging(folder: Path, *allowed: str, salted: bool = False) -> Model:
    """A model whose requests are judged by the shipped rules."""
    file = folder / "settings.json"
    one = model_entry("chat", paths=PATHS, allow_fields=list(allowed), salted=salted)
    places = dict.fromkeys(("links", "out", "rotation", "admin", "digest"), "/")
    made: dict[str, Any] = {"listeners": {}, "models": {"m": one}, "aliases": {}, "probe": {"every": 1, "timeout": 1}}
    file.write_text(json.dumps(made | places | {"fields": [rule.setting for rule in load_request_rules()]}))
    return read_settings(file).models["m"]


def refusal(made: Model, sent: RequestExample | bytes, path: str = "") -> InvalidBody | None:
    """Why a body is refused; None where it is not."""
    body, path = (sent, path or PATHS[0]) if isinstance(sent, bytes) else (sent.render_body("m"), sent.path)
    try:
        _judge_fields(made.rules[path], read(body), made.salted)
    except InvalidBody as refused:
        return refused
    return None


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return judging(tmp_path_factory.mktemp("rules"))


@pytest.mark.parametrize("example", refused_examples(), ids=lambda one: one.rule)
def test_each_rule_refuses_its_example_until_it_is_allowed(strict, tmp_path, example):
    rule = RULES[example.rule]
    others = BEHIND.get(rule.name, [])
    refused = refusal(judging(tmp_path, *others), example)
    assert refused is not None
    assert refused.param in rule.location
    assert refused.message.startswith(f"{refused.param} {rule.demand}: {rule.reason}; ")
    assert refused.message.endswith(f'gateway.allow_fields = ["{rule.name}"]')
    assert refusal(judging(tmp_path, rule.name, *others), example) is None


@pytest.mark.parametrize("example", passed_examples(), ids=lambda one: one.rule)
def test_each_rule_lets_what_clients_need_pass(strict: Model, example: RequestExample) -> None:
    assert refusal(strict, example) is None


@pytest.mark.parametrize("example", list(refused_places()), ids=lambda one: f"{one.rule}-{next(iter(one.members))}")
def test_a_rule_is_for_each_of_its_places(tmp_path: Path, example: RequestExample) -> None:
    refused = refusal(judging(tmp_path, *BEHIND.get(example.rule, [])), example)
    assert refused is not None and refused.param in RULES[example.rule].location


@pytest.mark.parametrize("path", ["messages", "messages/count_tokens"])
def test_another_protocol_opens_no_field_that_chat_refuses(strict: Model, path: str) -> None:
    for example in (*refused_examples(), *refused_places()):
        if example.path == "chat/completions":
            assert refusal(strict, replace(example, path=path)) is not None, example


def test_a_request_of_claude_code_passes(strict: Model) -> None:
    assert refusal(strict, CLAUDE_CODE, "messages") is None


@pytest.mark.parametrize(
    ("was", "sent", "param"),
    [
        (b"https://example.org", b"file:///etc", "messages[].content[].content[].source.url"),
        (
            b'{"type":"base64","media_type":"image/png","data":"AA=="}',
            b'{"type":"url","url":"file:///etc/passwd"}',
            "messages[].content[].source.url",
        ),
        (b'{"effort":"high"}', b'{"format":{"schema":{"pattern":"(.{0,1000}){0,1000}x"}}}', "output_config"),
        (b'{"type":"number"}', b'{"pattern":"(.{0,1000}){0,1000}x"}', "tools"),
        (b'{"type":"number"}', b'{"$ref":"#/properties/timeout"}', "tools"),
        (b'["END"]', b"[" + b",".join([b'"x"'] * 65) + b"]", "stop_sequences"),
        (b'"stream"', b'"chat_template_kwargs":{"chat_template":"x"},"stream"', "chat_template_kwargs"),
        (b'"stream"', b'"kv_transfer_params":{"remote_host":"192.0.2.1"},"stream"', "kv_transfer_params"),
        (b'"stream"', b'"ec_transfer_params":{"a":{"peer_host":"192.0.2.1"}},"stream"', "ec_transfer_params"),
        (
            b'{"role":"assistant",',
            b'{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":'
            b'{"name":"a","input_schema":{}}}}]},{"role":"assistant",',
            "messages[].content[].tool.definition",
        ),
        (b"cch=a5145;", b"cch=a;", "system[].text"),
    ],
)
def test_fields_that_engines_convert_are_judged_where_the_protocol_has_them(strict, was, sent, param):
    assert CLAUDE_CODE.count(was) == 1
    refused = refusal(strict, CLAUDE_CODE.replace(was, sent), "messages")
    assert refused is not None and refused.param == param


@pytest.mark.parametrize(
    ("schema", "passes"),
    [({"type": "object"}, True), ({"pattern": "(.{0,1000}){0,1000}x"}, False), ({"maxItems": 10**9}, False)],
)
def test_a_tool_that_a_message_defines_is_judged_where_it_is_allowed(tmp_path, schema, passes):
    tool = {"type": "tool_definition", "definition": {"name": "a", "input_schema": schema}}
    sent = {"model": "m", "messages": [{"role": "system", "content": [{"type": "tool_addition", "tool": tool}]}]}
    refused = refusal(judging(tmp_path, "tool_definitions"), json.dumps(sent).encode(), "messages")
    assert (refused is None) is passes


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;", True),
        ("x-anthropic-billing-header: cch=00000;You are an agent; cch=", True),
        ("x-anthropic-billing-header: cc_version=2.1.37; cc_entrypoint=cli;", True),
        ("x-anthropic-billing-header", True),
        (" x-anthropic-billing-header:cch=", True),
        ("You are an agent. x-anthropic-billing-header:cch=", True),
        ("X-Anthropic-Billing-Header: cch=", True),
        ("x-anthropic-billing-header:cch=\nforged", False),
        ("x-anthropic-billing-header:cch=a5145", False),
        ("x-anthropic-billing-header:cch=a514;;", True),
        ("x-anthropic-billing-header:cch=a514; ", False),
        ("x-anthropic-billing-header:cch=a51455;", False),
        ("x-anthropic-billing-header: cch=a; cch=a5145;", False),
        ("x-anthropic-billing-header:" + " " * 70_000 + "cch=", False),
        # five characters of more bytes
        ("x-anthropic-billing-header:cch=a514é;", False),
        ("x-anthropic-billing-header:cch=aaaé;", False),
    ],
)
def test_a_system_text_is_one_that_llama_server_does_not_log(strict: Model, text: str, passes: bool) -> None:
    for system in (text, [{"type": "text", "text": "a"}, {"type": "text", "text": text}]):
        for plain in (True, False):
            sent = json.dumps({"model": "m", "system": system}, ensure_ascii=plain).encode()
            assert (refusal(strict, sent, "messages") is None) is passes


@pytest.mark.parametrize("rule", load_request_rules(), ids=lambda one: one.name)
def test_null_is_no_value(tmp_path: Path, rule: RequestRule) -> None:
    made = judging(tmp_path, *BEHIND.get(rule.name, []))
    for place in rule.location:
        assert refusal(made, example_at_place(rule, place, None)) is None


def test_rules_are_complete_and_of_known_kinds() -> None:
    assert len(set(rule_names())) == len(rule_names())
    assert {rule.kind for rule in load_request_rules()} <= set(fields.KINDS)
    sizes = regular_expressions
    for limit in (f"{sizes.MOST_OPTIONAL} times", f"{sizes.MOST_COPIES} characters", f"most {sizes.MOST_TIMES},"):
        assert limit in RULES["regex"].demand
    assert f"{fields.PATTERNS * RULES['patterns'].maximum} together" in RULES["patterns"].demand
    counts = RULES["schema_counts"]
    assert f"{fields.PATTERNS * counts.maximum} together" in counts.demand and f"most {fields.LONGEST}" in counts.demand
    source = re.compile(r"(CVE-\d{4}-\d+|PYSEC-\d{4}-\d+|GHSA(-[a-z0-9]{4}){3}|protocol|schema|measured|https://\S+)")
    for rule in load_request_rules():
        assert all(source.fullmatch(one) for one in rule.source), rule.name
        assert rule.rejected and rule.accepted and set(rule.paths) <= set(PATHS)


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        # as a reader that takes no heed of case, or ends a text at a NUL, would have it
        (b'{"model":"m","Chat_Template":"x"}', "chat_template"),
        (b'{"model":"m","chat_template\\u0000":"x"}', "chat_template"),
        (b'{"model":"m","chat\\u005ftemplate":"x"}', "chat_template"),
        (b'{"chat_template":"x","model":"m"}', "chat_template"),
        # a number as text is a number to pydantic
        (b'{"model":"m","n":"1000000"}', "n"),
        (b'{"model":"m","n":" 1e6 "}', "n"),
        (b'{"model":"m","n":1e400}', "n"),
        (b'{"model":"m","n":"nan"}', "n"),
        (b'{"model":"m","n":"' + b"0" * 40 + b'1000"}', "n"),
        (b'{"model":"m","n":[1]}', "n"),
        (b'{"model":"m","n":-1}', "n"),
        (b'{"model":"m","chat_template_kwargs":{"enable_thinking":{"a":1}}}', "chat_template_kwargs"),
        (b'{"model":"m","chat_template_kwargs":{"thinking":"' + b"a" * 65 + b'"}}', "chat_template_kwargs"),
        (b'{"model":"m","chat_template_kwargs":[]}', "chat_template_kwargs"),
        (b'{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{"url":"FILE:///x"}}]}]}', None),
        (b'{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{"url":" file:///x"}}]}]}', None),
        # an object where a list is expected
        (b'{"model":"m","messages":[{"content":{"type":"prompt_embeds"}}]}', "messages[].content[].type"),
    ],
)
def test_no_spelling_brings_a_field_past_its_rule(strict: Model, sent: bytes, param: str | None) -> None:
    refused = refusal(strict, sent)
    assert refused is not None and (param is None or refused.param == param)


@pytest.mark.parametrize(
    "sent",
    [
        b'{"model":"m","chat_template_kwargs":{"thinking":true,"thinking":{"a":1}}}',
        b'{"model":"m","x":[[{"a":1,"b":2,"\\u0061":3}]]}',
        b'{"model":"m","messages":[{"content":[{"type":"prompt_embeds","type":"text"}]}]}',
    ],
)
def test_an_object_with_a_name_twice_is_refused_at_any_depth(sent: bytes) -> None:
    with pytest.raises(InvalidBody, match=r"an object in the body has .* twice"):
        read(sent)


def test_a_prompt_of_tokens_is_one_prompt(strict: Model) -> None:
    for prompt, passes in (
        (list(range(5000)), True),
        ([[1, 2]] * 128, True),
        ([[1, 2]] * 129, False),
        (["a"] * 129, False),
        ([1] * 200 + ["a"], False),
        ("a" * 5000, True),
    ):
        sent = json.dumps({"model": "m", "prompt": prompt}).encode()
        assert (refusal(strict, sent, "completions") is None) is passes
    # the lists of items there
    sent = json.dumps({"model": "m", "input": [{"role": "user"}] * 3000}).encode()
    assert refusal(strict, sent, "responses") is None and refusal(strict, sent, "embeddings") is not None


def test_patterns_are_found_wherever_a_schema_has_them(strict: Model) -> None:
    bomb = {"pattern": "(a*)+"}
    for schema in (
        {"anyOf": [{"items": bomb}]},
        {"$defs": {"a": {"properties": {"pattern": bomb}}}},
        {"patternProperties": {"(a*)+": {}}},
    ):
        function = {"type": "function", "function": {"name": "a", "parameters": schema}}
        refused = refusal(strict, json.dumps({"model": "m", "tools": [function]}).encode())
        assert refused is not None and refused.param == "tools"
    named = {"properties": {"pattern": {"type": "string"}}}
    assert refusal(strict, json.dumps({"model": "m", "tools": [{"parameters": named}]}).encode()) is None


@pytest.mark.parametrize(
    ("schema", "passes"),
    [
        ({"maxItems": 10_000, "items": {"minItems": 10_000, "maxLength": 10**6}}, True),
        ({"maxItems": 10_001}, False),
        ({"maxItems": 1e400}, False),
        ({"prefixItems": [{"minItems": 10**9}]}, False),
        ({"minLength": 10**6 + 1}, False),
        ({"anyOf": [{"maxItems": 10_000}] * 4}, True),
        ({"anyOf": [{"maxItems": 10_000}] * 5}, False),
        ({"anyOf": [{"maxItems": -(10**9)}, *[{"maxItems": 10_000}] * 5]}, False),
        # properties of such a name
        ({"properties": {"maxItems": {"type": "integer", "maximum": 10**9}}}, True),
    ],
)
def test_counts_of_a_schema_are_small_each_and_together(strict: Model, schema: object, passes: bool) -> None:
    sent = json.dumps({"model": "m", "tools": [{"parameters": schema}]}).replace("Infinity", "1e400").encode()
    assert (refusal(strict, sent) is None) is passes
    text = json.dumps({"model": "m", "guided_json": json.dumps(schema).replace("Infinity", "1e400")}).encode()
    assert (refusal(strict, text) is None) is passes


def test_where_the_gateway_salts_clients_do_not(tmp_path: Path) -> None:
    salted = judging(tmp_path, "cache_salt", salted=True)
    for value in (b'"mine"', b"null", b'""'):
        refused = refusal(salted, b'{"model":"m","cache_salt":' + value + b"}")
        assert refused is not None and refused.param == "cache_salt" and "sets one for each key" in refused.message
    for name in (b"Cache_Salt", b"cache_salt\\u0000", b"cache\\u005fsalt"):
        assert refusal(salted, b'{"model":"m","' + name + b'":"mine"}') is not None


@pytest.mark.parametrize(
    "rule", [rule for rule in load_request_rules() if rule.kind == "absent"], ids=lambda one: one.name
)
def test_an_empty_value_does_not_count_where_it_may_not_be_sent(strict: Model, rule: RequestRule) -> None:
    for value in ("", False, []):
        assert refusal(strict, example_at_place(rule, rule.location[0], value)) is None
    for value in (0, " ", {}, [None], True):
        assert refusal(strict, example_at_place(rule, rule.location[0], value)) is not None


@pytest.mark.parametrize(
    ("schema", "passes"),
    [
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, False),
        ({"$defs": {"a/b": {"$ref": "#/$defs/a~1b"}}}, False),
        ({"$defs": {"a": [{"$ref": "#/$defs/a/0"}]}}, False),
        ({"$defs": {"é": {"$ref": "#/$defs/é"}}}, False),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, True),
        ({"$defs": {"a": {}, "b": {"allOf": [{"$ref": "#/$defs/a"}] * 2}}}, True),
        ({"properties": {"$ref": {"type": "string"}, "next": {"anyOf": [{"$ref": "#"}, {}]}}}, True),
        # looking at all of these would take long
        ({"a": [{"$ref": f"#/{one}"} for one in range(15000)], "b": [[[[[[{"$ref": "#/x"}]]]]]] * 6000}, False),
    ],
)
def test_no_reference_leads_to_itself(strict: Model, schema: dict[str, Any], passes: bool) -> None:
    sent = json.dumps({"model": "m", "tools": [{"function": {"parameters": schema}}]}, ensure_ascii=False).encode()
    refused = refusal(strict, sent)
    assert (refused is None) is passes
    assert refused is None or "$ref" in refused.message


@pytest.mark.parametrize(
    ("schema", "passes"),
    [
        ('{"type":"object"}', True),
        (json.dumps({"pattern": "(.{0,1000}){0,1000}x"}), False),
        (json.dumps({"$defs": {"a": {"$ref": "#/$defs/a"}}}), False),
        ("", False),
        ("{", False),
        ('"{}"', False),
        ("[" * 30000, False),
        ('{"pattern":"a","pattern":"b"}', False),
        ('{"a":NaN}', False),
    ],
)
def test_a_schema_that_is_a_text_is_judged_as_an_object(strict: Model, schema: str, passes: bool) -> None:
    sent: list[dict[str, Any]] = [{"structured_outputs": {"json": schema}}, {"guided_json": schema}]
    for members in (*sent, {"json_schema": schema}):
        assert (refusal(strict, json.dumps({"model": "m", **members}).encode()) is None) is passes


@pytest.mark.parametrize(
    ("pattern", "number", "passes"),
    [("a" * 4096, 4, True), ("a" * 4096, 5, False), (".{2000}", 20, True), (".{2000}", 21, False)],
)
def test_patterns_are_few_and_small_together(strict, pattern, number, passes):
    sent = json.dumps({"model": "m", "tools": [{"parameters": {"anyOf": [{"pattern": pattern}] * number}}]}).encode()
    assert (refusal(strict, sent) is None) is passes


@pytest.mark.parametrize(("value", "passes"), [(-2, False), (-1, True), (0, True), (65536, True), (65537, False)])
def test_the_engine_looks_back_over_a_bounded_number_of_tokens(strict: Model, value: int, passes: bool) -> None:
    for name in ("repeat_last_n", "dry_penalty_last_n"):
        assert (refusal(strict, json.dumps({"model": "m", name: value}).encode()) is None) is passes


def test_the_scheme_of_a_long_url_is_judged_without_a_copy_of_it(strict: Model) -> None:
    url = "DATA:" + "A" * (8 << 20)
    asked = read(json.dumps({"model": "m", "messages": [{"content": [{"image_url": {"url": url}}]}]}).encode())
    tracemalloc.start()
    try:
        _judge_fields(strict.rules["chat/completions"], asked, salted=False)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_number_as_text_within_the_limit_passes(strict: Model) -> None:
    assert refusal(strict, b'{"model":"m","n":"2","top_logprobs":5.0,"logprobs":true}') is None


def test_a_declared_gateway_has_all_rules_but_those_that_it_allows(tmp_path: Path) -> None:
    def settings(**changes: object) -> Settings:
        listeners = {"x": {"address": "127.0.0.1", "port": 8000}}
        gateway = Gateway.model_validate({"listeners": listeners, **changes})
        box_rig = sample_rig(replace(capable_instance(), name="chat"), gateway=gateway)
        (tmp_path / "settings.json").write_text(
            render_gateway(
                box_rig.roots, box_rig.accounts, box_rig.instances, box_rig.gateway, box_rig.monitoring, "# ours"
            ).files["gateway/settings.json"]
        )
        return read_settings(tmp_path / "settings.json")

    usual, opened = settings(), settings(allow_fields=["chat_template"], cache_isolation="key")
    (closed,), (some,) = usual.models.values(), opened.models.values()
    assert (closed.salted, some.salted) == (False, True)
    for example in refused_examples():
        if example.path in closed.paths:
            assert refusal(closed, example) is not None
            assert (refusal(some, example) is None) is (example.rule == "chat_template")
    # check D02's request to the running router
    assert usual.digest != opened.digest
