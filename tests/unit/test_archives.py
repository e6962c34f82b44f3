"""A bundle's suites: compared with their Release files, before any host is asked whether those are signed."""

from pathlib import Path

import pytest

from rigwright.supply import bundle
from rigwright.supply.apt_release import ArchiveSuite
from rigwright.supply.bundle import AGAIN, INDEX
from tests.unit.test_bundle import FILES, LIST, MADE, NEWER, OLDER, refusal, released, row, suite, whole_bundle

folder = pytest.fixture(whole_bundle, name="folder")


def rewritten(folder: Path, suites: list[ArchiveSuite], **contents: bytes) -> list[str]:
    """The refusal of a bundle whose index is right about these files of its older suite."""
    for name, content in contents.items():
        (folder / OLDER.folder / (LIST if name == "Packages" else name)).write_bytes(content)
    rows = [row(path, (folder / path).read_bytes()) for path in FILES]
    (folder / INDEX).write_text(bundle.render_index(MADE, ["debian-12", "debian-13"], suites, rows))
    return refusal(folder)


CURL = released("bookworm", b"Package: curl\n")
BODY = CURL.partition(b"\n\n")[2].partition(b"\n-----BEGIN")[0]
NO_MESSAGE = "is not a single clearsigned message with one signature"
RELEASES: list[tuple[str, bytes, str]] = [
    ("of another release", released("sid", b"Package: curl\n"), "is for sid or stable, not bookworm"),
    (
        "of another day",
        released("bookworm", b"Package: curl\n", "Sun, 22 Nov 2026 12:00:00 UTC"),
        "is dated 2026-11-22 12",
    ),
    (
        "with an end that the index hides",
        released("bookworm", b"Package: curl\n", more="Valid-Until: Sun, 22 Nov 2026 12:00:00 UTC\n"),
        "valid until 2026-11-22 12:00:00 UTC; the index says otherwise",
    ),
    ("of another list", released("bookworm", b"Package: cUrl\n"), "does not match the hash"),
    ("with more before it", b"Codename: bookworm\n" + CURL, NO_MESSAGE),
    ("with more behind it", CURL + b"SHA256:\n", NO_MESSAGE),
    ("twice", CURL + CURL, NO_MESSAGE),
    ("cut", CURL[:-30], NO_MESSAGE),
    ("empty", b"", "has no date or no hashes"),
    ("no text", b"\xff\xfe", "codec can't decode"),
    ("with a date that is invalid", released("bookworm", b"", "today"), "has an unreadable date"),
    ("with two names", released("bookworm", b"", more="Codename: bookworm\n"), "has Codename twice"),
    ("without hashes", BODY.partition(b"SHA256")[0], "has no date or no hashes"),
]


@pytest.mark.parametrize(("content", "said"), [one[1:] for one in RELEASES], ids=[one[0] for one in RELEASES])
def test_a_release_file_that_is_not_its_suites_is_refused(folder: Path, content: bytes, said: str) -> None:
    (line,) = rewritten(folder, [OLDER, NEWER], InRelease=content)
    assert line.startswith(f"{OLDER.folder}/")
    assert said in line
    assert line.endswith(AGAIN)


def test_a_list_that_is_not_the_signed_one_is_refused(folder: Path) -> None:
    (line,) = rewritten(folder, [OLDER, NEWER], Packages=b"Package: cUrl\n")
    assert line == f"{OLDER.folder}/{LIST}: does not match the hash signed by its archive: {AGAIN}"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (suite("debian-12", "trixie"), "packages/debian-12/0/dists/trixie: is not a suite of debian-12"),
        (suite("debian-12", "sid"), "packages/debian-12/0/dists/sid: is not a suite of debian-12"),
        (suite("debian-99", "bookworm"), "packages/debian-99/0/dists/bookworm: is not a suite of debian-99"),
        (suite("debian-12", "bookworm-updates"), "dists/bookworm-updates: has no InRelease signed"),
    ],
)
def test_a_suite_that_is_not_the_systems_or_not_signed_is_refused(folder: Path, other: ArchiveSuite, said: str) -> None:
    (line,) = rewritten(folder, [OLDER, NEWER, other])
    assert said in line


def test_a_release_file_with_its_signature_beside_it_will_do(folder: Path) -> None:
    (folder / OLDER.folder / "InRelease").unlink()
    (folder / OLDER.folder / "Release").write_bytes(BODY + b"\n")
    (folder / OLDER.folder / "Release.gpg").write_bytes(b"a signature")
    paths = [path for path in FILES if path != f"{OLDER.folder}/InRelease"]
    paths += [f"{OLDER.folder}/{name}" for name in ("Release", "Release.gpg")]
    rows = [row(path, (folder / path).read_bytes()) for path in paths]
    (folder / INDEX).write_text(bundle.render_index(MADE, [], [OLDER, NEWER], rows))
    assert bundle.load_bundle(folder).suites == (OLDER, NEWER)
