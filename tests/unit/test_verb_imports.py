"""The imports of a verb before it does anything: most of the time that the quick ones take."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli import COMMANDS
from cli.lazy_commands import LONGEST_SUMMARY, LazyGroup
from rigwright.project_root import ROOT

PROGRAM = """
import sys
from pathlib import Path
from cli import main
try:
    main(sys.argv[2:], prog_name="rigwright")
except SystemExit as ended:
    assert not ended.code, ended.code
found = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
sys.exit(f"imports {', '.join(found)}" if found else 0)
"""
# the modules that reach hosts, and those that run checks
HEAVY = ("pyinfra", "pyinfra_cli", "gevent", "paramiko", "testinfra", "pytest", "requests", "huggingface_hub", "jinja2")


def run(forbidden: tuple[str, ...], *words: str) -> str:
    command = [sys.executable, "-c", PROGRAM, ",".join(forbidden), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    return done.stderr


def test_a_help_imports_no_verb() -> None:
    verbs = tuple(f"cli.{module}" for module, _ in COMMANDS.places.values())
    assert run((*HEAVY, *verbs, "pydantic", "rich"), "--help") == ""


def test_an_inventory_is_judged_without_what_reaches_its_hosts(tmp_path: Path) -> None:
    box = {
        "ssh_hostname": "192.0.2.7",
        "instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}},
        "mirrors": {"shelf": ["http://127.0.0.1:8080"]},
    }
    inventory = tmp_path / "rig.py"
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {box!r}}})\n")
    forbidden = (
        *HEAVY,
        "rich",
        "cryptography",
        "email",
        "rigwright.plan.host_probe",
        "rigwright.serving.serving_state",
    )
    assert run(forbidden, "validate", str(inventory)) == ""


def test_a_deploy_that_has_nothing_to_report_draws_no_bars() -> None:
    deploy = (ROOT / "deploy.py").read_text()
    roles = [line.split()[1] for line in deploy.splitlines() if line.startswith("from roles")]
    program = f"import pyinfra_cli, sys, {', '.join(roles)}; sys.exit('rich.progress' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=120).returncode == 0


REACHING = """
import gc, sys
from importlib import import_module
from cli import import_speedups
import_speedups.speed_up_imports()
looks = gc.get_stats()[0]["collections"]
import pyinfra.connectors.ssh, rigwright.engines
for name in sys.argv[1:]:
    import_module(name)
rigwright.engines.kinds()
assert gc.get_stats()[0]["collections"] == looks, "objects of imports were looked through for cycles"
print(len(sys.modules), *sys.modules)
"""
# of what dependencies bring, for what these verbs do not do
NEEDLESS = {
    "asyncio",
    "pytest",
    "rich",
    "cryptography.x509",
    "pyinfra.facts.server",
    "pyinfra.facts.files",
    "dateutil",
    "requests",
}


def reaching(*modules: str) -> set[str]:
    """All that is imported once a verb that imports these has reached its hosts."""
    command = [sys.executable, "-c", REACHING, *modules]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120)
    return set(done.stdout.split()[1:])


@pytest.mark.parametrize("verbs", ["status", "plan", "show_deployed"])
def test_looking_at_hosts_imports_nothing_that_it_does_not_need(verbs: str) -> None:
    imported = reaching(f"cli.{verbs}")
    assert not imported & NEEDLESS
    assert len(imported) < 838, "each hundred modules take some 50 ms"


def test_a_deploy_imports_nothing_that_it_does_not_need() -> None:
    roles = [line.split()[1] for line in (ROOT / "deploy.py").read_text().splitlines() if line.startswith("from r")]
    imported = reaching("cli.deploy_verbs", "cli.deploy_run", *roles)
    assert not imported & (NEEDLESS - {"pyinfra.facts.files"})
    assert len(imported) < 890, "each hundred modules take some 50 ms"


PATCHED = """
import gc, sys
from cli import main
seen, look = [], gc.get_objects
def counted(*generation):
    found = look(*generation)
    seen.append(len(found))
    return found
gc.get_objects = counted
try:
    main(["deploy", sys.argv[1]], prog_name="rigwright")
except SystemExit as ended:
    print(ended.code, len(seen), max(seen))
"""


def test_gevent_looks_for_held_locks_in_what_an_import_of_its_own_has_made(tmp_path: Path) -> None:
    inventory = tmp_path / "rig.py"
    inventory.write_text("raise SystemExit('no hosts today')\n")
    command = [sys.executable, "-c", PATCHED, str(inventory)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120)
    status, looks, objects = map(int, done.stdout.split())
    assert (status, looks) == (2, 1), done.stderr
    assert objects < 30_000, "each ten thousand take some 3 ms"


def test_a_summary_that_is_read_without_an_import_is_that_of_the_command() -> None:
    for name, command in COMMANDS.items():
        assert COMMANDS.read_summary(name) == command.get_short_help_str(LONGEST_SUMMARY)
        for inner in command.commands if isinstance(command, LazyGroup) else ():
            assert command.lazy_commands.read_summary(inner) == command.commands[inner].get_short_help_str(
                LONGEST_SUMMARY
            )


def test_a_topic_imports_no_other_topic() -> None:
    others = ("cli.show_deployed", "cli.show_advisories", "cli.show_report", "cli.show_variants")
    assert run((*HEAVY, *others), "show", "url", "--help") == ""
