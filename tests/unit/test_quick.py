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
