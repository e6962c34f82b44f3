"""Malformed inputs of a hostile operator: `validate`, or the verb of a case, refuses each with all that is wrong.

A case states the words that a refusal has to contain; no refusal contains a secret, a traceback or a connection.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner

from checks import connections
from cli import main
from tests.unit.sample_texts import CATALOG, COMMIT, LOCK
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

HEAD = "from rigwright.inventory import hosts\n\nnan = float('nan')\ninf = float('inf')\n"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUSECRET\n-----END OPENSSH PRIVATE KEY-----\n"
HUB_TOKEN = "hf_" + "SECRETabcdefghijklmnopqrstuv"
API_KEY = "sk-" + "SECRET0123456789abcdefghijkl"
LOGIN = base64.b64encode(b"robot:SECRET-password-of-the-registry").decode()
SECRETS = ("SECRET", LOGIN)
VARIANT = '\n[variants."llamacpp/odd"]\nengine = "plain"\nmodel = "small"\ncontext = 4096\n'


@dataclass(frozen=True)
class HostileInput:
    """One input, and the words of its refusal."""

    words: tuple[str, ...]
    program: str = ""
    """The inventory after its imports, where `E` is the sample entry."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the sample entry."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the operator's folder."""
    command: tuple[str, ...] = ("validate", "{}")


def entry(*words: str, **changes: Any) -> HostileInput:
    return HostileInput(words, changes=changes)


def program(text: str, *words: str, files: Mapping[str, str] | None = None) -> HostileInput:
    return HostileInput(words, program=text, files=files or {})


def command(line: str, *words: str) -> HostileInput:
    return HostileInput(words, command=tuple(line.split(" ")))


def catalogue(text: str, *words: str, variant: str = "llamacpp/cpu") -> HostileInput:
    changes = {"instances": chat_instances(variant=variant)}
    return HostileInput(words, changes=changes, files={"catalog/box.toml": CATALOG + text})


def lock(old: str, new: str, *words: str) -> HostileInput:
    assert old in LOCK
    return HostileInput(words, files={"locks/box.lock.toml": LOCK.replace(old, new)})


def gateway(*words: str, files: Mapping[str, str] | None = None, **listener: Any) -> HostileInput:
    declared = {"listeners": {"lan": {"address": "192.0.2.7", "port": 8443} | listener}}
    changes = {"instances": chat_instances(), "gateway": declared}
    return HostileInput(words, changes=changes, files=files or {})


