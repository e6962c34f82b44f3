"""Whether apt can verify an archive: asked of a real apt, with nothing of the host's touched."""

import shutil
from pathlib import Path

import pytest

from checks.nvidia.package_state import find_archive_differences
from checks.survey.host.nvidia_apt_source import look
from tests.unit import short_programs
from tests.unit.bundle_world import SignedAptArchive, archive_signing

SQV = (
    "W: OpenPGP signature verification failed: https://a InRelease: Sub-process /usr/bin/sqv returned an error code (1)"
)
SHA1 = "E: The repository 'https://a  InRelease' is not signed.\n"
CLASH = "E: Conflicting values set for option Signed-By regarding source https://a/ /: /a.gpg != /b.gpg\n"


def source(folder: Path, address: str, home: Path) -> Path:
    """A source with the key in it, as a deploy writes it."""
    export = ["gpg", "--homedir", str(home), "--batch", "--armor", "--export"]
    armoured = short_programs.run_program(export, check=True).stdout
    key = "\n".join(f" {line or '.'}" for line in armoured.splitlines())
    path = folder / "rigwright-nvidia.sources"
    path.write_text(f"Types: deb\nURIs: {address}\nSuites: bookworm\nComponents: main\nSigned-By:\n{key}\n")
    return path


def archive_verdict(path: Path) -> tuple[str, list[str]]:
    """Why it cannot be told, and what is wrong."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get here")
    said = look({"source": str(path), "authority": "", "proxy": "", "none": ""})
    unknown, differences = find_archive_differences(int(str(said["status"])), str(said["said"]))
    return unknown, [one.found for one in differences]


def test_an_archive_signed_by_its_key_is_sound(
    archive: SignedAptArchive, archive_key: tuple[Path, Path], tmp_path: Path
) -> None:
    lists = Path("/var/lib/apt/lists")
    before = sorted(lists.iterdir()) if lists.exists() else []
    assert archive_verdict(source(tmp_path, f"{archive.files.url}/archive/debian", archive_key[1])) == ("", [])
    assert (sorted(lists.iterdir()) if lists.exists() else []) == before
    assert any("InRelease" in one.path for one in archive.files.asked)


def test_an_archive_signed_by_another_key_is_reported(archive: SignedAptArchive, tmp_path: Path) -> None:
    with archive_signing(tmp_path / "other.gpg") as other:
        unknown, wrong = archive_verdict(source(tmp_path, f"{archive.files.url}/archive/debian", other))
    assert unknown == ""
    assert len(wrong) == 1
    assert "NO_PUBKEY" in wrong[0] or "is not signed" in wrong[0] or "returned an error" in wrong[0]


def test_an_archive_that_is_not_there_is_distinguished_from_one_out_of_reach(
    archive: SignedAptArchive, archive_key: tuple[Path, Path], tmp_path: Path
) -> None:
    unknown, wrong = archive_verdict(source(tmp_path, f"{archive.files.url}/nothing", archive_key[1]))
    assert unknown == ""
    assert len(wrong) == 1
    assert archive_verdict(source(tmp_path, "http://127.0.0.1:9", archive_key[1])) == (
        "the host cannot reach the archive",
        [],
    )


@pytest.mark.parametrize(
    ("status", "said", "unknown", "found"),
    [
        (0, "Get:1 https://a InRelease\nReading package lists...\n", "", []),
        (0, f"{SQV}\n", "", [SQV]),
        (100, SHA1, "", [SHA1.strip()]),
        (100, CLASH, "", [CLASH.strip()]),
        (0, "W: Failed to fetch https://a/InRelease  Temporary failure resolving 'a'\n", "cannot reach", []),
        (124, "", "cannot reach", []),
        (100, "E: Malformed entry 1 in sources file\n", "", ["E: Malformed entry 1 in sources file"]),
        (100, "", "", ["status 100"]),
    ],
)
def test_output_of_apt_is_a_verdict(status: int, said: str, unknown: str, found: list[str]) -> None:
    reason, differences = find_archive_differences(status, said)
    assert unknown in reason
    assert bool(reason) == bool(unknown)
    assert [one.found for one in differences] == found
