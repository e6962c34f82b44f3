"""Client configurations of many programs for a rig: addresses, and a configuration for each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from rigwright.gateway.served_models import offers_of
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance

VARIABLE = "RIGWRIGHT_API_KEY"
"""The variable of the environment from which programs of ours, and configurations, take the key."""
NO_KEY = "none"
"""The placeholder for a key where none is checked: most clients do not start without."""
QUESTION = [{"role": "user", "content": "Are you there?"}]


@dataclass(frozen=True)
class ClientEndpoint:
    """One model at one address."""

    host: str
    model: str
    """The name that clients ask for."""
    base: str
    """The address that clients of OpenAI's protocol are given, with `/v1` at its end."""
    keyed: bool
    """Whether a key is looked at."""
    listener: str = ""
    """The gateway's; empty for an instance's own port, which is on the host's loopback interface alone."""
    instance: str = ""
    """The one whose own port it is; empty for the gateway."""

    @property
    def is_local(self) -> bool:
        """Whether its address leads to whatever machine, or container, the client is in."""
        return urlsplit(self.base).hostname in ("127.0.0.1", "::1", "localhost")

    @property
    def key(self) -> str:
        """The text in the place of the key in a configuration."""
        return "YOUR-KEY" if self.keyed else NO_KEY


def client_endpoints(
    box: str, instances: tuple[Instance, ...], gateway: Gateway | None, place: str
) -> Iterator[ClientEndpoint]:
    """The ways to a rig's models: those of its gateway, then the ports of its instances.

    Args:
        box: The name of the rig.
        instances: The declared instances.
        gateway: The declared gateway.
        place: The name or address by which the rig is reached.
    """
    for name, one in gateway.listeners.items() if gateway else ():
        # of all its addresses, the one that is known to lead there
        at = place if ip_address(one.address).is_unspecified else one.address
        at = next((host for host in one.names if not host.startswith(".")), at)
        base = f"{'https' if one.tls else 'http'}://{_bracket_ipv6(at)}:{one.port}/v1"
        for offer in offers_of(instances, gateway):
            if gateway and gateway.has_model(one, offer.name):
                yield ClientEndpoint(box, offer.name, base, one.keys, listener=name)
    for instance in instances:
        base = f"http://127.0.0.1:{instance.port}/v1"
        yield ClientEndpoint(box, instance.model_name, base, True, instance=instance.name)


def _bracket_ipv6(place: str) -> str:
    return f"[{place}]" if ":" in place else place


def _curl(way: ClientEndpoint) -> str:
    body = json.dumps({"model": way.model, "messages": QUESTION, "stream": True})
    command = ["curl", "--no-buffer", "--fail-with-body", "--config", "-", "--data", body]
    # from standard input: every user of the same machine can read arguments
    return (
        f"{shlex.join([*command, f'{way.base}/chat/completions'])} <<END\n"
        'header = "Content-Type: application/json"\n'
        f'header = "Authorization: Bearer ${{{VARIABLE}:-{NO_KEY}}}"\n'
        "END\n"
    )


def _python(way: ClientEndpoint) -> str:
    return f"""\
import os

from openai import OpenAI

client = OpenAI(base_url={json.dumps(way.base)}, api_key=os.environ.get("{VARIABLE}", "{NO_KEY}"))
asked = {json.dumps(QUESTION)}
for part in client.chat.completions.create(model={json.dumps(way.model)}, messages=asked, stream=True):
    if part.choices:
        print(part.choices[0].delta.content or "", end="", flush=True)
print()
"""


def _node(way: ClientEndpoint) -> str:
    return f"""\
import OpenAI from "openai";

const client = new OpenAI({{ baseURL: {json.dumps(way.base)}, apiKey: process.env.{VARIABLE} ?? "{NO_KEY}" }});
const messages = {json.dumps(QUESTION)};
const answer = await client.chat.completions.create({{ model: {json.dumps(way.model)}, messages, stream: true }});
for await (const part of answer) process.stdout.write(part.choices[0]?.delta?.content ?? "");
console.log();
"""


def _litellm(way: ClientEndpoint) -> str:
    # JSON is YAML
    parameters = {"model": f"openai/{way.model}", "api_base": way.base, "api_key": f"os.environ/{VARIABLE}"}
    rows = [{"model_name": way.model, "litellm_params": parameters}]
    return f"model_list: {json.dumps(rows)}\n"


def _open_webui(way: ClientEndpoint) -> str:
    values = {"ENABLE_OLLAMA_API": "false", "OPENAI_API_BASE_URL": way.base, "OPENAI_API_KEY": way.key}
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _cline(way: ClientEndpoint) -> str:
    return _form({"API Provider": "OpenAI Compatible", "Base URL": way.base, "API Key": way.key, "Model ID": way.model})


def _page_assist(way: ClientEndpoint) -> str:
    return _form({"Provider Name": f"rigwright {way.host}", "Base URL": way.base, "API Key": way.key})


def _form(fields: Mapping[str, str]) -> str:
    return "".join(f"{label}: {value}\n" for label, value in fields.items())


def _one_api(way: ClientEndpoint) -> str:
    # one-api adds /v1 itself (relay/adaptor/openai of songquanpeng/one-api); 1 is its type of channel for OpenAI's
    channel = {
        "name": f"rigwright {way.host}",
        "type": 1,
        "key": way.key,
        "base_url": way.base.removesuffix("/v1"),
        "models": way.model,
        "groups": ["default"],
    }
    return json.dumps(channel, indent=2) + "\n"


def _claude_code(way: ClientEndpoint) -> str:
    # Anthropic's clients add /v1 themselves; by itself it asks for models of Anthropic's, a small one among them
    models = ("", *(f"DEFAULT_{size}_" for size in ("OPUS", "SONNET", "HAIKU")))
    variables = {
        "ANTHROPIC_BASE_URL": way.base.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": way.key,
        **{f"ANTHROPIC_{one}MODEL": way.model for one in models},
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return json.dumps({"env": variables}, indent=2) + "\n"


@dataclass(frozen=True)
class ClientProgram:
    """A program that asks."""

    made: Callable[[ClientEndpoint], str]
    """Its configuration."""
    where: str
    """Where that goes."""
    contained: bool = False
    """Whether it is usually run in a container."""


CLIENTS: Mapping[str, ClientProgram] = {
    "curl": ClientProgram(_curl, "a line for a shell"),
    "python": ClientProgram(_python, "a program, with `pip install openai`"),
    "node": ClientProgram(_node, "a program (.mjs), with `npm install openai`"),
    "litellm": ClientProgram(_litellm, "config.yaml of LiteLLM's proxy", contained=True),
    "openwebui": ClientProgram(
        _open_webui, "variables of Open WebUI's environment, as for `docker run --env-file`", contained=True
    ),
    "cline": ClientProgram(_cline, "Cline's settings"),
    "claude-code": ClientProgram(_claude_code, "Claude Code's settings.json"),
    "page-assist": ClientProgram(_page_assist, "Page Assist: Settings, OpenAI Compatible API, Add Provider"),
    "one-api": ClientProgram(_one_api, "a channel of one-api's: to be posted to /api/channel/", contained=True),
}
