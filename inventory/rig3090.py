"""Two boxes of RTX 3090: one with a single card, one with two.

Copy it into a folder of your own, keep the box that is like yours, and put your address in. On Debian the driver is
locked first (docs/guides/driver.md). Both serve a model of 17.5 GB by vLLM: lock it, and the environment's Python, with
`rigwright lock rig3090.py`; until then `validate` refuses the file and names them. `rigwright show variants rig3090.py`
lists what else these cards serve, and why (docs/guides/choosing-a-variant.md).
"""

from rigwright.inventory import hosts

# Of both, in the driver's words
DRIVER = {
    "managed": True,  # deploys bring it; the first one needs `--reboot`, or "reboot": True here
    # of 350: less than one token in a hundred is lost, and below 200 speed collapses (measured with a 27B model,
    # jeanfbrito.github.io, "RTX 3090 Power Limit"). Short peaks go far above it, and weak power supplies fail at them.
    "power_w": 280,
    # Resizable BAR, where firmware has left the window at 256 MiB; early boards need a new VBIOS first
    "module_options": {"NVreg_EnableResizableBar": 1},
    "sysctl": {"vm.swappiness": 10},  # weights that are being read are no reason to swap programs out
}

# The one plain address that clients of such boxes are set up for: no key, no TLS, open to every host that reaches the
# box. With keys
# instead: leave "keys" out, and make them with `rigwright key make rig3090.py NAME`.
GATEWAY = {
    "listeners": {"lan": {"address": "0.0.0.0", "port": 8020, "keys": False}},  # noqa: S104
    # clients keep this name whichever variant `rigwright switch` puts behind it, llama.cpp's included
    "models": {"qwen3.6-27b-autoround": {"instances": ["chat"]}},
    "aliases": {"gpt-4o": "qwen3.6-27b-autoround"},  # one client always asks for that
}

rigs = hosts(
    {
        "rig3090": {
            "ssh_hostname": "192.0.2.30",  # a reserved address (RFC 5737): put yours here
            "cards": ["rtx-3090"],
            "driver": DRIVER,
            # 65536 tokens and MTP. If it runs out of memory: vllm/qwen3.6-27b-int4 (32768 tokens, no MTP), or
            # llamacpp/default for prompts above 50000 tokens. Its own port is on the loopback interface.
            "instances": {"chat": {"variant": "vllm/default", "cards": [0], "port": 18020}},
            "gateway": GATEWAY,
        },
        "rig3090-two": {
            "ssh_hostname": "192.0.2.31",
            "cards": ["rtx-3090", "rtx-3090"],  # in the order of `lspci -d 10de:`
            "driver": DRIVER
            | {
                "pcie_link_width": (8, 8),  # a desktop processor's sixteen, halved between two slots; else leave it out
                # With a bridge on top: "nvlinks": [(0, 1)]. Without one these cards do not read each other's memory.
            },
            # both cards share each layer; four at once: vllm/turbo, images beside long texts: vllm/long-vision
            "instances": {"chat": {"variant": "vllm/dual", "cards": [0, 1], "port": 18020}},
            "gateway": GATEWAY,
        },
    },
    ssh_user="ops",  # may use sudo without a password; root needs no `_sudo`
    _sudo=True,
)
