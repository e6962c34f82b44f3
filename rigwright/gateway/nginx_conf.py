"""nginx's side of a gateway: its configuration, and the Lua that it runs, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rigwright.engines.api_paths import COMPLETIONS, MESSAGES
from rigwright.gateway.secrets_distribution import FLEET, FRONT
from rigwright.project_root import ROOT
from rigwright.render import render

PACKAGES = ("nginx", "libnginx-mod-http-lua", "lua-cjson")
# Where these put their modules (libnginx-mod-http-lua of Debian 12 and 13).
MODULES = "/usr/lib/nginx/modules"
PATHS = (*COMPLETIONS, "embeddings", "rerank", *MESSAGES)
"""The open paths of OpenAI's and Anthropic's interfaces, after `/v1/`; `models` and `models/NAME` are, too."""
# Each stream is a connection of a client's and one to an engine.
CONNECTIONS = 4096
# The counters: some 100 bytes for each instance, key and kind of answer. A reload that changes it loses the counts.
MEMORY = "4m"
# Tokens by key, model and day: some 1,300 bytes for each key and model that is used on a day, and as much again.
USAGE_MEMORY = "8m"
# Until another box has answered with its certificate; after that, another instance is asked.
CONNECT_SECONDS = 2
# The answers of nginx itself.
ERRORS = (400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 421, 429, 431, 500, 501, 502, 503, 504, 505, 507)

_WORD = re.compile(r"[A-Za-z0-9_./:@\[\]+-]+")


@dataclass(frozen=True)
class NginxListener:
    """An address, or several, that clients reach."""

    name: str
    addresses: tuple[str, ...]
    """`ADDRESS:PORT` each, of IPv6 in brackets."""
    keys: bool = True
    """Whether nginx asks the router for the owner of a request's key; if not, it refuses requests that need one."""
    tls: bool = False
    """With the certificate and the key tls/NAME.crt and tls/NAME.key in the folder of nginx's."""


@dataclass(frozen=True)
class NginxFleetListener:
    """The port of a box whose instances gateways of other boxes use."""

    endpoint: str
    """`ADDRESS:PORT`, of IPv6 in brackets."""
    fronts: tuple[str, ...]
    """Names in the certificates of those gateways."""


@dataclass(frozen=True)
class NginxSettings:
    """All that the configuration says.

    Raises:
        ValueError: a value is more than one word of nginx's language.
    """

    listeners: tuple[NginxListener, ...]
    folder: str
    """Where it finds its settings and Lua on the host."""
    runtime: str
    """The folder that nginx is given with -p: its own, where `admin.sock` is made."""
    router: str
    """The folder of the router's sockets, `light.sock` and `heavy.sock`."""
    log: str
    """The file that gets a line of JSON for each request."""
    scrapers: tuple[str, ...] = ()
    """Networks that may read metrics."""
    sticky_headers: tuple[str, ...] = ()
    """Headers that the router gets because some model's requests are kept together by them."""
    boxes: Mapping[str, str] = field(default_factory=dict)
    """Other boxes whose instances it uses: name -> `ADDRESS:PORT`."""
    fleet: NginxFleetListener | None = None
    """Where other boxes use instances of this one."""
    wakes: bool = False
    """Whether requests wait for instances that are started on demand."""
    workers: int = 2
    body_max: str = "64m"
    """The largest body that a client may send, with nginx's units."""

    def __post_init__(self) -> None:
        for word in self._config_words():
            if not _WORD.fullmatch(word):
                raise ValueError(f"not a single configuration word: {word!r}")

    def _config_words(self) -> Iterator[str]:
        yield from (
            self.folder,
            self.runtime,
            self.router,
            self.log,
            self.body_max,
            *self.scrapers,
            *self.sticky_headers,
        )
        for listener in self.listeners:
            yield from (listener.name, *listener.addresses)
        for item in self.boxes.items():
            yield from item
        if self.fleet:
            yield from (self.fleet.endpoint, *self.fleet.fronts)


def render_nginx_conf(door: NginxSettings, owned: str) -> str:
    """nginx.conf.

    Args:
        door: Its declaration.
        owned: Its first line, a comment.
    """
    return render(
        "gateway/nginx.conf.j2",
        owned=owned,
        door=door,
        modules=MODULES,
        connections=CONNECTIONS,
        memory=MEMORY,
        usage_memory=USAGE_MEMORY,
        errors=ERRORS,
        paths=PATHS,
        front=FRONT,
        fleet=FLEET,
        connect_seconds=CONNECT_SECONDS,
    )


@cache
def load_lua_modules() -> Mapping[str, str]:
    """The Lua modules that nginx runs: path below the folder of the configuration -> text."""
    folder = Path(ROOT) / "templates/gateway"
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.lua"))}
