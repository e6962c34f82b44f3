"""Entries of packages against package files: an archive's file explains an entry, dpkg's records alone do not."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from checks.survey.host import dpkg, entry_archives, entry_debs
from checks.survey.host.entry_archives import ArchivedDeb
from checks.survey.host.entry_debs import DebComparison, compare_debs, read_deb
from checks.survey.host.entry_packages import PackageRecords
from checks.survey.host.host_entry import HostEntry
from tests.unit.attributed_host import AttributedHost

pytestmark = pytest.mark.skipif(not Path("/usr/bin/dpkg-deb").exists(), reason="no dpkg-deb")
PROGRAM, SCRIPT = "/usr/bin/tool", "/var/lib/dpkg/info/tool.postinst"
TEXT, POSTINST = "#!/bin/sh\ntrue\n", "#!/bin/sh\nexit 0\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttributedHost:
    made = AttributedHost(tmp_path / "host", monkeypatch)
    (tmp_path / "host/var/tmp").mkdir(parents=True)
    monkeypatch.setattr(entry_debs, "RESERVE", 0)
    return made


def build_deb(folder: Path, text: str = TEXT, script: str = POSTINST) -> Path:
    """A package file with a program, a link to it and a script."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: b\n"
    )
    (tree / "DEBIAN/postinst").write_text(script)
    (tree / "DEBIAN/postinst").chmod(0o755)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/tool").write_text(text)
    (tree / "usr/bin/t").symlink_to("tool")
    made = folder / "tool_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(made)], check=True, capture_output=True)
    shutil.rmtree(tree)
    return made


def compare(
    host: AttributedHost, monkeypatch: pytest.MonkeyPatch, deb: Path, sha256: str = ""
) -> tuple[dict[str, HostEntry], DebComparison]:
    digest = sha256 or hashlib.sha256(deb.read_bytes()).hexdigest()
    there = {"tool": ArchivedDeb(digest, deb.stat().st_size)}
    monkeypatch.setattr(
        entry_archives, "find_debs", lambda versions: {one: there[one] for one in versions if one in there}
    )
    monkeypatch.setattr(entry_debs, "fetch_debs", lambda names, folder, until: shutil.copy(deb, folder))
    entries = host.entries()
    index = PackageRecords("")
    index.load({entry.path for entry in entries})
    for entry in entries:
        entry.origin = f"package {index.owner(entry.path) or 'tool'}"
    found = compare_debs(entries, index)
    return {entry.path: entry for entry in entries}, found


@pytest.mark.parametrize(
    ("text", "script", "link", "differ"),
    [
        (TEXT, POSTINST, "tool", set()),
        (TEXT + "evil\n", POSTINST, "tool", {PROGRAM}),
        (TEXT, POSTINST + "evil\n", "tool", {SCRIPT}),
        (TEXT, POSTINST, "sh", {"/usr/bin/t"}),
    ],
)
def test_a_forged_record_explains_nothing(
    host: AttributedHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    script: str,
    link: str,
    differ: set[str],
) -> None:
    """dpkg's records have the sums of what lies there, as an intruder with root leaves them."""
    host.package("tool", {PROGRAM: text}, links=("/usr/bin/t",), postinst=script)
    host.link("/usr/bin/t", link)
    entries, found = compare(host, monkeypatch, build_deb(tmp_path))
    assert {path for path, entry in entries.items() if not entry.origin} == differ
    assert all(entries[path].expected_from == "the archive's package file tool 1" for path in differ)
    assert (found.packages, found.left) == (1, {})


