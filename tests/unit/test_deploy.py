"""`pyinfra INVENTORY deploy.py`: an error ends the run in words, before a connection is made."""

import ast
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from rigwright.plan.stages import STAGES, DeployStage, stage_of
from rigwright.project_root import ROOT
from rigwright.run_options import RunOptions
from roles.rig_lookup import DeployContext, role
from tests.unit.samples import OperatorFolder

GOOD = '"ssh_hostname": "127.0.0.1", "ssh_port": PORT, "ssh_user": "nobody", "ssh_connect_retries": 0'
MIRROR = '"mirrors": {"store": ["http://127.0.0.1:9"]}'


def plan(inventory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("pyinfra"))
    return subprocess.run(
        [program, str(inventory), str(ROOT / "deploy.py"), "--dry", *options],
        capture_output=True,
        text=True,
        cwd=inventory.parent,
        env=os.environ | {"HOME": str(inventory.parent)},
        check=False,
    )


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that would see a connection."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


def write(box: OperatorFolder, listener: socket.socket, *rigs: str) -> None:
    port = listener.getsockname()[1]
    entries = ", ".join(rig.replace("PORT", str(port)) for rig in rigs)
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{{entries}}})\n")


def test_a_refused_inventory_ends_in_words_before_a_connection_is_made(box, listener):
    write(
        box,
        listener,
        f'"good": {{{GOOD}, {MIRROR}}}',
        f'"typo": {{{GOOD}, {MIRROR}, "instanses": {{}}}}',
        f'"name": {{{GOOD}, {MIRROR}, "cards": ["turin"]}}',
    )
    run = plan(box.inventory)
    assert run.returncode == 1
    said = run.stdout + run.stderr
    assert "Traceback" not in said
    assert f'{box.inventory}: typo.instanses: unknown key; did you mean "instances"?' in said
    assert f'{box.inventory}: name.cards[0]: there is no card "turin"; did you mean "turing"?' in said
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_valid_inventory_is_connected_to(box: OperatorFolder, listener: socket.socket) -> None:
    write(box, listener, f'"good": {{{GOOD}, {MIRROR}}}')
    program = str(Path(sys.executable).with_name("pyinfra"))
    with subprocess.Popen(
        [program, str(box.inventory), str(ROOT / "deploy.py"), "--dry"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=box.folder,
    ) as run:
        listener.settimeout(20)
        accepted, _ = listener.accept()
        accepted.close()
        run.terminate()


def test_a_refused_lock_beside_the_inventory_ends_in_words(box: OperatorFolder, listener: socket.socket) -> None:
    lock = box.write("locks/box.lock.toml", "schema = 9\n")
    write(box, listener, f'"good": {{{GOOD}, {MIRROR}}}')
    run = plan(box.inventory)
    assert run.returncode == 1
    assert f"{lock}: schema: 9 is refused: must be 1" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_deploy_calls_the_role_of_each_stage_in_order_on_lines_of_their_own() -> None:
    # pyinfra knows an operation by the lines of its stack: two roles on one line would be one on several hosts
    lines = {
        node.lineno: node.func.id
        for node in ast.walk(ast.parse((ROOT / "deploy.py").read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and [ast.unparse(one) for one in node.args] == ["context"]
    }
    assert [lines[number] for number in sorted(lines)] == [stage.role for stage in STAGES]


@pytest.mark.parametrize(
    ("applies", "only", "runs"),
    [(True, (), True), (False, (), False), (True, ("base", "sharing"), True), (True, ("base",), False)],
)
def test_a_role_adds_its_operations_where_its_stage_applies_and_the_run_includes_it(
    monkeypatch: pytest.MonkeyPatch, applies: bool, only: tuple[str, ...], runs: bool
) -> None:
    contexts: list[DeployContext] = []

    def sharing(context: DeployContext) -> None:
        contexts.append(context)

    monkeypatch.setattr("roles.rig_lookup.deploy", lambda title: lambda function: function)
    monkeypatch.setattr("roles.rig_lookup.stage_of", {"sharing": DeployStage("sharing", Mock(), lambda _: applies)}.get)
    context = DeployContext(Mock(), RunOptions(only=only))
    role("Sharing")(sharing)(context)
    assert contexts == [context] * runs


def test_a_role_without_a_stage_is_a_mistake_of_its_module() -> None:
    with pytest.raises(KeyError, match="wieghts"):
        stage_of("wieghts")
