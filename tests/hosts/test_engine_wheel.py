"""llama.cpp from xllamacpp's wheel on a host without compilers: an interrupted installation, and a served model."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from rigwright.engines.llama_cpp_wheel.option_fields import (
    OPTIONS,
    ChoiceField,
    NumberField,
    OptionField,
    SwitchField,
    TableField,
)
from tests.hosts.conftest import BootHost
from tests.hosts.support import (
    PORT,
    api_key,
    deploy,
    deploy_command,
    is_serving,
    main_pid,
    red_check_lines,
    run_deploy,
    run_plan,
    write_inventory,
)

pytestmark = pytest.mark.all_only
CHAT = {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT}}
STEP = "/var/lib/rigwright/build/llama.cpp-wheel-*/unpack"
ENGINE = "/opt/rigwright/engines/llama.cpp-wheel-*"
# Sets each field to each value, as the launcher does: prints the fields that the wheel reads differently.
SETTING = """
import json, runpy, sys
program = runpy.run_path(sys.argv[1])
module = program["import_wheel"]()
for name, values in json.load(sys.stdin):
    for value in values:
        params = module.CommonParams()
        try:
            program["set_field"](params, name, value)
        except Exception as error:
            print(name, repr(value), repr(error))
"""


def sample_values(option: OptionField) -> list[object]:
    """Values of each kind that an option lets through, as its fields take them."""
    words: list[str | bool] = ["penalties;top_k"]
    if isinstance(option, SwitchField):
        words = [True]
    elif isinstance(option, NumberField):
        words = [f"{option.least:.10g}", f"{option.most:.10g}"]
    elif isinstance(option, ChoiceField):
        words = [*option.choices]
    elif isinstance(option, TableField):
        words = ['{"a": 1}']
    return [option.convert_value(word) for word in words]


def test_it_is_installed_after_an_interruption_serves_and_stays_as_it_is(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    inventory = write_inventory(tmp_path, lab, host, instances=CHAT)
    _interrupt(host, inventory)
    assert host.run(f"ls {ENGINE}/build.json", check=False) == ""
    deploy(inventory)
    assert is_serving(host)
    assert host.run("command -v cmake g++ ninja", check=False) == ""
    plan = run_plan(inventory)
    assert (plan.status, plan.planned_operations) == (0, [])
    pid = main_pid(host)
    again = run_deploy(inventory)
    assert (again.status, again.changed_operations) == (0, [])
    assert main_pid(host) == pid
    assert red_check_lines(inventory) == {}
    _answers(host)
    _takes_every_field(host)
    _stops_and_starts(host)
    host.run(f"echo '# changed' >> {ENGINE}/bin/llama-server")
    assert any("llama-server" in line for lines in red_check_lines(inventory).values() for line in lines)


def _interrupt(host: LabHost, inventory: Path) -> None:
    """End the controller and the job while the wheel is being unpacked."""
    with subprocess.Popen(
        deploy_command(inventory, "--yes"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as controller:
        assert controller.stderr
        # in one command: by another one the job would be at its end
        host.run(
            f"until ls -d {STEP}; do sleep 0.05; done; systemctl kill --signal=KILL 'rw-job-llama.cpp-wheel-*'; "
            "systemctl stop 'rw-job-llama.cpp-wheel-*'"
        )
        os.killpg(controller.pid, signal.SIGKILL)


def _answers(host: LabHost) -> None:
    body = json.dumps({"model": "tiny-rig", "messages": [{"role": "user", "content": "Are you there?"}]})
    chat = f"http://127.0.0.1:{PORT}/v1/chat/completions"
    ask = f"curl --silent {chat} -H 'Authorization: Bearer %s' -d {shlex.quote(body)}"
    found = json.loads(host.run(ask % api_key(host)))
    assert found["choices"][0]["message"]["content"].strip() == ANSWER
    assert json.loads(host.run(ask % "wrong"))["error"]["code"] == 401
    metrics = host.run(f"curl --silent http://127.0.0.1:{PORT}/metrics -H 'Authorization: Bearer {api_key(host)}'")
    assert "llamacpp:tokens_predicted_total" in metrics


def _takes_every_field(host: LabHost) -> None:
    rows = [(name, sample_values(option)) for option in OPTIONS.values() for name in option.fields]
    program = f"{ENGINE}/bin/llama-server"
    listed = shlex.quote(json.dumps(rows))
    assert host.run(f"printf %s {listed} | python3 -ISB -c {shlex.quote(SETTING)} {program}") == ""


def _stops_and_starts(host: LabHost) -> None:
    host.run("systemctl stop rigwright-chat")
    state = host.run("systemctl show --property=ActiveState,Result rigwright-chat")
    assert set(state.split()) == {"ActiveState=inactive", "Result=success"}
    host.run("systemctl start rigwright-chat")
    assert is_serving(host)
