"""Keys that no shipped inventory declares, on one box."""

from rigwright.inventory import hosts

rigs = hosts(
    {
        "box": {
            "ssh_hostname": "192.0.2.7",
            "cards": ["rtx-3090", "rtx-3090"],
            "driver": {"managed": True, "clocks_mhz": (210, 1800), "nvlinks": [(0, 1)]},
            "instances": {
                "chat": {"variant": "image/default", "cards": [0], "port": 18020},
                "code": {"variant": "llamacpp/demo", "port": 18021},
            },
            "mirrors": {"shelf": ["http://192.0.2.1"]},
            "containers": {"engines": ["docker"]},
            "gateway": {
                "listeners": {
                    "lan": {"address": "192.0.2.7", "port": 443, "tls": True, "names": ["box.example.org"]},
                    "here": {"address": "127.0.0.1", "port": 8020, "keys": False},
                },
                "scrapers": ["192.0.2.0/24"],
                "sticky": "header:x-session-id",
            },
            "monitoring": {
                "address": "192.0.2.7",
                "scrapers": ["192.0.2.0/24"],
                "server": {
                    "allow": ["192.0.2.0/24"],
                    "receivers": {"ops": {"url": "https://ops.example.org/hook"}},
                    "heartbeat_receiver": "ops",
                    "alert_thresholds": {"ttft_p99_s": 2.0},
                },
            },
            "share": {"address": "192.0.2.7", "allow": ["192.0.2.0/24"]},
            "allow": ["locks.container-toolkit"],
        }
    }
)
