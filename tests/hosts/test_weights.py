"""Weights of a hub on real hosts: locked, fetched, served, cut off in the middle, changed afterwards, and shared."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.download_servers import make_certificate
from tests.hosts.hub_models import REPOSITORY, HubModels, run_lock, run_rigwright, serve_models
from tests.hosts.support import deploy, deploy_command, is_serving, red_checks, run_deploy, run_plan, wait_until
from tests.stand_ins.hub.faults import StalledAnswer

RECORDS, LOCKS = "/var/lib/rigwright/weights", "/run/rigwright/locks"
REHASH = f"PYTHONPATH=/opt/rigwright/weights python3 -m rigwright_weights.rehash {RECORDS} {LOCKS} --now"
SECRET = "hf_0123456789abcdefSECRET"  # opens a door of this test alone


@pytest.fixture
def hub(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> Iterator[HubModels]:
    """A hub in the network of a host that is there."""
    with serve_models(lab, tmp_path) as found:
        yield found


def list_model_files(host: LabHost) -> dict[str, str]:
    """Path below the models' root -> mode and owner, of all files of the hub's repository."""
    lines = host.run(f"cd /srv/models && find {REPOSITORY} -type f -printf '%P %m %U\\n'").splitlines()
    return {path: rest for path, _, rest in (line.partition(" ") for line in lines)}


def users(inventory: Path) -> dict[str, list[str]]:
    """The users of each commit of the repository, in the output of `rigwright show models`."""
    rows = json.loads(run_rigwright("show", "models", str(inventory), "--json").stdout)
    return {row["version"]: row["users"] for row in rows if row["name"] == REPOSITORY}


def test_a_model_is_locked_fetched_and_served_and_stays_so(hub: HubModels, converged: LabHost) -> None:
    commit = hub.publish()
    inventory = hub.write_hub_inventory(converged)
    assert f"{REPOSITORY}@{commit[:7]}" in run_lock(inventory)
    assert run_lock(inventory) == "no change\n"
    asked = len(hub.hub.asked)

    dry = run_plan(inventory)
    assert "Weights | Fetch 3 files of weights" in dry.planned_operations
    assert len(hub.hub.asked) == asked
    assert deploy(inventory).changed_operations == dry.planned_operations
    assert is_serving(converged)
    assert list_model_files(converged) == dict.fromkeys((f"{commit}/{path}" for path in hub.files), "444 0")
    assert set(hub.fetched_files) == set(hub.files)
    assert red_checks(inventory) == set()

    asked = len(hub.hub.asked)
    assert run_deploy(inventory).changed_operations == []
    converged.reboot()
    wait_until(lambda: is_serving(converged), "serving after a boot")
    assert run_deploy(inventory).changed_operations == []
    assert len(hub.hub.asked) == asked

    newer = hub.publish(branch="next")
    assert newer == commit
    hub.hub.close()
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
@pytest.mark.parametrize("end", [pytest.param("job", marks=pytest.mark.all_only), "host"])
def test_a_fetch_that_is_cut_off_goes_on_where_it_was(hub: HubModels, converged: LabHost, end: str) -> None:
    hub.publish()
    inventory = hub.write_hub_inventory(converged)
    run_lock(inventory)
    stall = hub.hub.add_fault(StalledAnswer(400_000), REPOSITORY, "tiny.gguf", times=1)
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as running:
        assert stall.met.wait(120)
        # of what is sent of it, the hub's client writes in pieces of 256 KiB
        begun = "find /srv/models -type f -size +255k"
        wait_until(lambda: converged.run(begun, check=False), "bytes on disk")
        running.kill()
    if end == "host":
        converged.kill()
        converged.start()
        converged.wait()
    else:
        converged.run("systemctl kill --signal=KILL 'rw-job-weights-*'")
    before = hub.hub.sent_bytes
    hub.hub.clear_faults()
    deploy(inventory)
    total = sum(map(len, hub.files.values()))
    assert hub.hub.sent_bytes - before < total - 250_000
    assert red_checks(inventory) == set()
    assert converged.run("find /srv/models -name '*.part' -o -name '.hub*' -o -name '.progress.json'") == ""


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_later_changes_are_found_and_only_those_files_are_fetched_again(hub: HubModels, converged: LabHost) -> None:
    commit = hub.publish()
    inventory = hub.write_hub_inventory(converged)
    run_lock(inventory)
    deploy(inventory)
    place = f"/srv/models/{REPOSITORY}/{commit}"
    flip = f"printf X | dd of={place}/draft/tiny.gguf bs=1 seek=300000 conv=notrunc status=none"

    converged.run(flip)
    assert red_checks(inventory) == {"W01"}
    before = len(hub.fetched_files)
    deploy(inventory)
    assert set(hub.fetched_files[before:]) == {"draft/tiny.gguf"}
    assert red_checks(inventory) == set()

    # a bit that rots on the disk changes none of what the kernel says of a file: so the record follows
    converged.run(flip)
    record = converged.run(f"grep -l draft/ {RECORDS}/*-*").strip()
    converged.run(f"stat -c '%s %.9Y %.9Z %i %n' {place}/draft/tiny.gguf > {record}")
    # of so few bytes a check reads them each time
    assert red_checks(inventory) == {"W01"}
    assert run_deploy(inventory).changed_operations == []
    assert "draft/tiny.gguf" in converged.run(f"{REHASH} 2>&1 || true")
    assert "W01" in red_checks(inventory)
    before = len(hub.fetched_files)
    deploy(inventory)
    assert set(hub.fetched_files[before:]) == {"draft/tiny.gguf"}
    assert red_checks(inventory) == set()


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_another_commit_comes_beside_and_the_old_one_goes_when_it_is_asked_for(
    hub: HubModels, converged: LabHost
) -> None:
    old = hub.publish()
    inventory = hub.write_hub_inventory(converged, keep_generations=2)
    run_lock(inventory)
    deploy(inventory)
    new = hub.publish(template="{{ messages[-1].content }}")
    assert run_lock(inventory) == "no change\n"
    assert f"{REPOSITORY}@{old[:7]}" in run_lock(inventory, "--refresh")
    before = len(hub.fetched_files)
    deploy(inventory)
    assert {path.partition("/")[0] for path in list_model_files(converged)} == {old, new}
    assert "chat.jinja" in hub.fetched_files[before:]
    assert red_checks(inventory) == set()
    assert users(inventory)[new] == ["chat"]
    assert [user.partition(" ")[0] for user in users(inventory)[old]] == ["generation"]

    refused = run_rigwright("show", "models", str(inventory), "--remove", f"{REPOSITORY}@{old[:7]}", "--yes")
    assert refused.returncode == 2
    assert "generation" in refused.stdout + refused.stderr
    # another generation, and the one that needs the old commit goes
    deploy(hub.write_hub_inventory(converged, keep_generations=1))
    assert users(inventory)[old] == []
    gone = run_rigwright("show", "models", str(inventory), "--remove", f"{REPOSITORY}@{old[:7]}", "--yes")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert {path.partition("/")[0] for path in list_model_files(converged)} == {new}
    assert run_deploy(hub.write_hub_inventory(converged, keep_generations=1)).changed_operations == []


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_a_token_opens_a_gated_repository_and_stays_nowhere(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    authority, server = make_certificate(tmp_path, lab.gateway)
    with serve_models(lab, tmp_path, server) as hub:
        _open_with_a_token(hub, converged, tmp_path, str(authority))


def _open_with_a_token(hub: HubModels, converged: LabHost, tmp_path: Path, authority: str) -> None:
    hub.publish(gated=True, token=SECRET)
    (tmp_path / "token").write_text(f"{SECRET}\n")
    given = {"hub_token_file": str(tmp_path / "token"), "hub_token_origin": hub.hub.url}
    inventory = hub.write_hub_inventory(converged, ca_file=authority, **given)
    assert "gated" in run_lock(inventory, SSL_CERT_FILE=authority, REQUESTS_CA_BUNDLE=authority)
    without = hub.write_hub_inventory(converged, ca_file=authority)
    refused = run_deploy(without)
    assert refused.status == 1
    assert "hub_token_file" in refused.said
    assert "Traceback" not in refused.said

    inventory = hub.write_hub_inventory(converged, ca_file=authority, **given)
    run = deploy(inventory, "--yes", "--diff", "-vvv", "--debug-all")
    assert SECRET not in run.said
    assert red_checks(inventory) == set()
    assert converged.run(f"grep -rlF {SECRET} /etc /var /opt /srv /run /tmp 2>/dev/null || true") == ""
    assert converged.run(f"journalctl --no-pager | grep -cF {SECRET} || true").strip() == "0"
    assert not (tmp_path / "box" / "locks" / "mine.lock.toml").read_text().count(SECRET)


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_one_box_fetches_for_all_and_when_it_dies_the_hub_goes_on(
    hub: HubModels, lab: ThrowawayLab, converged: LabHost, boot: BootHost, first_run: ConvergedLayers
) -> None:
    hub.publish()
    first, second = converged, boot(first_run.layer)
    wait_until(lambda: is_serving(second), "serving after a boot")
    address = str(first.inventory_keys["ssh_hostname"])
    share = {"address": address, "allow": [str(lab.subnet)]}
    inventory = hub.write_hub_inventory(first, share=share)
    run_lock(inventory)
    before = hub.hub.sent_bytes
    fleet = inventory.with_name("fleet.py")
    declared = {
        "first": {**first.inventory_keys, "share": share},
        "second": {**second.inventory_keys, "peers": [f"http://{address}:8090"]},
    }
    led = [hub.hub.cdn_url]
    text = inventory.read_text()
    shared = "instances={'chat': {'variant': 'llamacpp/hub', 'port': 8020}}, mirrors="
    mirrors = {"shelf": [lab.shelf_url], "hub": [hub.hub.url]}
    assert "hosts(" in text
    fleet.write_text(
        f"from rigwright.inventory import hosts\n\nrigs = hosts({declared!r}, {shared}{mirrors!r}, redirects={led!r})\n"
    )
    deploy(fleet)
    assert set(hub.fetched_files) == set(hub.files)
    assert hub.hub.sent_bytes - before <= 1.05 * sum(map(len, hub.files.values()))
    assert red_checks(fleet) == set()
    assert run_deploy(fleet).changed_operations == []

    second.run("rm -rf /srv/models/lab /var/lib/rigwright/weights/*")
    first.kill()
    alone = hub.write_hub_inventory(second, "alone", peers=[f"http://{address}:8090"])
    run_lock(alone)
    before = len(hub.fetched_files)
    deploy(alone)
    assert set(hub.fetched_files[before:]) == set(hub.files)
