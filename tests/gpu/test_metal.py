"""The same deploy on a real card: facts that other tests show with stand-ins."""

import json

import pytest

from tests.gpu.gpu_machine import INVENTORY, KEY, PORT, SCRATCH, SOCKET, UNIT, GpuMachine
from tests.hosts.drift_tables import CHANGED_ONLY
from tests.hosts.support import PyinfraRun, check_verdicts, deploy, red_checks, run_deploy, run_plan, wait_until

ENGINE = "/etc/rigwright/current/engines/llama.cpp"
LIBRARY = f"{ENGINE}/bin/libggml-cuda.so"
LINK = f"/etc/systemd/system/{UNIT}.service"
FILE = f"/etc/rigwright/current/units/{UNIT}.service"
SLACK = 64  # MiB that the card's use may differ by from one time to the next
RESTART = f"systemctl daemon-reload; systemctl reset-failed {UNIT}; systemctl restart {UNIT}"
HOLD = (
    "#include <fcntl.h>\\n#include <unistd.h>\\n"
    'int main() { void *p; return cudaMalloc(&p, 1 << 30) || creat("held", 0600) < 0 || pause(); }\\n'
)
NVCC = "/usr/local/cuda/bin/nvcc"
SCRATCH_MADE = f"mkdir -p {SCRATCH} && cd {SCRATCH}"
WRONG = "/etc/ld.so.conf.d/000-rigwright-test-gpu.conf"

# the fault, the check that must notice it, and the cure
DRIFTS = {
    "a foreign process that holds memory of the card": (
        f"{SCRATCH_MADE} && rm -f held && printf '{HOLD}' > hold.cu && {NVCC} -arch=native -o hold hold.cu && "
        f"systemd-run --quiet --unit=rw-test-hold --working-directory={SCRATCH} {SCRATCH}/hold && "
        "timeout 60 sh -c 'until [ -e held ]; do sleep 0.1; done'",
        "N04",
        "systemctl stop rw-test-hold",
    ),
    "a device file that is gone": (
        f"{SCRATCH_MADE} && touch nothing && mount --bind nothing /dev/nvidia-uvm",
        "N03",
        "umount /dev/nvidia-uvm",
    ),
    "a library for another architecture": (
        f"{SCRATCH_MADE} && cp -a $(readlink -f {LIBRARY}) kept && echo '__global__ void other() {{}}' > other.cu && "
        # the first of an architecture that the card is not of
        "other=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | grep -q '^8.0' && echo 86 || echo 80) && "
        f"{NVCC} -shared -Xcompiler -fPIC -gencode arch=compute_$other,code=sm_$other -o other.so other.cu && "
        f"cp --remove-destination other.so $(readlink -f {LIBRARY})",
        "L05",
        # a copy has come to its place: the running process still has the earlier file
        f"mv {SCRATCH}/kept $(readlink -f {LIBRARY}) && systemctl restart {UNIT}",
    ),
    "a library path that leads to another driver": (
        f"{SCRATCH_MADE} && mkdir -p wrong && "
        "cp $(ldconfig -p | sed -n 's/.*libcuda.so.1 (libc6,x86-64).* => //p' | head -n 1) wrong/libcuda.so.470.00 && "
        f"echo {SCRATCH}/wrong > {WRONG} && ldconfig",
        "N02",
        f"rm -r {WRONG} {SCRATCH}/wrong && ldconfig",
    ),
    "an edited unit": (f"sed -i 's/^ProtectHome=.*/ProtectHome=no/' {FILE}; systemctl daemon-reload", "G01", ""),
}
# Questions only about a driver or a toolkit that deploys bring, about declared bridges, about an engine that compiles
# or reports how it runs, about monitoring of other boxes, about an accepted speed, about instances on demand, or where
# packages, DKMS, a kernel of its own or the firmware's variables are there
OF_DRIVERS = (*range(9, 18), *range(19, 23), 24, 28, 32, 33, 35, 36, 42, *range(44, 49))
NOT_OURS = {"J01", "K01", "M11", "Q05", "Q06", "S14", "S15", "S26", *(f"N{number:02}" for number in OF_DRIVERS)}
# Questions that have to be asked in any case
TRIED = {
    "L05",
    "S03",
    "S08",
    "S11",
    *(f"E{number:02}" for number in range(1, 6)),
    *(f"N{number:02}" for number in range(1, 8)),
}
# of the sandbox: restrictions that a service with a card cannot have
WITHHELD = {
    "private devices": "PrivateDevices=yes",
    "without the unified memory device": "InaccessiblePaths=/dev/nvidia-uvm",
    "without the card": "InaccessiblePaths=/dev/nvidia0",
}


def test_a_machine_becomes_the_rig_from_a_bundle_alone(deployed: GpuMachine, first_deploy: PyinfraRun) -> None:
    assert deployed.is_active()
    if deployed.throwaway:  # a real machine may have an engine from an earlier time
        # with steps and time left, while a compilation of minutes goes on
        assert "compiling: " in first_deploy.said
        assert "sending " in first_deploy.said


def test_a_second_run_changes_nothing(deployed: GpuMachine) -> None:
    assert run_plan(INVENTORY).planned_operations == []
    again = run_deploy(INVENTORY)
    assert (again.status, again.changed_operations) == (0, [])


def test_every_check_holds_and_none_is_skipped_that_applies(deployed: GpuMachine) -> None:
    verdicts = check_verdicts(INVENTORY)
    assert {identifier for identifier, word in verdicts.items() if word == "FAIL"} == set()
    # nothing was accepted on it
    assert {identifier for identifier, word in verdicts.items() if word == "skip"} <= NOT_OURS | CHANGED_ONLY | {"X01"}
    assert set(verdicts) >= TRIED


