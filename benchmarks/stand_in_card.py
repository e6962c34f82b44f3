"""A stand-in card of a throwaway host: its nvidia-smi reports the RAM of engines as memory of the card."""

from __future__ import annotations

import shlex

from lab.hosts import LabHost

CONFIG = "/etc/rigwright/current/residency.json"
TAKEN = "/srv/stand-in-card-taken"
RESERVE_MIB = 64
# the residency service, which starts it, may write there
FAULTS = "/run/rigwright/residency/fault"
PROGRAM = """#!/usr/bin/python3 -IS
# Stand-in for nvidia-smi with one card: each llama-server has as much memory of the card as of the host, and a file has
# the use of another process. What the driver keeps of the card is neither used nor free. Queries and rows are those of
# the real program. Each file FAULTS.NAME.NUMBER has one query
# never end (hang), end with a status, print something else (rubbish), or the first half of its answer.
import glob, os, re, sys, time

def take_fault():
    for path in glob.glob("FAULTS.*"):
        try:
            os.unlink(path)
        except OSError:
            continue
        return path.split(".")[1]

def sizes():
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/comm") as file:
                is_engine = file.read() == "llama-server\\n"
            with open(path + "/status") as file:
                found = re.search(r"VmRSS:\\s+(\\d+)", file.read())
        except OSError:
            continue
        if is_engine and found:
            yield path[6:], int(found[1]) // 1024

rows = dict(sizes())
with open("TAKEN") as file:
    used = sum(rows.values()) + int(file.read())
card = "GPU-00000000-0000-0000-0000-000000000000"
fault = take_fault()
if fault == "hang":
    time.sleep(3600)
elif fault == "status":
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    sys.exit(9)
elif fault == "rubbish":
    print("\\x1b[2J" + "?" * 4096)
    sys.exit()
if sys.argv[1] == "--query-gpu=index,uuid,memory.used,memory.free":
    text = f"0, {card}, {used}, {max(0, TOTAL - RESERVE - used)}\\n"
elif sys.argv[1] == "--query-compute-apps=pid,gpu_uuid,used_memory":
    text = "".join(f"{pid}, {card}, {size}\\n" for pid, size in rows.items())
else:
    sys.exit(1)
sys.stdout.write(text[: len(text) // 2] if fault == "half" else text)
"""


def render_smi_of_card(total: int, taken: str = TAKEN, faults: str = FAULTS) -> str:
    """Its nvidia-smi, with the files of others' use and of faults."""
    values = {"TOTAL": str(total), "RESERVE": str(RESERVE_MIB), "TAKEN": taken, "FAULTS": faults}
    program = PROGRAM
    for name, value in values.items():
        program = program.replace(name, value)
    return program


def install_card(host: LabHost, total: int) -> None:
    """Install a card with so many MiB, of which the driver keeps some, and no other process on it."""
    take_of_card(host, 0)
    host.run(
        f"printf %s {shlex.quote(render_smi_of_card(total))} > /usr/bin/nvidia-smi && chmod 755 /usr/bin/nvidia-smi"
    )


def take_of_card(host: LabHost, size: int) -> None:
    """Have another process take so many MiB of the card."""
    host.run(f"echo {size} > {TAKEN}")


def need_of_device(host: LabHost, device: str, size: int) -> None:
    """Have each instance on demand need so many MiB of a device: a card by its number, or `host`."""
    change = f"""
import json
with open("{CONFIG}") as file:
    value = json.load(file)
for one in value["instances"].values():
    one["floor"], one["fingerprint"] = {{"{device}": {size} << 20}}, ""
with open("{CONFIG}", "w") as file:
    json.dump(value, file)
"""
    host.run(f"python3 -c {shlex.quote(change)} && systemctl restart rigwright_residency")
