"""HTTP requests to instances, as curl makes them on hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class InstanceRequest:
    """An HTTP request to an instance on its host."""

    path: str
    body: Mapping[str, object] | None = None
    """Sent as JSON by POST; None is a GET."""

    def render_curl_config(self, at: str) -> str:
        """It as curl reads it with --config (curl(1)): everything but the key.

        Args:
            at: Where it goes: the path of a unix socket, or an address and port.
        """
        lines = {"unix-socket": at} if at.startswith("/") else {}
        lines["url"] = f"http://{'localhost' if at.startswith('/') else at}{self.path}"
        if self.body is not None:
            lines |= {"header": "Content-Type: application/json", "data": json.dumps(self.body)}
        # curl knows \\ \" \t \n \r \v in a quoted value, and JSON of ASCII has no other escapes of one letter
        quoted = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in lines.items()}
        return "".join(f'{key} = "{value}"\n' for key, value in quoted.items())


_COMPLETION = {"messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1}
# Requests of OpenAI's protocol: a completion of one token; the same as a stream; and the list of models.
CHAT = "/v1/chat/completions"
ONE_TOKEN = InstanceRequest(CHAT, _COMPLETION)
STREAMED = InstanceRequest(CHAT, {**_COMPLETION, "stream": True})
HEALTH_REQUEST = InstanceRequest("/health")
MODELS = InstanceRequest("/v1/models")
