"""Objects on a host from before us, and of others, are left alone."""

import shutil
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import deploy, is_serving, main_pid, red_checks, run_deploy, wait_until, write_inventory
from tests.hosts.test_generations import rigwright

# the tested code is in shell scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
ROOTS = {"state": "/data/state", "software": "/data/software", "models": "/data/models", "config": "/etc/rigwright"}
THEIRS = ("/data/state/weights/my.gguf", "/data/software/engines/mine/x", "/data/software/tools-old/t")


@pytest.mark.all_only
def test_roots_that_were_there_before_us_keep_what_they_hold(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    before = write_inventory(tmp_path / "before", lab, converged)
    assert rigwright("remove", str(before), "--yes").returncode == 0
    engine = next(Path(converged.spec.layers[0]).glob("opt/rigwright/engines/llama.cpp-*"))
    converged.run(
        f"for f in {' '.join(THEIRS)}; do mkdir -p $(dirname $f); echo mine > $f; done; mkdir /data/models; "
        "useradd ana; chmod 2755 /data/models"
    )
    inventory = write_inventory(tmp_path, lab, converged, roots=ROOTS)
    converged.run("chown ana /data/models")
    run = run_deploy(inventory)
    assert run.status == 1
    assert "refused: /data/models is ana's with mode 2755" in run.said
    converged.run("chown root /data/models")
    deploy(inventory, file=Path(__file__).with_name("base_deploy.py"))
    # the engine, so that nothing is compiled
    shutil.copytree(engine, converged.folder / "root/data/software/engines" / engine.name, symlinks=True)
    run = deploy(inventory)
    assert red_checks(inventory) == set()
    assert converged.run("stat -c %a /data/models").strip() == "2755"
    assert rigwright("remove", str(inventory), "--yes").returncode == 0
    assert converged.run(f"cat {' '.join(THEIRS)}").split() == ["mine"] * 3


def test_a_host_served_from_another_configuration_is_refused(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    moved = write_inventory(tmp_path, lab, converged, roots={"config": "/etc/elsewhere"})
    removed = rigwright("remove", str(moved), "--yes")
    for said in (run_deploy(moved).said, removed.stdout + removed.stderr):
        assert "already deployed with its configuration in /etc/rigwright" in said
    assert is_serving(converged)


def test_a_removal_that_goes_on_by_itself_keeps_deploys_away(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    converged.run("systemd-run -q --unit=rw-job-remove sleep 600")
    run = run_deploy(inventory)
    assert run.status == 1
    assert "a removal is still running on this host" in run.said
    converged.run("systemctl stop rw-job-remove")
    assert run_deploy(inventory).changed_operations == []


def test_weights_that_were_put_right_are_the_ones_that_are_served(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    old = main_pid(converged)
    model = "/srv/models/tiny-rig/1/tiny-rig.gguf"
    converged.run(f"printf x | dd of={model} bs=1 seek=700000 conv=notrunc status=none")
    deploy(inventory)
    wait_until(lambda: is_serving(converged), "serving")
    assert main_pid(converged) != old
    assert "deleted" not in converged.run(f"grep gguf /proc/{main_pid(converged)}/maps")
    assert run_deploy(inventory).changed_operations == []
