"""Generations."""

from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.serving.generation import Generation
from rigwright.serving.live import Served
from rigwright.serving.units import UNITS


@check(
    "G01",
    "the current generation is the declared one, unchanged",
    severity="high",
    why="the next start or boot serves something else than the inventory says",
)
def test_current(found: Served, wanted: Generation) -> None:
    current = next((kept for kept in found.generations if kept.number == found.current), None)
    expect((current.sealed if current else "none")[:12], wanted.digest[:12], DEPLOY)
    expect(current is not None and current.intact, True, f"its files were changed by hand: {DEPLOY}")
    expect(found.activating, False, f"an activation was cut off: {DEPLOY}")


@check(
    "G02",
    "systemd has read it, and will at boot",
    severity="high",
    why="after a crash or a boot, systemd starts what it has read",
)
def test_systemd_has_read_it(host: Host, rig: Rig, found: Served, wanted: Generation) -> None:
    links = {name: f"{rig.roots.config}/current/units/{name}" for name in wanted.unit_files}
    expect(sorted(set(links.items()) ^ set(found.links.items())), [], f"unit files in {UNITS} differ: {DEPLOY}")
    expect(found.loaded.rpartition(" ")[2], wanted.mark, DEPLOY)
    expect((found.enabled, found.reload_needed), (True, False), DEPLOY)


@check(
    "G03",
    "there is an earlier generation to go back to, or none was ever made",
    severity="low",
    why="a rollback needs one that is whole",
)
def test_way_back(host: Host, found: Served) -> None:
    others = [kept for kept in found.generations if kept.number != found.current]
    damaged = [kept.number for kept in others if not kept.intact]
    expect(damaged, [], DEPLOY)
    lost = [path for kept in others for path in sorted(kept.references) if not host.file(path).exists]
    expect(
        lost[:3], [], "these generations cannot be gone back to any more; the next deploy that changes one drops them"
    )
