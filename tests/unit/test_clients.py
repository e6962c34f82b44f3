"""The configurations of clients: each leads to the address, the model and the key."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import HTTPServer

import click
import pytest
from click.testing import CliRunner

from cli import main
from cli.show_declared import find_access_paths
from rigwright.gateway.client_setup import CLIENTS, VARIABLE, ClientEndpoint, client_endpoints
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.rig import Rig
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry, sample_instance, sample_rig
from tests.unit.text_handler import TextHandler

KEY = "a-key-of-a-client"


class SeenRequests(HTTPServer):
    """The requests to a server."""

    headers: str = ""
    path: str = ""
    body: dict[str, object]


class ChunkedStreamHandler(TextHandler):
    """Streams two pieces in chunks of HTTP, as OpenAI's servers do."""

    server: SeenRequests
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.path, self.server.headers = self.path, self.headers["Authorization"]
        self.server.body = self.read_json()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in ("I am", " here."):
            row = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            part = {**row, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
            self._chunk(f"data: {json.dumps(part)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


@pytest.fixture
def server() -> Iterator[SeenRequests]:
    made = SeenRequests(("127.0.0.1", 0), ChunkedStreamHandler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def way(base: str = "http://192.0.2.7:8000/v1", model: str = 'it\'s a "model"', keyed: bool = True) -> ClientEndpoint:
    return ClientEndpoint("box", model, base, keyed, listener="lan")


@pytest.mark.parametrize(("client", "command"), [("curl", ["sh"]), ("python", [sys.executable])])
def test_a_program_asks_with_the_key_of_its_environment(server, tmp_path, client, command):
    program = tmp_path / "program"
    program.write_text(CLIENTS[client].made(way(f"http://127.0.0.1:{server.server_port}/v1")))
    environment = {"PATH": os.environ["PATH"], VARIABLE: KEY, "HOME": str(tmp_path)}
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "I am" in done.stdout
    assert (server.path, server.headers) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (server.body["model"], server.body["stream"]) == ('it\'s a "model"', True)


def test_no_key_is_an_argument_of_curls() -> None:
    line = CLIENTS["curl"].made(way()).partition(" <<END")[0]
    assert not any(VARIABLE in word or "Authorization" in word for word in shlex.split(line))


def _fields(text: str, separator: str) -> dict[str, str]:
    return dict(line.split(separator, 1) for line in text.splitlines())


def test_forms_files_and_channels_name_address_model_and_key() -> None:
    made = {name: one.made(way(model="m")) for name, one in CLIENTS.items()}
    base = "http://192.0.2.7:8000/v1"
    assert _fields(made["cline"], ": ") == {
        "API Provider": "OpenAI Compatible",
        "Base URL": base,
        "API Key": "YOUR-KEY",
        "Model ID": "m",
    }
    assert _fields(made["page-assist"], ": ")["Base URL"] == base
    assert _fields(made["openwebui"], "=")["OPENAI_API_BASE_URL"] == base
    (row,) = json.loads(made["litellm"].removeprefix("model_list: "))
    assert row["litellm_params"] == {"model": "openai/m", "api_base": base, "api_key": f"os.environ/{VARIABLE}"}
    channel = json.loads(made["one-api"])
    assert (channel["base_url"], channel["models"], channel["type"]) == ("http://192.0.2.7:8000", "m", 1)
    assert f'"{base}"' in made["node"]
    variables = json.loads(made["claude-code"])["env"]
    place = (variables["ANTHROPIC_BASE_URL"], variables["ANTHROPIC_AUTH_TOKEN"])
    assert place == ("http://192.0.2.7:8000", "YOUR-KEY")
    assert {value for name, value in variables.items() if name.endswith("_MODEL")} == {"m"}


def listening(**listeners: ListenerEntry) -> Rig:
    return sample_rig(sample_instance(), gateway=Gateway(listeners=listeners))


@pytest.mark.parametrize(
    ("listener", "place", "base"),
    [
        ({"address": "0.0.0.0", "port": 8000}, "box.lan", "http://box.lan:8000/v1"),
        ({"address": "::", "port": 80}, "2001:db8::7", "http://[2001:db8::7]:80/v1"),
        ({"address": "10.0.0.5", "port": 8000}, "box.lan", "http://10.0.0.5:8000/v1"),
        (
            {"address": "0.0.0.0", "port": 443, "tls": True, "names": ["llm.example.org"]},
            "box.lan",
            "https://llm.example.org:443/v1",
        ),
    ],
)
def test_a_listener_is_asked_where_clients_reach_it(listener: dict[str, object], place: str, base: str) -> None:
    box_rig = listening(lan=ListenerEntry.model_validate(listener))
    first, own = client_endpoints(box_rig.name, box_rig.instances, box_rig.gateway, place)
    assert (first.base, first.keyed, first.listener) == (base, True, "lan")
    assert (own.base, own.instance) == ("http://127.0.0.1:8020/v1", "chat")


def test_a_listener_without_keys_needs_none_and_one_with_some_models_offers_those() -> None:
    plain = ListenerEntry(address="10.0.0.5", port=8000, keys=False)
    box_rig = listening(lan=plain)
    assert next(
        (one.keyed, one.key) for one in client_endpoints(box_rig.name, box_rig.instances, box_rig.gateway, "x")
    ) == (False, "none")
    other = ListenerEntry(address="10.0.0.5", port=8000, models=("other",))
    box_rig = listening(lan=other)
    assert [one.listener for one in client_endpoints(box_rig.name, box_rig.instances, box_rig.gateway, "x")] == [""]


def url(box: OperatorFolder, *words: str, **changes: object) -> tuple[int, str, str]:
    box.write(
        "rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {sample_entry(**changes)!r}}})\n"
    )
    done = CliRunner().invoke(main, ["show", "url", str(box.inventory), *words])
    return done.exit_code, done.stdout, done.stderr


GATEWAY = {"listeners": {"lan": {"address": "0.0.0.0", "port": 8000}}}


def test_all_ways_are_listed_and_a_configuration_is_of_the_first(box: OperatorFolder) -> None:
    status, said, _ = url(box, gateway=GATEWAY, instances=chat_instances())
    assert status == 0
    assert ["http://192.0.2.7:8000/v1" in said, "ssh --tunnel chat" in said] == [True, True]
    status, said, notes = url(box, "small", "--for", "page-assist", gateway=GATEWAY, instances=chat_instances())
    assert "Base URL: http://192.0.2.7:8000/v1" in said
    assert '"origins": ["chrome-extension://' in notes
    assert "key make" in notes


def test_an_instance_alone_is_reached_through_a_tunnel(box: OperatorFolder) -> None:
    status, said, notes = url(box, "code", "--for", "curl")
    assert (status, "http://127.0.0.1:8021/v1/chat/completions" in said) == (0, True)
    assert "tunnel" in notes


def test_an_alias_leads_to_the_gateway_under_its_own_name(box: OperatorFolder) -> None:
    gateway = {
        "listeners": {"lan": {"address": "192.0.2.7", "port": 8000, "tls": False, "keys": False}},
        "models": {"small": {"instances": ["chat"]}},
        "aliases": {"gpt-4": "small"},
    }
    entry = sample_entry(instances=chat_instances(), gateway=gateway)
    box.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {entry!r}}})\n")
    (found,) = find_access_paths(str(box.inventory), None, "gpt-4")
    assert (found.model, found.listener, found.base) == ("gpt-4", "lan", "http://192.0.2.7:8000/v1")
    with pytest.raises(click.UsageError, match='there is no model or instance "gpt4"; did you mean "gpt-4"'):
        find_access_paths(str(box.inventory), None, "gpt4")


