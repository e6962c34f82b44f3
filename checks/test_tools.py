"""Host tools."""

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.supply.tools import installed, installed_script, tools


@check("T01", "host tools are the locked ones", severity="low", why="another version fetches or verifies otherwise")
def test_tools_are_the_locked_ones(host: Host, rig: Rig, facts: HostFacts) -> None:
    folder = tools(rig, facts).folder
    found = installed([host.check_output("sh -c %s", installed_script(folder))])
    if not found:
        expect("no working environment", folder, DEPLOY)
    lines = (line.rstrip(" \\") for line in tools(rig, facts).requirements.splitlines())
    wanted = {pin(line) for line in lines if "==" in line and ";" not in line}
    expect(sorted(wanted - found), [], f"remove {folder} and {DEPLOY}")


def pin(line: str) -> str:
    """`name==version` with the name as an index spells it."""
    requirement = Requirement(line)
    return f"{canonicalize_name(requirement.name)}{requirement.specifier}"
