"""A rig's way to the world: what its jobs are told, and what programs that they run find in their environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigwright.declaration.entry import Roots
from rigwright.render import render
from rigwright.supply.network import Network, network
from rigwright.supply.tools import Tools
from tests.unit.samples import rig
from tests.unit.scripts import stand_in, tools

SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
LOCAL = "localhost,127.0.0.1"
NOTHING = Network("", "", "", (), ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mirrors": {}}, Network("", "", LOCAL, (), ())),
        ({"mirrors": {"store": ("http://s",)}}, Network("", "", LOCAL, (), ())),
        (
            {"mirrors": {"apt": ("http://a", "http://b")}},
            Network("", "", LOCAL, ("http://a", "http://b"), ()),
        ),
        ({"mirrors": {"index": ("http://i",)}}, Network("", "", LOCAL, (), ("http://i",))),
        (
            {"mirrors": {}, "proxy": "http://p:3128", "no_proxy": ("h", ".example.org")},
            Network("", "http://p:3128", f"{LOCAL},h,.example.org", (), ()),
        ),
        (
            {"mirrors": {}, "proxy": "http://p:3128", "peers": ("http://10.0.0.5:8090", "http://one")},
            Network("", "http://p:3128", f"{LOCAL},10.0.0.5,one", (), ()),
        ),
        ({"mirrors": {}, "ca_certificates": "x"}, Network("/etc/rigwright/ca.pem", "", LOCAL, (), ())),
        (
            {"mirrors": {}, "ca_certificates": "x", "roots": Roots(config="/etc/rw")},
            Network("/etc/rw/ca.pem", "", LOCAL, (), ()),
        ),
    ],
)
def test_a_job_is_told_mirrors_proxy_and_authorities(changes: dict[str, Any], expected: Network) -> None:
    assert network(rig(**changes)) == expected


def run(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", script], env={"PATH": path} | environment, capture_output=True, text=True, check=False
    )


def seen(folder: Path, one: Network, **environment: str) -> dict[str, str]:
    """The environment that a program of a job has."""
    python = "import json, os; print(json.dumps(dict(os.environ)))"
    done = run(
        folder,
        f"set -eu\n{render('jobs/network.sh.j2', network=one, sent='')}\n{os.sys.executable} -c '{python}'",
        **environment,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


BUNDLES = ("PIP_CERT", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def test_without_anything_of_its_own_a_rig_trusts_the_system_and_goes_nowhere_else(tmp_path: Path) -> None:
    found = seen(tmp_path, NOTHING)
    assert {found[name] for name in BUNDLES} == {SYSTEM}
    assert not {"http_proxy", "https_proxy", "no_proxy"} & set(found)


def test_the_rigs_own_authorities_are_trusted_beside_the_systems(tmp_path: Path) -> None:
    own = tmp_path / "own ca.pem"
    own.write_text("OWN\n")
    found = seen(tmp_path, Network(str(own), "", "", (), ()), TMPDIR=str(tmp_path))
    (bundle,) = {found[name] for name in BUNDLES}
    system = Path(SYSTEM).read_text() if Path(SYSTEM).exists() else ""
    assert Path(bundle).read_text() == system + "OWN\n"


def test_before_the_authorities_are_there_a_job_still_runs(tmp_path: Path) -> None:
    assert seen(tmp_path, Network(str(tmp_path / "gone.pem"), "", "", (), ()), TMPDIR=str(tmp_path))


def test_programs_go_through_the_proxy_and_around_it(tmp_path: Path) -> None:
    found = seen(tmp_path, Network("", "http://proxy:3128", "localhost,.example.org", (), ()))
    assert found["http_proxy"] == found["https_proxy"] == "http://proxy:3128"
    assert found["no_proxy"] == "localhost,.example.org"


# writes down what it was given, and has what is asked for where a test says so
PIP = """
echo "${PIP_INDEX_URL-none} ${PIP_EXTRA_INDEX_URL-unset} ${PIP_TRUSTED_HOST-unset}" >> "$LOG"
echo "$*" >> "$ARGUMENTS"
case " $HAS " in *" ${PIP_INDEX_URL-none} "*) exit 0 ;; *) exit 1 ;; esac
"""


@pytest.mark.parametrize(
    ("index", "has", "asked", "status"),
    [
        ((), "none", ["none"], 0),
        ((), "", ["none"], 1),
        (("http://a", "http://b"), "http://a http://b", ["http://a"], 0),
        (("http://a", "http://b"), "http://b", ["http://a", "http://b"], 0),
        (("http://a", "http://b"), "none", ["http://a", "http://b"], 1),
    ],
)
def test_indexes_are_asked_in_order_until_one_has_it(
    tmp_path: Path, index: tuple[str, ...], has: str, asked: list[str], status: int
) -> None:
    stand_in(tmp_path / "bin", "pip", PIP)
    log, arguments = tmp_path / "log", tmp_path / "arguments"
    way = render("jobs/network.sh.j2", network=Network("", "", "", (), index), sent="")
    script = f"set -eu\n{way}\nindexed pip 'a b' -c\n"
    own = {"PIP_EXTRA_INDEX_URL": "http://extra", "PIP_TRUSTED_HOST": "a"} if index else {}
    done = run(tmp_path, script, LOG=str(log), ARGUMENTS=str(arguments), HAS=has, **own)
    assert done.returncode == status
    lines = [line.split(" ") for line in log.read_text().splitlines()]
    assert [line[0] for line in lines] == asked
    # nothing of the host's own configuration reaches past the rig's indexes
    # an index over plain HTTP need not prove who it is: every file has a hash
    trusted = {(line[0], *line[1:]) for line in lines}
    assert trusted == (
        {(url, "", url.removeprefix("http://")) for url, *_ in lines} if index else {("none", "unset", "unset")}
    )
    assert set(arguments.read_text().splitlines()) == {"a b -c"}
    missed = [url for url in index if url not in has.split()][: len(asked)]
    assert [f"the index {url} did not have it" in done.stdout for url in missed] == [True] * len(missed)


@pytest.mark.parametrize("has", ["http://b", "none"])
def test_host_tools_are_marked_whole_only_when_an_index_had_them(tmp_path: Path, has: str) -> None:
    wanted = Tools("pip==26.0\n", str(tmp_path / "tools"))
    # a stand-in for Python's venv: a folder with the stand-in pip
    # what was brought is installed without an index
    stand_in(tmp_path / "bin", "pip", f'[ "$1" = download ] || exit 0\n{PIP}')
    stand_in(tmp_path / "bin", "python3", f'mkdir -p "$3/bin" && cp {tmp_path}/bin/pip "$3/bin/pip"')
    script = tools(Network("", "", "", (), ("http://a", "http://b")), wanted, str(tmp_path / "owned"))
    done = run(tmp_path, script, LOG=str(tmp_path / "log"), ARGUMENTS=str(tmp_path / "arguments"), HAS=has)
    assert (done.returncode == 0) == (has == "http://b")
    assert Path(wanted.marker).exists() == (has == "http://b")
    assert (tmp_path / "owned").read_text() == f"tree {wanted.folder}\n"
    assert "--require-hashes" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize("status", [0, 1])
def test_with_what_was_sent_no_index_is_asked_and_it_is_gone_however_the_job_ends(tmp_path: Path, status: int) -> None:
    sent = tmp_path / "sent files"
    sent.mkdir()
    script = f"set -eu\n{render('jobs/network.sh.j2', network=NOTHING, sent=str(sent))}\nindexed env\nexit {status}\n"
    done = run(tmp_path, script, PIP_INDEX_URL="http://elsewhere")
    assert done.returncode == status
    assert {"PIP_NO_INDEX=1", f"PIP_FIND_LINKS={sent}"} <= set(done.stdout.splitlines())
    assert not sent.exists()
