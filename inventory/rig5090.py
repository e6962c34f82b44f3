"""Eight RTX 5090 in a server with two processors: four cards on each one's NUMA node.

Four of them serve; those of the second processor are reserved for other work. Two ways to do that are here, of one
box: keep the one that you want. `rig5090` is one instance on four cards, `rig5090-pairs` two of them on two cards
each. Copy it into a folder of your own and put your box's address in. With another number of cards change both
numbers, in `cards` and in `pcie_link_width`; a box with one processor needs no `kernel.numa_balancing`. Ubuntu 24.04
is the release that is known to work; others lost days with newer kernels. Lock the weights with `rigwright lock
rig5090.py`: 54 GB that the box then fetches from the hub, and the environment's Python. Until they are locked it is
refused, and names them.
"""

from rigwright.inventory import hosts

# Of the box in either way, in the driver's words
DRIVER = {
    # deploys bring it, with open kernel modules: no others drive these cards. The first deploy needs `--reboot`, or
    # "reboot": True here.
    "managed": True,
    # of 575, and the card takes no less than 400: eight of them are 3.6 kW and not 4.6, in a box that was seen to peak
    # at 5.5. Its cost in tokens is unmeasured.
    "power_w": 450,
    # a link that has come up with fewer is seldom noticed otherwise
    "pcie_link_width": (16,) * 8,
    # No nvlinks: a 5090 has none. The cards exchange data through the host's memory.
    # 32 GiB behind the bus at once; firmware leaves these at 256 MiB, and the driver changes it
    "module_options": {"NVreg_EnableResizableBar": 1},
    "sysctl": {
        "vm.swappiness": 10,  # weights that are being read are no reason to swap programs out
        # the kernel would move memory between the nodes behind a server's back; where it belongs is known
        "kernel.numa_balancing": 0,
    },
}

# The plain address that clients of such a box are set up for: no key, no TLS, open to the network. With keys instead:
# leave "keys" out, and make them with `rigwright key make rig5090.py NAME`.
LISTENERS = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}  # noqa: S104
ALIASES = {"gpt-4o": "qwen3.6-27b"}

rigs = hosts(
    {
        "rig5090": {
            "ssh_hostname": "192.0.2.58",  # a reserved address (RFC 5737): put yours here
            "ssh_user": "ops",  # may use sudo without a password; root needs no `_sudo`
            "_sudo": True,
            # in the order of `lspci -d 10de:`, which is node by node on most boards: 0 to 3 are near the first
            # processor, 4 to 7 near the second (/sys/bus/pci/devices/*/numa_node)
            "cards": ["rtx-5090"] * 8,
            # Other computations on these cards go on: no instance gets one, and a reboot that would end such a process
            # names it first. Declared all the same, for numbers and the power supply; take the line out, or some of the
            # numbers, and they are the rig's again.
            "reserved_gpus": [4, 5, 6, 7],
            # on the loopback interface; vLLM is kept to the first processor and its memory, where its cards are
            "instances": {"chat": {"variant": "vllm/qwen3.6-27b", "cards": [0, 1, 2, 3], "port": 18000}},
            "gateway": {
                "listeners": LISTENERS,
                "models": {"qwen3.6-27b": {"instances": ["chat"]}},  # the same name for every variant
                "aliases": ALIASES,
            },
            "driver": DRIVER,
        },
        "rig5090-pairs": {
            "ssh_hostname": "192.0.2.59",
            "ssh_user": "ops",
            "_sudo": True,
            "cards": ["rtx-5090"] * 8,
            "reserved_gpus": [4, 5, 6, 7],
            # each on two cards of the first processor; a conversation stays with the one that knows how it began
            "instances": {
                "chat-a": {"variant": "vllm/qwen3.6-27b-pair", "cards": [0, 1], "port": 18000},
                "chat-b": {"variant": "vllm/qwen3.6-27b-pair", "cards": [2, 3], "port": 18001},
            },
            "gateway": {
                "listeners": LISTENERS,
                "models": {"qwen3.6-27b": {"instances": ["chat-a", "chat-b"], "sticky": "conversation"}},
                "aliases": ALIASES,
            },
            "driver": DRIVER,
        },
    }
)
