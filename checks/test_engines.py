"""Installed engines, of every kind."""

import json
import re
import shlex
from collections.abc import Callable

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.engines import apart
from rigwright.engines.kind import FILES, MARKER, Installation
from rigwright.envs.installer import changed, installer


@check(
    "L01",
    "it was made of what is locked, with the declared options",
    severity="critical",
    why="another source or option is another program",
)
def test_build_record(host: Host, rig: Rig, installation: Installation) -> None:
    record = host.run("cat %s", f"{rig.installed(installation.folder)}/{MARKER}")
    found = json.loads(record.stdout)["inputs"] if record.rc == 0 else "nothing is installed"
    wanted = json.loads(json.dumps(installation.record))
    expect(found, wanted, again(rig, installation), holds=_same(wanted, found))


@check(
    "L02",
    "its files are the ones that were installed",
    severity="critical",
    why="a changed binary is either damage or somebody else's",
)
def test_files_are_unchanged(
    host: Host,
    rig: Rig,
    installation: Installation,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    deep = pytestconfig.getoption("--deep")
    # the list of bytes has no links, and says nothing of a file too many
    if installer(rig, installation).record:
        seen = host.run("sh -c %s", changed(rig.installed(installation.folder)))
        said = "; ".join((seen.stdout + seen.stderr).splitlines())
        expect(said, "", again(rig, installation))
        if not deep:
            record_property("how", "verified before and not touched since; --deep reads them")
            return
    result = host.run("cd %s && sha256sum --check --quiet %s", rig.installed(installation.folder), FILES)
    said = "; ".join((result.stdout + result.stderr).splitlines()[:3])
    expect(said, "", again(rig, installation), holds=result.rc == 0)


@check("L03", "it starts and says its version", severity="critical", why="a missing library shows here first")
def test_it_starts(host: Host, rig: Rig, installation: Installation) -> None:
    command, wanted = installer(rig, installation).version(rig, installation)
    if not command:
        pytest.skip("has no command that only says its version")
    result = host.run(shlex.join(apart.command(rig.roots, command)))
    said = result.stdout + result.stderr
    holds = result.rc == 0 and wanted in said
    expect(said.strip()[-200:], f"a version with {wanted}", again(rig, installation), holds=holds)


@check(
    "L05",
    "it holds machine code for exactly the rig's cards",
    severity="critical",
    why="a card without code of its own fails at the first request, or compiles for minutes at every start",
)
def test_machine_code(host: Host, rig: Rig, installation: Installation) -> None:
    command, wanted = installer(rig, installation).machine_code(rig, installation)
    if not command:
        pytest.skip("nothing of it is compiled for the rig's cards")
    listed = set(re.findall(r"\bsm_[0-9]+[a-z]?\b", host.check_output(shlex.join(apart.command(rig.roots, command)))))
    expect(sorted(listed), sorted(wanted), again(rig, installation))


def _same(wanted: object, found: object) -> bool:
    """Whether the same was found: of an artefact also what does not say more of it, such as where it was from."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        exact = "sha256" in wanted or wanted.keys() == found.keys()
        return exact and all(key in found and _same(value, found[key]) for key, value in wanted.items())
    return wanted == found


def again(rig: Rig, installation: Installation) -> str:
    """A folder with its marker is never installed again by itself."""
    return f"remove {rig.installed(installation.folder)} and {DEPLOY}"
