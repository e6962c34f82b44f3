"""In which order Docker's options and what is written down of them are written: a run may end between any two."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.containers import daemon_json
from rigwright.containers.container_facts import ContainerFacts
from roles import container_toolkit
from roles.operations import files
from roles.operations.files import TextFile
from tests.unit.container_samples import container_facts, container_rig, plan_for_host

RECORD = "/var/lib/rigwright/containers/daemon.json"


@dataclass
class WriteRecorder:
    """The writes of a run, and where it ended."""

    files: dict[str, TextFile] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    ends: int = 99
    """After so many writes."""

    def does(self, what: str) -> bool:
        self.done.append(what)
        return len(self.done) <= self.ends

    def write_text_files(self, name: str, files: list[TextFile]) -> None:
        for file in files:
            if self.does(f"write {file.path}"):
                self.files[file.path] = file

    def remove_files(self, name: str, paths: list[str]) -> None:
        for path in paths:
            if self.does(f"remove {path}"):
                self.files.pop(path, None)

    def facts(self, **changes: Any) -> ContainerFacts:
        there, record = self.files.get(daemon_json.PATH), self.files.get(RECORD)
        values = {"options": there and there.text, "record": record.text if record else ""}
        return container_facts(**{**values, **changes})


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WriteRecorder]:
    """Brings Docker's options of a rig without cards to a disk."""

    def run(disk: WriteRecorder, **options: Any) -> WriteRecorder:
        for name in ("write_text_files", "remove_files"):
            monkeypatch.setattr(container_toolkit, name, getattr(disk, name))
        for name in ("keep_original_file", "apply_running_options"):
            monkeypatch.setattr(container_toolkit, name, lambda **_: None)
        one, facts = container_rig(cards=False, daemon=options), disk.facts()
        plan = plan_for_host(one, facts)
        if plan.options is not None:
            container_toolkit._apply_daemon_options(one, facts, plan, False)
        return disk

    return run


@pytest.mark.parametrize("ends", range(6))
@pytest.mark.parametrize("found", ['{"mtu": 1400}', None])
def test_wherever_a_run_ends_the_next_one_leaves_nothing_of_ours(deploy, ends, found):
    disk = WriteRecorder({daemon_json.PATH: TextFile(daemon_json.PATH, f"{found}\n")} if found else {})
    deploy(disk, debug=True, icc=False)
    disk.done, disk.ends = [], ends
    deploy(disk, icc=False)
    disk.ends = 99
    deploy(disk, icc=False)
    assert daemon_json.parse_options(disk.files[daemon_json.PATH].text) == daemon_json.parse_options(found) | {
        "icc": False
    }
    disk.done, disk.ends = [], ends
    deploy(disk)
    disk.ends = 99
    deploy(disk)
    assert daemon_json.parse_options(disk.files[daemon_json.PATH].text if found else None) == daemon_json.parse_options(
        found
    )
    assert disk.files.keys() == ({daemon_json.PATH} if found else set())


def test_a_second_run_writes_nothing_anew(deploy: Callable[..., WriteRecorder]) -> None:
    disk = deploy(WriteRecorder(), debug=True)
    before = dict(disk.files)
    deploy(disk, debug=True)
    assert disk.files == before


def test_options_are_as_secret_as_they_were(deploy, monkeypatch):
    disk = WriteRecorder(
        {daemon_json.PATH: TextFile(daemon_json.PATH, '{"proxies": {"http-proxy": "http://me:pass@proxy"}}\n', "600")}
    )
    monkeypatch.setattr(disk, "facts", lambda: WriteRecorder.facts(disk, mode=0o622))
    deploy(disk, debug=True)
    assert (disk.files[daemon_json.PATH].mode, disk.files[RECORD].mode) == ("600", "600")


def test_a_difference_shows_no_proxys_password(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(files, "logger", SimpleNamespace(info=lines.append))
    monkeypatch.setattr(files, "host", SimpleNamespace(print_prefix=""))
    proxy = '"http-proxy": "http://me:secret@proxy:3128"'
    files.show_diff(daemon_json.PATH, [f"{{{proxy}}}"], f'{{{proxy}, "debug": true}}\n')
    shown = "\n".join(lines)
    assert "http://...@proxy:3128" in shown
    assert "secret" not in shown
