"""An inventory's keys of a gateway, and its configuration."""

from dataclasses import replace
from typing import Any

import pytest

from checks.survey.requests import offered_model_names
from rigwright.gateway.client_setup import client_endpoints
from rigwright.gateway.gateway_units import render_gateway
from rigwright.gateway.served_models import describe_access, offers_of, refuse_gateway
from rigwright.inventory import load_rig
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry, sample_instance, sample_rig
from tests.unit.serving_samples import capable_instance

LAN = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
TWINS = {name: {"variant": "llamacpp/cpu", "port": 8020 + at} for at, name in enumerate(("chat", "twin"))}


def load_gateway(box: OperatorFolder, **changes: Any) -> Rig:
    ((_, data),) = box.load_group({"box": sample_entry(instances=TWINS) | changes})
    return load_rig(data["rig"])


def test_without_more_each_model_is_offered_by_all_that_serve_it(box: OperatorFolder) -> None:
    rig = load_gateway(box, gateway={"listeners": LAN})
    (one,) = offers_of(rig.instances, rig.gateway)
    assert (one.name, [instance.name for instance in one.instances]) == (one.instances[0].model_name, ["chat", "twin"])
    assert (one.queue, one.sticky, one.slots) == (64, "", one.instances[0].variant.capacity[0])  # type: ignore[index]


def test_names_of_ones_own_are_those_that_are_offered(box: OperatorFolder) -> None:
    models = {"fast": {"instances": ["twin"], "queue": 0, "sticky": "conversation"}}
    gateway = {"listeners": LAN, "models": models, "aliases": {"gpt-4o": "fast"}}
    box_rig = load_gateway(box, gateway=gateway)
    (one,) = offers_of(box_rig.instances, box_rig.gateway)
    assert (one.name, [instance.name for instance in one.instances], one.queue, one.sticky) == (
        "fast",
        ["twin"],
        0,
        "conversation",
    )


def test_an_alias_of_a_listener_opens_the_model_that_it_stands_for(box: OperatorFolder) -> None:
    models = {"fast": {"instances": ["twin"]}, "slow": {"instances": ["chat"]}}
    listeners = {"lan": LAN["lan"] | {"models": ["gpt-4o"]}}
    aliases = {"gpt-4o": "fast", "o3": "fast", "o4": "slow"}
    found = load_gateway(box, gateway={"listeners": listeners, "models": models, "aliases": aliases})
    (line,) = describe_access(found.instances, found.gateway)
    assert "may use fast;" in line
    assert [
        one.model for one in client_endpoints(found.name, found.instances, found.gateway, "box") if one.listener
    ] == ["fast"]
    assert found.gateway
    assert offered_model_names(found.instances, found.gateway, found.gateway.listeners["lan"]) == [
        "fast",
        "gpt-4o",
        "o3",
    ]


def test_a_header_is_the_same_one_in_capitals(box: OperatorFolder) -> None:
    box_rig = load_gateway(box, gateway={"listeners": LAN, "sticky": "header:X-Session-Id"})
    (one,) = offers_of(box_rig.instances, box_rig.gateway)
    assert one.sticky == "header:x-session-id"


@pytest.mark.parametrize(
    ("declared_as", "sent"),
    [
        *((one, one) for one in ("app://obsidian.md", "tauri://localhost", "capacitor://localhost", "file://")),
        *((one, one) for one in ("http://tauri.localhost", "http://localhost:3000", "http://0.0.0.0:8080")),
        *(
            (one, one)
            for one in ("http://my_box:3000", "http://192.0.2.7", "http://[fd00::1]:3000", "resource://pdf.js")
        ),
        # identifiers of webviews and of Safari's extensions are in capitals, or not
        ("vscode-webview://1ncid6mjqlqrdu6spcgmsaqg4r4mcgnabsvoe7vmdm8u59i63ebm",) * 2,
        ("safari-web-extension://0F7C5C1E-3E0B-4D6F-9E59-CB8A9B2B9F0A",) * 2,
        ("moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc",) * 2,
        # browsers send the one spelling of a web page's origin
        ("HTTPS://Chat.Example.org:443", "https://chat.example.org"),
        ("http://chat.example.org:80", "http://chat.example.org"),
        ("https://chat.example.org:80", "https://chat.example.org:80"),
        ("http://[FD00:0::1]", "http://[fd00::1]"),
        ("App://Obsidian.md", "app://Obsidian.md"),
    ],
)
def test_every_origin_of_a_page_or_an_app_can_be_declared(box: OperatorFolder, declared_as: str, sent: str) -> None:
    found = load_gateway(box, gateway={"listeners": LAN, "origins": [declared_as]}).gateway
    assert found and found.origins == (sent,)


