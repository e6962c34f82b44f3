"""Shell scripts of containers and of locked packages, for samples of what they are made for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rigwright.containers import container_facts, daemon_json, end_of_management
from rigwright.containers.container_facts import ContainerFacts
from rigwright.fetch_job_spec import job_network
from rigwright.model.containers.entry import ContainersEntry
from rigwright.render import render
from rigwright.supply.apt_release import ArchiveSuite
from rigwright.supply.bundle import BundledPackages, LocalFile
from tests.unit.samples import sample_card, sample_rig

STATE = "/var/lib/rigwright"
# with a proxy and mirrors
WIDE = sample_rig(proxy="http://proxy:3128", mirrors={"apt": ("http://a/debian", "http://b/debian/")})
CONTAINING = replace(sample_rig(), containers=ContainersEntry(engines=("docker",)), cards=(sample_card("8.6"),))


def release_script(absent: bool = False, **changes: object) -> str:
    """Letting go of containers, where we have set one option of Docker's."""
    was = {("debug",): False} if "found" in changes else {}
    record = daemon_json.DaemonRecord({("debug",): True}, was, absent).render()
    there = replace(ContainerFacts("debian", "13", options='{"debug": true}', record=record), **changes)  # type: ignore[arg-type]
    return render(
        "containers/release.sh.j2",
        ledger=f"{STATE}/owned",
        **end_of_management.container_release_values(sample_rig().roots, there),
    )


def debs_job(name: str, **changes: object) -> str:
    """A job that brings locked packages."""
    values: dict[str, object] = {
        "network": job_network(WIDE.roots, WIDE.network),
        "ledger": f"{STATE}/owned",
        "component": "",
        "source_files": (("/etc/apt/sources.list.d/x.sources", "the archive of x"),),
        "sent": "",
        "packages": BundledPackages(),
        "files": (),
        "done": f"{STATE}/jobs/rw-job-x/done",
        "targets": ["x=1.0-1", "y-"],
        "names": ["x"],
        "kept": "",
    }
    if name == "look":
        values |= {"removed": ["y"], "kept": f"{STATE}/containers/kept/x/1"}
    else:
        values |= {"what": "x 1.0", "folder": f"{STATE}/containers/kept/x", "hashes": [("x", "c" * 64)]}
        values |= {"whole": True, "version": "1.0-0", "fresh": ["x", "z"]}
    return render(f"debs/{name}.sh.j2", **values | changes)


def bundle_values() -> dict[str, object]:
    """The bundle's values in such a job."""
    suite = ArchiveSuite(
        system="debian-13", archive=0, suite="trixie", components=("main",), signed="2026", valid_until=None
    )
    file = LocalFile(Path("/home/ops/y.deb"), "d" * 64, "d" * 64, 1)
    packages = BundledPackages((file,), ((file.name, "0/pool/y_1_all.deb"),), (suite,), "/usr/share/keyrings/x.gpg")
    own = LocalFile(Path("/home/ops/x_1.0-1_amd64.deb"), "x_1.0-1_amd64.deb", "c" * 64, 1)
    return {"sent": f"{STATE}/jobs/rw-job-x/files", "packages": packages, "files": (own,)}


CONTAINER_SCRIPTS: dict[str, Callable[[], str]] = {
    "containers": lambda: container_facts.render_probe(
        CONTAINING.roots, CONTAINING.cards, CONTAINING.containers, CONTAINING.container_supply
    ),
    "look for locked packages": lambda: debs_job("look"),
    "locked packages": lambda: debs_job("install"),
    "locked packages from kept files": lambda: debs_job("install", kept=f"{STATE}/containers/kept/x/1"),
    "look for locked packages of a bundle": lambda: debs_job("look", **bundle_values()),
    "locked packages of a bundle": lambda: debs_job("install", kept=f"{STATE}/containers/kept/x/1", **bundle_values()),
    "spec of the cards": lambda: render("containers/refresh.sh.j2", spec=container_facts.CDI_SPEC, patience=90),
    "options in force": lambda: render(
        "containers/in_force.sh.j2", in_force=container_facts.IN_FORCE, daemon_json=daemon_json.PATH
    ),
    "let go of containers": lambda: release_script(),
    "let go of containers on a host without a daemon.json before": lambda: release_script(absent=True),
    "let go of containers where Docker's options were others": lambda: release_script(found='{"debug": false}'),
    "let go of containers while some run": lambda: release_script(docker_runs=True, containers=("web",)),
    "let go of containers under a daemon": lambda: release_script(
        docker_runs=True, in_force='{"debug": true, "log-driver": "local"}'
    ),
}
