"""The domain stands alone, and starts no program. Which folder imports which: contracts in pyproject.toml."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import COMMANDS
from rigwright.project_root import ROOT

DOMAIN = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "rigwright").rglob("*.py")
    if path.stem != "__init__"
)
# the folders that carry decisions out, and those that reach a host or a network
FORBIDDEN = (
    *("pyinfra", "paramiko", "gevent", "testinfra", "requests", "huggingface_hub"),
    *("roles", "checks", "lab", "bench", "benchmarks", "cli", "tests"),
)
PROGRAM = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
    found = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
    if found:
        sys.exit(f"{name} imports {', '.join(found)}")
"""


def run(*modules: str) -> str:
    command = [sys.executable, "-c", PROGRAM, ",".join(FORBIDDEN), *modules]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stderr


def imported(path: Path) -> set[str]:
    """The top-level packages that a file names in an import, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_no_module_of_the_domain_imports_what_carries_it_out() -> None:
    rooms = {name.split(".")[1] for name in DOMAIN}
    assert {"declaration", "engines", "host", "model", "nvidia", "plan", "serving", "supply", "weights"} <= rooms
    assert run(*DOMAIN) == ""


@pytest.mark.parametrize("path", sorted((ROOT / "rigwright").rglob("*.py")), ids=lambda path: path.stem)
def test_the_domain_starts_no_program_and_opens_no_connection(path: Path) -> None:
    assert not imported(path) & {*FORBIDDEN, "subprocess", "socket", "urllib3", "httpx2"}


@pytest.mark.parametrize("module", ["model.rig", "engines.llama_cpp.build", "serving.instance_units", "plan.preflight"])
def test_a_module_that_decides_can_be_imported_on_its_own(module: str) -> None:
    assert run(f"rigwright.{module}") == ""


def test_an_import_that_breaks_the_rule_would_be_seen() -> None:
    assert "cli.demo imports" in run("cli.demo")


def test_the_product_imports_no_benchmark() -> None:
    folders = ("rigwright", "roles", "checks", "lab", "bench", "cli")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [str(path) for path in paths if imported(path) & {"benchmarks", "tests"}] == []


# roles.root_shell waits for threads: before gevent has taken their place it would wait for ever
FIRST = """
import os, sys
def heard(event, args):
    if event == "import" and "pyinfra_cli" in sys.modules and "gevent" in sys.modules:
        os._exit(0)  # whatever comes now comes after it
    if event == "import" and args[0] == "roles.root_shell":
        sys.exit("roles.root_shell is imported before pyinfra's gevent")
sys.addaudithook(heard)
import cli.{}
sys.exit('ssl' in sys.modules and 'gevent' not in sys.modules)
"""


@pytest.mark.parametrize("module", sorted({module for module, _ in COMMANDS.places.values()}))
def test_no_verb_loads_ssl_or_what_waits_for_threads_before_pyinfras_gevent(module: str) -> None:
    command = [sys.executable, "-c", FIRST.format(module)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "checks").rglob("*.py")), ids=lambda path: path.stem)
def test_a_check_takes_nothing_of_a_role_but_how_a_host_is_reached(path: Path) -> None:
    named = set(re.findall(r"^\s*(?:from|import) (roles\b.*)$", path.read_text(), re.MULTILINE))
    assert named <= {
        "roles import root_shell",
        "roles.connection_failures import describe_unreachable_host",
        "roles.connection_failures import strip_address",
        "roles.host_counts import show_counts",
        "roles.host_pool import HostThreads",
        "roles.host_pool import HostThreads, TimedPlaces",
        "roles.host_pool import TooManyHosts, pace_hosts, raise_file_limit",
        "roles.connection_failures import ConnectFailureRecorder, silence_pyinfra_log",
        "roles.pyinfra_inventory import load_pyinfra_inventory",
    }