def test_the_origin_of_any_page_may_send_requests_where_it_needs_a_key(box: OperatorFolder) -> None:
    keyed = {"lan": LAN["lan"] | {"keys": True}}
    found = load_gateway(box, gateway={"listeners": keyed, "origins": ["null"]}).gateway
    assert found and found.origins == ("null",)


ORIGIN = "an origin without a path, such as https://chat.example.org, app://obsidian.md or chrome-extension://ID"
TLS = {"tls": {"address": "192.0.2.7", "port": 443, "tls": True, "names": ["llm.example.org"]}}


@pytest.mark.parametrize(
    ("gateway", "said"),
    [
        ({"listeners": {}}, "gateway.listeners: {} is refused: must be a non-empty table"),
        ({"listeners": {"lan": {"port": 8000}}}, "gateway.listeners.lan.address: missing"),
        (
            {"listeners": {"lan": LAN["lan"] | {"port": 8020}}},
            "gateway.listeners.lan.port: 8020 is the port of instance chat on the loopback interface: "
            "change one of them",
        ),
        (
            {"listeners": LAN | {"all": {"address": "::", "port": 8000}}},
            "gateway.listeners.all.port: 8000 is already the port of the listener lan: choose another, or address",
        ),
        (
            {"listeners": LAN | {"one": {"address": "192.0.2.7", "port": 8000}}},
            "gateway.listeners.one.port: 8000 is already the port of the listener lan: choose another, or address",
        ),
        (
            {"listeners": LAN, "models": {"fast": {"instances": ["chta"]}}},
            'gateway.models.fast.instances: there is no instance "chta"; did you mean "chat"?',
        ),
        (
            {"listeners": LAN, "models": {"fast": {"instances": ["chat", "chat"]}}},
            "gateway.models.fast.instances: an instance is listed twice",
        ),
        (
            {"listeners": LAN, "models": {"fast": {"instances": ["chat"]}}, "aliases": {"gpt-4o": "fats"}},
            'gateway.aliases.gpt-4o: there is no model "fats"; did you mean "fast"?',
        ),
        (
            {"listeners": LAN, "models": {"fast": {"instances": ["chat"]}}, "aliases": {"fast": "fast"}},
            "gateway.aliases.fast: fast is already a model name",
        ),
        (
            {"listeners": {"lan": LAN["lan"] | {"models": ["gpt-4o"]}}},
            'gateway.listeners.lan.models: there is no model "gpt-4o"; allowed: small',
        ),
        (
            {"listeners": {"lan": LAN["lan"] | {"models": ["gpt-4"]}}, "aliases": {"gpt-4o": "small"}},
            'gateway.listeners.lan.models: there is no model "gpt-4"; did you mean "gpt-4o"?',
        ),
        ({"listeners": {"lan": LAN["lan"] | {"names": ["llm.example.org"], "keys": True}}}, "gateway.listeners.lan: "),
        ({"listeners": {"tls": TLS["tls"] | {"cert_file": "a.crt"}}}, "gateway.listeners.tls: "),
        ({"listeners": LAN, "origins": ["*"]}, f"gateway.origins[0]: '*' is refused: must be {ORIGIN}"),
        *(
            ({"listeners": LAN, "origins": [one]}, f"gateway.origins[0]: {one!r} is refused: must be {ORIGIN}{more}")
            for one, more in {
                "chat.example.org": "",
                "localhost:3000": "",
                "app://*": "",
                "Null": "",
                "": "",
                "https://chat.example.org:0": "",
                "https://chat.example.org/": "; did you mean 'https://chat.example.org'?",
                "app://obsidian.md/index.html": "; did you mean 'app://obsidian.md'?",
                "https://": ": a host name or an IP address",
                "https://a..b": ": a host name or an IP address",
                "https://[::1": "",
                "app://a\nb": "",
            }.items()
        ),
        (
            {"listeners": LAN | {"office": LAN["lan"] | {"port": 8001, "keys": True}}, "origins": ["null"]},
            "gateway.origins: null is the origin of sandboxed frames and local files, which any web page can make: "
            "with it, every page that a client opens can send requests to lan, where no key is needed; set keys = True",
        ),
        (
            {"listeners": LAN, "allow_fields": ["chat_templat"]},
            'gateway.allow_fields: there is no rule for request fields "chat_templat"; did you mean "chat_template"?',
        ),
        (
            {"listeners": LAN, "models": {"fast": {"instances": ["chat"], "allow_fields": ["n", "loras"]}}},
            'gateway.models.fast.allow_fields: there is no rule for request fields "loras"; did you mean "lora"?',
        ),
        ({"listeners": LAN, "cache_isolation": "keys"}, "gateway.cache_isolation: 'keys' is refused: must be"),
        (
            {"listeners": {"lan": LAN["lan"] | {"keys": True}}, "cache_isolation": "key"},
            "gateway.cache_isolation: small is served by llama.cpp, whose prompt cache does not support isolation "
            "by key: "
            'set cache_isolation = "" for this model, or an instance for each client',
        ),
        ({"listeners": LAN, "sticky": "cookie"}, "gateway.sticky: 'cookie' is refused: must be"),
        (
            {"listeners": LAN, "scrapers": ["10.0.0.7/24"]},
            "gateway.scrapers[0]: '10.0.0.7/24' is refused: must be a network",
        ),
    ],
)
def test_impossible_gateways_are_refused(box: OperatorFolder, gateway: dict[str, object], said: str) -> None:
    (line,) = box.refusal_lines(instances=TWINS, gateway=gateway)
    assert line.startswith(f"{box.inventory}: box.{said}")


