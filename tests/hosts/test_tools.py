"""A lock from outside: root runs none of it unless the inventory says so, and then no wheel that runs by itself."""

import hashlib
from pathlib import Path

from lab.throwaway_lab import ThrowawayLab
from rigwright.supply.lock import render_lock
from tests.hosts.conftest import BootHost
from tests.hosts.support import deploy, run_deploy, write_inventory
from tests.stand_ins.package_servers import StandInIndex
from tests.stand_ins.wheel_cache import CachedWheel
from tests.unit.samples import sample_wheel
from tests.unit.wheel_files import write_wheel

TOOLS = Path(__file__).with_name("tools_deploy.py")
RUNS = "import pathlib; pathlib.Path('/root/ran').touch()\n"


def stored(folder: Path) -> list[CachedWheel]:
    """The wheels of a group, the last of them one that nothing requires and that runs by itself."""
    made = [
        write_wheel(folder, "tool", requires=["part"]),
        write_wheel(folder, "part"),
        write_wheel(folder, "helpful-extra", {"helpful_extra.pth": RUNS}),
    ]
    found = []
    for path in made:
        content, name = path.read_bytes(), path.name.partition("-")[0].replace("_", "-")
        one = CachedWheel(name, "1.0", path.name, hashlib.sha256(content).hexdigest(), len(content))
        one.cache_path.parent.mkdir(parents=True, exist_ok=True)
        one.cache_path.write_bytes(content)
        found.append(one)
    return found


def write_tools_lock(folder: Path, wheels: list[CachedWheel]) -> None:
    """Write the lock beside the inventory."""
    rows = [sample_wheel(one.project, file=one.file, sha256=one.sha256, size=one.size) for one in wheels]
    (folder / "locks/tools.lock.toml").write_text(render_lock(rows, "catalog/tools.toml"))


def test_a_hostile_wheel_of_the_host_tools_never_runs(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    host, folder = boot(), tmp_path / "box"
    wheels = stored(tmp_path)
    for noun in ("catalog", "locks"):
        (folder / noun).mkdir(parents=True)
    (folder / "catalog/tools.toml").write_text('[inputs.tools]\nkind = "wheel"\nrequirements = ["tool"]\n')
    write_tools_lock(folder, wheels)
    with StandInIndex(lab.gateway, wheels) as index:
        rig = {"instances": {}, "mirrors": {"index": [index.url]}}
        run = run_deploy(write_inventory(folder, lab, host, **rig), file=TOOLS)
        assert run.status != 0
        assert 'add "allow": ["locks.tools"]' in run.said
        assert index.requested_wheels == []
        inventory = write_inventory(folder, lab, host, **rig, allow=["locks.tools"])
        run = run_deploy(inventory, file=TOOLS)
        assert run.status != 0
        assert "every Python would run helpful_extra.pth" in run.said
        assert host.run("ls /root/ran /opt/rigwright/tools-*/.complete", check=False) == ""
        write_tools_lock(folder, wheels[:2])
        run = deploy(inventory, file=TOOLS)
        assert run_deploy(inventory, file=TOOLS).changed_operations == []
        assert host.run("ls /root/ran", check=False) == ""
        host.run("$(dirname /opt/rigwright/tools-*/.complete)/bin/python -I -c 'import tool, part'")
