"""`rigwright lock` of repositories, with the hub's own client against a hub on the loopback interface."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.lock_resolver import checkpoint_inspection
from rigwright.project_root import ROOT
from tests.stand_ins.hub import StandInHub
from tests.stand_ins.hub.faults import BrokenXet, ErrorStatus
from tests.unit import tls_certificates
from tests.unit.gguf_files import gguf_file
from tests.unit.hub_world import CONFIG, FILES, GGUF, NAME, TOKEN, HubLockFixture, make_hub_fixture


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    with make_hub_fixture(tmp_path / "box", monkeypatch) as made:
        yield made


def test_a_repository_is_pinned_file_by_file(world: HubLockFixture) -> None:
    assert world.lock_lines() == [f"+ model model org/name@{world.commit[:7]} 25.9 kB in 4 files, apache-2.0"]
    rows = world.locked_rows
    assert sorted(rows) == ["README.md", "config.json", "mmproj.gguf", "q4/model.gguf"]
    assert {path: (row.sha256, row.size) for path, row in rows.items()} == {
        path: (hashlib.sha256(content).hexdigest(), len(content))
        for path, content in FILES.items()
        if isinstance(content, bytes) and path != ".gitattributes"
    }
    row = rows["q4/model.gguf"]
    assert (row.version, row.repository, row.folder, row.file) == (world.commit, NAME, "q4", "model.gguf")
    assert (row.sources, row.licence, row.gated) == (("hub:org/name",), "apache-2.0", None)
    assert world.hub.url not in world.lock_text


def test_only_what_the_hub_does_not_hash_is_fetched_and_the_beginnings_of_weights(world: HubLockFixture) -> None:
    world.hub.add_commit(NAME, {**FILES, "q4/model.gguf": gguf_file(3 * checkpoint_inspection.HEADER_BYTES)})
    world.lock_lines()
    assert world.hub.sent_bytes == len(CONFIG) + len(b"# Name") + checkpoint_inspection.HEADER_BYTES + len(
        gguf_file(b"projector")
    )


def test_a_second_lock_changes_and_asks_nothing(world: HubLockFixture) -> None:
    world.lock_lines()
    text, asked = world.lock_text, len(world.hub.asked)
    world.hub.add_commit(NAME, {**FILES, "config.json": b"{}"})
    assert world.lock_lines() == ["no change"]
    assert (world.lock_text, len(world.hub.asked)) == (text, asked)
    world.lock_path.unlink()
    world.hub.add_commit(NAME, dict(reversed(FILES.items())), licence="apache-2.0")
    world.lock_lines()
    assert world.lock_text == text


def test_refresh_follows_the_branch(world: HubLockFixture) -> None:
    world.lock_lines()
    old = world.commit
    more: dict[str, bytes | Path] = {**FILES, "config.json": b"{}", "new.json": b"[]"}
    del more["README.md"]
    new = world.hub.add_commit(NAME, more, licence="mit", gated=True, token=TOKEN)
    world.write_token()
    assert world.lock_lines("--refresh") == [
        f"~ model model org/name@{old[:7]} -> org/name@{new[:7]} 25.9 kB in 4 files, 1 new, 1 changed, 1 gone, "
        "licence apache-2.0 -> mit, now gated"
    ]
    assert {row.version for row in world.locked_rows.values()} == {new}


def test_an_input_that_is_no_more_is_taken_out(world: HubLockFixture) -> None:
    world.lock_lines()
    world.write_catalog(text="")
    assert world.lock_lines() == [f"- model model org/name@{world.commit[:7]}"]


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        ('include = ["*.gguf"]', ["mmproj.gguf", "q4/model.gguf"]),
        ('include = ["q4/"]', ["q4/model.gguf"]),
        ('exclude = ["*.md", "mmproj*"]', ["config.json", "q4/model.gguf"]),
        ('include = ["*.gguf", "*.json"]\nexclude = ["q4/*"]', ["config.json", "mmproj.gguf"]),
    ],
)
def test_patterns_select(world: HubLockFixture, keys: str, selected: list[str]) -> None:
    world.lock_lines()
    world.write_catalog(keys)
    world.lock_lines()
    assert sorted(world.locked_rows) == selected


def test_an_own_mirror_stands_behind_the_hub(world: HubLockFixture) -> None:
    world.write_catalog('sources = ["office:models/name"]')
    world.lock_lines()
    assert world.locked_rows["q4/model.gguf"].sources == ("hub:org/name", "office:models/name/q4/model.gguf")


@pytest.mark.parametrize("version", ["v1", "commit"])
def test_a_tag_or_a_commit_can_be_asked_for(world: HubLockFixture, version: str) -> None:
    old = world.hub.add_commit(NAME, {"one.gguf": gguf_file(b"one")}, branch="v1")
    world.write_catalog(f'version = "{old if version == "commit" else "v1"}"')
    world.lock_lines()
    assert {path: row.version for path, row in world.locked_rows.items()} == {"one.gguf": old}


def test_a_gated_repository_needs_a_token_that_has_access(world: HubLockFixture) -> None:
    world.hub.add_commit(NAME, {"model.gguf": GGUF}, gated=True, token=TOKEN)
    assert world.lock_error() == (
        "cannot be locked: org/name is gated: request access on its page, and provide your token with the rig's "
        "hub_token_file"
    )
    world.write_token("hf_somebody_else")
    assert world.lock_error() == (
        "cannot be locked: org/name is gated and the token has no access: request it on its page"
    )
    world.write_token()
    assert world.lock_lines()[0].endswith(", no licence named, gated")
    assert world.locked_rows["model.gguf"].gated is True
    assert TOKEN not in world.lock_text


def test_small_files_of_a_gated_repository_are_fetched_with_the_token(world: HubLockFixture) -> None:
    world.hub.add_commit(NAME, FILES, gated=True, token=TOKEN)
    world.write_token()
    world.lock_lines()
    assert world.locked_rows["config.json"].sha256 == hashlib.sha256(CONFIG).hexdigest()


def test_a_login_is_not_shown_to_a_mirror(world: HubLockFixture) -> None:
    world.lock_lines()
    assert world.hub.asked
    assert not any(one.authorised for one in world.hub.asked)


def test_a_rigs_token_is_shown_to_no_other_rigs_mirror(world: HubLockFixture) -> None:
    world.write_token()
    with StandInHub(certificate=tls_certificates.server_certificate()) as other:
        boxes = {
            "one": {"ssh_hostname": "127.0.0.1", "mirrors": {"hub": [other.url]}},
            "two": {
                "ssh_hostname": "192.0.2.2",
                "mirrors": {"hub": [other.url, world.hub.url]},
                "hub_token_file": "hub.token",
                "hub_token_origin": world.hub.url,
            },
        }
        text = f"from rigwright.inventory import hosts\nrigs = hosts({boxes!r})\n"
        (world.folder / "rig.py").write_text(text)
        world.lock_lines()
        assert other.asked
        assert not any(one.authorised for one in other.asked)
        assert any(one.authorised for one in world.hub.asked)


def test_a_login_is_used_at_the_clients_own_hub(world: HubLockFixture, tmp_path: Path) -> None:
    world.hub.add_commit(NAME, FILES, gated=True, token=TOKEN)
    boxes = {"box": {"ssh_hostname": "127.0.0.1", "redirects": [world.hub.cdn_url]}}
    (world.folder / "rig.py").write_text(f"from rigwright.inventory import hosts\nrigs = hosts({boxes!r})\n")
    environment = os.environ | {"HF_ENDPOINT": world.hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf")}
    command = [sys.executable, "-m", "cli", "lock", str(world.folder / "rig.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert world.locked_rows["config.json"].gated is True


def test_the_next_endpoint_is_asked_where_one_does_not_answer(world: HubLockFixture) -> None:
    world.write_rig(mirrors={"hub": ["http://127.0.0.1:1", world.hub.url]})
    world.lock_lines()
    assert len(world.locked_rows) == 4


def test_a_transient_answer_of_the_hub_is_asked_again(world: HubLockFixture) -> None:
    world.hub.add_fault(ErrorStatus(503, where="api"), times=1)
    world.lock_lines()


def test_xet_changes_nothing(world: HubLockFixture) -> None:
    world.hub.add_fault(BrokenXet())
    world.lock_lines()
    assert world.locked_rows["q4/model.gguf"].sha256 == hashlib.sha256(GGUF).hexdigest()
