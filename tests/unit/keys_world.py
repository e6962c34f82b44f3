"""`rigwright key` on hosts that are folders, as one or several controllers run it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checks.connections import ConnectedHost
from cli import key, key_sync
from rigwright.gateway.secrets_distribution import ROUTER
from rigwright.model.fleet_schema import FleetLinks
from roles import root_shell
from roles.gateway.host.router import keyring
from roles.gateway.host.router.settings import read_keys
from tests.unit.gateway_host import GatewayFolderHost
from tests.unit.mapped_hosts import map_given_hosts

RunKeys = Callable[..., Result]
LONG = [f"organisation/a-rather-long-name-{n}" for n in range(9)]


def make_gateway_hosts(folder: Path, *names: str) -> dict[str, GatewayFolderHost]:
    """Hosts on which the router runs."""
    made = {name: GatewayFolderHost(folder / name) for name in names}
    for host in made.values():
        host.install_generation()
        host.set_unit_state(ROUTER, "active")
    return made


def make_controller(hosts: dict[str, GatewayFolderHost], folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunKeys:
    """The verb with an inventory in a folder, on the hosts and those that are gone."""
    inventory = folder / "rig.py"
    inventory.write_text("")
    said: list[Any] = []

    def run(*words: str, gone: tuple[str, ...] = (), files: dict[str, str] | None = None) -> Result:
        names = {**dict.fromkeys((*hosts, *gone), "gateway-keys.toml"), "plain": "", **(files or {})}
        offers = [SimpleNamespace(name=model) for model in ("qwen3", "llama", "org/b", *LONG)]
        rigs = {
            name: SimpleNamespace(
                inventory=str(inventory),
                name=name,
                gateway=SimpleNamespace(
                    serves_clients=True, keys_file=path, aliases={"gpt-4o": "qwen3"}, fleet=FleetLinks()
                )
                if path
                else None,
                instances=offers,
            )
            for name, path in names.items()
        }
        monkeypatch.setattr(key_sync, "offers_of", lambda instances, _: instances)
        monkeypatch.setattr(key_sync, "load_hosts", lambda *_: {name: {"rig": name} for name in names})
        monkeypatch.setattr(key_sync, "load_host_rigs", lambda _: rigs)
        found = [host.box(name) for name, host in hosts.items()]
        found.append(ConnectedHost("plain", found[0].rig, None))
        away = dict.fromkeys((*gone, "plain too"), "")
        monkeypatch.setattr(key_sync, "map_inventory", map_given_hosts(found, away))
        monkeypatch.setattr(
            root_shell, "run_command", lambda target, *rest: said.append(rest) or target.answer_command(target, *rest)
        )
        monkeypatch.setattr(
            ConnectedHost,
            "_run",
            lambda box, script, stdin="", limit=None: box.target.answer_command(box.target, script, stdin),
        )
        done = CliRunner().invoke(key.key, [words[0], str(inventory), *words[1:]])
        if "-" in done.stdout and done.stdout.startswith("rw-"):
            assert_key_hidden(done.stdout.strip(), folder, said)
        return done

    return run


def assert_key_hidden(clear: str, folder: Path, said: list[Any]) -> None:
    """That no file, no argument and nothing that was sent has a key."""
    assert clear not in repr(said)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert clear.encode() not in path.read_bytes(), path


def accepts_key(host: GatewayFolderHost, clear: str) -> bool:
    """Whether the host's router, with the keys that it was given, lets a client in."""
    ring = keyring.Keyring(read_keys(host.run / ROUTER / "keys.json"))
    return ring.whose(f"Bearer {clear}") is not None
