"""Generations on a real host: a way back, by itself and by hand; kept and removed objects."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.support import (
    PORT,
    check_verdicts,
    deploy,
    is_serving,
    red_checks,
    run_deploy,
    run_plan,
    wait_until,
    write_inventory,
)

CATALOG = """[variants."llamacpp/bad"]
engine = "llama.cpp"
model = "tiny-rig"
context = 4096
flags.grammar-file = "/no/such/file"

[variants."llamacpp/wide"]
engine = "llama.cpp"
model = "tiny-rig"
context = 8192
"""


def rigwright(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, as an operator runs it from anywhere."""
    return subprocess.run([sys.executable, "-m", "cli", *words], capture_output=True, text=True, cwd="/")


def declare(folder: Path, lab: ThrowawayLab, host: LabHost, variant: str, **rig: Any) -> Path:
    """An inventory that serves a variant as `chat`, with the catalogue that has it."""
    (folder / "catalog").mkdir(parents=True, exist_ok=True)
    (folder / "catalog" / "mine.toml").write_text(CATALOG)
    return write_inventory(folder, lab, host, instances={"chat": {"variant": variant, "port": PORT}}, **rig)


def current(inventory: Path) -> dict[str, Any]:
    """The current generation, by our own account."""
    rows: list[dict[str, Any]] = json.loads(rigwright("show", "generations", str(inventory), "--json").stdout)
    (row,) = [row for row in rows if row["current"]]
    return row


