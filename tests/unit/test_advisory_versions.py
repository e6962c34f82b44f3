"""The order of versions in each ecosystem, ranges of advisories, packages of a host, and the age of data."""

import re
import shutil
import subprocess
from datetime import date
from itertools import product

import pytest

from rigwright.advisories import predicates
from rigwright.advisories.assessment import DataSource
from rigwright.advisories.components import collect_host_components, parse_packages
from rigwright.advisories.versions import Event, Scheme, VersionRange, is_affected, parse_version
from rigwright.project_root import ROOT

DEBIAN = (
    *("1.0", "1.0-1", "1.0-1+b1", "1.0-1~bpo12+1", "1.0~rc1-1", "1:0.9-1", "1.0+dfsg-1", "1.00-1", "1.0.1-1"),
    *("1.0a-1", "6.1.140-1", "6.1.9-1", "2.36-9+deb12u10", "2.36-9+deb12u9", "0:1.0-1", "1.0-1-2", "~~", "~", "~~a"),
)


def between(*ends: str) -> VersionRange:
    """`introduced=1`, `fixed=2` and so on."""
    return VersionRange(tuple(Event(*end.split("=")) for end in ends))


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not here")
def test_debian_versions_sort_as_dpkg_sorts_them() -> None:
    texts = [text for text in DEBIAN if text[0].isdigit()]
    for one, other in product(texts, texts):
        words = ["dpkg", "--compare-versions", one, "lt", other]
        smaller = subprocess.run(words, check=False).returncode == 0
        assert (parse_version("dpkg", one) < parse_version("dpkg", other)) == smaller, (one, other)


@pytest.mark.parametrize(
    ("scheme", "version", "ends", "expected"),
    [
        ("pep440", "0.21.0", ("introduced=0.19.0", "fixed=0.32.0"), True),
        ("pep440", "0.32.0", ("introduced=0.19.0", "fixed=0.32.0"), False),
        ("pep440", "0.18.9", ("introduced=0.19.0", "fixed=0.32.0"), False),
        # a release candidate comes before its release, a post-release after it
        ("pep440", "0.32.0rc1", ("introduced=0.19.0", "fixed=0.32.0"), True),
        ("pep440", "0.19.0rc1", ("introduced=0.19.0", "fixed=0.32.0"), False),
        ("pep440", "0.2.5.post1", ("introduced=0", "last_affected=0.2.5"), False),
        # a local build is of the same sources as its release
        ("pep440", "0.21.0+cpu", ("introduced=0", "last_affected=0.21.0"), True),
        ("pep440", "0.21.0+cpu", ("introduced=0", "fixed=0.21.0"), False),
        ("pep440", "1!0.1", ("introduced=0", "fixed=5"), False),
        ("pep440", "0.9", ("introduced=0", "fixed=0.10"), True),
        # several stretches in one range, in any order
        ("pep440", "2.5", ("introduced=0", "fixed=1", "fixed=3", "introduced=2"), True),
        ("pep440", "1.5", ("introduced=0", "fixed=1", "introduced=2", "fixed=3"), False),
        ("pep440", "1.0", ("introduced=1.0", "last_affected=1.0"), True),
        ("pep440", "1.5", ("introduced=1.0", "last_affected=1.0"), False),
        ("dpkg", "1.0~rc1-1", ("introduced=0", "fixed=1.0-1"), True),
        ("dpkg", "1:0.9-1", ("introduced=0", "fixed=1.0-1"), False),
        ("dpkg", "2.36-9+deb12u9", ("introduced=0", "fixed=2.36-9+deb12u10"), True),
        ("build", "b8226", ("introduced=b8227", "fixed=b11393"), False),
        ("build", "b11392", ("introduced=b8227", "fixed=b11393"), True),
        ("build", "b11393", ("introduced=b8227", "fixed=b11393"), False),
        ("driver", "580.95.05", ("introduced=0", "fixed=580.178.04"), True),
        ("driver", "580.178.04", ("introduced=0", "fixed=580.178.04"), False),
        # incomparable versions are unknown
        ("build", "0c1e57098bba43ac29e6e3b677cdceebdd22334f", ("introduced=b8227", "fixed=b11393"), None),
        ("pep440", "0.21.0", ("introduced=0", "fixed=a fix"), None),
        ("pep440", "no version", ("introduced=0", "fixed=1"), None),
        ("pep440", "", ("introduced=0", "fixed=1"), None),
        ("pep440", "0.21.0", ("fixed=1",), None),
        ("opaque", "1.0", ("introduced=0", "fixed=2"), None),
        ("pep440", "9" * 5000, ("introduced=0", "fixed=1"), None),
        ("dpkg", "1." + "9" * 5000, ("introduced=0", "fixed=1"), None),
    ],
)
def test_a_version_in_a_range(scheme: Scheme, version: str, ends: tuple[str, ...], expected: bool | None) -> None:
    assert is_affected(scheme, version, [between(*ends)]) is expected


