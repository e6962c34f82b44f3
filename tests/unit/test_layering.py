"""The domain stands alone: it is imported without pyinfra's world."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rigwright.cli import PARTS
from rigwright.inventory import ROOT

DOMAIN = sorted(
    ".".join(path.relative_to(ROOT / "rigwright").with_suffix("").parts)
    for pattern in ("*.py", "driver/*.py")
    for path in (ROOT / "rigwright").glob(pattern)
    if not path.stem.startswith("__")
)
FORBIDDEN = ("pyinfra", "paramiko", "gevent", "testinfra", "roles", "checks", "lab")
PROGRAM = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(f"rigwright.{name}")
    found = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
    if found:
        sys.exit(f"rigwright.{name} imports {', '.join(found)}")
"""


def run(*modules: str) -> str:
    command = [sys.executable, "-c", PROGRAM, ",".join(FORBIDDEN), *modules]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stderr


def test_no_module_of_the_domain_imports_what_carries_it_out() -> None:
    assert {"rig", "llama_cpp", "serving", "preflight", "driver.plan"} <= set(DOMAIN)
    assert run(*DOMAIN) == ""


@pytest.mark.parametrize("module", ["rig", "llama_cpp", "serving", "preflight"])
def test_a_module_that_decides_can_be_imported_on_its_own(module: str) -> None:
    assert run(module) == ""


def test_an_import_that_breaks_the_rule_would_be_seen() -> None:
    assert "rigwright.cli.demo imports" in run("cli.demo")


@pytest.mark.parametrize("module", sorted({place.split(":")[0] for part in PARTS.values() for place in part.values()}))
def test_no_verb_loads_ssl_before_pyinfras_gevent(module: str) -> None:
    program = f"import sys, rigwright.cli.{module}; sys.exit('ssl' in sys.modules and 'gevent' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
