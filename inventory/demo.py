"""The throwaway hosts of `./rig demo`, each serving a tiny model on the CPU."""

from lab.throwaway_lab import ThrowawayLab
from rigwright.inventory import hosts

_lab = ThrowawayLab("demo")
if not _lab.exists:
    raise SystemExit("inventory/demo.py: no demo host is up; `rigwright demo` boots one")

rigs = hosts(
    {
        host.name: {
            **host.inventory_keys,
            "instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": 8020}},
            "mirrors": {"shelf": [_lab.shelf_url]},
        }
        for host in _lab.hosts
    }
)
