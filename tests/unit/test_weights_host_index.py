"""Packages without a mirror: the host's own index is the one that its pip would ask, a channel py-rattler's."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pip._internal.models.index import PyPI

from tests.unit.file_server import LoopbackFileServer, complete_file, redirect_to, run_file_server
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.test_weights_index import PLACE, index, of_index, page, wheel
from tests.unit.weights_world import CONTENT, Source, WeightsFixture
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


@pytest.fixture
def inner() -> Iterator[LoopbackFileServer]:
    """Another server."""
    with run_file_server() as made:
        yield made


def configure_host_index(host: WeightsFixture, *, file: str = "", **variables: str) -> list[Source]:
    """The host's own index, as pip is configured there."""
    host.settings["package_python"] = sys.executable
    (host.folder / "pip.conf").write_text(file)
    host.environment |= {"PIP_CONFIG_FILE": str(host.folder / "pip.conf"), **variables}
    return [of_index("")]


@pytest.mark.parametrize("how", ["file", "environment", "second"])
def test_without_a_mirror_the_index_of_the_hosts_own_pip_is_asked(host: WeightsFixture, how: str) -> None:
    index(host, page())
    url = f"{host.server.url}/simple/"
    if how == "file":
        sources = configure_host_index(host, file=f"[global]\nindex-url = {url}\n")
    elif how == "environment":
        sources = configure_host_index(host, file="[global]\nindex-url = http://127.0.0.1:1/\n", PIP_INDEX_URL=url)
    else:
        sources = configure_host_index(
            host, PIP_INDEX_URL=f"{host.server.url}/empty", PIP_EXTRA_INDEX_URL=f"file:///nowhere {url}"
        )
    host.fetch({wheel(): sources})


def test_pips_own_constant_comes_last(host: WeightsFixture) -> None:
    program = Path(__file__).parents[2] / "roles/weights/host/defaults.py"
    environment = {"PATH": os.environ["PATH"], "HOME": str(host.folder), "PIP_CONFIG_FILE": os.devnull}
    said = subprocess.run([sys.executable, "-I", program, "index"], env=environment, capture_output=True, check=True)
    assert json.loads(said.stdout) == [PyPI.simple_url]


def test_a_password_in_pips_configuration_goes_to_the_index_alone(
    host: WeightsFixture, inner: LoopbackFileServer
) -> None:
    inner.serve("file", complete_file(CONTENT))
    host.redirects = [inner.url]
    host.server.serve(PLACE, redirect_to(f"{inner.url}/file"))
    index(host, page())
    done = host.run_fetch(
        {wheel(): configure_host_index(host, PIP_INDEX_URL=f"{host.server.url}/simple".replace("//", "//me:a%20word@"))}
    )
    assert done.returncode == 0, done.stdout
    login = f"Basic {base64.b64encode(b'me:a word').decode()}"
    assert {one.authorization for one in host.server.asked} == {login}
    assert [one.authorization for one in inner.asked] == [None]
    assert "word" not in done.stdout


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("", "no mirror is named for it, and no Python is there that knows this host's own index"),
        ("/nonexistent", "does not say which index this host asks by itself"),
        ("exit 1", "does not say which index"),
        ("echo nonsense", "does not say which index"),
        ("echo '[1]'", "does not say which index"),
        ("echo '[]'", "configured to ask no index"),
        ("""echo '["file:///x"]'""", "no http(s) address, but one of file"),
    ],
)
def test_a_host_without_its_own_index_is_reported(host: WeightsFixture, python: str, why: str) -> None:
    made = python if python[:1] in ("", "/") else str(write_stand_in(host.folder / "bin", "python", python))
    host.settings["package_python"] = made
    done = host.run_fetch({wheel(): [of_index("")]})
    assert done.returncode == 1
    assert f"this host's own package index: {why}" in done.stdout or why in done.stdout


@pytest.mark.parametrize("given", [True, False])
def test_a_conda_package_is_had_below_its_channel(host: WeightsFixture, given: bool) -> None:
    one = wheel(CONTENT, "python-3.10.20-h_0_cpython.conda")
    host.server.serve("channels/forge/linux-64/python-3.10.20-h_0_cpython.conda", complete_file(CONTENT))
    base = f"{host.server.url}/channels/forge"
    say = f"""[ "$3 $4" = "channel forge" ] && echo '["{base}/"]'"""
    host.settings["package_python"] = "" if given else str(write_stand_in(host.folder / "bin", "python", say))
    place = "linux-64/python-3.10.20-h_0_cpython.conda"
    source = {"kind": "channel", "channel": "forge", "file": place, "base": base if given else ""}
    host.fetch({one: [source]})


def test_a_channel_that_py_rattler_does_not_know_is_reported(host: WeightsFixture) -> None:
    host.settings["package_python"] = str(write_stand_in(host.folder / "bin", "python", "echo '[]'"))
    done = host.run_fetch({wheel(): [{"kind": "channel", "channel": "forge", "file": "noarch/x.conda"}]})
    assert done.returncode == 1
    assert "this host's own forge: py-rattler does not say where it is" in done.stdout
