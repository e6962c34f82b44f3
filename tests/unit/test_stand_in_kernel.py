"""The files that stand in for a host's kernel and cards; what a boot makes of them is in tests/hosts."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from lab.hosts import HostSpec
from lab.nvidia import card_models, kernel_layer
from lab.throwaway_lab import ThrowawayLab
from tests.unit import short_programs

SHELLCHECK = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
SCRIPTS = sorted(name for name in kernel_layer.PLACES if not name.endswith((".service", ".conf")))


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck here")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name: str) -> None:
    # SC1091: what a hook reads is in the host
    command = [str(SHELLCHECK), "-e", "SC1091", str(kernel_layer.INSIDE / name)]
    assert short_programs.run_program(command).stdout == ""


def test_every_stand_in_has_its_place() -> None:
    packaged = {Path(name).name for name in kernel_layer.UNAME.files}
    assert {path.name for path in kernel_layer.INSIDE.iterdir()} == kernel_layer.PLACES.keys() | packaged


def test_a_card_is_a_file_by_its_address_with_a_number_of_its_own(tmp_path: Path) -> None:
    ids = ("10de:2204", "10de:2204", "10de:ffff")
    card_models.write_cards(tmp_path, "h1", ids)
    files = {path.name: path.read_text().splitlines() for path in (tmp_path / card_models.CARDS).iterdir()}
    assert sorted(files) == card_models.bus_addresses(ids) == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert {"vendor=0x10de", "device=0x2204", "name=NVIDIA GeForce RTX 3090"} < set(files["0000:01:00.0"])
    assert {"device=0xffff", "name=NVIDIA Graphics Device"} < set(files["0000:03:00.0"])
    uuids = {line for lines in files.values() for line in lines if line.startswith("uuid=GPU-")}
    assert len(uuids) == 3
    card_models.write_cards(tmp_path / "other", "h2", ids)
    other = (tmp_path / "other" / card_models.CARDS / "0000:01:00.0").read_text().splitlines()
    assert not uuids & set(other)


def test_a_hosts_record_gives_back_what_was_declared(tmp_path: Path) -> None:
    spec = HostSpec("h1", "debian-13", ("/a", "/b"), ("10de:2204",), kernels=("6.12.94+deb13-amd64",))
    lab = ThrowawayLab("unit")
    lab.folder = tmp_path
    folder = tmp_path / "hosts/h1"
    folder.mkdir(parents=True)
    record = {"spec": spec.__dict__, "namespace": "n", "address": "10.0.0.1"}
    (folder / "host.json").write_text(json.dumps(record))
    assert [host.spec for host in lab.hosts] == [spec]
