"""A hub's client that was taken over: it has a user, a folder and the token; root keeps nothing that it can change."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.unit.weights_world import CONTENT, WeightsFixture
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

CLIENT = """#!/usr/bin/python3 -I
import json, os, pathlib, sys, time
asked = json.loads(sys.argv[3])
print(json.dumps({{"url": "http://127.0.0.1:9/"}}), flush=True)
if not asked["folder"]:
    sys.exit()
folder, secret, content = pathlib.Path(asked["folder"]), pathlib.Path({secret!r}), bytes.fromhex({content!r})
place = folder / "x.gguf"
folder.mkdir()
status = dict(one.split(":", 1) for one in pathlib.Path("/proc/self/status").read_text().splitlines())
seen = [status[key].split() for key in ("Uid", "Gid", "Groups", "CapPrm", "CapBnd", "NoNewPrivs")]
try:
    seen.append(secret.read_text())
except OSError as error:
    seen.append(type(error).__name__)
print(json.dumps({{"error": json.dumps(seen)}}), flush=True)
{act}
"""
SAYS = 'print(json.dumps({"path": str(place)}), flush=True)'
HALF = 'half = folder / ".cache/huggingface/download"\nhalf.mkdir(parents=True)\nhalf = half / "a.incomplete"\n'
WAITS = "\ntime.sleep(1)"
HOSTILE = {
    "names a file of root's": 'print(json.dumps({"path": str(secret)}), flush=True)',
    "a link to a file of root's": f"place.symlink_to(secret)\n{SAYS}",
    "a link on the way": f"folder.rmdir()\nfolder.symlink_to(secret.parent)\n{SAYS}",
    "a pipe": f"os.mkfifo(place)\n{SAYS}",
    "a folder": f"place.mkdir()\n{SAYS}",
    "an unfinished link to a file of root's": f"{HALF}half.symlink_to(secret){WAITS}",
    "an unfinished pipe": f"{HALF}os.mkfifo(half){WAITS}",
    "what a process can still write": (
        "place.write_bytes(content)\nhandle = place.open('r+b')\nif not (child := os.fork()):\n    os.setsid()\n"
        "    time.sleep(10)\n    os._exit(0)\nwhile os.getpgid(child) == os.getpgrp():\n    time.sleep(0.01)\n"
        f"{SAYS}"
    ),
}


def put(host: WeightsFixture, act: str) -> Path:
    """Have the hub's client be a program that does this; returns a file of root's."""
    (secret := host.folder / "secret").mkdir(mode=0o755)
    (secret := secret / "x.gguf").write_text("root's")
    secret.chmod(0o600)
    client = host.folder / "client"
    client.write_text(CLIENT.format(act=act, secret=str(secret), content=CONTENT.hex()))
    client.chmod(0o755)
    host.python = str(client)
    return secret


@pytest.mark.parametrize("act", HOSTILE.values(), ids=HOSTILE)
def test_files_of_a_hostile_client_are_not_kept_and_root_s_files_stay(host: WeightsFixture, act: str) -> None:
    secret = put(host, act)
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT})
    done = host.fetch(wanted)
    assert "going on with plain HTTP" in done.stdout
    assert host.is_fetched(one)
    assert host.file_path(one).stat().st_nlink == 1
    kept = secret.stat()
    assert (secret.read_text(), kept.st_uid, kept.st_mode & 0o777, kept.st_nlink) == ("root's", 0, 0o600, 1)


def test_the_client_has_no_privilege_and_reads_nothing_of_root_s(host: WeightsFixture) -> None:
    put(host, "sys.exit(1)")
    done = host.run_fetch(host.commit_files({"x.gguf": CONTENT}))
    nobody, none = '[\\"65534\\", \\"65534\\", \\"65534\\", \\"65534\\"]', '[\\"0000000000000000\\"]'
    line = next(line for line in done.stdout.splitlines() if "client failed" in line).replace('"', '\\"')
    words = (nobody, nobody, "[]", none, none, '[\\"1\\"]', '\\"PermissionError\\"')
    assert ", ".join(words) in line


def test_a_file_that_it_made_is_root_s_before_its_bytes_are_judged(host: WeightsFixture) -> None:
    put(host, f"place.write_bytes(content)\n{SAYS}")
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT})
    done = host.fetch(wanted)
    assert "plain HTTP" not in done.stdout
    assert host.is_fetched(one)
    assert host.hub.asked == []


@pytest.mark.parametrize("written_to", [True, False])
def test_a_part_that_a_killed_run_has_left_is_root_s_before_it_is_gone_on_with(
    host: WeightsFixture, written_to: bool
) -> None:
    host.python = ""
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT})
    part = host.place_file(host.part_path(one), CONTENT[:1000])
    os.chown(part, 65534, 65534)
    with part.open("r+b") if written_to else nullcontext():
        host.fetch(wanted)
    assert host.is_fetched(one)
    assert host.requested_ranges() == ["x.gguf None" if written_to else "x.gguf bytes=1000-"]
