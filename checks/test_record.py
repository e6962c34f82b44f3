"""What the host says it is."""

from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.llama_cpp import Build
from rigwright.record import text
from rigwright.rig import Rig


@check(
    "R01", "the record on the host is this rig's", severity="low", why="who looks at the box later is told wrong things"
)
def test_record(host: Host, rig: Rig, builds: dict[str, Build]) -> None:
    found = host.run("cat %s/rig.json", rig.roots.config).stdout
    lines = sorted(set(found.splitlines()) ^ set(text(rig, builds).splitlines()))
    expect("; ".join(line.strip() for line in lines[:4]), "no line to differ", DEPLOY, holds=found == text(rig, builds))