def test_a_model_that_is_not_there_is_refused_with_the_nearest(box: OperatorFolder) -> None:
    status, _, said = url(box, "smal")
    assert (status, 'there is no model or instance "smal"; did you mean "small"?' in said) == (2, True)


def test_a_key_on_the_box_is_printed_by_a_whole_command(box: OperatorFolder) -> None:
    _, _, notes = url(box, "code", "--for", "curl")
    (line,) = (line for line in notes.splitlines() if line.startswith("key: "))
    assert line.endswith(f"ssh --sudo --limit box {box.inventory} cat /etc/rigwright/credentials/code.api-key`")


@pytest.mark.parametrize(
    ("gateway", "said"),
    [({}, "for others: declare a gateway"), ({"gateway": GATEWAY}, "for others: the gateway, as of `")],
)
def test_processes_of_others_in_place_of_a_tunnel_are_named(box, gateway, said):
    _, _, notes = url(box, "chat", "--for", "curl", instances=chat_instances(), **gateway)
    assert said in " ".join(notes.split())


@pytest.mark.parametrize(
    ("client", "changes", "warned"),
    [
        ("openwebui", {}, True),
        ("litellm", {}, True),
        ("one-api", {}, True),
        ("curl", {}, False),
        ("openwebui", {"gateway": GATEWAY}, False),
    ],
)
def test_a_container_does_not_reach_its_hosts_loopback_address(box, client, changes, warned):
    _, _, notes = url(box, "--for", client, instances=chat_instances(), **changes)
    assert ("`--network host`" in notes) == warned


def test_a_command_to_copy_is_quoted(box: OperatorFolder) -> None:
    box.write("sp ace.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {sample_entry()!r}}})\n")
    file = str(box.folder / "sp ace.py")
    listed = CliRunner().invoke(main, ["show", "url", file]).stdout
    notes = CliRunner().invoke(main, ["show", "url", file, "--for", "curl"]).stderr
    assert [" ".join(text.split()).count(f"'{file}'") for text in (listed, notes)] == [1, 2]
