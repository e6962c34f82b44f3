"""What the host says it is."""

import json

from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.rig import Rig


@check(
    "R01", "the record on the host is this rig's", severity="low", why="who looks at the box later is told wrong things"
)
def test_record(host: Host, rig: Rig) -> None:
    said = host.run("cat %s/rig.json", rig.roots.config).stdout
    found = json.loads(said) if said else {}
    expect(found.get("rig"), rig.name, DEPLOY)
    expect(sorted(found.get("instances", {})), sorted(i.name for i in rig.instances), DEPLOY)
    expect(found.get("weights"), {w.name: w.sha256 for w in rig.weights}, DEPLOY)
