"""A box shares its weights: another one gets them, every other client is refused, and nginx on port 80 is the
operator's affair."""

import re
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.support import deploy, red_checks, run_deploy, run_plan, wait_until, write_inventory
from tests.hosts.test_generations import rigwright

MODEL = "tiny-rig/1/tiny-rig.gguf"
UNIT = "/etc/systemd/system/rigwright_share.service"
CONFIG = "/etc/rigwright/share.conf"
AGAIN = "systemctl daemon-reload; systemctl reset-failed rigwright_share; systemctl restart rigwright_share"
# our package, unit and configuration on the host, and the files that the package's own scripts make
TRACES = (
    f"ls -d {UNIT} {CONFIG} /etc/nginx /var/log/nginx /var/lib/nginx /var/www /run/rigwright_share "
    "/etc/systemd/system/nginx.service /etc/systemd/system/multi-user.target.wants/*nginx* "
    "/etc/systemd/system/multi-user.target.wants/*share* 2>/dev/null; dpkg-query -W 'nginx*' 'libnginx*' 2>/dev/null"
)


def write_share_inventory(folder: Path, lab: ThrowawayLab, host: LabHost, **more: Any) -> Path:
    """The inventory of a host that shares with its whole network."""
    share = {"address": host.address, "allow": [str(lab.subnet)]} | more
    return write_inventory(folder, lab, host, share=share)


def web(host: LabHost) -> str:
    """The listener on nginx's own port."""
    return host.run("ss -Hltn 'sport = :80'").strip()


def fetch_status(fetching: LabHost, sharing: LabHost, *options: str, path: str = MODEL) -> str:
    """The status that another host is answered with, or 000."""
    words = " ".join(options)
    ask = f"curl -s --max-time 5 -o /root/got -w '%{{http_code}}' {words} http://{sharing.address}:8090/{path}"
    return fetching.run(ask, check=False)


def test_a_box_gets_another_ones_weights_and_nothing_is_left_of_it(
    lab: ThrowawayLab, converged: LabHost, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    other = boot(first_run.layer)
    before = converged.run(TRACES, check=False)
    inventory = write_share_inventory(tmp_path, lab, converged)
    planned = run_plan(inventory).planned_operations
    run = deploy(inventory)
    assert run.changed_operations == planned
    assert [name.partition(" | ")[0] for name in planned] == ["Base", "Sharing", "Sharing", "Self check"]
    assert run_deploy(inventory).changed_operations == run_plan(inventory).planned_operations == []
    assert red_checks(inventory) == set()
    assert web(converged) == ""

    assert fetch_status(other, converged) == "200"
    assert other.run(f"cmp /root/got /srv/models/{MODEL} && echo same").strip() == "same"
    assert fetch_status(other, converged, "--range 1000-1999") == "206"
    assert other.run(f"tail -c +1001 /srv/models/{MODEL} | head -c 1000 | cmp - /root/got && echo same").split()
    assert fetch_status(other, converged, "-X PUT", "--data x") == "405"
    hidden = ("x.part", "x.wrong", ".x")
    converged.run("cd /srv/models && echo '{}' | tee .progress.json x.part x.wrong .x")
    assert fetch_status(other, converged, path=".progress.json") == "200"
    assert {path: fetch_status(other, converged, path=path) for path in (*hidden, "", "tiny-rig/1/")} == dict.fromkeys(
        (*hidden, "", "tiny-rig/1/"), "403"
    )
    converged.run("cd /srv/models && rm .progress.json x.part x.wrong .x")

    converged.reboot()
    wait_until(lambda: fetch_status(other, converged) == "200", "shared after a boot")
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()
    assert web(converged) == ""

    alone = write_share_inventory(tmp_path / "alone", lab, converged, allow=[f"{converged.address}/32"])
    deploy(alone)
    assert red_checks(alone) == set()
    assert fetch_status(other, converged) in ("000", "403")

    silent = write_inventory(tmp_path / "silent", lab, converged)
    run = deploy(silent)
    assert run_deploy(silent).changed_operations == []
    assert red_checks(silent) == set()
    assert converged.run(f"ls {UNIT} {CONFIG}; ss -Hltn 'sport = :8090'", check=False) == ""
    deploy(write_share_inventory(tmp_path / "again", lab, converged))
    assert rigwright("remove", str(inventory), "--yes").returncode == 0
    assert converged.run(TRACES, check=False) == before
    assert web(converged) == ""


@pytest.mark.all_only
def test_an_nginx_that_was_there_before_us_goes_on(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    converged.run("apt-get -q update && apt-get -q -y --no-install-recommends install nginx")
    wait_until(lambda: web(converged), "the operator's nginx")
    theirs = "systemctl show --property=MainPID,UnitFileState nginx; md5sum /etc/nginx/nginx.conf"
    before = converged.run(theirs)
    inventory = write_share_inventory(tmp_path, lab, converged)
    deploy(inventory)
    assert red_checks(inventory) == set()
    assert converged.run(theirs) == before
    assert rigwright("remove", str(inventory), "--yes").returncode == 0
    assert converged.run(theirs) == before
    assert web(converged)


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_obstacles_are_refused_before_anything_is_done(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    converged.run("systemd-run -q --unit=foreign --socket-property=ListenStream=8090 true")
    run = run_deploy(write_share_inventory(tmp_path, lab, converged, address="192.0.2.1"))
    assert run.status == 1
    assert "refused: port 8090, for sharing weights, is in use by systemd" in run.said
    refused = re.search(r"refused: it has no address 192.0.2.1 to share weights on, only (.+)", run.said)
    assert refused, run.said
    assert converged.address in refused[1]
    assert converged.run(TRACES, check=False) == ""
