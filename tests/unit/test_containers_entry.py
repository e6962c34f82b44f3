"""Containers in an inventory: the rules while it loads."""

from typing import Any

import pytest

from rigwright.inventory import load_for, load_rig
from rigwright.model.containers.archive_tables import TOOLKIT_ARCHIVE
from tests.unit.container_samples import FOUR
from tests.unit.sample_texts import LOCK
from tests.unit.samples import OperatorFolder, sample_entry

ROW = """
[[artefact]]
kind = "deb"
name = "{name}"
version = "1.20.0-1"
group = "container-toolkit"
file = "{name}_1.20.0-1_amd64.deb"
sha256 = "{sha256}"
size = 5
sources = ["container-toolkit:stable/deb/amd64/{name}_1.20.0-1_amd64.deb", "https://h/{name}.deb"]
"""
INPUT = """
[inputs.container-toolkit]
kind = "deb"
version = "{}"
sources = ["container-toolkit:stable/deb/amd64"]
"""
DOCKER = {"containers": {"engines": ["docker"]}}


@pytest.fixture
def toolkit_box(box: OperatorFolder) -> OperatorFolder:
    """A box whose toolkit is locked."""
    rows = "".join(ROW.format(name=name, sha256=str(number) * 64) for number, name in enumerate(FOUR))
    box.write("locks/box.lock.toml", LOCK.replace("artefacts = 2", "artefacts = 6") + rows)
    return box


def test_a_rig_with_containers_has_its_locked_toolkit(toolkit_box: OperatorFolder) -> None:
    ((_, data),) = toolkit_box.load_group({"box": sample_entry(**DOCKER, allow=["locks.container-toolkit"])})
    rig = load_rig(data["rig"])
    assert rig.containers
    assert rig.containers.engines == ("docker",)
    one = rig.container_supply.groups[TOOLKIT_ARCHIVE]
    assert (one.version, set(one.packages)) == ("1.20.0", set(FOUR))


def test_a_rig_without_containers_or_cards_needs_none(box: OperatorFolder) -> None:
    ((_, data),) = box.load_group({"box": sample_entry()})
    assert load_rig(data["rig"]).container_supply.groups == {}
    chat = {"chat": {"variant": "llamacpp/cpu", "port": 8020}}
    ((_, data),) = box.load_group({"box": sample_entry(cards=[], instances=chat, **DOCKER)})
    assert load_rig(data["rig"]).container_supply.groups == {}


def test_a_toolkit_that_is_not_locked_is_refused_with_what_to_write(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(**DOCKER)
    assert line.startswith(f"{box.inventory}: box.containers: no container toolkit is locked")
    assert "[inputs.container-toolkit]" in line


def test_a_toolkit_that_is_locked_in_another_version_is_refused(toolkit_box: OperatorFolder) -> None:
    toolkit_box.write("catalog/more.toml", INPUT.format("1.20.1"))
    (line,) = toolkit_box.refusal_lines(**DOCKER)
    assert "box.containers: container-toolkit is locked with version 1.20.0, not 1.20.1" in line


def test_a_row_that_the_table_of_its_archive_does_not_install_is_refused(box: OperatorFolder) -> None:
    rows = "".join(ROW.format(name=name, sha256=str(at) * 64) for at, name in enumerate((*FOUR, "telnetd")))
    box.write("locks/box.lock.toml", LOCK.replace("artefacts = 2", "artefacts = 7") + rows)
    (line,) = box.refusal_lines(**DOCKER, allow=["locks.container-toolkit"])
    assert "box.containers: container-toolkit is locked with telnetd, which the table of its archive does not" in line


def test_a_toolkit_that_is_only_being_locked_is_no_surplus(box: OperatorFolder) -> None:
    box.write("catalog/toolkit.toml", INPUT.format("1.20.0"))
    with load_for("lock"):
        ((_, data),) = box.load_group({"box": sample_entry(**DOCKER)})
        assert load_rig(data["rig"]).container_supply.groups[TOOLKIT_ARCHIVE]


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        ({}, "box.containers.engines: "),
        ({"engines": []}, "box.containers.engines: "),
        ({"engines": ["dockr"]}, "box.containers.engines[0]: 'dockr' is refused"),
        ({"engines": ["docker", "docker"]}, "no duplicates"),
        ({"engines": ["podman"], "restart": True}, "docker among the engines if restart"),
        ({"engines": ["docker"], "docker": "debian"}, "box.containers.docker: 'debian' is refused"),
        ({"engines": ["docker"], "deamon": {}}, 'did you mean "daemon"'),
        ({"engines": ["docker"], "daemon": {"log-drivr": "x"}}, "'log-drivr' is not one; did you mean \"log-driver\""),
        ({"engines": ["docker"], "daemon": {"hosts": ["tcp://0.0.0.0:2375"]}}, "without hosts: access to"),
        ({"engines": ["docker"], "daemon": {"runtimes": {}}}, "without runtimes: Rigwright sets it"),
        ({"engines": ["docker"], "daemon": {"debug": {1, 2}}}, "a list: [ ] in place of { }"),
        (
            {"engines": ["docker"], "daemon": {"debug": object()}},
            "a table of strings, numbers, booleans, lists and tables",
        ),
        ({"engines": ["docker"], "daemon": []}, "a table of options"),
    ],
)
def test_a_mistake_is_reported_with_its_key(toolkit_box: OperatorFolder, containers: dict[str, Any], said: str) -> None:
    lines = toolkit_box.refusal_lines(containers=containers)
    assert any(said in line for line in lines), lines
