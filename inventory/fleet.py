"""One box of each kind from one file: two RTX 2080 Ti, one and two RTX 3090, one, two and eight RTX 5090.

The inventory of one kind only (rig2080ti.py, rig3090.py, rig5090.py, rig5090solo.py, rig5090two.py) explains each line
of a box, and has other ways to serve by it. Here they are in one network: weights and the
packages of environments are fetched from outside by one box, which serves the others (docs/guides/fleet.md).
Lock all of it with `rigwright lock fleet.py`; then one box first, `rigwright deploy fleet.py --limit rig3090-two`, and
when that serves all of them. Those that have what is declared are left alone.
"""

from rigwright.inventory import hosts

# The address of the sharing box, and the addresses that may ask it: reserved ones (RFC 5737), put yours here
SHARES, NETWORK = "192.0.2.31", "192.0.2.0/24"

# Of all, in the driver's words; further facts of a card, or its box, are added there
DRIVER = {"managed": True, "sysctl": {"vm.swappiness": 10}}
RESIZABLE = {"module_options": {"NVreg_EnableResizableBar": 1}}


def gateway(port: int, model: str, **more: object) -> dict[str, object]:
    """One plain address without keys, and one name for every variant of the instance `chat`."""
    return {
        "listeners": {"lan": {"address": "0.0.0.0", "port": port, "keys": False}},  # noqa: S104
        "models": {model: {"instances": ["chat"]}},
        "aliases": {"gpt-4o": model},
        **more,
    }


rigs = hosts(
    {
        # first: it has the environment of all that vLLM serves, and the weights of both boxes of RTX 3090
        "rig3090-two": {
            "ssh_hostname": SHARES,
            "cards": ["rtx-3090", "rtx-3090"],
            "driver": DRIVER | RESIZABLE | {"power_w": 280, "pcie_link_width": (8, 8)},
            "instances": {"chat": {"variant": "vllm/dual", "cards": [0, 1], "port": 18020}},
            "gateway": gateway(8020, "qwen3.6-27b-autoround"),
            "share": {"address": SHARES, "allow": [NETWORK]},
            "peers": [],
        },
        "rig3090": {
            "ssh_hostname": "192.0.2.30",
            "cards": ["rtx-3090"],
            "driver": DRIVER | RESIZABLE | {"power_w": 280},
            "instances": {"chat": {"variant": "vllm/default", "cards": [0], "port": 18020}},
            "gateway": gateway(8020, "qwen3.6-27b-autoround"),
        },
        "rig2080ti": {
            "ssh_hostname": "192.0.2.20",
            "cards": ["rtx-2080-ti-22g", "rtx-2080-ti-22g"],
            "driver": DRIVER | {"nvlinks": [(0, 1)], "pcie_link_width": (8, 8)},
            "instances": {"chat": {"variant": "vllm/2080ti-two", "cards": [0, 1], "port": 18000}},
            "gateway": gateway(
                8000, "Qwen3.6-27B-AWQ-INT4", origins=["chrome-extension://jfgfiigpkhlkbnfnbobbkinehhfdhndo"]
            ),
        },
        "rig5090": {
            "ssh_hostname": "192.0.2.58",
            "cards": ["rtx-5090"] * 8,
            "reserved_gpus": [4, 5, 6, 7],
            "driver": DRIVER
            | RESIZABLE
            | {
                "power_w": 450,
                "pcie_link_width": (16,) * 8,
                "sysctl": {"vm.swappiness": 10, "kernel.numa_balancing": 0},
            },
            "instances": {"chat": {"variant": "vllm/qwen3.6-27b", "cards": [0, 1, 2, 3], "port": 18000}},
            "gateway": gateway(8000, "qwen3.6-27b"),
        },
        "rig5090two": {
            "ssh_hostname": "192.0.2.52",
            "cards": ["rtx-5090", "rtx-5090"],
            "driver": DRIVER | RESIZABLE | {"power_w": 450, "pcie_link_width": (8, 8)},
            "instances": {
                "left": {"variant": "vllm/qwen3-8b-per-card", "cards": [0], "port": 18000},
                "right": {"variant": "vllm/qwen3-8b-per-card", "cards": [1], "port": 18001},
            },
            "gateway": {
                "listeners": {"lan": {"address": "0.0.0.0", "port": 80}},  # noqa: S104
                "models": {"Qwen3-8B": {"instances": ["left", "right"], "sticky": "conversation"}},
            },
        },
        # by llama.cpp: nothing that it serves by is on another box
        "rig5090solo": {
            "ssh_hostname": "192.0.2.50",
            "cards": ["rtx-5090"],
            "driver": {"managed": True},
            "instances": {
                "chat": {"variant": "llamacpp/qwen3.5-35b-a3b", "cards": [0], "port": 28082},
                "translate": {"variant": "llamacpp/qwen2.5-1.5b-cpu", "port": 28083},
            },
            "gateway": {
                "listeners": {
                    name: {"address": "0.0.0.0", "port": port, "keys": False, "models": [model]}  # noqa: S104
                    for name, port, model in (
                        ("chat", 18082, "Qwen3.5-35B-A3B"),
                        ("translate", 18083, "Qwen2.5-1.5B-Instruct"),
                    )
                },
                "models": {
                    "Qwen3.5-35B-A3B": {"instances": ["chat"]},
                    "Qwen2.5-1.5B-Instruct": {"instances": ["translate"]},
                },
                "aliases": {"gpt-4o": "Qwen3.5-35B-A3B"},
            },
            "peers": [],
        },
    },
    ssh_user="ops",  # may use sudo without a password; root needs no `_sudo`
    _sudo=True,
    peers=[f"http://{SHARES}:8090"],
)