def test_a_generation_that_does_not_serve_gives_way_to_the_old_one(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    good = declare(tmp_path / "good", lab, converged, "llamacpp/demo")
    assert run_deploy(good).changed_operations == []
    before = current(good)
    bad = declare(tmp_path / "bad", lab, converged, "llamacpp/bad", allow=["flags.grammar-file"])
    run = run_deploy(bad)
    assert run.status == 1
    assert "/no/such/file" in run.said
    assert f"generation {before['number']} is back" in run.said
    assert "Traceback" not in run.said
    assert is_serving(converged)
    assert current(good) == before
    assert red_checks(good) == set()
    assert run_deploy(good).changed_operations == []
    # the same mistake again ends the same way
    assert run_deploy(bad).status == 1
    assert red_checks(good) == set()
    assert "--grammar-file" in converged.run("cat /etc/rigwright/generations/failed/units/rigwright-chat.service")


def test_rollback_goes_back_and_the_next_deploy_forward(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    demo = declare(tmp_path / "demo", lab, converged, "llamacpp/demo")
    wide = declare(tmp_path / "wide", lab, converged, "llamacpp/wide")
    deploy(wide)
    newest = current(wide)["number"]
    assert red_checks(wide) == set()
    dry = rigwright("rollback", str(wide), "--dry")
    assert dry.returncode == 0, dry.stderr
    assert current(wide)["number"] == newest

    back = rigwright("rollback", str(wide))
    assert back.returncode == 0, back.stderr
    assert current(demo)["declared"]
    assert red_checks(demo) == set()
    assert "G01" in red_checks(wide)
    assert "the inventory differs" in rigwright("status", str(wide)).stdout
    assert converged.run("tr '\\0' ' ' < /proc/$(systemctl show -P MainPID rigwright-chat)/cmdline").count("8192") == 0

    converged.reboot()
    wait_until(lambda: is_serving(converged), "serving after a boot")
    assert current(demo)["declared"]

    assert rigwright("rollback", str(wide), "--to", str(newest)).returncode == 0
    assert red_checks(wide) == set()
    assert run_plan(wide).planned_operations == []
    refused = rigwright("rollback", str(wide), "--to", "99")
    assert refused.returncode == 1
    assert "generation 99 does not exist" in refused.stderr + refused.stdout


@pytest.mark.all_only
def test_a_plan_says_what_a_deploy_ends_and_takes_off(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    """Also of an instance that does not run: it failed, or was stopped."""
    demo = {"variant": "llamacpp/demo", "port": PORT}
    both = write_inventory(
        tmp_path / "both", lab, converged, instances={"chat": demo, "old": {**demo, "port": PORT + 1}}
    )
    one = write_inventory(tmp_path / "one", lab, converged, instances={"chat": demo})
    deploy(both)

    def rows(inventory: Path) -> dict[str, str]:
        (told,) = json.loads(rigwright("plan", str(inventory), "--json").stdout)
        return {step["what"]: step["why"] for step in told["steps"]}

    assert rows(both) == {}
    converged.run("systemctl stop rigwright-old; touch /etc/rigwright/ca.pem")
    planned = rows(one)
    assert planned["end old, port 8021"] == "no longer declared"
    assert planned["remove CA certificates"] == "no longer declared"
    deploy(one)
    assert rows(one) == {}
    assert "rigwright-old" not in converged.run("systemctl list-units --all --no-legend 'rigwright*'")
    assert converged.run("ls /etc/rigwright/ca.pem", check=False) == ""
    assert red_checks(one) == set()


@pytest.mark.all_only
def test_needs_of_a_kept_generation_stay_and_the_rest_goes(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    def turn(number: int) -> Path:
        key = tmp_path / f"key{number}"
        key.write_text(f"key-{number}-0123456789abcdef\n")
        instances = {"chat": {"variant": "llamacpp/demo", "port": PORT, "api_key_file": str(key)}}
        return write_inventory(tmp_path / str(number), lab, converged, instances=instances, keep_generations=2)

    for number in (1, 2, 3):
        deploy(turn(number))
    kept = json.loads(rigwright("show", "generations", str(turn(3)), "--json").stdout)
    assert len(kept) == 2
    assert len(converged.run("ls /etc/rigwright/credentials").split()) == 2
    assert rigwright("rollback", str(turn(3))).returncode == 0
    assert red_checks(turn(2)) == set()
    ask = "curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer key-2-0123456789abcdef'"
    assert converged.run(f"{ask} http://127.0.0.1:{PORT}/v1/models") == "200"


# The files that dpkg, apt and the user database write in addition to their targets.
TRACES = re.compile(
    r"/var/(log|cache|lib/(apt|dpkg|systemd|ucf|pam|python))/.*|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?"
    r"|/etc/(\.pwd\.lock|ld\.so\.cache|machine-id|resolv\.conf|hosts|hostname|ssh/ssh_host_ed25519_key(\.pub)?)|/root/.*|/var/tmp/.*|/usr/local/share/.*"
    r"|/etc/ssl/certs/ca-certificates\.crt|/(etc|var)/\.updated|/etc/dpkg/dpkg\.cfg\.d/lab"
)


def test_remove_takes_off_what_we_put_on_and_nothing_else(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    host = boot()
    users = host.run("cut -d: -f1 /etc/passwd")
    packages = host.run("dpkg-query -W -f '${Package} ${db:Status-Status}\\n' | grep installed$")
    # the operator's own settings, before and after
    host.run("mkdir -p /srv/models/own && echo mine > /srv/models/own/model.gguf")
    engine = next(Path(first_run.engine_layer).glob("opt/rigwright/engines/*"))
    host.run("mkdir -p /opt")
    subprocess.run(["cp", "-a", str(engine), str(host.folder / "root/opt")], check=True)
    inventory = write_inventory(tmp_path, lab, host)
    # folders first, so that the ledger has them; then the engine, so that nothing is compiled
    deploy(inventory, file=Path(__file__).with_name("base_deploy.py"))
    host.run(f"mv /opt/{engine.name} /opt/rigwright/engines/")
    deploy(inventory)
    assert red_checks(inventory) == set()
    host.run("apt-get install -qq -y --no-install-recommends jq; systemctl is-active rigwright-chat")

    dry = rigwright("remove", str(inventory), "--dry")
    assert dry.returncode == 0
    assert is_serving(host)
    gone = rigwright("remove", str(inventory), "--yes")
    assert gone.returncode == 0, gone.stderr
    written = [path for path in host.changed_paths() if not TRACES.fullmatch(path)]
    ours = [path for path in written if (host.folder / "root" / path.lstrip("/")).exists() and "jq" not in path]
    # jq's own library is the only thing that anybody else has installed
    assert [path for path in ours if "libonig" not in path and "/doc/" not in path] == ["/srv/models/own/model.gguf"]
    assert host.run("cut -d: -f1 /etc/passwd") == users
    left = host.run("dpkg-query -W -f '${Package} ${db:Status-Status}\\n' | grep installed$")
    assert set(left.splitlines()) - set(packages.splitlines()) == {
        f"{p} installed" for p in ("jq", "libjq1", "libonig5")
    }
    assert host.run("systemctl list-units --all --plain --no-legend 'rigwright*' 'rw-job*'") == ""
    assert host.run("find / -xdev -iname '*rigwright*' -not -path '/proc/*' -not -path '/var/log/*'") == ""
    again = rigwright("remove", str(inventory), "--yes")
    assert again.returncode == 0, again.stderr


@pytest.mark.all_only
def test_a_host_whose_weights_are_kept_takes_them_again(
    lab: ThrowawayLab, converged: LabHost, inventory: Path, tmp_path: Path
) -> None:
    assert rigwright("remove", str(inventory), "--yes", "--keep-weights").returncode == 0
    assert converged.run("find /srv/models -type f").split() == ["/srv/models/tiny-rig/1/tiny-rig.gguf"]
    assert converged.run("ls /etc/rigwright 2>/dev/null || true") == ""
    assert set(check_verdicts(inventory).values()) > {"FAIL"}
