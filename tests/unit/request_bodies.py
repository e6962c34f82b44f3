"""Bodies that the rules for request fields refuse and pass: the examples of each rule, and one for each place."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from rigwright.gateway.request_rules import RequestRule, load_request_rules

BOMB = "(.{0,1000}){0,1000}x"
_SIZED = {"entries", "prompts", "size"}


@dataclass(frozen=True)
class RequestExample:
    """A body."""

    rule: str
    path: str
    """Of the API, after /v1/."""
    members: dict[str, JsonValue]
    """Beside the model."""

    def render_body(self, model: str) -> bytes:
        return json.dumps({"model": model, **self.members}).encode()


def refused_examples() -> list[RequestExample]:
    """The one that each rule has."""
    return [_rule_example(rule, rule.rejected) for rule in load_request_rules()]


def passed_examples() -> list[RequestExample]:
    """Likewise."""
    return [_rule_example(rule, rule.accepted) for rule in load_request_rules()]


def refused_places() -> Iterator[RequestExample]:
    """One for each place of each rule."""
    for rule in load_request_rules():
        for place in rule.location:
            yield example_at_place(rule, place, _refused_value(rule))


def example_at_place(rule: RequestRule, place: str, value: JsonValue) -> RequestExample:
    """A body with a value at one place of a rule."""
    for step in reversed(place.split(".")):
        value = {step.removesuffix("[]"): [value] if step.endswith("[]") else value}
    assert isinstance(value, dict)
    return RequestExample(rule.name, _request_path(rule, value), value)


def _rule_example(rule: RequestRule, members: dict[str, JsonValue]) -> RequestExample:
    made = _expand_sizes(rule, members) if rule.kind in _SIZED else members
    assert isinstance(made, dict)
    return RequestExample(rule.name, _request_path(rule, made), made)


def _expand_sizes(rule: RequestRule, value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _expand_sizes(rule, one) for name, one in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return "x" * value if rule.kind == "size" else ["x"] * value
    return value


def _request_path(rule: RequestRule, members: dict[str, JsonValue]) -> str:
    if rule.paths:
        return rule.paths[0]
    return "responses" if "input" in members else "completions" if "prompt" in members else "chat/completions"


def _refused_value(rule: RequestRule) -> JsonValue:
    values: dict[str, JsonValue] = {
        "absent": "x",
        "scalars": {"chat_template": "{{ 1 }}"},
        "entries": ["x"] * (rule.maximum + 1),
        "prompts": ["x"] * (rule.maximum + 1),
        "number": rule.maximum + 1,
        "size": "x" * (rule.maximum + 1),
        "words": rule.names[0] if rule.names else None,
        "schemes": "file:///etc/passwd",
        "regex": BOMB,
        "stamp": f"{rule.names[0]} cch=a;" if rule.names else None,
        "references": {"$defs": {"a": {"$ref": "#/$defs/a"}}},
        "counts": {"items": [{"properties": {"a": {"maxItems": 10**9}}}]},
        "patterns": {"items": [{"properties": {"a": {"pattern": BOMB}}}]},
    }
    return values[rule.kind]


CLAUDE_CODE = b"""{"model":"m","max_tokens":32000,"stream":true,"temperature":1,
"metadata":{"user_id":"user_0_account__session_0"},
"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;"},
{"type":"text","text":"You are a coding agent.","cache_control":{"type":"ephemeral"}}],
"thinking":{"type":"enabled","budget_tokens":31999},"context_management":{"edits":[{"type":"clear_thinking_20251015"}]},
"tools":[{"name":"Bash","description":"Runs a command.","input_schema":{"$schema":"http://json-schema.org/draft-07/schema#",
"type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"number"}},"required":["command"],
"additionalProperties":false}}],"tool_choice":{"type":"auto"},"stop_sequences":["END"],"output_config":{"effort":"high"},
"messages":[{"role":"user","content":[{"type":"text","text":"list","cache_control":{"type":"ephemeral"}},
{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":""},
{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":false,
"content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}}]}]}]}"""
