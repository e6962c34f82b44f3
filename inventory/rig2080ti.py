"""Two boxes of RTX 2080 Ti with 22 GB: one with a bridged pair, one with four cards.

Copy it into a folder of your own, keep the box that is like yours, and put your address in. On Debian the driver is
locked first (docs/guides/driver.md). Both serve Qwen3.6-27B-AWQ-INT4 by vLLM: `rigwright lock rig2080ti.py` locks
its 20.5 GB on the hub, and the environment's Python; until then both boxes are refused, and the message names
the inputs.
"""

from rigwright.inventory import hosts

# The plain address that clients of such boxes are set up for: no key, no TLS, open to the network. With keys instead:
# leave "keys" out, and make them with `rigwright key make rig2080ti.py NAME`.
GATEWAY = {
    "listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}},  # noqa: S104
    "models": {"Qwen3.6-27B-AWQ-INT4": {"instances": ["chat"]}},  # the same name for every variant
    "aliases": {"gpt-4o": "Qwen3.6-27B-AWQ-INT4"},
    "origins": ["chrome-extension://jfgfiigpkhlkbnfnbobbkinehhfdhndo"],  # the browser extension Page Assist
}

rigs = hosts(
    {
        "rig2080ti": {
            "ssh_hostname": "192.0.2.20",  # a reserved address (RFC 5737): put yours here
            # in the order of `lspci -d 10de:`; boards with their memory exchanged are lost under open kernel modules,
            # so this name brings the proprietary ones. Plain boards are "rtx-2080-ti".
            "cards": ["rtx-2080-ti-22g", "rtx-2080-ti-22g"],
            "driver": {
                "managed": True,  # deploys bring it; the first one needs `--reboot`, or "reboot": True here
                "nvlinks": [(0, 1)],  # the bridge on top of both: checks say so when it has come loose
                "pcie_link_width": (8, 8),  # a desktop processor's sixteen, halved between two slots; else leave it out
                # No NVreg_EnableResizableBar: a 2080 Ti's firmware has no resizable BAR, the bus sees 256 MiB at once.
                # No power_w: there are no published figures of the tokens that a limit costs.
                "sysctl": {"vm.swappiness": 10},  # weights that are being read are no reason to swap programs out
            },
            # its own port is on the loopback interface; vllm/2080ti-two-mtp drafts three tokens ahead
            "instances": {"chat": {"variant": "vllm/2080ti-two", "cards": [0, 1], "port": 18000}},
            "gateway": GATEWAY,
        },
        "rig2080ti-four": {
            "ssh_hostname": "192.0.2.21",
            "cards": ["rtx-2080-ti-22g"] * 4,
            "driver": {
                "managed": True,
                # a bridge joins two cards, never four: instances that take two are best given a pair
                "nvlinks": [(0, 1), (2, 3)],
                # four at their 250 W are the whole of a 1000 W power supply; not measured, so look at your tokens
                "power_w": 200,
                "sysctl": {"vm.swappiness": 10},
            },
            "instances": {"chat": {"variant": "vllm/2080ti-four", "cards": [0, 1, 2, 3], "port": 18000}},
            "gateway": GATEWAY,
        },
    },
    ssh_user="ops",  # may use sudo without a password; root needs no `_sudo`
    _sudo=True,
)
