"""The verbs of a day, as an operator types them, on a host that serves a real model behind a gateway."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from openai import OpenAI

from benchmarks import litellm
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from rigwright.gateway.client_setup import VARIABLE
from tests.hosts.client_libraries import node_folder
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.recorded_requests import PAGE, REQUESTS
from tests.hosts.support import PORT, api_key, deploy, is_serving, main_pid, red_checks, wait_until, write_inventory

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

LAN = 8000
# LiteLLM's own reading of its configuration
LITELLM = """
import sys, litellm, yaml
(row,) = yaml.safe_load(open(sys.argv[1]))["model_list"]
told = row["litellm_params"]
told["api_key"] = litellm.get_secret(told["api_key"])
asked = [{"role": "user", "content": "Are you there?"}]
print(litellm.completion(**told, messages=asked).choices[0].message.content)
"""
STOPPED = "/etc/rigwright/stopped/chat"


@pytest.fixture
def inventory(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> Path:
    """The host's, with a gateway that needs no key."""
    listeners = {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}}
    return write_inventory(tmp_path, lab, converged, gateway={"listeners": listeners, "origins": [PAGE]})


def run_verb(*words: str, key: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    """A verb that ends with a status."""
    command = [sys.executable, "-m", "cli", *words]
    environment = os.environ | ({VARIABLE: key} if key else {})
    found = subprocess.run(
        command, capture_output=True, text=True, cwd="/", env=environment, stdin=subprocess.DEVNULL, timeout=300
    )
    assert found.returncode == status, found.stdout + found.stderr
    return found


@contextmanager
def tunnel(inventory: Path) -> Iterator[None]:
    """The verb, while the block runs."""
    command = [sys.executable, "-m", "cli", "ssh", "--tunnel", "chat", str(inventory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            assert process.stdout
            assert f"http://127.0.0.1:{PORT}/v1 leads to chat on box" in process.stdout.readline()
            yield
        finally:
            process.terminate()


def ask_plain_client(url: str, name: str) -> requests.Response:
    """The answer to a client that is no library."""
    sent = REQUESTS[name]
    body = {**sent.body, "model": "tiny-rig"} if sent.body else None
    return requests.request(sent.method, f"{url}/{sent.path}", headers=sent.headers, json=body, timeout=60)


def programs(inventory: Path, key: str, folder: Path, model: str) -> None:
    """Have the configurations that are programs run, and answered."""
    for client, command in (("curl", ["sh"]), ("python", [sys.executable])):
        program = folder / client
        program.write_text(run_verb("show", "url", str(inventory), model, "--for", client).stdout)
        said = subprocess.run(
            [*command, str(program)], capture_output=True, text=True, env=os.environ | {VARIABLE: key}, timeout=60
        )
        assert said.returncode == 0, said.stderr
        assert ANSWER.split()[0] in said.stdout


def test_a_day_of_an_operators(converged: LabHost, inventory: Path, tmp_path: Path) -> None:
    file = str(inventory)
    deploy(inventory)

    # by hand: a stopped instance stays so over a reboot, until it is started or deployed
    assert run_verb("stop", file, "chat").stdout == "box: chat: stopped until `start` or the next deploy\n"
    assert not is_serving(converged)
    assert "chat is stopped by hand" in run_verb("doctor", file, status=1).stdout
    converged.reboot()
    assert not is_serving(converged)
    assert converged.run(f"ls {STOPPED}")
    # the record of the stop is the product's own
    assert not red_checks(inventory) & {"G05", "O05"}
    assert run_verb("start", file, "chat").stdout == "box: chat: serves\n"
    assert is_serving(converged)
    assert converged.run(f"ls -d {STOPPED.rpartition('/')[0]} 2>/dev/null", check=False) == ""
    assert red_checks(inventory) == set()
    run_verb("stop", file, "--all")
    deploy(inventory)
    assert is_serving(converged)
    assert converged.run(f"ls {STOPPED} 2>/dev/null", check=False) == ""
    before = main_pid(converged)
    run_verb("restart", file, "chat")
    assert (is_serving(converged), main_pid(converged) != before) == (True, True)
    assert run_verb("doctor", file).stdout.splitlines()[-1] == "box: no fault found"
    assert red_checks(inventory) == set()

    # hosts
    assert run_verb("ssh", file, "hostname").stdout == converged.run("hostname")
    assert run_verb("ssh", file, "exit 7", status=7).stdout == ""

    # models: over SSH, through a tunnel, and at the gateway's address
    key = api_key(converged)
    assert run_verb("chat", file, "chat", "-m", "Are you there?").stdout.strip() == ANSWER
    assert run_verb("chat", file, "tiny-rig", "--gateway", "-m", "Are you there?").stdout.strip() == ANSWER
    programs(inventory, "any", tmp_path, "tiny-rig")
    with tunnel(inventory):
        models = OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=key).models.list()
        assert [one.id for one in models] == ["tiny-rig"]
    forms = {
        name: run_verb("show", "url", file, "tiny-rig", "--for", name).stdout
        for name in ("cline", "openwebui", "page-assist")
    }
    cline = dict(line.split(": ", 1) for line in forms["cline"].splitlines())
    page = dict(line.split(": ", 1) for line in forms["page-assist"].splitlines())
    webui = dict(line.split("=", 1) for line in forms["openwebui"].splitlines())
    # its prompt may be more than the smallest model takes, which that says
    assert ask_plain_client(cline["Base URL"], "Cline").status_code in (200, 400)
    assert (
        ask_plain_client(webui["OPENAI_API_BASE_URL"], "Open WebUI, its list of models").json()["data"][0]["id"]
        == "tiny-rig"
    )
    assert ask_plain_client(webui["OPENAI_API_BASE_URL"], "Open WebUI").status_code == 200
    assert ask_plain_client(page["Base URL"], "Page Assist").headers["Access-Control-Allow-Origin"] == PAGE
    channel = json.loads(run_verb("show", "url", file, "tiny-rig", "--for", "one-api").stdout)
    assert ask_plain_client(f"{channel['base_url']}/v1", "one-api's test of a channel").status_code == 200
    wait_until(lambda: is_serving(converged), "serving at the end")
    assert run_rigwright("status", file).returncode == 0


def test_node_and_litellm_get_the_declared_answers(converged: LabHost, inventory: Path, tmp_path: Path) -> None:
    deploy(inventory)
    program = node_folder(tmp_path / "node") / "told.mjs"
    config = tmp_path / "config.yaml"
    if why := litellm.prepare():
        pytest.skip(f"LiteLLM is not to be had: {why}")
    commands = {
        "node": (program, ["node", str(program)]),
        "litellm": (config, [str(litellm.VENV / "bin/python"), "-c", LITELLM, str(config)]),
    }
    for client, (path, command) in commands.items():
        path.write_text(run_verb("show", "url", str(inventory), "tiny-rig", "--for", client).stdout)
        told = os.environ | {VARIABLE: "any", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        said = subprocess.run(command, capture_output=True, text=True, env=told, timeout=300)
        assert (said.returncode, said.stdout.strip()) == (0, ANSWER), said.stderr
