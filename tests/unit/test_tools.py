"""The hosts' Python tools: a folder that is another one when the lock or the distribution is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rigwright import tools
from rigwright.rig import Roots
from tests.unit.samples import facts, instance, rig


def test_another_release_or_distribution_has_a_folder_of_its_own() -> None:
    hosts = [facts(), facts(os_version="13"), facts(os_id="ubuntu", os_version="24.04"), facts(os_id="ubuntu")]
    assert len({tools.tools(rig(), host).folder for host in hosts}) == len(hosts)


def test_nothing_else_of_a_host_or_rig_is_an_input() -> None:
    others = [
        tools.tools(rig(), facts(kernel="6.12", memory_kib=1, cuda_version="")),
        tools.tools(rig(instance(), name="other"), facts()),
    ]
    assert {made.folder for made in others} == {tools.tools(rig(), facts()).folder}


def test_another_lock_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = tools.tools(rig(), facts())
    lock = tmp_path / "tools.txt"
    lock.write_text(before.requirements + "# more\n")
    monkeypatch.setattr(tools, "LOCK", lock)
    after = tools.tools(rig(), facts())
    assert after.folder != before.folder
    assert after.requirements.endswith("# more\n")


def test_the_marker_lies_in_the_folder_below_the_rigs_software() -> None:
    made = tools.tools(rig(roots=Roots(software="/data/sw")), facts())
    assert re.fullmatch(r"/data/sw/tools-[0-9a-f]{12}", made.folder)
    assert made.marker.startswith(made.folder + "/")


def test_every_requirement_of_a_host_is_locked_by_version_and_hash() -> None:
    text = re.sub(r"(?m)^\s*#.*\n", "", tools.tools(rig(), facts()).requirements).replace("\\\n", " ")
    requirements = [line for line in text.splitlines() if line.strip()]
    assert requirements
    assert [r for r in requirements if not re.match(r"[\w.-]+==[\w.]+\s.*--hash=sha256:[0-9a-f]{64}", r)] == []
