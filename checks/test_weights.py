"""Weights."""

from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.lock import Artefact
from rigwright.rig import Rig


@check("W01", "its bytes are the locked ones", severity="critical", why="a model with one wrong byte still answers")
def test_bytes(host: Host, rig: Rig, weight: Artefact) -> None:
    path = rig.weight_path(weight)
    found = host.run("sha256sum %s", path)
    expect(found.stdout.split(" ")[0] or "no file", weight.sha256, f"touch {path} and {DEPLOY}")


@check(
    "W02", "the service can read it and nobody can write it", severity="high", why="a service could change its weights"
)
def test_mode(host: Host, rig: Rig, weight: Artefact) -> None:
    found = host.run("stat -c '%%a %%U' %s", rig.weight_path(weight)).stdout.strip()
    expect(found, "444 root", f"chown root and chmod 444 {rig.weight_path(weight)}")