KEYS_FILE = f'[keys.app]\nsha256 = "{"c" * 64}"\nmade = 2026-01-01\nmodels = ["smal"]\n'
INPUTS: dict[str, HostileInput] = {
    # data that pyinfra reads beside hosts()
    "group data, a port": program("rigs = (hosts({'box': E}), {'ssh_port': '22;id'})", "rig.py", "rigs", "ssh_port"),
    "group data, by a name": program(
        "data = {'_sudo': 'yes'}\nrigs = (hosts({'box': E}), data)", "rig.py", "rigs", "_sudo", "hosts()"
    ),
    "group data, a typo": program(
        "rigs = (hosts({'box': E}), {'ssh_usr': 'ops'})", "rig.py", "rigs", 'did you mean "ssh_user"'
    ),
    "group data, made by a function": program(
        "def make():\n    return hosts({'box': E}), {'instances': 3}\nrigs = make()", "rig.py", "rigs", "instances"
    ),
    "a second group": program(
        "rigs = hosts({'box': E})\nextra = [('box', {'ssh_user': 'root;reboot'})]", "rig.py", "box.ssh_user", "extra"
    ),
    "all": program("rigs = hosts({'box': E})\nall = (rigs, {'_su_user': 'root'})", "rig.py", "all", "_su_user"),
    "a group_data file": program(
        "rigs = hosts({'box': E})", "group_data/rigs.py", "ssh_user", files={"group_data/rigs.py": "ssh_user = 'a b'\n"}
    ),
    "a key after hosts()": program(
        "rigs = hosts({'box': E})\nrigs[0][1]['ssh_user'] = 'a;b'", "rig.py", "box.ssh_user", "hosts()"
    ),
    "the rig replaced": program("rigs = hosts({'box': E})\nrigs[0][1]['rig'] = 5", "rig.py", "rigs", "box", "hosts()"),
    "a bare tuple": program("rigs = [('box', {'ssh_user': 'ops'})]", "rig.py", "rigs", "box", "hosts()"),
    "a bare name beside rigs": program("rigs = hosts({'box': E})\nothers = ['bix']", "rig.py", "others", "bix"),
    # numbers
    "a size of 2^63": lock("size = 2097152", f"size = {2**63}", "box.lock.toml", "artefact[1].size"),
    "a size of 2^62": lock("size = 1000", f"size = {2**62}", "box.lock.toml", "artefact[0].size", "at most"),
    "a size that is true": lock("size = 1000", "size = true", "box.lock.toml", "artefact[0].size", "a whole number"),
    "a number of rows of 2^70": lock("artefacts = 2", f"artefacts = {2**62}", "box.lock.toml", "artefacts", "at most"),
    "generations as a float": entry("box.keep_generations", "5.0", "a whole number", keep_generations=5.0),
    "a port that is true": entry("box.instances.chat.port", "True", instances=chat_instances(port=True)),
    "a card that is nan": entry("box.reserved_gpus[0]", "a whole number", reserved_gpus=[float("nan")]),
    "watts of 1e400": entry("box.driver.power_w", "inf", driver={"power_w": 1e400}),
    "a queue of 2^63": HostileInput(
        ("box.monitoring.server.alert_thresholds.queue", "at most"),
        changes={"monitoring": {"server": {"alert_thresholds": {"queue": 2**63}}}},
    ),
    "certificate days of 10^30": HostileInput(
        ("box.monitoring.server.alert_thresholds.certificate_days", "at most"),
        changes={"monitoring": {"server": {"alert_thresholds": {"certificate_days": 10**30}}}},
    ),
    "a flag of 2^200": catalogue(
        f"{VARIANT}flags = {{ threads = {2**62}, temp = 1e400 }}\n",
        "box.toml",
        "variants.llamacpp/odd.flags.temp",
        "variants.llamacpp/odd.flags.threads",
        variant="llamacpp/odd",
    ),
    "bench load --seconds nan": command("bench load {} --seconds nan", "--seconds", "nan", "1", "3600"),
    "bench load --seconds inf": command("bench load {} --seconds inf", "--seconds", "inf"),
    "bench load --seconds 1e999": command("bench load {} --seconds 1e999", "--seconds", "1e999"),
    "rollback --to 2^63": command(f"rollback {{}} --to {2**63}", "--to", "whole number from 1 to"),
    "rollback --to 1_0": command("rollback {} --to 1_0", "--to", "a whole number"),
    "bench stress --up-to 10^30": command(
        f"bench stress {{}} --up-to {10**30}", "--up-to", "whole number from 1000 to"
    ),
    "logs --lines of other digits": command("logs {} --lines ٣", "--lines", "a whole number"),
    "bench load --streams of other digits": command("bench load {} --streams ٣", "--streams", "numbers from 1 to 256"),
    # addresses
    "a mirror with a query": entry("box.mirrors.hub[0]", "query", mirrors={"hub": ["https://h.lan/x?q=1"]}),
    "a proxy with a fragment": entry("box.proxy", "fragment", proxy="http://p.lan:3128#x"),
    "a peer with a doubled slash": entry("box.peers[0]", "//", peers=["http://p.lan//models"]),
    "a peer of ftp": entry("box.peers[0]", "http", peers=["ftp://p.lan/x"]),
    "a mirror without a host": entry("box.mirrors.hub[0]", "host", mirrors={"hub": ["https:///x"]}),
    "a mirror above its folder": entry("box.mirrors.hub[0]", "..", mirrors={"hub": ["https://h.lan/a/../b"]}),
    "a proxy with a login": entry("box.proxy", "user and password", proxy="http://me:SECRET@p.lan:3128"),
    "a receiver with a query": HostileInput(
        ("box.monitoring.server.receivers.ops.url", "fragment"),
        changes={"monitoring": {"server": {"receivers": {"ops": {"url": "https://h.lan/x#y"}}}}},
    ),
    "a locked source with a login": lock(
        '"store:small-q4.gguf"',
        '"https://me:SECRET@h.lan/small-q4.gguf"',
        "artefact[1].sources[0]",
        "user and password",
    ),
    "an endless address": entry("box.proxy", "at most", proxy="http://p.lan/" + "a" * 70_000),
    # paths and strings
    "a path with NUL": entry("box.ca_file", "one line", ca_file="ca\0.pem"),
    "a path of 70,000 letters": entry("box.hub_token_file", "4096", hub_token_file="a" * 70_000),
    "a path with an escape": entry("box.bundle", "one line", bundle="bundle\x1b[2J"),
    "a path with half a character": entry("box.ca_file", "one line", ca_file="ca\ud800.pem"),
    "a key file of a listener with a line's end": gateway(
        "box.gateway.listeners.lan.key_file", "one line", tls=True, cert_file="c.pem", key_file="k\n.pem"
    ),
    "a name with NUL": program("rigs = hosts({'b\\0x': E})", "rig.py", "not a valid rig name"),
    "an endless file": command("validate /" + "a" * 5000, "File name too long"),
    # secrets
    "a private key for a host key": entry("box.ssh_host_key", "public key", ssh_host_key=PEM),
    "a private key for a path": entry("box.ssh_key", "path", ssh_key=PEM),
    "a token for its file": entry("box.hub_token_file", "hub_token_file", hub_token_file=HUB_TOKEN),
    "a key for a listener's keys": gateway("box.gateway.listeners.lan.keys", "True or False", keys=[API_KEY]),
    "a key for an API key's file": entry("api_key_file", instances=chat_instances(api_key_file=API_KEY)),
    "a token for a mirror": entry("box.mirrors.hub[0]", mirrors={"hub": [f"https://{HUB_TOKEN}@h.lan/"]}),
    "a token in an unknown key": entry("box.hub_token", "unknown key", hub_token=HUB_TOKEN),
    "a token as a key": entry("unknown key", **{HUB_TOKEN: 1}),
    "a login in place of its file": HostileInput(
        ("box.registries.ghcr.login_file",), changes={"registries": {"ghcr": {"login_file": LOGIN}}}
    ),
    "a password in a table": HostileInput(
        ("box.registries.ghcr",), changes={"registries": {"ghcr": ["robot", "SECRET-password"]}}
    ),
    "an api-key flag": catalogue(
        f'{VARIANT}flags = {{ api-key = "SECRET-key" }}\n', "flags.api-key", variant="llamacpp/odd"
    ),
    # all at once
    "a port and a variant": entry(
        "box.instances.chat.port",
        'did you mean "llamacpp/cpu"',
        instances=chat_instances(port=80, variant="llamacp/cpu"),
    ),
    "cards of three kinds": entry(
        "box.cards[0]", "box.cards[1]", 'did you mean "turing"', 'did you mean "ampere"', cards=["turng", 5, "ampre"]
    ),
    "roots, three ways": HostileInput(
        ("box.roots.software", "separate roots", "box.roots.models"),
        changes={"roots": {"software": "relative", "models": "/home/x", "state": "/etc/rigwright/s"}},
    ),
    "a driver of three rules": HostileInput(
        ("force_open_modules", "nvlinks", "managed = True", "box.driver.branch"),
        changes={
            "driver": {
                "branch": "x",
                "force_open_modules": True,
                "flavour": "proprietary",
                "nvlinks": [[0, 0]],
                "reboot": True,
            }
        },
    ),
    "three wrong flags": catalogue(
        f'{VARIANT}flags = {{ thread = "8", temp = "warm", api-key = "SECRET-x" }}\n',
        "flags.thread",
        "flags.temp",
        "flags.api-key",
        variant="llamacpp/odd",
    ),
    # one mistake each
    "a rig twice": program(
        "rigs = hosts({'box': E, 'box': {**E, 'ssh_hostname': 'b.lan'}})", "rig.py", '"box"', "twice"
    ),
    "an instance twice": program(
        "I = {'chat': {'variant': 'llamacpp/cpu', 'port': 8020}, 'chat': {'variant': 'llamacpp/cpu', 'port': 8021}}\n"
        "rigs = hosts({'box': {**E, 'instances': I}})",
        "rig.py",
        '"chat"',
        "twice",
    ),
    "one key file for two": HostileInput(
        ("box.instances.code.api_key_file", "chat"),
        changes={
            "instances": {
                "chat": {"variant": "llamacpp/cpu", "port": 8020, "api_key_file": "key"},
                "code": {"variant": "llamacpp/cpu", "port": 8021, "api_key_file": "./key"},
            }
        },
        files={"key": "0123456789abcdef\n"},
    ),
    "a branch for a commit": lock(
        f'version = "{COMMIT}"', 'version = "main"\nrepository = "own/small"', "artefact[1].repository", "40 lowercase"
    ),
    "no such driver branch": entry("box.driver.branch", "588", "595", driver={"branch": 588}),
    "a lock folder that is a file": HostileInput(("locks", "is not a folder"), files={"locks": "x"}),
    "a patches folder that is a file": HostileInput(("patches", "is not a folder"), files={"patches": "x"}),
    "a key for an unknown model": gateway(
        "gateway-keys.toml",
        "keys.app.models",
        'did you mean "small"',
        files={"gateway-keys.toml": KEYS_FILE},
    ),
    "a listener on the SSH port": HostileInput(
        ("box.gateway.listeners.lan.port", "2222", "SSH"),
        changes={"ssh_port": 2222, "gateway": {"listeners": {"lan": {"address": "0.0.0.0", "port": 2222}}}},
    ),
    "sharing on the SSH port": HostileInput(
        ("box.share.port", "8090", "SSH"),
        changes={"ssh_port": 8090, "share": {"address": "192.0.2.7", "allow": ["10.0.0.0/24"]}},
    ),
    "sharing with 0.0.0.0": HostileInput(
        ("box.share.allow[0]", "0.0.0.0/0"),
        changes={"share": {"address": "192.0.2.7", "allow": ["0.0.0.0"]}},
    ),
    "a scraper of ::": HostileInput(
        ("box.gateway.scrapers[0]", "::/0"),
        changes={"gateway": {"scrapers": ["::"], "listeners": {"lan": {"address": "192.0.2.7", "port": 8443}}}},
    ),
    "a login that is no base64": HostileInput(
        ("box.registries.ghcr.login_file", "USER:PASSWORD", "base64"),
        changes={"registries": {"ghcr": {"login_file": "login"}}},
        files={"login": "robot:SECRET\n"},
    ),
    "broken JSON in a flag": catalogue(
        f"{VARIANT}flags = {{ chat-template-kwargs = '{{\"a\": ' }}\n",
        "box.toml",
        "llamacpp/odd",
        "flags.chat-template-kwargs",
        "column",
        variant="llamacpp/odd",
    ),
}


def refusal(box: OperatorFolder, case: HostileInput) -> Any:
    for name, text in case.files.items():
        if "/" not in name and (box.folder / name).is_dir():
            (box.folder / name).rename(box.folder / f"{name}.away")
        box.write(name, text)
        (box.folder / name).chmod(0o600)
    text = case.program or "rigs = hosts({'box': E})"
    box.inventory.write_text(f"{HEAD}E = {sample_entry(**case.changes)!r}\n{text}\n")
    return CliRunner().invoke(main, [word.replace("{}", str(box.inventory)) for word in case.command])


@pytest.mark.parametrize("name", INPUTS)
def test_a_hostile_input_is_refused_with_all_that_is_wrong(
    box: OperatorFolder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    never: Callable[..., None] = lambda *_: pytest.fail("a host was reached")  # noqa: E731
    monkeypatch.setattr(connections, "connect_targets", never)
    began = time.monotonic()
    done = refusal(box, INPUTS[name])
    assert time.monotonic() - began < 10
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert not [secret for secret in SECRETS if secret in done.output], done.output
    assert not [word for word in INPUTS[name].words if word not in done.output], done.output