def test_a_file_of_keys_that_cannot_be_used_is_refused_before_any_host_is_touched(box: OperatorFolder) -> None:
    box.write("gateway-keys.toml", '[keys.alice]\nsha = "x"\n')
    lines = box.refusal_lines(instances=TWINS, gateway={"listeners": LAN})
    assert all(line.startswith(f"{box.inventory}: box.gateway.keys_file: ") for line in lines)
    assert any('sha: unknown key; did you mean "sha256"?' in line for line in lines)


def test_certificates_that_cannot_be_used_are_refused_before_any_host_is_touched(box: OperatorFolder) -> None:
    listener = {"address": "192.0.2.7", "port": 8443, "tls": True, "cert_file": "a.crt", "key_file": "a.key"}
    lines = box.refusal_lines(instances=TWINS, gateway={"listeners": {"tls": listener}})
    assert [line.removeprefix(f"{box.inventory}: box.gateway.listeners.tls.") for line in lines] == [
        f"cert_file: {box.folder}/a.crt does not exist",
        f"key_file: {box.folder}/a.key does not exist",
    ]


def test_all_addresses_have_no_name_for_a_certificate(box: OperatorFolder) -> None:
    listener = {"address": "::", "port": 8443, "tls": True}
    (line,) = box.refusal_lines(instances=TWINS, gateway={"listeners": {"tls": listener}})
    assert "given names for the certificate" in line


def test_two_variants_of_a_model_are_not_one_name(box: OperatorFolder) -> None:
    lines = box.refusal_lines(
        instances=chat_instances() | {"code": {"variant": "llamacpp/two", "cards": [0, 1], "port": 8021}},
        gateway={"listeners": LAN},
    )
    assert len(lines) == 1
    assert "which differ: name each of them here" in lines[0]


