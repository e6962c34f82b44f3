"""One byte wrong, in each file from outside and in each row of the lock: refused, and nothing of it is installed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import Host
from lab.labs import Lab
from lab.shelf import MODEL
from rigwright.inventory import ROOT
from rigwright.lock import Lock
from tests.hosts.servers import Mirror, folder, index
from tests.hosts.support import deploy, main_pid, red, served, write_inventory
from tests.hosts.test_sweep import pack, rig

MARKERS = "ls -d /opt/rigwright/engines/*/build.json /opt/rigwright/tools-*/.complete; find /srv/models -type f"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked wheels of the hosts' tools, fetched as pip fetches them."""
    found = tmp_path_factory.mktemp("wheels")
    rows = Lock.load([ROOT / "locks"]).groups["tools"]
    names = tmp_path_factory.mktemp("names") / "requirements.txt"
    names.write_text("".join(f"{row.name}=={row.version} --hash=sha256:{row.sha256}\n" for row in rows))
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-r", str(names)]
    subprocess.run([*pip, "-d", str(found)], check=True)
    return found


def refused(host: Host, inventory: Path, what: str) -> None:
    """A deploy that has to fail, and to leave what is installed and what is served as it was."""
    before, pid = host.run(MARKERS, check=False), main_pid(host)
    run = deploy(inventory)
    assert run.status == 1, f"{what} was taken"
    assert "Traceback" not in run.said
    assert host.run(MARKERS, check=False) == before
    assert (main_pid(host), served(host)) == (pid, True)


def test_a_byte_flipped_in_any_file_is_refused(
    lab: Lab, converged: Host, tmp_path: Path, wheels: Path, subtests: pytest.Subtests
) -> None:
    archive = pack(converged, lab)
    files = [archive.name, MODEL, *sorted(path.name for path in wheels.iterdir())]
    # what is only for another Python is fetched by none of our hosts
    asked = [name for name in files if not name.startswith(("exceptiongroup", "tomli", "typing"))]
    for number, name in enumerate(asked, start=1):
        with subtests.test(name):
            lie = re.escape(name)
            shelf = Mirror(lab.gateway, folder(lab.shelf), lies_about=lie)
            lying = Mirror(lab.gateway, index(wheels), lies_about=lie)
            inventory = rig(tmp_path / str(number), lab, converged, number, archive)
            text = inventory.read_text().replace(lab.shelf_url, shelf.url)
            inventory.write_text(text.replace("'mirrors': {", f"'mirrors': {{'index': ['{lying.url}'], "))
            if name.endswith(".whl"):
                # other tools than the ones that are there
                (inventory.parent / "locks" / "tools.lock.toml").write_text(
                    (ROOT / "locks" / "tools.lock.toml").read_text().replace("group = ", "# other tools\ngroup = ")
                )
                converged.run("rm -rf /opt/rigwright/tools-*")
            refused(converged, inventory, name)
            assert any(name in path for path in [*shelf.asked, *lying.asked])
    whole = write_inventory(tmp_path / "whole", lab, converged)
    assert deploy(whole).status == 0
    assert red(whole) == set()


def test_a_digit_flipped_in_any_row_of_the_lock_is_refused(
    lab: Lab, converged: Host, tmp_path: Path, wheels: Path, subtests: pytest.Subtests
) -> None:
    archive = pack(converged, lab)
    number = 0
    for row in ("packed", "tiny-rig", "packaging", "pathspec", "scikit-build-core"):
        for field in ("kind", "name", "version", "file", "sha256", "size", "sources"):
            number += 1
            inventory = rig(tmp_path / str(number), lab, converged, number, archive)
            locks = inventory.parent / "locks"
            if row not in ("packed", "tiny-rig"):
                (locks / "tools.lock.toml").write_bytes((ROOT / "locks" / "tools.lock.toml").read_bytes())
            path = next(path for path in locks.iterdir() if f'name = "{row}"' in path.read_text())
            with subtests.test(f"{row}.{field}"):
                path.write_text(flipped(path.read_text(), row, field))
                refused(converged, inventory, f"{row}.{field}")
    whole = write_inventory(tmp_path / "whole", lab, converged)
    assert red(whole) == set()


def flipped(text: str, row: str, field: str) -> str:
    """The lock with one character of a row's value changed into another of its kind."""
    start = text.index(f'name = "{row}"')
    begin = text.rindex("[[artefact]]", 0, start)
    end = text.find("[[artefact]]", start)
    end = len(text) if end < 0 else end
    found = re.compile(rf"^{field} = [\[\"]*([^\"\n]+)", re.MULTILINE).search(text, begin, end)
    assert found
    place = found.end(1) - 1
    old = text[place]
    new = {"9": "8", "f": "e"}.get(old, chr(ord(old) + 1))
    return text[:place] + new + text[place + 1 :]


def test_a_digest_names_what_was_hashed(lab: Lab) -> None:
    # the rows of these tests are made from the files, not written down
    content = (lab.shelf / MODEL).read_bytes()
    row = Lock.load([ROOT / "locks"]).artefacts["tiny-rig"]
    assert (row.sha256, row.size) == (hashlib.sha256(content).hexdigest(), len(content))
