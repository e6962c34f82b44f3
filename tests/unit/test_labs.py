"""Names of labs: two checkouts on one machine have a lab of the same name each."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.lab import lab as lab_group
from lab import machine_requirements
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab, list_labs
from rigwright.inventory import ROOT

HERE, THERE = Path("/srv/one/rigwright"), Path("/srv/two/rigwright")


def names(lab: ThrowawayLab) -> set[str]:
    return {lab.bridge, lab.cgroup, str(lab.folder), str(lab.key), str(lab.shelf_folder)}


def test_a_lab_of_another_checkout_has_other_names() -> None:
    assert names(ThrowawayLab("demo", HERE)) == names(ThrowawayLab("demo", HERE))
    assert not names(ThrowawayLab("demo", HERE)) & names(ThrowawayLab("demo", THERE))
    assert not names(ThrowawayLab("demo", HERE)) & names(ThrowawayLab("lab", HERE))
    assert names(ThrowawayLab("demo")) == names(ThrowawayLab("demo", ROOT))


def test_labs_of_the_machine_are_listed_with_their_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_requirements, "STATE", tmp_path)
    for lab in (ThrowawayLab("demo"), ThrowawayLab("demo", THERE), ThrowawayLab("old", None)):
        host = lab.folder / "hosts/h1"
        host.mkdir(parents=True)
        record = {"subnet": "10.77.0.0/24"}
        if lab.checkout:
            record |= {"name": lab.name, "checkout": str(lab.checkout)}
        (lab.folder / "lab.json").write_text(json.dumps(record))
        spec = {"name": "h1", "release": "debian-13"}
        (host / "host.json").write_text(json.dumps({"spec": spec, "namespace": f"{lab.bridge}-h1", "address": "x"}))
    assert {(one.name, one.checkout) for one in list_labs()} == {("demo", ROOT), ("demo", THERE), ("old", None)}
    assert (ThrowawayLab("old", None).bridge, ThrowawayLab("old", None).folder) == ("rwold", tmp_path / "old")
    printed = CliRunner().invoke(lab_group, ["list"]).output.splitlines()
    assert [line.split(maxsplit=4) for line in sorted(printed)] == [
        ["demo", "h1", "debian-13", "x"],
        ["demo", "h1", "debian-13", "x", str(THERE)],
        ["lab", "host", "release", "address", "checkout"],
        ["old", "h1", "debian-13", "x", "an older version"],
    ]


def test_up_says_how_to_log_in_and_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h1").mkdir()
    (tmp_path / "h1/known_hosts").write_text("10.77.0.2 ssh-ed25519 AAAA\n")
    host = LabHost(HostSpec("h1"), tmp_path / "h1", "rwtry-h1", "10.77.0.2", tmp_path / "key")
    monkeypatch.setattr(ThrowawayLab, "hosts", ())
    monkeypatch.setattr(ThrowawayLab, "up", lambda lab, specs: [host])
    printed = CliRunner().invoke(lab_group, ["--name", "try", "up"], env={"COLUMNS": "200"}).output
    assert printed.splitlines()[-3:] == [
        "h1  debian-12  10.77.0.2",
        f"login: user root, key {tmp_path / 'key'}; `rigwright lab --name try ssh h1` opens a shell",
        "next: `rigwright lab --name try inventory` prints the hosts' entries of an inventory",
    ]
