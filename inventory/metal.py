"""One machine with any NVIDIA cards: `./rig test gpu` deploys and checks it.

Which machine, and which cards it has, stands in metal.json beside this file; the test writes it.
"""

import json
from pathlib import Path

from rigwright.inventory import hosts

_machine = Path(__file__).with_name("metal.json")
if not _machine.exists():
    raise SystemExit("inventory/metal.py: no machine is known; `./rig test gpu` boots one, or takes --host")

rigs = hosts(
    {
        "metal": {
            "driver": {"managed": False},
            "cuda_root": "/usr/local/cuda",
            "instances": {"metal": {"variant": "llamacpp/metal", "cards": [0], "port": 8020}},
            **json.loads(_machine.read_text()),
        }
    }
)