@pytest.mark.parametrize(
    ("version", "ranges", "listed", "expected"),
    [
        ("1.0", [], ["1.0.0"], True),
        ("1.1", [], ["1.0.0"], False),
        ("1.1", [VersionRange((), readable=False)], ["1.0.0"], None),
        ("1.1", [VersionRange((), readable=False)], ["1.1"], True),
        ("1.1", [between("introduced=0", "fixed=1"), VersionRange((), readable=False)], [], None),
        ("1.1", [between("introduced=0", "fixed=2"), VersionRange((), readable=False)], [], True),
        ("1.1", [], [], True),
        ("", [], [], None),
    ],
)
def test_lists_and_unreadable_ranges(version, ranges, listed, expected):
    assert is_affected("pep440", version, ranges, listed) is expected


PACKAGES = """\
installed\topenssl\topenssl\t3.0.17-1~deb12u2\t3.0.17-1~deb12u2
installed\tlinux-image-6.1.0-40-amd64\tlinux-signed-amd64\t6.1.153+1\t6.1.153-1
config-files\told\told\t1.0\t1.0
installed\tnvidia-utils-580-server\tnvidia-graphics-drivers-580-server\t580.95.05-0ubuntu1\t580.95.05-0ubuntu1
a line of another form
"""


def test_packages_of_a_host_are_named_by_their_sources() -> None:
    packages, unreadable = parse_packages(PACKAGES)
    assert ([one.name for one in packages], unreadable) == (
        ["openssl", "linux-image-6.1.0-40-amd64", "nvidia-utils-580-server"],
        1,
    )
    found = {
        (one.ecosystem, one.name, one.version)
        for one in collect_host_components(packages, "debian-12", driver_known=False)
    }
    assert ("Debian:12", "linux", "6.1.153-1") in found
    assert ("Debian:12", "openssl", "3.0.17-1~deb12u2") in found
    assert ("", "nvidia-driver", "580.95.05") in found
    assert ("", "nvidia-driver", "580.95.05") not in {
        (one.ecosystem, one.name, one.version)
        for one in collect_host_components(packages, "debian-12", driver_known=True)
    }


@pytest.mark.parametrize(
    ("as_of", "word"),
    [
        (date(2026, 11, 28), ""),
        (date(2026, 10, 29), ""),
        (date(2026, 10, 28), "is 31 days old"),
        (date(2026, 10, 1), "later advisories are missing"),
        (date(2027, 1, 1), "in the future"),
        (None, "has no date"),
    ],
)
def test_stale_data_are_reported(as_of: date | None, word: str) -> None:
    problem = DataSource("db.zip", as_of, 1).problem(date(2026, 11, 28))
    assert word in problem and bool(word) == bool(problem)


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [
        ("chat_template", (), True),
        ("chat_template", ("chat_template",), False),
        ("chat_template_kwargs", (), True),
        ("stop_token_ids", (), True),
        ("prompt_list", (), True),
        ("prompt_list", ("prompts",), False),
        # bounded, so that some of it reaches an engine
        ("stop", (), False),
        ("nothing_of_the_kind", (), False),
    ],
)
def test_the_table_of_request_rules_says_which_fields_are_refused(field, allowed, refused):
    declared = predicates.Gateway.model_construct(allow_fields=allowed, models={})
    assert predicates.is_refused_field(declared, field) is refused


def test_architectures_of_text_alone_are_vllms_own() -> None:
    registered = (ROOT / "catalog/flags/vllm-0.21.0.json").read_text()
    assert not [one for one in predicates.TEXT_ONLY if f'"{one}"' not in registered]
    assert not [one for one in predicates.TEXT_ONLY if re.search("VL|Vision|Omni|OCR|MM", one)]
