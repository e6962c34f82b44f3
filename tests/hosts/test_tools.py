"""A lock from outside: root runs none of it unless the inventory says so, and then no wheel that runs by itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lab.index import Index
from lab.labs import Lab
from lab.wheels import Wheel
from rigwright.supply.lock import text
from tests.hosts.conftest import Boot
from tests.hosts.support import deploy, write_inventory
from tests.unit.samples import wheel
from tests.unit.wheel_files import write_wheel

TOOLS = Path(__file__).with_name("tools_deploy.py")
RUNS = "import pathlib; pathlib.Path('/root/ran').touch()\n"


def stored(folder: Path) -> list[Wheel]:
    """The wheels of a group, the last of them one that nothing requires and that runs by itself."""
    made = [
        write_wheel(folder, "tool", requires=["part"]),
        write_wheel(folder, "part"),
        write_wheel(folder, "helpful-extra", {"helpful_extra.pth": RUNS}),
    ]
    found = []
    for path in made:
        content, name = path.read_bytes(), path.name.partition("-")[0].replace("_", "-")
        one = Wheel(name, "1.0", path.name, hashlib.sha256(content).hexdigest(), len(content))
        one.place.parent.mkdir(parents=True, exist_ok=True)
        one.place.write_bytes(content)
        found.append(one)
    return found


def locked(folder: Path, wheels: list[Wheel]) -> None:
    """Write the lock beside the inventory."""
    rows = [wheel(one.project, file=one.file, sha256=one.sha256, size=one.size) for one in wheels]
    (folder / "locks/tools.lock.toml").write_text(text(rows, "catalog/tools.toml"))


def test_a_hostile_wheel_of_the_host_tools_never_runs(lab: Lab, boot: Boot, tmp_path: Path) -> None:
    host, folder = boot(), tmp_path / "box"
    wheels = stored(tmp_path)
    for noun in ("catalog", "locks"):
        (folder / noun).mkdir(parents=True)
    (folder / "catalog/tools.toml").write_text('[inputs.tools]\nkind = "wheel"\nrequirements = ["tool"]\n')
    locked(folder, wheels)
    with Index(lab.gateway, wheels) as index:
        rig = {"instances": {}, "mirrors": {"index": [index.url]}}
        run = deploy(write_inventory(folder, lab, host, **rig), file=TOOLS)
        assert run.status != 0
        assert 'add "allow": ["locks.tools"]' in run.said
        assert index.fetched == []
        inventory = write_inventory(folder, lab, host, **rig, allow=["locks.tools"])
        run = deploy(inventory, file=TOOLS)
        assert run.status != 0
        assert "every Python would run helpful_extra.pth" in run.said
        assert host.run("ls /root/ran /opt/rigwright/tools-*/.complete", check=False) == ""
        locked(folder, wheels[:2])
        run = deploy(inventory, file=TOOLS)
        assert run.status == 0, run.said
        assert deploy(inventory, file=TOOLS).changed == []
        assert host.run("ls /root/ran", check=False) == ""
        host.run("$(dirname /opt/rigwright/tools-*/.complete)/bin/python -I -c 'import tool, part'")