def test_a_file_that_only_records_have_is_no_package_s(
    host: AttributedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.package("tool", {PROGRAM: TEXT, "/usr/bin/further": "x"})
    entries, _ = compare(host, monkeypatch, build_deb(tmp_path))
    assert [path for path, entry in entries.items() if not entry.origin] == ["/usr/bin/further"]


def test_incomparable_inputs_are_listed(host: AttributedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.package("tool", {PROGRAM: TEXT + "evil\n"})
    host.package("old", {"/usr/bin/old": "x"})
    deb = build_deb(tmp_path)
    entries, found = compare(host, monkeypatch, deb, sha256="0" * 64)
    assert all(entry.origin for entry in entries.values())
    assert found.left == {
        "old 1": "no signed list has this version any more",
        "tool 1": "its file is another one, or cannot be read",
    }
    monkeypatch.setattr(entry_debs, "MOST_BYTES", 0)
    assert "package files" in compare(host, monkeypatch, deb)[1].left["tool 1"]
    monkeypatch.setattr(entry_debs, "TIME", -1.0)
    assert "not reached" in compare(host, monkeypatch, deb)[1].left["tool 1"]


def test_package_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_debs, "SCRATCH", str(tmp_path))
    deb = build_deb(tmp_path)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    assert read_deb(str(deb), digest, inf) is not None
    link = tmp_path / "link.deb"
    link.symlink_to(deb)
    assert read_deb(str(link), digest, inf) is None
    monkeypatch.setattr(entry_debs, "MOST_MEMBERS", 1)
    assert read_deb(str(deb), digest, inf) is None
    monkeypatch.setattr(entry_debs, "LARGEST", 10)
    assert read_deb(str(deb), digest, inf) is None
    broken = tmp_path / "broken.deb"
    broken.write_bytes(b"!<arch>\nnonsense")
    assert read_deb(str(broken), hashlib.sha256(broken.read_bytes()).hexdigest(), inf) is None


def pack_data(fill: Callable[[tarfile.TarFile], None], folder: Path) -> Path:
    """A package file with other data."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        fill(archive)
    (folder / "data.tar").write_bytes(data.getvalue())
    deb = build_deb(folder)
    subprocess.run(["ar", "d", str(deb), "data.tar.xz"], check=True)
    subprocess.run(["ar", "q", str(deb), str(folder / "data.tar")], check=True)
    return deb


def nest_headers(archive: tarfile.TarFile) -> None:
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1
    for _ in range(3000):
        archive.addfile(name, io.BytesIO(b"a"))


def add_hole(archive: tarfile.TarFile) -> None:
    hole = tarfile.TarInfo("usr/bin/tool")
    hole.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(hole.tobuf(tarfile.GNU_FORMAT))
    # one piece of no bytes at the end of 8 GiB
    header[386:398], header[398:410], header[483:495] = b"77777777777\0", b"00000000000\0", b"77777777777\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    archive.fileobj.write(bytes(header))


@pytest.mark.parametrize("fill", [nest_headers, add_hole])
def test_package_files_that_would_take_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[tarfile.TarFile], None]
) -> None:
    monkeypatch.setattr(entry_debs, "SCRATCH", str(tmp_path))
    deb = pack_data(fill, tmp_path)
    assert read_deb(str(deb), hashlib.sha256(deb.read_bytes()).hexdigest(), inf) is None


def test_the_time_of_a_run_bounds_each_package_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_debs, "SCRATCH", str(tmp_path))
    deb = build_deb(tmp_path)
    assert read_deb(str(deb), hashlib.sha256(deb.read_bytes()).hexdigest(), 0.0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_the_fetcher_owns_a_folder_that_it_cannot_replace(tmp_path: Path) -> None:
    folder = Path(entry_debs.make_fetch_folder(str(tmp_path)))
    assert (folder.owner(), folder.stat().st_mode & 0o777) == (entry_debs.FETCHER, 0o700)
    assert (folder.parent, folder.parent.owner(), folder.parent.stat().st_mode & 0o777) == (tmp_path, "root", 0o711)


def test_diverted_files_are_compared_by_their_packaged_name(
    host: AttributedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = read_deb(str(deb := build_deb(tmp_path)), hashlib.sha256(deb.read_bytes()).hexdigest(), inf)
    assert content is not None
    entry = HostEntry("programs", "/usr/bin/tool.real", "file 0755 root:root", "/usr/bin/tool.real")
    entry.mode, entry.md5 = 0o100755, hashlib.md5(TEXT.encode()).hexdigest()
    assert not entry_debs.is_in_deb(entry, "tool", content)
    monkeypatch.setattr(dpkg, "diversions", lambda: {"/usr/bin/tool": ("/usr/bin/tool.real", "other")})
    assert entry_debs.is_in_deb(entry, "tool", content)


def test_a_package_of_several_architectures_is_listed(
    host: AttributedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.package("tool", {PROGRAM: TEXT})
    load = PackageRecords.load

    def load_both(index: PackageRecords, paths: set[str]) -> None:
        load(index, paths)
        index.versions |= {"tool:i386": "1"}

    monkeypatch.setattr(PackageRecords, "load", load_both)
    assert compare(host, monkeypatch, build_deb(tmp_path))[1].left == {
        "tool 1": "it is installed for several architectures"
    }
