"""Which hosts a `--limit` names, and names that could be a host's and a group's."""

import pytest
from click.testing import CliRunner
from pyinfra.api.config import Config
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra_cli.cli import _apply_inventory_limit

from checks import connections
from cli import deploy_verbs, main
from cli.inventory_loading import load_hosts
from rigwright.host_selection import select_hosts
from tests.unit.samples import OperatorFolder, sample_entry

HOSTS = {f"b{number}": sample_entry(cards=[], instances={}, ssh_hostname=f"192.0.2.{number}") for number in (1, 2)}


@pytest.mark.parametrize("verb", ["validate", "key host", "remove", "status", "plan"])
def test_a_group_with_a_hosts_name_is_refused_before_a_host_is_reached(box, monkeypatch, verb):
    monkeypatch.setattr(connections, "connect_targets", lambda *_: pytest.fail("a host was reached"))
    path = box.write("rig.py", f"from rigwright.inventory import hosts\nb2 = hosts({HOSTS!r})\n")
    done = CliRunner().invoke(main, [*verb.split(), str(path), *(["--limit", "b2"] if verb != "validate" else [])])
    assert done.exit_code == 2, done.output
    assert f'{path}: "b2" is a host, and a group with other hosts (b1): rename one' in done.output.replace("\n", " ")


def test_a_group_of_its_own_may_have_a_hosts_name(box: OperatorFolder) -> None:
    path = box.write("b1.py", f"from rigwright.inventory import hosts\nb1 = hosts({ {'b1': HOSTS['b1']}!r})\n")
    done = CliRunner().invoke(main, ["validate", str(path)])
    assert done.exit_code == 0, done.output


def test_a_hosts_name_is_that_host_and_not_all_of_a_file_of_that_name(box, monkeypatch):
    asked: list[list[str]] = []
    monkeypatch.setattr(
        connections,
        "connect_targets",
        lambda _, targets, *more: asked.append([*targets]) or dict.fromkeys(targets, ""),
    )
    path = box.write("b2.py", f"from rigwright.inventory import hosts\nrigs = hosts({HOSTS!r})\n")
    assert CliRunner().invoke(main, ["plan", str(path), "--limit", "b2"]).exit_code == 3
    assert ([*load_hosts(str(path), "b2")], asked) == (["b2"], [["b2"]])
    # the options that reach hosts with -v
    monkeypatch.setattr(deploy_verbs, "run_pyinfra", lambda *words: asked.append([*words]) or 0)
    assert CliRunner().invoke(main, ["remove", str(path), "--limit", "b2", "-v", "--yes"]).exit_code == 0
    theirs = Inventory(([*HOSTS], {}), b2=([*HOSTS], {}))
    State(theirs, Config())
    assert [host.name for host in _apply_inventory_limit(theirs, asked[-1][-1:]) or ()] == ["b2"]


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    with pytest.raises(LookupError, match='there is no host or group "BOX1"; did you mean "box1"'):
        select_hosts("BOX1", ["box1", "other"], {})
