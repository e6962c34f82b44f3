"""Asks as a client program would, with LiteLLM's SDK: prints the answer as JSON."""

import json
import os

import litellm

told = {
    "model": f"openai/{os.environ['MODEL']}",
    "api_base": os.environ["BASE_URL"],
    "api_key": os.environ["API_KEY"],
    "messages": [{"role": "user", "content": "Are you there?"}],
}
look = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
tools = [{"type": "function", "function": look}]
usage = {"include_usage": True}

chat = litellm.completion(**told)
pieces = list(litellm.completion(**told, stream=True, stream_options=usage))
(call,) = litellm.completion(**told, tools=tools).choices[0].message.tool_calls
found = {
    "chat": chat.choices[0].message.content.strip(),
    "stream": "".join(one.choices[0].delta.content or "" for one in pieces if one.choices).strip(),
    "tokens": [chat.usage.completion_tokens, pieces[-1].usage.completion_tokens],
    "call": {"name": call.function.name, "arguments": json.loads(call.function.arguments)},
}
print(json.dumps(found))
