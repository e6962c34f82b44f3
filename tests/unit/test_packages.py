"""Packages: which archives apt is pointed at, in which order, and what is written down; apt-get is a stand-in."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from rigwright.model.rig import Rig
from roles.operations.jobs import fold_fetch_failures
from tests.unit.rendered_scripts import packages_script, write_stand_in
from tests.unit.samples import sample_rig

# writes down what it was given and what its sources say; some archives do not have some of it
APT = """
sources=
for word in "$@"; do
  case $word in
    Dir::Etc::SourceParts=*) sources=$(sed -n 's/^URIs: //p' "${word#*=}/rigwright.sources" | head -n 1) ;;
    update | install) verb=$word ;;
  esac
done
case "$*" in *" -s "*) verb=simulate ;; esac
echo "$verb $sources" >> "$LOG"
echo "$*" >> "$ARGUMENTS"
echo "${http_proxy-} ${DEBIAN_FRONTEND-}" >> "$ENVIRONMENT"
[ "$verb" != simulate ] ||
  printf '%s\\n' 'Inst curl (8 Debian)' 'Inst g++ [12] (13)' 'Inst libc:amd64 (8)' 'Conf curl (8)'
[ "$verb" != update ] || echo "${WARNED-}"
case $verb:${MISSING-} in simulate:?*) echo "E: Unable to locate package $MISSING" >&2 && exit 100 ;; esac
case " $BROKEN " in *" $verb:${sources:-own} "*) echo "E: $verb is broken" && exit 100 ;; esac
"""
A, B = "http://a/debian", "http://b/debian/"


class PackagesHost:
    """A host with a stand-in apt-get."""

    def __init__(self, folder: Path, release: str = "debian") -> None:
        self.folder = folder
        write_stand_in(folder / "bin", "apt-get", APT)
        write_stand_in(folder / "bin", "dpkg-query", "exit 1")
        (folder / "os-release").write_text(RELEASES[release])

    def run(
        self,
        made: Rig,
        broken: str = "",
        masked: Mapping[str, Sequence[str]] = MappingProxyType({}),
        accounts: Mapping[str, str] = MappingProxyType({}),
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        script = packages_script(made, ("curl", "g++"), str(self.folder / "owned"), masked, accounts)
        script = script.replace(". /etc/os-release", f". {self.folder}/os-release")
        names = ("log", "arguments", "environment")
        paths = {name.upper(): str(self.folder / name) for name in names}
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "TMPDIR": str(self.folder), "BROKEN": broken}
        return subprocess.run(
            ["sh", "-c", script], env=environment | paths | more, capture_output=True, text=True, check=False
        )

    def read(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    @property
    def sources(self) -> str:
        """The last archive's sources."""
        (path,) = self.folder.glob("*/rigwright.sources")
        return path.read_text()


RELEASES = {"debian": "ID=debian\nVERSION_CODENAME=bookworm\n", "ubuntu": "ID=ubuntu\nVERSION_CODENAME=noble\n"}


def rig_with_mirrors(*urls: str) -> Rig:
    return sample_rig(mirrors={"apt": urls} if urls else {})


WHOLE = ["update", "simulate", "install"]
A_WHOLE, B_WHOLE = [f"{verb} http://a/debian" for verb in WHOLE], [f"{verb} http://b/debian" for verb in WHOLE]


@pytest.mark.parametrize(
    ("urls", "broken", "asked", "status"),
    [
        ((), "", [f"{verb} " for verb in WHOLE], 0),
        ((), "update:own", [f"{verb} " for verb in WHOLE], 0),
        ((), "update:own install:own", [f"{verb} " for verb in WHOLE], 100),
        ((), "install:own", [f"{verb} " for verb in WHOLE], 100),
        ((A, B), "", A_WHOLE, 0),
        ((A, B), "update:http://a/debian", [A_WHOLE[0], *B_WHOLE], 0),
        ((A, B), "install:http://a/debian", [*A_WHOLE, *B_WHOLE], 0),
        ((B, A), "", B_WHOLE, 0),
        ((A, B), "update:http://a/debian install:http://b/debian", [A_WHOLE[0], *B_WHOLE], 1),
    ],
    ids=[
        *("own", "own without lists", "own without both", "own without packages"),
        *("first", "second", "second at last", "order", "none"),
    ],
)
def test_archives_are_tried_in_order_until_one_has_the_packages(
    tmp_path: Path, urls: tuple[str, ...], broken: str, asked: list[str], status: int
) -> None:
    host = PackagesHost(tmp_path)
    done = host.run(rig_with_mirrors(*urls), broken)
    assert done.returncode == status, done.stdout + done.stderr
    assert host.read("log") == asked
    assert ("no apt mirror of this rig has the packages" in done.stdout) == bool(status and urls)
    unread = "note: a package repository of this host cannot be read: update is broken\n"
    assert (unread in done.stdout) == ("update:own" in broken and not status)
    assert (unread[6:] in done.stdout) == ("update:own" in broken)
    tried = [url.rstrip("/") for url in urls if f":{url.rstrip('/')}" in broken]
    assert [f"archive {url} failed" in done.stdout for url in tried] == [True] * len(tried)


