"""Requests of clients that are no libraries: written after their own sources, sent as they are.

Headers are those that the client sets, with its runtime's own ones beside them.
"""

from dataclasses import dataclass, field
from typing import Any

PAGE = "chrome-extension://jfgfiigpkhlkbnfnbobbkinehhfdhndo"
"""Page Assist's origin: its number in Chrome's store."""
# The headers that openai for Node sends with each request (src/client.ts of openai/openai-node, 4.x and 5.x).
STAINLESS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "User-Agent": "OpenAI/JS 4.61.0",
    "X-Stainless-Arch": "x64",
    "X-Stainless-Lang": "js",
    "X-Stainless-OS": "Linux",
    "X-Stainless-Package-Version": "4.61.0",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Runtime": "node",
    "X-Stainless-Runtime-Version": "v20.18.1",
    "Connection": "keep-alive",
    "Accept-Encoding": "gzip,deflate",
}


@dataclass(frozen=True)
class RecordedClientRequest:
    """A request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any] | None = None
    method: str = "POST"
    allows: dict[str, str] = field(default_factory=dict)
    """Headers that the client looks for in the answer."""


REQUESTS = {
    # src/api/providers/openai.ts of cline/cline: a system prompt of some KiB, then what its editor has to say; more
    # than the smallest model takes
    "Cline": RecordedClientRequest(
        "chat/completions",
        {**STAINLESS, "Authorization": "Bearer ignored"},
        {
            "model": "gpt-4o-mini",
            "messages": [
                {"role": "system", "content": "You are Cline, a highly skilled software engineer. " * 40},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "<task>\nAre you there?\n</task>"},
                        {
                            "type": "text",
                            "text": "<environment_details>\n# VSCode Visible Files\n</environment_details>",
                        },
                    ],
                },
            ],
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    # backend/open_webui/routers/openai.py of open-webui/open-webui, by aiohttp; with a key that was left blank, and
    # ENABLE_FORWARD_USER_INFO_HEADERS
    "Open WebUI, its list of models": RecordedClientRequest(
        "models",
        {"Authorization": "Bearer ", "Accept": "*/*", "Accept-Encoding": "gzip, deflate, br", "User-Agent": "aiohttp"},
        method="GET",
    ),
    "Open WebUI": RecordedClientRequest(
        "chat/completions",
        {
            "Authorization": "Bearer ",
            "Content-Type": "application/json",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate, br",
            "User-Agent": "Python/3.11 aiohttp/3.11.11",
            "X-OpenWebUI-User-Name": "J%C3%BCrgen",
            "X-OpenWebUI-User-Id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
            "X-OpenWebUI-User-Email": "user@example.org",
            "X-OpenWebUI-User-Role": "user",
        },
        {
            "stream": True,
            "model": "gpt-4o",
            "messages": [{"role": "user", "content": "Are you there?"}],
            "stream_options": {"include_usage": True},
        },
    ),
    # controller/channel-test.go of songquanpeng/one-api: a channel without answered tokens is switched off
    "one-api's test of a channel": RecordedClientRequest(
        "chat/completions",
        {
            "Authorization": "Bearer sk-none",
            "Content-Type": "application/json",
            "User-Agent": "Go-http-client/1.1",
            "Accept-Encoding": "gzip",
        },
        {"model": "gpt-3.5-turbo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
    ),
    # src/models/CustomChatOpenAI.ts of n4ze3m/page-assist has openai for the browser ask; Chrome's request before that:
    # wicg.github.io/private-network-access
    "Page Assist, before it asks": RecordedClientRequest(
        "chat/completions",
        {
            "Accept": "*/*",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-arch,x-stainless-lang",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Private-Network": "true",
            "Origin": PAGE,
            "Sec-Fetch-Mode": "cors",
            "Sec-Fetch-Site": "cross-site",
        },
        method="OPTIONS",
        allows={
            "Access-Control-Allow-Origin": PAGE,
            "Access-Control-Allow-Private-Network": "true",
            "Access-Control-Allow-Headers": "authorization,content-type,x-stainless-arch,x-stainless-lang",
        },
    ),
    "Page Assist": RecordedClientRequest(
        "chat/completions",
        {
            **STAINLESS,
            "Authorization": "Bearer none",
            "Origin": PAGE,
            "Sec-Fetch-Mode": "cors",
            "Accept-Language": "de",
        },
        {"model": "gpt-4o", "messages": [{"role": "user", "content": "Are you there?"}], "stream": True},
        allows={"Access-Control-Allow-Origin": PAGE},
    ),
}
