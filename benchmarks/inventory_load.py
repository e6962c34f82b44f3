"""How long `validate` takes for many boxes, beside one: a Python inventory and an Ansible file of the same boxes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timed_verbs import Report, Row, Verb, timed
from rigwright.project_root import ROOT

KEYS = {
    "ssh_user": "ops",
    "instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": 8020}},
    "mirrors": {"shelf": ["http://192.0.2.1/"]},
}
GOAL = "3 s for 1000"


def measure(counts: Sequence[int], runs: int, say: Callable[[str], None]) -> Report:
    """Write inventories of boxes that differ in name and address, and time `validate` of each.

    Args:
        counts: The numbers of boxes.
        runs: How often each is timed.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: an inventory is refused.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name:
        verbs = []
        for count in counts:
            boxes = {f"box{n}": {"ssh_hostname": f"10.0.{n // 250}.{n % 250}"} for n in range(1, count + 1)}
            python, ansible = Path(name, f"boxes{count}.py"), Path(name, f"boxes{count}.yml")
            python.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({boxes!r}, **{KEYS!r})\n")
            ansible.write_text(json.dumps({"all": {"vars": KEYS, "hosts": boxes}}))
            for path in (python, ansible):
                row = Row(f"validate, {path.suffix}", count, GOAL)
                verbs.append(Verb(row, [str(ROOT / "rig"), "validate", str(path)], ()))
        return timed(verbs, "no hosts", runs, say)
