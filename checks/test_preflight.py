"""The box is still one the rig can live on."""

import time

from checks import check, expect
from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build
from rigwright.host.facts import HostFacts
from rigwright.host.preflight import refusals


@check(
    "P01",
    "nothing stands in the rig's way",
    severity="high",
    why="a distribution upgrade, a vanished card, a full disk or a foreign listener breaks the next deploy or boot",
)
def test_nothing_stands_in_the_way(rig: Rig, facts: HostFacts, builds: dict[str, Build]) -> None:
    found = refusals(rig, facts, list(builds.values()), time.time())
    expect("; ".join(found), "", "do what each sentence says", holds=not found)
