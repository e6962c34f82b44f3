"""Packages of another archive: apt's plan for them is judged, and the jobs that bring them do no more."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigwright.apt_transactions import (
    AptSimulation,
    SourceFile,
    find_transaction_problems,
    parse_simulation,
    read_simulation,
)
from rigwright.fetch_job_spec import job_network
from rigwright.model.deb_package_groups import find_version_differences, leading_numbers, upstream_version
from rigwright.render import render
from tests.unit import short_programs
from tests.unit.apt_simulation import simulation_lines
from tests.unit.container_samples import FOUR, KEY, docker_group, toolkit_group
from tests.unit.driver_job_host import APT_GET, DPKG, DPKG_QUERY, FILES, HERE
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig


@pytest.mark.parametrize(
    ("version", "said", "counts"),
    [
        ("1.20.0-1", "1.20.0", (1, 20, 0)),
        ("1.20.0~rc.1-1", "1.20.0~rc.1", (1, 20, 0)),
        ("5:28.5.2-1~debian.13~trixie", "28.5.2", (28, 5, 2)),
        ("26.1.5+dfsg1-9+b9", "26.1.5+dfsg1", (26, 1, 5)),
        ("20.10.24+dfsg1-1+deb12u1+b6", "20.10.24+dfsg1", (20, 10, 24)),
        ("1:2.3", "2.3", (2, 3)),
        ("odd", "odd", ()),
    ],
)
def test_a_makers_own_version(version: str, said: str, counts: tuple[int, ...]) -> None:
    assert (upstream_version(version), leading_numbers(version)) == (said, counts)


def test_a_set_of_packages_has_one_name_for_its_files_whatever_its_version() -> None:
    one, other = docker_group(), docker_group()
    assert one.store_name == other.store_name
    assert one.store_name.startswith("28.5.2-")
    other.packages["containerd.io"] = other.packages["containerd.io"].model_copy(update={"sha256": "f" * 64})
    assert one.store_name != other.store_name


def test_a_pin_is_of_one_version_a_package() -> None:
    records = toolkit_group().render_pin(990).split("\n\n")
    assert [record.splitlines()[0] for record in records] == [f"Package: {name}" for name in FOUR]
    assert {record.splitlines()[1] for record in records} == {"Pin: version 1.20.0-1"}


def test_differences_are_reported_by_the_makers_versions() -> None:
    there = dict.fromkeys(FOUR[:2], "1.20.0-1") | {FOUR[2]: "1.19.1-1"}
    assert find_version_differences(toolkit_group(), there) == [
        f"{FOUR[2]} is 1.19.1, not 1.20.0",
        f"{FOUR[3]} is not installed, not 1.20.0",
    ]


@pytest.mark.parametrize(
    ("lines", "offered", "removed", "said"),
    [
        (["Inst libnvidia-container1 (1.20.0-1 x [amd64])", "Inst libseccomp2 (2.5 Debian [amd64])"], (), (), []),
        (["Remv docker.io [26.1]"], (), ("docker.io",), []),
        (["Remv theirs [1.0]"], (), (), ["apt would remove theirs"]),
        (
            ["Inst libnvidia-container1 [1.19.1-1] (1.20.1-1 x [amd64])"],
            (),
            (),
            ["libnvidia-container1 would be installed as 1.20.1-1, but 1.20.0-1 is locked"],
        ),
        (
            ["E: Broken packages", "   it cannot be"],
            (),
            (),
            ["apt cannot install container-toolkit: Broken packages it ca"],
        ),
        (
            ["E: Version '1.20.0-1' for 'libnvidia-container-tools' was not found"],
            (("libnvidia-container-tools", "1.19.1-1"),),
            (),
            ["container-toolkit 1.20.0 is not available: the archive has libnvidia-container-tools 1.19.1"],
        ),
    ],
)
def test_a_transaction_is_judged_before_it_happens(lines, offered, removed, said):
    found = find_transaction_problems(
        parse_simulation(simulation_lines(lines), AptSimulation, offered), toolkit_group(), removed
    )
    assert len(found) == len(said)
    for one, begins in zip(found, said, strict=True):
        assert one.startswith(begins)


def test_output_of_a_looking_job_has_its_shape_or_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing that was asked for"):
        read_simulation(["Inst x (1 y [amd64])"], AptSimulation)


@pytest.mark.parametrize(
    ("path", "text", "addresses"),
    [
        (
            "a.list",
            "deb [arch=amd64 signed-by=/k] https://a/x trixie main\n#deb https://b\ndeb-src http://c/ /\n",
            ["https://a/x", "http://c/"],
        ),
        (
            "a.sources",
            "Types: deb\nURIs: https://a/x http://b/\n https://c/\nSuites: /\n\nEnabled: no\nURIs: https://d/\n",
            ["https://a/x", "http://b/", "https://c/"],
        ),
        ("a.sources", "# URIs: https://a/\nuris: https://b/\n", ["https://b/"]),
        ("a.list", "", []),
    ],
)
def test_the_archives_that_a_file_of_sources_names(path: str, text: str, addresses: list[str]) -> None:
    assert SourceFile(path, text).addresses() == addresses


class DebsJobHost:
    """A folder that stands in for a host on which packages are brought, with stand-ins for apt and dpkg."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in {"apt-get": APT_GET, "dpkg": DPKG, "dpkg-query": DPKG_QUERY}.items():
            write_stand_in(root / "bin", name, text)
        write_stand_in(root / "bin", "apt-cache", f"{HERE}; cat offered")
        write_stand_in(root / "bin", "sleep", "true")
        for folder in ("archive", "tmp"):
            (root / folder).mkdir()
        for name in (*FILES, "refuses"):
            (root / name).touch()
        (root / "broken").write_text("^nothing$\n")
        (root / "owned").write_text("package curl\n")
        (root / "x.sources").write_text(f"URIs: https://x/\n{KEY}")
        self.contents = {name: f"{name}\n".encode() for name in FOUR}
        for name, content in self.contents.items():
            (root / f"archive/{name}_1.20.0-1_amd64.deb").write_bytes(content)

    def run(self, name: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Run a job."""
        box_rig = sample_rig(mirrors={})
        values: dict[str, Any] = {
            "network": job_network(box_rig.roots, box_rig.network),
            "ledger": self.root / "owned",
            "component": "",
            "source_files": ((str(self.root / "x.sources"), "the archive of x"),),
            "sent": "",
            "done": self.root / "done",
            "targets": [f"{one}=1.20.0-1" for one in FOUR],
            "names": list(FOUR),
            "kept": "",
            "removed": [],
            "what": "x 1.20.0",
            "folder": self.root / "store",
            "hashes": [(one, hashlib.sha256(content).hexdigest()) for one, content in self.contents.items()],
            "whole": True,
            "version": "1.20.0-abc",
            "fresh": list(FOUR),
        }
        environment = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "TMPDIR": f"{self.root}/tmp"}
        return short_programs.run_program(
            ["sh", "-c", render(f"debs/{name}.sh.j2", **values | changes)], env=environment
        )

    @property
    def recorded_commands(self) -> list[str]:
        return (self.root / "asked").read_text().splitlines()


@pytest.fixture
def job(tmp_path: Path) -> DebsJobHost:
    return DebsJobHost(tmp_path)


def test_our_archive_is_read_alone_and_strictly_before_the_others(job: DebsJobHost) -> None:
    (job.root / "simulated").write_text(
        "\n".join(simulation_lines(["Inst libnvidia-container1 (1.20.0-1 x [amd64])"])) + "\n"
    )
    done = job.run("look")
    assert done.returncode == 0, done.stderr
    assert job.recorded_commands[1:3] == ["update x.sources ", "update "]
    how, seen = read_simulation((job.root / "done").read_text().splitlines(), AptSimulation)
    assert (how, seen.installed) == ("archive", (("libnvidia-container1", "", "1.20.0-1"),))


def test_an_archive_that_cannot_be_verified_ends_it(job: DebsJobHost) -> None:
    (job.root / "broken").write_text("^update x.sources\n")
    done = job.run("look")
    assert done.returncode == 1
    assert "the archive of x cannot be used" in done.stdout
    assert "x.sources is taken away until the next deploy" in done.stdout
    assert not (job.root / "done").exists()


def test_locked_packages_are_compared_kept_and_written_down(job: DebsJobHost) -> None:
    done = job.run("install")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(((job.root / "store/1.20.0-abc") / "SHA256SUMS").read_text().splitlines()) == 4
    assert (job.root / "owned").read_text().splitlines() == ["package curl", *(f"package {name}" for name in FOUR)]
    assert [line.split()[0] for line in job.recorded_commands] == ["fetch", "install"]
    assert (job.root / "done").exists()
    assert sorted(path.name for path in (job.root / "store").iterdir()) == ["1.20.0-abc"]


def test_a_file_that_is_not_the_locked_one_is_not_installed(job: DebsJobHost) -> None:
    (job.root / f"archive/{FOUR[2]}_1.20.0-1_amd64.deb").write_bytes(b"another")
    done = job.run("install")
    assert done.returncode == 1
    assert f"{FOUR[2]}_1.20.0-1_amd64.deb is not the locked file" in done.stdout
    assert [line.split()[0] for line in job.recorded_commands] == ["fetch"]
    assert list((job.root / "store").iterdir()) == []


def test_a_part_of_them_is_no_way_back_and_is_not_kept(job: DebsJobHost) -> None:
    assert job.run("install", whole=False).returncode == 0
    assert list((job.root / "store").iterdir()) == []


def test_a_package_that_did_not_come_is_not_ours(job: DebsJobHost) -> None:
    (job.root / "broken").write_text("^install \n")
    (job.root / "there").write_text(f"{FOUR[0]}\n")
    done = job.run("install")
    assert done.returncode != 0
    assert "apt-get did not finish" in done.stdout
    assert (job.root / "owned").read_text().splitlines() == ["package curl", f"package {FOUR[0]}"]
