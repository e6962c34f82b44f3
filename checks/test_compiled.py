"""What engines compile for the cards, and run."""

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import CACHES, WARM, Instance, Rig
from rigwright.engines.kind import Service
from rigwright.render import render


@check(
    "S15",
    "what it has compiled is its own",
    severity="critical",
    why="it runs that code: whoever can write there runs code as the service",
)
def test_compiled_is_its_own(host: Host, rig: Rig, instance: Instance, service: Service) -> None:
    if not service.cache:
        pytest.skip("its kind of engine compiles nothing")
    user = rig.user(instance)
    parents = [CACHES, rig.cache(instance)]
    script = render("look/compiled.sh.j2", own=service.cache, user=user, parents=parents, warm=WARM)
    cure = f"stop {instance.unit}, remove {rig.cache(instance)} and {WARM}, and {DEPLOY}"
    expect(host.check_output("sh -c %s", script).splitlines(), [f"{user} 700"], cure)
