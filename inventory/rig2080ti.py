"""Two boxes of RTX 2080 Ti with 22 GB: one with a bridged pair, one with four cards.

Copy it into a folder of your own, keep the box that is like yours, and put your address in. On Debian the driver is
locked first (docs/driver.md). It has no instances: which
weights you serve is for your own catalogue and lock (docs/catalog-and-lock.md); a variant for two cards is then added
as `"instances": {"chat": {"variant": "llamacpp/mine", "cards": [0, 1], "port": 8000}}`.
"""

from rigwright.inventory import hosts

rigs = hosts(
    {
        "rig2080ti": {
            "ssh_hostname": "192.0.2.20",  # an address of nobody's (RFC 5737): put yours here
            # in the order of `lspci -d 10de:`; boards with their memory exchanged are lost under open kernel modules,
            # so this name brings the proprietary ones. Plain boards are "rtx-2080-ti".
            "cards": ["rtx-2080-ti-22g", "rtx-2080-ti-22g"],
            "driver": {
                "managed": True,  # deploys bring it; the first one needs `--reboot`, or "reboot": True here
                "nvlinks": [(0, 1)],  # the bridge on top of both: checks say so when it has come loose
                "lanes": (8, 8),  # a desktop processor's sixteen, halved between two slots; else leave it out
                # No NVreg_EnableResizableBar: a 2080 Ti's firmware has no resizable BAR, the bus sees 256 MiB at once.
                # No power_w: nobody has published what a limit costs these in tokens.
                "sysctl": {"vm.swappiness": 10},  # weights that are being read are no reason to swap programs out
            },
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
        },
    },
    ssh_user="ops",  # may use sudo without a password; root needs no `_sudo`
    _sudo=True,
)
