"""What has verbs begin sooner changes nothing of what they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rigwright.inventory import ROOT


def python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_match_exec_needs_is_imported_where_there_is_one(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "true"\n  User somebody\n')
    said = python(
        "import sys\n"
        "from cli import quick\n"
        "quick.begin()\n"
        "import paramiko\n"
        "print('invoke.runners' in sys.modules)\n"
        f"print(paramiko.SSHConfig.from_path({str(config)!r}).lookup('box')['user'])\n"
        "print('invoke.runners' in sys.modules)\n"
    )
    assert said.splitlines() == ["False", "somebody", "True"]


def test_operations_have_the_order_that_pyinfra_gives_them(tmp_path: Path) -> None:
    deploy = tmp_path / "deploy.py"
    deploy.write_text("def role(order):\n    return order()\n\n\nfound.append(role(\n    order\n))\n")
    said = python(
        "from types import SimpleNamespace\n"
        "import pyinfra\n"
        "from pyinfra.api import util\n"
        "from cli import quick\n"
        "pyinfra.is_cli = True\n"
        "found = []\n"
        f"path = {str(deploy)!r}\n"
        "state = SimpleNamespace(current_deploy_filename=path, current_op_file_number=0)\n"
        "def run():\n"
        "    order = lambda: util.get_operation_order_from_stack(state)\n"
        "    exec(compile(open(path).read(), path, 'exec'), {'found': found, 'order': order})\n"
        "for before in (lambda: None, quick.operations):\n"
        "    before()\n"
        "    run()\n"
        "print(found[0] == found[1], len(found[0]), util.stack.keywords)\n"
    )
    assert said.split(" ", 2)[0] == "True"
    assert "context" in said


def test_installed_packages_are_looked_through_once_and_tell_what_they_always_do() -> None:
    said = python(
        "import sys\n"
        "from cli import quick\n"
        "quick.begin()\n"
        "import pydantic\n"
        "print('email' in sys.modules)\n"
        "from importlib import metadata\n"
        "looks = [0]\n"
        "distributions = metadata.distributions\n"
        "real = sys.modules['importlib.metadata']\n"
        "real.distributions = lambda **of: looks.__setitem__(0, looks[0] + 1) or distributions(**of)\n"
        "import pyinfra_cli, pyinfra.api.connectors\n"
        "print(looks[0], pyinfra.api.connectors.get_execution_connector('ssh').__name__)\n"
        "print(len(metadata.entry_points(group='console_scripts')) > 3, len(metadata.entry_points(group='none')))\n"
    )
    assert said.splitlines() == ["False", "1 SSHConnector", "True 0"]


def test_an_operation_that_is_named_on_pyinfras_command_line_is_imported_then() -> None:
    said = python(
        "import sys\n"
        "from cli import quick\n"
        "quick.begin()\n"
        "import pyinfra_cli.cli\n"
        "print('pyinfra.facts.hardware' in sys.modules, 'pyinfra.facts.server' in sys.modules)\n"
        "from pyinfra.operations import server\n"
        "print(server.shell.__module__, 'pyinfra.facts.server' in sys.modules)\n"
    )
    assert said.splitlines() == ["False False", "pyinfra.operations.server True"]


def test_operations_know_the_arguments_that_pyinfra_knows() -> None:
    said = python(
        "import pyinfra_cli\n"
        "from cli import quick\n"
        "from pyinfra.api import arguments, facts\n"
        "before = arguments.all_global_arguments()\n"
        "quick.operations()\n"
        "print(before == arguments.all_global_arguments() == facts.all_global_arguments())\n"
    )
    assert said == "True\n"
