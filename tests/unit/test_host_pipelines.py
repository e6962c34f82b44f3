"""Hosts of a deploy take their steps each at its own pace; those that serve each other go side by side."""

import os
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from cli.deploy_run import fit_steps
from cli.host_pipelines import HostPipeline, PipelinedState, find_companions
from tests.unit.test_cli_output import LocalDeployFolder, boxes, ground  # noqa: F401 (fixtures)


def add_second_host(ground: LocalDeployFolder) -> None:  # noqa: F811
    # a configuration of its own has it another machine than the first, by the same address
    (ground.folder / "ssh_config").touch()
    ground.hosts["box2"] = {**ground.server.connection, "ssh_config_file": str(ground.folder / "ssh_config")}


def test_a_host_that_takes_long_for_a_step_delays_no_other_one(ground: LocalDeployFolder) -> None:  # noqa: F811
    pipe = ground.folder / "pipe"
    os.mkfifo(pipe)
    add_second_host(ground)
    # the second step of box1 ends with the third of box2
    steps = (
        f"made(name='Two', words='timeout 30 cat {pipe}' if host.name == 'box1' else 'true'); "
        f"made(name='Three', words='true' if host.name == 'box1' else 'echo > {pipe}')"
    )
    done = ground.run(steps=steps)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(" (")[0] for line in done.stdout.splitlines()]
    assert lines.index("box2: Role: Three") < lines.index("box1: Role: Three")


def test_an_error_of_one_host_ends_no_other_one(ground: LocalDeployFolder) -> None:  # noqa: F811
    add_second_host(ground)
    done = ground.run(before="assert host.name == 'box1', 'odd'\n", steps="made(name='Two')")
    assert done.returncode == 1
    assert "box1: Role: Two" in done.stdout
    assert "deploy failed on 1 of 2 hosts: box2: AssertionError: odd" in done.stderr


def test_an_error_in_a_step_of_one_host_ends_no_other_one(ground: LocalDeployFolder) -> None:  # noqa: F811
    add_second_host(ground)
    odd = (
        "@operation()\n"
        "def odd():\n"
        "    if state.is_executing and host.name == 'box2':\n"
        "        raise EOFError\n"
        "    yield StringCommand('true')\n"
    )
    done = ground.run(before=odd, steps="odd(name='Two'); made(name='Three')")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "box1: Role: Three" in done.stdout
    assert "box2: Role: Three" not in done.stdout
    reason = "box2: Role: Two: EOFError; with -v the same command shows where"
    assert f"deploy failed on 1 of 2 hosts: {reason}" in done.stderr


def rig(share: str = "", peers: tuple[str, ...] = (), uses: tuple[str, ...] = ()) -> Any:
    remote = [SimpleNamespace(box=name) for name in uses]
    return SimpleNamespace(
        share=SimpleNamespace(address=share, port=8090) if share else None,
        network=SimpleNamespace(peers=peers),
        gateway=SimpleNamespace(fleet=SimpleNamespace(remote=remote)) if uses else None,
    )


@pytest.mark.parametrize(
    ("rigs", "companions"),
    [
        ({"a": rig(), "b": rig()}, {"a": set(), "b": set()}),
        ({"a": rig("10.0.0.5"), "b": rig(peers=("http://10.0.0.5:8090",))}, {"a": {"b"}, "b": {"a"}}),
        ({"a": rig("10.0.0.5"), "b": rig(peers=("http://10.0.0.5:80",))}, {"a": set(), "b": set()}),
        ({"a": rig("fd00::5"), "b": rig(peers=("http://[fd00::5]:8090/",))}, {"a": {"b"}, "b": {"a"}}),
        # peers that may be any box that shares at that port
        ({"a": rig("10.0.0.5"), "b": rig(peers=("http://one.lan:8090",))}, {"a": {"b"}, "b": {"a"}}),
        ({"a": rig("0.0.0.0"), "b": rig(peers=("http://10.0.0.5:8090",))}, {"a": {"b"}, "b": {"a"}}),
        ({"a": rig("::"), "b": rig(), "c": rig("::", ("http://10.0.0.5:8090",))}, {"a": {"c"}, "b": set(), "c": {"a"}}),
        ({"a": rig("10.0.0.5"), "b": rig(peers=("http://one.lan:80",))}, {"a": set(), "b": set()}),
        ({"a": rig("10.0.0.5"), "b": rig(peers=("http://10.0.0.6:8090",))}, {"a": set(), "b": set()}),
        ({"a": rig(uses=("b", "elsewhere")), "b": rig(), "c": rig()}, {"a": {"b"}, "b": {"a"}, "c": set()}),
    ],
)
def test_hosts_that_serve_each_other_are_companions(rigs: dict[str, Any], companions: dict[str, set[str]]) -> None:
    assert find_companions(rigs) == companions


@pytest.mark.parametrize(("position", "waits"), [(None, True), ((1, 4), True), ((2, 1), False), ((2, 7), False)])
def test_a_host_begins_no_step_before_its_companion_has_ended_the_ones_before(
    position: tuple[int, ...] | None, waits: bool
) -> None:
    other = HostPipeline(None, position=position)
    host = HostPipeline(None, companions=[other])
    begun = gevent.spawn(host.wait_for_companions, (2, 1))
    gevent.idle()
    assert begun.ready() is not waits
    other.move(None)
    begun.get(timeout=20)


def test_a_run_goes_on_without_active_hosts() -> None:
    state = PipelinedState(check_for_changes=False)
    state.active_hosts, state.failed_hosts = cast("set[Any]", {"a"}), set()
    state.fail_hosts({"a"})
    assert (state.active_hosts, state.failed_hosts) == (set(), {"a"})


def test_the_changed_steps_of_a_host_fit_on_a_line() -> None:
    steps = ["Base: Packages", "Engines: Install llama.cpp", "Serving: Units", "Serving: Generation"]
    assert fit_steps("n0001", steps[:2]) == "n0001: Base: Packages, Engines: Install llama.cpp"
    line = fit_steps("n0001", steps)
    assert line == "n0001: Base: Packages, Engines: Install llama.cpp, Serving: Units and 1 more"
    assert fit_steps("n" * 79, steps) == f"{'n' * 79}: 4 steps changed something"