def test_a_gateway_without_instances_is_refused(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(instances={}, gateway={"listeners": LAN})
    assert line == f"{box.inventory}: box.gateway: the rig declares no instances"


def test_shared_weights_keep_their_port(box: OperatorFolder) -> None:
    share = {"address": "192.0.2.7", "port": 8090, "allow": ["192.0.2.0/24"]}
    (line,) = box.refusal_lines(
        instances=TWINS, share=share, gateway={"listeners": {"lan": {"address": "192.0.2.7", "port": 8090}}}
    )
    assert line.endswith("gateway.listeners.lan.port: 8090 is the port for sharing weights: choose another")


def test_all_of_ipv6_is_all_there_is() -> None:
    assert ListenerEntry(address="::", port=80).addresses == ("0.0.0.0:80", "[::]:80")
    assert ListenerEntry(address="fd00::7", port=80).addresses == ("[fd00::7]:80",)


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        (
            {"address": "0.0.0.0", "keys": False},
            "all clients that reach this host over the network, without a key, may use model; "
            "plain HTTP: prompts and answers are sent in the clear",
        ),
        (
            {"address": "192.0.2.7"},
            "all clients that reach this host over the network, with a key, may use model; "
            "plain HTTP: prompts and answers are sent in the clear, including keys",
        ),
        ({"address": "::1", "tls": True}, "only this host, with a key, may use model; TLS"),
    ],
)
def test_a_plan_names_clients_and_their_models(listener: dict[str, object], said: str) -> None:
    gateway = Gateway.model_validate({"listeners": {"x": {"port": 8000} | listener}})
    box_rig = sample_rig(sample_instance(model_name="model"), gateway=gateway)
    (line,) = describe_access(box_rig.instances, box_rig.gateway)
    assert line.endswith(f": {said}")


def test_a_plan_names_the_harmful_fields_that_are_open() -> None:
    listeners = {"x": {"port": 8000, "address": "127.0.0.1"}}
    models = {"small": {"instances": ["chat"], "allow_fields": ["regex", "chat_template"]}}
    gateway = Gateway.model_validate({"listeners": listeners, "allow_fields": ["n"], "models": models})
    box_rig = sample_rig(sample_instance(), gateway=gateway)
    _, line = describe_access(box_rig.instances, box_rig.gateway)
    assert line == "request fields that can harm an engine are allowed for small: chat_template, regex"


def refusals_of_isolation(gateway: dict[str, object], *instances: Instance) -> list[tuple[str, str]]:
    refused: list[tuple[str, str]] = []
    made = Gateway.model_validate({"cache_isolation": "key", **gateway})
    refuse_gateway(made, instances, {one.name: 8000 for one in instances}, {}, lambda *one: refused.append(one))
    return refused


def test_caches_are_kept_apart_where_engine_and_listener_can() -> None:
    keyed = {"x": {"address": "127.0.0.1", "port": 1}}
    salting = replace(capable_instance(), name="twin")
    assert refusals_of_isolation({"listeners": keyed}, salting) == []
    ((key, why),) = refusals_of_isolation({"listeners": {"x": keyed["x"] | {"keys": False}}}, salting)
    assert key == "gateway.cache_isolation" and why.startswith("no listener needs keys")
    mixed = {"a": {"instances": ["chat"]}, "b": {"instances": [salting.name]}}
    ((key, why),) = refusals_of_isolation({"listeners": keyed, "models": mixed}, sample_instance(), salting)
    assert key == "gateway.cache_isolation" and why.startswith("a is served by llama.cpp, whose prompt cache does not")
    mixed["a"]["cache_isolation"] = ""
    assert refusals_of_isolation({"listeners": keyed, "models": mixed}, sample_instance(), salting) == []


def test_nginx_gets_no_socket_on_which_a_worker_could_stand_still(box: OperatorFolder) -> None:
    """It leaves inherited sockets as they are, and systemd makes them blocking by default."""
    box_rig = load_gateway(box, gateway={"listeners": LAN})
    unit = render_gateway(
        box_rig.roots, box_rig.accounts, box_rig.instances, box_rig.gateway, box_rig.monitoring, "# ours"
    ).files["units/rigwright_gateway.service"]
    assert "NonBlocking=yes" in unit.splitlines()
