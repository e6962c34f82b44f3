"""One filter of system calls for units, jobs and containers, and no io_uring in any of them."""

import re
import shlex
from pathlib import Path

import pytest

from checks.unit_settings import SystemCallGroups, declared_properties
from rigwright.engines import unprivileged_steps
from rigwright.model.roots import Roots
from rigwright.operate.client_target import ClientTarget
from rigwright.project_root import ROOT
from rigwright.system_calls import OF_JOBS, filter_lines
from roles.client import render_client_command

# Of systemd 252's groups, what matters here.
CALLS = {
    "@system-service": frozenset({"read", "socket", "mbind", "chown", "io_uring_setup", "keyctl", "userfaultfd"}),
    "@aio": frozenset({"io_submit", "io_uring_enter", "io_uring_setup"}),
    "@privileged": frozenset({"chown"}),
    "@resources": frozenset({"mbind", "sched_setscheduler"}),
}
TEMPLATES = sorted(path for path in (ROOT / "templates").rglob("*.j2"))
CONFINED = [
    path for path in TEMPLATES if re.search(r"^(RestrictAddressFamilies|CapabilityBounding)", path.read_text(), re.M)
]


def allowed(lines: tuple[str, ...]) -> set[str]:
    return set(declared_properties("\n".join(lines), SystemCallGroups(CALLS))["SystemCallFilter"].split())


@pytest.mark.parametrize(
    ("added", "base", "found"),
    [
        ((), None, {"read", "socket"}),
        ((), OF_JOBS, {"read", "socket", "mbind", "chown"}),
        (("sched_setscheduler",), None, {"read", "socket", "sched_setscheduler"}),
        (("@aio", "io_uring_setup"), None, {"read", "socket", "io_submit"}),
    ],
)
def test_a_filter_lets_through_what_its_service_needs_and_never_io_uring(
    added: tuple[str, ...], base: tuple[str, ...] | None, found: set[str]
) -> None:
    assert allowed(filter_lines(added, **({} if base is None else {"base": base}))) == found


@pytest.mark.parametrize("path", CONFINED, ids=lambda path: path.name)
def test_every_confined_unit_has_the_one_filter(path: Path) -> None:
    text = path.read_text()
    assert "system_calls(" in text or "{% include 'gateway/hardened.j2' %}" in text


def test_no_template_writes_a_filter_itself() -> None:
    assert CONFINED
    assert [path.name for path in TEMPLATES if "SystemCallFilter=" in path.read_text()] == []


def test_jobs_and_clients_have_it_too() -> None:
    offline = unprivileged_steps.systemd_run_options(Roots())
    clients = shlex.split(render_client_command(ClientTarget("chat", "/run/x.sock", "m"), "rw-client-x"))
    for words in (offline, clients):
        lines = tuple(word.removeprefix("--property=") for word in words if "SystemCall" in word)
        assert "read" in allowed(lines)
        assert not {"io_uring_setup", "keyctl", "userfaultfd"} & allowed(lines)
    assert "socket" not in allowed(tuple(word.removeprefix("--property=") for word in offline))
