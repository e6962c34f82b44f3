"""Asks as a program of Anthropic's library does: prints what came, and how it was refused, as JSON."""

import json
import os
import ssl
from collections.abc import Callable
from typing import Any

import httpx2
from anthropic import Anthropic, APIStatusError

MODEL, AUTHORITY = os.environ["MODEL"], os.environ.get("AUTHORITY")
TURN: dict[str, Any] = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "Are you there?"}]}
TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string", "pattern": "^a$"}}}}


def make_client(**key: str | None) -> Anthropic:
    """With a key in either header."""
    trusted: Any = ssl.create_default_context(cafile=AUTHORITY) if AUTHORITY else True
    web = httpx2.Client(verify=trusted, timeout=60)
    return Anthropic(base_url=os.environ["BASE_URL"], max_retries=0, http_client=web, **key)


def error_of(ask: Callable[[], object]) -> list[object]:
    """Class, status and type of the error that an ask ends with."""
    try:
        ask()
    except APIStatusError as error:
        body: Any = error.body
        assert set(body) == {"type", "error"} and set(body["error"]) == {"type", "message"}, body
        return [type(error).__name__, error.status_code, body["error"]["type"]]
    return []


mine = make_client(api_key=os.environ["API_KEY"])
message = mine.messages.create(**TURN, system="Be kind.", metadata={"user_id": "user_1"}, stop_sequences=["END"])
with mine.messages.stream(**TURN, tools=[TOOL]) as stream:
    streamed = "".join(stream.text_stream).strip()
    last = stream.get_final_message()
bearer = make_client(auth_token=os.environ["API_KEY"], api_key=None)
counted = {key: value for key, value in TURN.items() if key != "max_tokens"}
harmful = {"chat_template_kwargs": {"chat_template": "x"}}
nested = [{**TOOL, "input_schema": {"type": "object", "pattern": "(.{0,1000}){0,1000}x"}}]
image = {"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}
talk: list[Any] = [{"role": "user", "content": [image]}]
found = {
    "message": message.content[0].text.strip(),
    "stream": streamed,
    "stops": [message.stop_reason, last.stop_reason],
    "bearer": bearer.beta.messages.create(**TURN).content[0].text.strip(),
    "counted": bearer.messages.count_tokens(**counted).input_tokens,
    "input": sum((message.usage.input_tokens, message.usage.cache_read_input_tokens or 0)),
    "models": [one.id for one in bearer.models.list()],
    "refused": {
        "model": error_of(lambda: mine.messages.create(**TURN | {"model": "claude-none"})),
        "field": error_of(lambda: mine.messages.create(**TURN, extra_body=harmful)),
        "schema": error_of(lambda: mine.messages.create(**TURN, tools=nested)),
        "image": error_of(lambda: mine.messages.create(**TURN | {"messages": talk})),
        "too long": error_of(lambda: mine.messages.create(**TURN, system="x" * 500_000)),
        "key": error_of(lambda: make_client(api_key="rw-none").messages.create(**TURN)),
        "other": error_of(lambda: mine.messages.batches.list()),
    },
}
print(json.dumps(found))