def test_the_library_holds_machine_code_for_the_wanted_cards_alone(
    deployed: GpuMachine, pytestconfig: pytest.Config
) -> None:
    listed = deployed.run(f"/usr/local/cuda/bin/cuobjdump --list-elf {LIBRARY}").split()
    found = {word.split(".")[-2] for word in listed if word.endswith(".cubin")}
    used = {str(deployed.cards[0]["capability"]), *filter(None, pytestconfig.getoption("--also-build-for").split(","))}
    wanted = {f"sm_{one.replace('.', '')}{'a' if one.startswith('12.') else ''}" for one in used}
    assert found == wanted


def test_the_build_is_on_record(deployed: GpuMachine) -> None:
    record = json.loads(deployed.run(f"cat {ENGINE}/build.json"))
    print(f"\ncompiled in {record['compile_seconds']} s, {record['inputs']['options']['CMAKE_CUDA_ARCHITECTURES']}")
    assert record["compile_seconds"] > 0
    assert record["inputs"]["options"]["GGML_CUDA"] == "ON"
    assert "==> compiling" in deployed.run(f"cat {ENGINE}/build.log")


def test_it_answers_from_the_card(deployed: GpuMachine) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Are you there?"}]})
    said = deployed.run(
        f"sed 's/^/Authorization: Bearer /' {KEY} | curl -s -H @- -H 'Content-Type: application/json' "
        f"-d '{body}' http://127.0.0.1:{PORT}/v1/chat/completions"
    )
    assert json.loads(said)["choices"][0]["message"]["content"].strip() == "The rig is alive"
    # weights alone are 730 MB
    assert deployed.used_mib() > 700


def test_the_process_on_the_card_has_no_network_and_no_socket_of_others(deployed: GpuMachine) -> None:
    """The very one that has the card open: not what its unit says."""
    (pid,) = deployed.run("timeout 20 nvidia-smi --query-compute-apps=pid --format=csv,noheader").split()
    assert deployed.run(f"sed -n 's/^ *\\([^ :]*\\):.*/\\1/p' /proc/{pid}/net/dev").split() == ["lo"]
    assert deployed.run(f"find /proc/{pid}/root/run -type s -printf '/run/%P\\n'").split() == [SOCKET]
    assert deployed.run(f"stat -c %U /proc/{pid}").strip() == UNIT


@pytest.mark.parametrize("option", WITHHELD.values(), ids=WITHHELD)
def test_a_service_that_lacks_a_device_is_noticed(deployed: GpuMachine, option: str) -> None:
    deployed.run(f"mkdir -p {LINK}.d && printf '[Service]\\n{option}\\n' > {LINK}.d/x.conf")
    try:
        deployed.run(f"{RESTART}", check=False)
        found = red_checks(INVENTORY)
        print(f"\n{option}: {', '.join(sorted(found))}")
        assert "S08" in found
    finally:
        deployed.run(f"rm -r {LINK}.d; {RESTART}")
    assert red_checks(INVENTORY) == set()


def test_the_cards_memory_comes_back(deployed: GpuMachine) -> None:
    """However the service ends: nothing of it stays on the card, and no process."""
    serving = deployed.used_mib()
    servers = "pgrep -c llama-server || true"
    deployed.run(f"systemctl stop {UNIT}")
    idle = deployed.used_mib()
    assert idle < serving - 700
    assert deployed.run(servers).strip() == "0"

    deployed.run(f"systemctl reset-failed {UNIT} 2>/dev/null; systemctl start {UNIT}")
    assert abs(deployed.used_mib() - serving) <= SLACK
    deployed.run(f"kill -9 $(systemctl show --property=MainPID --value {UNIT})")
    wait_until(lambda: deployed.used_mib() <= idle + SLACK, "the card's memory back after kill -9", 30)
    wait_until(deployed.is_active, "serving again by itself")
    assert abs(deployed.used_mib() - serving) <= SLACK

    seen = []
    for _ in range(5):
        deployed.run(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")
        seen.append(deployed.used_mib())
        assert deployed.run(servers).strip() == "1"
    print(f"\nidle {idle} MiB, serving {serving} MiB, after each of five restarts {seen}")
    assert max(seen) - min(seen) <= SLACK
    deployed.run(f"systemctl stop {UNIT}")
    assert abs(deployed.used_mib() - idle) <= SLACK
    deployed.run(f"systemctl start {UNIT}")


@pytest.mark.parametrize(("break_it", "identifier", "cure"), DRIFTS.values(), ids=DRIFTS)
def test_a_drift_turns_its_check_red_and_its_cure_turns_it_green(
    deployed: GpuMachine, break_it: str, identifier: str, cure: str
) -> None:
    try:
        deployed.run(break_it)
        found = red_checks(INVENTORY)
        print(f"\n{', '.join(sorted(found))}")
        assert identifier in found
    finally:
        if cure:
            deployed.run(cure)
        deploy(INVENTORY)
    assert red_checks(INVENTORY) == set()


def test_a_reboot_changes_nothing(deployed: GpuMachine) -> None:
    if deployed.throwaway is None:
        pytest.skip("a real machine is not rebooted by a test")
    deployed.throwaway.reboot()
    deployed.throwaway.run("ip route del default; ldconfig", check=False)
    wait_until(deployed.is_active, "serving after the boot")
    assert red_checks(INVENTORY) == set()
    assert run_plan(INVENTORY).planned_operations == []
