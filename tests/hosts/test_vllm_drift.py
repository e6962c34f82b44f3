"""Drifts where the real vLLM serves: red where they are seen, and nowhere else."""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from tests.hosts import vllm_box
from tests.hosts.support import KEY_FILE, red_checks, run_deploy
from tests.hosts.vllm_box import VllmServers

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

ENV = "/opt/rigwright/engines/vllm-*/env"
CACHE = "/var/cache/rigwright/instances/chat"
UNIT = "/etc/rigwright/current/units/rigwright-chat.service"
LINK = "/etc/systemd/system/rigwright-chat.service"
FIRST = "/var/lib/rigwright/starts/rigwright-chat.service"
# more starts than systemd lets a unit have in so short a time
RESTART = "systemctl daemon-reload; systemctl reset-failed rigwright-chat; systemctl restart rigwright-chat"
PYTHON = "/opt/other/bin/python"


def dropped_in(*lines: str) -> str:
    """The command that gives the unit a drop-in, and starts it anew."""
    text = "\\n".join(("[Service]", *lines, ""))
    return f"mkdir -p {LINK}.d; printf '{text}' > {LINK}.d/x.conf; {RESTART}"


UNDROP = f"rm -r {LINK}.d"
# The change to the host, the checks that must notice, and its removal: such a process goes on until the next start.
STILL = {
    "the program that starts it": (
        "echo '# more' >> /etc/rigwright/current/programs/vllm-*.py",
        {"G01"},
        "sed -i '$d' /etc/rigwright/current/programs/vllm-*.py",
    ),
    "a worker that no unit started": (
        f"systemd-run -q --unit=stray $(echo {ENV}/bin/python) -I -c 'import time; time.sleep(600)'",
        {"S09"},
        "systemctl stop stray",
    ),
    "room for fewer tokens than at its first start": (
        f"cp -a {FIRST} /root/first; sed -i 's/KV cache size: [0-9,]* tokens/KV cache size: 900,000 tokens/' {FIRST}",
        {"S14"},
        f"mv /root/first {FIRST}",
    ),
    "somebody else's file among what it has compiled": (
        f"touch $(echo {CACHE}/*)/planted.so; chown nobody $(echo {CACHE}/*)/planted.so",
        {"S15"},
        f"rm {CACHE}/*/planted.so",
    ),
    "another key": (
        f"cp -a {KEY_FILE} /root/key; echo another-0123456789abcdef > {KEY_FILE}",
        {"S02", "S06", "S13"},
        f"mv /root/key {KEY_FILE}",
    ),
}
STARTED = {
    "another attention backend than at its first start": (
        f"cp -a {FIRST} /root/first; echo 'Using FLASHINFER attention backend out of potential backends.' >> {FIRST}",
        {"S14"},
        f"mv /root/first {FIRST}",
    ),
    "shared memory that a worker has left": (
        "head -c 1024 /dev/zero > /dev/shm/psm_left; chown rigwright-chat /dev/shm/psm_left",
        {"S09"},
        "rm /dev/shm/psm_left",
    ),
    "a variable that was set for all services": (
        f"systemctl set-environment VLLM_LOGGING_LEVEL=DEBUG; {RESTART}",
        {"S12", "U05"},
        "systemctl unset-environment VLLM_LOGGING_LEVEL",
    ),
    "a variable out of a file of somebody else's": (
        "echo HF_HUB_OFFLINE=0 > /root/more; " + dropped_in("EnvironmentFile=/root/more"),
        {"S12", "U02", "U03"},
        UNDROP,
    ),
    "another value of a flag": (
        f"sed -i 's/ --max-num-seqs=4 / --max-num-seqs=2 /' {UNIT}; {RESTART}",
        {"G01", "S02", "S12", "U01", "U03"},
        f"sed -i 's/ --max-num-seqs=2 / --max-num-seqs=4 /' {UNIT}",
    ),
    "another program": (
        f"mkdir -p /opt/other/bin; cp $(readlink -f {ENV}/bin/python) {PYTHON}; ln -s $(echo {ENV})/lib /opt/other/; "
        f"mkdir -p {LINK}.d; {{ printf '[Service]\\nExecStart=\\n'; "
        f"sed -n 's|^ExecStart=[^ ]*|ExecStart={PYTHON}|p' {UNIT}; }} > {LINK}.d/x.conf; {RESTART}",
        {"S12", "S21", "U02", "U03"},
        f"{UNDROP}; rm -r /opt/other",
    ),
    "a network": (
        dropped_in("PrivateNetwork=no", "IPAddressDeny="),
        {"E02", "S03", "S12", "S19", "U02", "U03"},
        UNDROP,
    ),
}


def test_each_drift_of_it_is_seen(
    vllm_host: LabHost, vllm: VllmServers, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    inventory = vllm_box.write_vllm_inventory(tmp_path, vllm_host, vllm, instances=vllm_box.TWO)
    # of different things, so that each is seen by its own checks alone
    expected = [seen for _, seen, _ in STILL.values()]
    assert len(set().union(*expected)) == sum(map(len, expected))
    for change, _, _ in STILL.values():
        vllm_host.run(change)
    assert red_checks(inventory) == set().union(*expected)
    for _, _, cure in STILL.values():
        vllm_host.run(cure)
    for what, (change, seen, cure) in STARTED.items():
        with subtests.test(what):
            try:
                vllm_host.run(change)
                assert red_checks(inventory) == seen
            finally:
                vllm_host.run(f"{cure}; systemctl daemon-reload")
    # a deploy compares unit files: it does not see a process that was started with a drop-in that has gone since
    vllm_host.run(RESTART)
    # files that were put right by hand are others than those that root wrote down
    assert run_deploy(inventory).changed_operations == ["Serving | Record what is installed"]
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()