def test_a_repository_that_is_down_is_reported_though_apt_only_warns(tmp_path: Path) -> None:
    warned = "W: Failed to fetch http://c/x  Connection refused\nW: Some index files failed to download."
    done = PackagesHost(tmp_path).run(rig_with_mirrors(), WARNED=warned)
    assert done.returncode == 0
    told = "note: a package repository of this host cannot be read: Failed to fetch http://c/x  Connection refused"
    assert [line for line in done.stdout.splitlines() if line.startswith("note: ")] == [told]


def test_a_host_that_resolves_no_names_is_told_where_to_look(tmp_path: Path) -> None:
    warned = "W: Failed to fetch http://c/x  Temporary failure resolving 'c'"
    done = PackagesHost(tmp_path).run(rig_with_mirrors(), WARNED=warned)
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("note: "))
    assert told.endswith("resolving 'c': check this host's default route (ip route) and /etc/resolv.conf")


@pytest.mark.parametrize("urls", [(), (A,)])
def test_packages_that_no_source_has_are_the_last_line(tmp_path: Path, urls: tuple[str, ...]) -> None:
    done = PackagesHost(tmp_path).run(rig_with_mirrors(*urls), MISSING="g++")
    assert done.returncode
    *_, before, last = done.stdout.splitlines()
    own = "no apt source of this host has these packages: curl g++; see /etc/apt/sources.list and sources.list.d"
    assert (before, last) == (
        ("archive http://a/debian failed", "no apt mirror of this rig has the packages")
        if urls
        else ("E: Unable to locate package g++", own)
    )


def test_files_that_apt_did_not_fetch_are_one_line_of_a_failed_job() -> None:
    failed = [f"E: Failed to fetch http://c/{name}.deb  Temporary failure resolving 'c'" for name in "abcd"]
    log = ["==> installing packages", *failed, "E: Unable to fetch some archives", failed[0]]
    assert [*fold_fetch_failures(log)] == [log[0], failed[0], "(3 more files not fetched)", *log[5:]]


def test_a_lock_that_is_held_too_long_ends_it(tmp_path: Path) -> None:
    write_stand_in(tmp_path / "bin", "sleep", "")
    done = PackagesHost(tmp_path).run(rig_with_mirrors(), "update:own", WARNED="E: Could not get lock /x")
    assert done.returncode == 1
    assert "another program has held that lock for ten minutes" in done.stdout


def test_installed_packages_are_not_upgraded_along_with_missing_ones(tmp_path: Path) -> None:
    host = PackagesHost(tmp_path)
    write_stand_in(
        tmp_path / "bin", "dpkg-query", "case $4 in curl) printf installed ;; *) printf config-files ;; esac"
    )
    assert host.run(rig_with_mirrors()).returncode == 0
    asked = host.read("arguments")[1:]
    assert [line.partition(" install ")[2] for line in asked] == ["g++", "g++"]


def test_a_mirror_is_used_in_place_of_the_hosts_own_archives(tmp_path: Path) -> None:
    host = PackagesHost(tmp_path)
    assert host.run(rig_with_mirrors(A)).returncode == 0
    assert all("Dir::Etc::SourceList=/dev/null" in line for line in host.read("arguments"))
    assert host.run(rig_with_mirrors()).returncode == 0
    assert "Dir::Etc" not in host.read("arguments")[-1]


