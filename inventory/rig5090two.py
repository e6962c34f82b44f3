"""Two RTX 5090 without a bridge, which they never have: two ways to serve by them, of which one is yours.

Copy it into a folder of your own, keep the box that is like yours, and put your address in. `rig5090two` has an
instance a card behind one address, for a model that fits one card. `rig5090two-split` has half of a model's layers on
each, for one that does not, or for more context. Lock weights and the environment's Python with `rigwright lock
rig5090two.py`.
"""

from rigwright.inventory import hosts

# Of all, in the driver's words
DRIVER = {
    "managed": True,  # with open kernel modules: no others drive these cards
    "power_w": 450,  # of 575, and the card takes no less than 400; its cost in tokens is unmeasured
    "pcie_link_width": (8, 8),  # a desktop processor's sixteen, halved between two slots; else leave it out
    "module_options": {"NVreg_EnableResizableBar": 1},
    "sysctl": {"vm.swappiness": 10},
}

rigs = hosts(
    {
        "rig5090two": {
            "ssh_hostname": "192.0.2.52",  # a reserved address (RFC 5737): put yours here
            "cards": ["rtx-5090", "rtx-5090"],
            "driver": DRIVER,
            "instances": {
                "left": {"variant": "vllm/qwen3-8b-per-card", "cards": [0], "port": 18000},
                "right": {"variant": "vllm/qwen3-8b-per-card", "cards": [1], "port": 18001},
            },
            # one address for both; a conversation stays with the card that has its beginning in its cache
            "gateway": {
                "listeners": {"lan": {"address": "0.0.0.0", "port": 80}},  # noqa: S104
                "models": {"Qwen3-8B": {"instances": ["left", "right"], "sticky": "conversation"}},
            },
        },
        "rig5090two-split": {
            "ssh_hostname": "192.0.2.53",
            "cards": ["rtx-5090", "rtx-5090"],
            "driver": DRIVER,
            # each layer over both cards instead: vllm/qwen3-30b-a3b-awq-tp2
            "instances": {"chat": {"variant": "vllm/qwen3-30b-a3b-awq-pp2", "cards": [0, 1], "port": 18123}},
            "gateway": {
                "listeners": {"lan": {"address": "0.0.0.0", "port": 8123}},  # noqa: S104
                "models": {"Qwen3-30B-A3B-AWQ-4bit": {"instances": ["chat"]}},  # the same name for every variant
            },
        },
    },
    ssh_user="ops",  # may use sudo without a password; root needs no `_sudo`
    _sudo=True,
)
