"""The code that has verbs begin sooner changes nothing of their work."""

import subprocess
import sys
from pathlib import Path

from rigwright.project_root import ROOT


def python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_imports_for_a_match_exec_happen_only_with_one(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "true"\n  User somebody\n')
    said = python(
        "import sys\n"
        "from cli import import_speedups\n"
        "import_speedups.speed_up_imports()\n"
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
        "from cli import import_speedups\n"
        "pyinfra.is_cli = True\n"
        "found = []\n"
        f"path = {str(deploy)!r}\n"
        "state = SimpleNamespace(current_deploy_filename=path, current_op_file_number=0)\n"
        "def run():\n"
        "    order = lambda: util.get_operation_order_from_stack(state)\n"
        "    exec(compile(open(path).read(), path, 'exec'), {'found': found, 'order': order})\n"
        "for before in (lambda: None, import_speedups.speed_up_operations):\n"
        "    before()\n"
        "    run()\n"
        "print(found[0] == found[1], len(found[0]), util.stack.keywords)\n"
    )
    assert said.split(" ", 2)[0] == "True"
    assert "context" in said


def test_installed_packages_are_looked_through_once_and_tell_what_they_always_do() -> None:
    said = python(
        "import sys\n"
        "from cli import import_speedups\n"
        "import_speedups.speed_up_imports()\n"
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


def test_installed_packages_are_found_by_importers_of_the_full_name() -> None:
    said = python(
        "from cli import import_speedups\n"
        "import_speedups.speed_up_imports()\n"
        "import importlib.metadata\n"
        "print(importlib.metadata.version('click').count('.'))\n"
        "import sys\n"
        "print(importlib.metadata is sys.modules['importlib.metadata'])\n"
    )
    assert said.splitlines() == ["2", "True"]


def test_an_operation_that_is_named_on_pyinfras_command_line_is_imported_then() -> None:
    said = python(
        "import sys\n"
        "from cli import import_speedups\n"
        "import_speedups.speed_up_imports()\n"
        "import pyinfra_cli.cli\n"
        "print('pyinfra.facts.hardware' in sys.modules, 'pyinfra.facts.server' in sys.modules)\n"
        "from pyinfra.operations import server\n"
        "print(server.shell.__module__, 'pyinfra.facts.server' in sys.modules)\n"
    )
    assert said.splitlines() == ["False False", "pyinfra.operations.server True"]


def test_operations_know_the_arguments_that_pyinfra_knows() -> None:
    said = python(
        "import pyinfra_cli\n"
        "from cli import import_speedups\n"
        "from pyinfra.api import arguments, facts\n"
        "before = arguments.all_global_arguments()\n"
        "import_speedups.speed_up_operations()\n"
        "print(before == arguments.all_global_arguments() == facts.all_global_arguments())\n"
    )
    assert said == "True\n"


DATACLASSES = """
from dataclasses import FrozenInstanceError, astuple, dataclass, field, replace

@dataclass
class Plain:
    first: int
    second: list[int] = field(default_factory=list)

@dataclass(frozen=True)
class Frozen:
    '''A docstring.'''
    first: int
    second: "Frozen | None" = None

@dataclass(frozen=True)
class Wider(Frozen):
    third: str = "c"
    def __post_init__(self):
        if self.third == "no":
            raise ValueError(self.third)

@dataclass(order=True, slots=True)
class Ordered:
    first: int
    second: int = 2

@dataclass
class Own:
    self: int

def raised(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

for _ in range(2):
    print(Own(self=1), Own(2))
    print(Plain(1), Plain(1) == Plain(1), Plain(1) == Plain(2), Plain(1).second is Plain(1).second)
    print(Frozen(1, Frozen(2)), len({Frozen(1), Frozen(1), Frozen(2)}), Frozen(1) == Wider(1), Wider(1) == Wider(1))
    print(raised(lambda: setattr(Frozen(1), "first", 2)), raised(lambda: delattr(Wider(1), "third")))
    print(raised(lambda: Wider(1, third="no")), raised(lambda: Frozen()), raised(lambda: Plain(1, 2, 3)))
    print(raised(lambda: hash(Plain(1))), replace(Wider(1), first=3), astuple(Wider(4)))
    print(sorted([Ordered(2), Ordered(1, 3), Ordered(1)]), raised(lambda: Ordered(1) < 1), Ordered(1) >= Ordered(1))
"""


def test_dataclasses_whose_methods_are_compiled_when_they_are_called_are_what_they_always_are() -> None:
    assert python(f"from cli import import_speedups\nimport_speedups.speed_up_imports()\n{DATACLASSES}") == python(
        DATACLASSES
    )


def test_an_unused_dataclass_is_not_compiled() -> None:
    said = python(
        "import dataclasses\n"
        "from cli import import_speedups\n"
        "compiled, names = getattr(dataclasses, import_speedups.COMPILE, None), []\n"
        "if compiled:\n"
        "    setattr(dataclasses, import_speedups.COMPILE, lambda *a, **o: names.append(a[0]) or compiled(*a, **o))\n"
        "import_speedups.speed_up_imports()\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Made:\n"
        "    first: int\n"
        "before = list(names)\n"
        "Made(1), Made(2)\n"
        "print(before, names if compiled else ['__init__'])\n"
    )
    assert said == "[] ['__init__']\n"
