"""Prompts that show whether instances work."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rigwright.engines.instance_request import InstanceRequest

CHAT = "/v1/chat/completions"
WEATHER = "get_weather"


def chat_request(
    said: str | Sequence[Mapping[str, object]],
    tokens: int,
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    temperature: float = 0.6,
    thinks: bool = False,
) -> InstanceRequest:
    """A question, or a conversation, to be answered.

    Args:
        said: It.
        tokens: Of the answer, at most.
        more: Further members of the request.
        temperature: Of sampling.
        thinks: Whether it is to be thought about first.
    """
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
    body = {"messages": messages, "max_tokens": tokens, "temperature": temperature}
    return InstanceRequest(CHAT, {**body, "chat_template_kwargs": {"enable_thinking": thinks}, **more})


def tool_declaration(name: str, what: str, **properties: str) -> dict[str, object]:
    """A tool as OpenAI's API declares one; properties are its arguments, each text, with what they are."""
    parameters = {
        "type": "object",
        "properties": {key: {"type": "string", "description": value} for key, value in properties.items()},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "description": what, "parameters": parameters}}


def limit_tokens(request: InstanceRequest, most: int) -> InstanceRequest:
    """The same with an answer of no more tokens than that."""
    body = dict(request.body or {})
    wanted = body.get("max_tokens")
    return replace(request, body={**body, "max_tokens": min(wanted, most)}) if isinstance(wanted, int) else request


def _png_data_url(width: int, red: int, green: int, blue: int) -> str:
    """A square of one colour, as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes((red, green, blue)) * width
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0))
    data += chunk(b"IDAT", zlib.compress(row * width)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


TOOLS = {
    "tools": [tool_declaration(WEATHER, "The weather in a city now.", city="The city's name")],
    "tool_choice": "auto",
}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CAPITAL = chat_request("What is the capital of France? Answer in one short sentence.", 30)
TOOL = chat_request("What is the weather in Paris right now? Use the tool.", 200, TOOLS, temperature=0.3)
TOOL_STREAMED = chat_request(
    "What is the weather in Paris right now? Use the tool.", 1024, {**TOOLS, **STREAM}, thinks=True
)
HAIKU = chat_request("Write a haiku about a computer that serves a language model.", 120, STREAM)
SUM = chat_request("What is 2+2?", 4000, STREAM, thinks=True)
ESSAY = chat_request("Write an essay of 800 words on how rivers have shaped cities.", 2000, STREAM)
COUNT = chat_request("Count from 1 to 80, each number in words, one a line.", 500, STREAM, temperature=0.0)
_CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
    "required": ["city", "population"],
    "additionalProperties": False,
}
SCHEMA = chat_request(
    "Name the capital of France and about how many people live in it.",
    200,
    {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY}}},
)


def red_square_request(side: int, shade: int, more: Mapping[str, object] = MappingProxyType({})) -> InstanceRequest:
    """Which colour a red square is.

    Args:
        side: Of it, in pixels.
        shade: Of red, 200 to 255: engines keep what they have made of an image.
        more: Further members of the request.
    """
    said = [
        {"type": "text", "text": "Which colour is this image? Answer in one word."},
        {"type": "image_url", "image_url": {"url": _png_data_url(side, shade, 20, 20)}},
    ]
    return chat_request([{"role": "user", "content": said}], 50, more)


IMAGE = red_square_request(64, 220)