@pytest.mark.parametrize(
    ("release", "suites"),
    [
        (
            "debian",
            [
                "URIs: http://a/debian\nSuites: bookworm bookworm-updates\nComponents: main\n",
                "URIs: http://a/debian-security\nSuites: bookworm-security\nComponents: main\n",
            ],
        ),
        (
            "ubuntu",
            [
                "URIs: http://a/debian\nSuites: noble noble-updates\nComponents: main universe\n",
                "URIs: http://a/debian\nSuites: noble-security\nComponents: main universe\n",
            ],
        ),
    ],
)
def test_a_mirror_brings_updates_and_security_too_signed_by_the_distribution(
    tmp_path: Path, release: str, suites: list[str]
) -> None:
    host = PackagesHost(tmp_path, release)
    assert host.run(rig_with_mirrors(A)).returncode == 0
    paragraphs = host.sources.split("\n\n")
    keyring = f"Signed-By: /usr/share/keyrings/{release}-archive-keyring.gpg"
    assert [paragraph.strip() for paragraph in paragraphs] == [f"Types: deb\n{suite}{keyring}" for suite in suites]


def test_only_packages_that_were_not_there_are_written_down_as_ours(tmp_path: Path) -> None:
    host = PackagesHost(tmp_path)
    assert host.run(rig_with_mirrors()).returncode == 0
    assert host.read("owned") == ["package curl", "package libc:amd64"]


SYSTEMCTL = 'case $1 in show) echo "$STATE" ;; *) echo "systemctl $*" >> "$LOG" ;; esac'
MASKING = ["systemctl mask --quiet nginx.service"]


@pytest.mark.parametrize(
    ("state", "asked", "owned"),
    [
        ("not-found", MASKING, ["dir WWW/html", "dir WWW", "file WWW/html/index.html", "mask nginx.service"]),
        ("masked", [], []),
        ("loaded", [], []),
    ],
    ids=["not there", "masked by an earlier run", "somebody's"],
)
def test_a_service_that_a_package_would_start_is_masked_before_it_comes(
    tmp_path: Path, state: str, asked: list[str], owned: list[str]
) -> None:
    host = PackagesHost(tmp_path)
    write_stand_in(tmp_path / "bin", "systemctl", SYSTEMCTL)
    (tmp_path / "there").touch()
    left = [f"{tmp_path}/there", f"{tmp_path}/www/html/index.html"]
    done = host.run(rig_with_mirrors(), masked={"nginx.service": left}, STATE=state)
    assert done.returncode == 0, done.stderr
    assert host.read("log") == [*asked, *(f"{verb} " for verb in WHOLE)]
    owned = [line.replace("WWW", f"{tmp_path}/www") for line in owned]
    assert host.read("owned") == [*owned, "package curl", "package libc:amd64"]


@pytest.mark.parametrize(
    ("users", "ledger", "owned"),
    [
        ("", "", ["account prometheus curl"]),
        ("prometheus:x:1:1::/:/bin/false", "", []),
        ("prometheus:x:1:1::/:/bin/false", "account prometheus g++\n", ["account prometheus curl"]),
    ],
    ids=["not there", "somebody's", "another package's of ours"],
)
def test_a_user_that_a_package_makes_and_leaves_behind_is_written_down(
    tmp_path: Path, users: str, ledger: str, owned: list[str]
) -> None:
    host = PackagesHost(tmp_path)
    write_stand_in(tmp_path / "bin", "getent", f'[ -n "{users}" ] && echo "{users}"')
    (tmp_path / "owned").write_text(ledger)
    assert host.run(rig_with_mirrors(), accounts={"curl": "prometheus"}).returncode == 0
    assert host.read("owned") == [*ledger.splitlines(), *owned, "package curl", "package libc:amd64"]


def test_apt_asks_nothing_waits_for_the_lock_and_goes_through_the_proxy(tmp_path: Path) -> None:
    host = PackagesHost(tmp_path)
    assert host.run(sample_rig(mirrors={}, proxy="http://proxy:3128")).returncode == 0
    assert set(host.read("environment")) == {"http://proxy:3128 noninteractive"}
    assert all("DPkg::Lock::Timeout=600" in line for line in host.read("arguments"))
    assert host.read("arguments")[-1].endswith("install curl g++")
