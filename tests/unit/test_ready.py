"""The ready script: returns once a server has answered a completion, and not when the server has ended."""

import grp
import hashlib
import json
import os
import pwd
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rigwright.engines.instance_request import HEALTH_REQUEST, ONE_TOKEN, InstanceRequest
from tests.unit.file_server import AnswerHandler, FileServerHandler, complete_file, error_status, run_file_server
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.starting_instance import ENVIRONMENT, GROUP, INVOCATION, KEY, TEXT, UNIT, StartingInstance

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the script gives root away before it connects")

COMPLETIONS = "v1/chat/completions"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartingInstance]:
    # where others than root come to, and with a path that a socket may have
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder, "chat", "api.sock")
        at.parent.mkdir()
        at.parents[1].chmod(0o755)
        with run_file_server(at) as server:
            server.serve(COMPLETIONS, complete_file(b"{}"))
            # as systemd and the instance leave them
            for path, mode in ((at.parent, 0o700), (at, 0o770)):
                os.chown(path, -1, grp.getgrnam(GROUP).gr_gid)
                path.chmod(mode)
            yield StartingInstance(tmp_path, server, at)


def test_it_waits_for_an_answer_to_a_completion_of_one_token(start: StartingInstance) -> None:
    start.server.serve(COMPLETIONS, error_status(503), error_status(401), complete_file(b"{}"))
    done = start.ready(os.getpid())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [(one.path, one.authorization) for one in start.completions_asked] == [(COMPLETIONS, f"Bearer {KEY}")] * 3
    assert json.loads(start.completions_asked[0].body)["max_tokens"] == 1


def test_a_server_that_says_that_it_loads_is_asked_for_nothing_else(start: StartingInstance) -> None:
    start.server.serve("health", error_status(503), error_status(503), complete_file(b"{}"))
    assert start.ready(os.getpid()).returncode == 0
    assert [one.path for one in start.server.asked] == [*["health"] * 3, COMPLETIONS]


def test_a_later_start_on_demand_of_the_same_texts_answers_the_lesser_request(start: StartingInstance) -> None:
    start.server.serve("health", complete_file(b"{}"))
    start.again = HEALTH_REQUEST
    assert start.ready(os.getpid()).returncode == 0
    start.write = lambda: None  # type: ignore[method-assign]
    assert start.ready(os.getpid()).returncode == 0
    assert start.ready(os.getpid()).returncode == 0
    assert [one.path for one in start.completions_asked] == [COMPLETIONS]
    assert len(start.server.asked) == 2 + 4
    assert start.proof.stat().st_mode & 0o777 == 0o600


def test_a_later_start_of_another_text_weight_request_or_key_answers_the_whole_request(
    start: StartingInstance,
) -> None:
    start.server.serve("health", complete_file(b"{}"))
    start.again, key = HEALTH_REQUEST, KEY
    assert start.ready(os.getpid()).returncode == 0
    start.write = lambda: None  # type: ignore[method-assign]
    request, weights = start.generation / "requests/chat", start.folder / start.weights[0]
    changes: tuple[Callable[[], object], ...] = (
        lambda: (start.folder / UNIT).write_text(TEXT + "# changed\n"),
        lambda: (weights.rename(start.folder / "aside"), weights.write_text("other")),
        lambda: request.write_text(request.read_text() + "# changed\n"),
        lambda: None,
        # as its unit does after a failure
        lambda: start.proof.unlink(),
    )
    for number, change in enumerate(changes):
        change()
        key = f"{KEY}{number // 3}"
        before = len(start.completions_asked)
        assert start.ready(os.getpid(), key=key).returncode == 0
        assert len(start.completions_asked) == before + 1, number
        assert start.ready(os.getpid(), key=key).returncode == 0
        assert len(start.completions_asked) == before + 1, number


def test_an_answer_that_does_not_come_from_its_cards_is_no_proof_for_later_starts(start: StartingInstance) -> None:
    start.server.serve("health", complete_file(b"{}"))
    start.again = HEALTH_REQUEST
    start.processes = {4711: (f"0::{start.group}\n", ["/dev/nvidia0"])}
    assert start.ready(4711, cards=1).returncode == 1
    assert start.record.exists()
    assert not start.proof.exists()


def test_it_asks_as_user_nobody_in_the_instances_group(start: StartingInstance) -> None:
    asked = []

    def record_request(handler: FileServerHandler, at: int) -> None:
        asked.append(handler.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        handler.send_head(200, 0)

    start.server.serve(COMPLETIONS, record_request)
    assert start.ready(os.getpid()).returncode == 0
    (found,) = asked
    assert struct.unpack("3i", found)[1:] == (pwd.getpwnam("nobody").pw_uid, grp.getgrnam(GROUP).gr_gid)


def test_a_start_with_a_declaration_is_recorded_beside_it(start: StartingInstance) -> None:
    asked = start.folder / "asked"
    write_stand_in(start.folder / "bin", "systemd-run", f'printf "%s\\n" "$@" > {asked}; exit 1')
    start.declare_memory()
    done = start.ready(os.getpid())
    assert (done.returncode, done.stdout) == (0, "the memory of this start is not recorded\n")
    words = asked.read_text().splitlines()
    assert f"--unit=rigwright_memory-chat-{INVOCATION}" in words
    assert "--no-block" in words
    program = ["/usr/bin/python3", "-I", "-S", "-B", f"{start.generation}/memory/recorder"]
    assert words[words.index("--") + 1 :] == [
        *program,
        *(UNIT, "chat", f"{start.generation}/memory/chat.json", str(start.folder / "memory"), INVOCATION),
    ]


@pytest.mark.parametrize(("state", "awaited"), [("active", True), ("activating", True), ("", True), ("failed", False)])
def test_a_recorder_that_has_failed_is_not_awaited(start: StartingInstance, state: str, awaited: bool) -> None:
    write_stand_in(start.folder / "bin", "systemd-run", ":")
    start.recorder = state
    (start.folder / "memory").mkdir()
    start.declare_memory()
    done = start.ready(os.getpid())
    assert (done.returncode, done.stdout) == (0, "")
    asked = (start.folder / "asked").read_text().splitlines()
    assert asked == [f"is-active rigwright_memory-chat-{INVOCATION}.service"] * (6 if awaited else 1)
    assert not (start.folder / "memory/.chat.answered").exists()


@pytest.mark.parametrize("looks", [True, False])
def test_the_recorder_looks_at_it_before_it_is_ready(start: StartingInstance, looks: bool) -> None:
    mark, kept = start.folder / "memory/.chat.answered", start.folder / "kept"
    take = f"(while [ ! -s {mark} ]; do :; done; cp {mark} {kept}; rm {mark}) > {kept}.log 2>&1 &" if looks else ":"
    write_stand_in(start.folder / "bin", "systemd-run", take)
    (start.folder / "memory").mkdir()
    start.declare_memory()
    began = time.monotonic()
    done = start.ready(os.getpid())
    assert (done.returncode, done.stdout) == (0, "")
    assert (time.monotonic() - began >= 3) != looks
    assert kept.exists() == looks
    assert not mark.exists()


def opened_to(folder: Path) -> tuple[str, int]:
    found = folder.stat()
    return f"{found.st_mode & 0o777:o}", found.st_gid


@pytest.mark.parametrize("published", [True, False])
def test_its_folder_is_closed_to_its_group_until_it_has_answered_and_its_cache_is_published(
    start: StartingInstance, published: bool
) -> None:
    asked, folder = [], start.socket.parent

    def record_request(handler: FileServerHandler, at: int) -> None:
        asked.append(opened_to(folder))
        handler.send_head(200, 0)

    start.server.serve(COMPLETIONS, error_status(503), record_request, record_request)
    start.requests = (ONE_TOKEN, ONE_TOKEN)
    cache = start.folder / "caches" / "key"
    cache.mkdir(parents=True)
    (start.folder / "run").mkdir()
    (start.folder / "run" / ".compiling-key").symlink_to(f"{UNIT}:{INVOCATION}")
    packed = start.folder / "packed"
    packed.touch()
    packed.chmod(0o666)
    does = 'exec /usr/bin/tar "$@"' if published else "exit 1"
    write_stand_in(start.folder / "bin", "tar", f"stat -c '%a %g' {folder} >> {packed}; {does}")
    for path in (cache, *cache.parents[:-2]):
        path.chmod(0o755)
    done = start.ready(os.getpid(), cache=str(cache))
    assert done.returncode == 0, done.stderr
    assert asked == [("710", asked[0][1])] * 2
    assert asked[0][1] >= 1900000000
    assert set(packed.read_text().splitlines()) == {f"710 {asked[0][1]}"}
    assert (start.folder / "warm" / "key").is_dir() == published
    assert opened_to(folder) == ("750", grp.getgrnam(GROUP).gr_gid)


def test_one_that_has_not_answered_stays_closed(start: StartingInstance) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    start.server.serve(COMPLETIONS, error_status(503))
    assert start.ready(ended.pid).returncode != 0
    assert opened_to(start.socket.parent)[0] == "710"


def test_it_does_not_wait_for_a_server_that_has_ended(start: StartingInstance) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    start.server.serve(COMPLETIONS, error_status(503))
    assert start.ready(ended.pid).returncode != 0
    assert len(start.completions_asked) == 1


def test_it_notes_which_texts_and_weights_the_process_was_started_from(start: StartingInstance) -> None:
    start.weights = ("weights 1.gguf", "it's more.gguf")
    assert start.ready(os.getpid()).returncode == 0
    first, *rest = start.record.read_text().splitlines()
    assert first == hashlib.sha256((TEXT + ENVIRONMENT).encode()).hexdigest()
    found = [(start.folder / name, (start.folder / name).stat()) for name in start.weights]
    assert rest == [f"{there.st_dev}:{there.st_ino} {path}" for path, there in found]


def test_it_notes_nothing_when_systemd_has_not_read_the_file_that_is_there(start: StartingInstance) -> None:
    start.record.parent.mkdir()
    start.record.write_text("of an earlier start\n")
    assert start.ready(os.getpid(), unread=True).returncode == 0
    assert not start.record.exists()


def test_its_record_is_of_its_own_generation(start: StartingInstance) -> None:
    """While it waits for an answer, `current` may be led to another one."""
    other = start.generation.parent / "2" / "env"
    other.mkdir(parents=True)
    (other / "chat").write_text("OTHER=1\n")

    def moved(handler: FileServerHandler, at: int) -> None:
        (start.folder / "config" / "current").unlink()
        (start.folder / "config" / "current").symlink_to("generations/2")
        handler.send_head(503, 0)

    start.requests = (ONE_TOKEN, InstanceRequest("/warm"))
    start.server.serve(COMPLETIONS, moved, complete_file(b"{}"))
    start.server.serve("warm", complete_file(b"{}"))
    assert start.ready(os.getpid()).returncode == 0
    assert [one.path for one in start.completions_asked] == [COMPLETIONS, COMPLETIONS, "warm"]
    assert start.record.read_text().startswith(hashlib.sha256((TEXT + ENVIRONMENT).encode()).hexdigest())


def test_it_asks_what_its_kind_of_engine_is_asked_and_warms_it_up_once_it_has_answered(start: StartingInstance) -> None:
    body = {"input": 'a "quoted" \\ word', "é": "\n\t"}
    start.requests = (
        InstanceRequest("/v1/embeddings", body),
        InstanceRequest("/warm"),
        InstanceRequest("/v1/embeddings", {"input": "b"}),
    )
    start.server.serve("v1/embeddings", error_status(503), complete_file(b"{}"))
    start.server.serve("warm", error_status(500))
    done = start.ready(os.getpid())
    assert done.returncode == 0, done.stderr
    assert [one.path for one in start.completions_asked[:2]] == ["v1/embeddings", "v1/embeddings"]
    assert sorted(one.path for one in start.completions_asked[2:]) == ["v1/embeddings", "warm"]
    assert [json.loads(one.body) for one in start.completions_asked if one.body] == [body, body, {"input": "b"}]
    assert {one.authorization for one in start.completions_asked} == {f"Bearer {KEY}"}
    assert "no answer to chat.1, which only warms it up" in done.stdout


@pytest.mark.parametrize(
    ("tasks", "batches"),
    [
        ("TasksCurrent=96\nTasksMax=4096", (30,)),
        ("TasksCurrent=96\nTasksMax=4096", (64, 6)),
        ("TasksMax=infinity\nTasksCurrent=[not set]", (64, 6)),
        ("TasksCurrent=416\nTasksMax=512", (12, 12, 6)),
        ("TasksCurrent=510\nTasksMax=512", (1, 1, 1)),
        ("", (1, 1, 1)),
    ],
)
def test_it_is_warmed_up_by_as_many_requests_at_once_as_its_limit_of_processes_allows(
    start: StartingInstance, tasks: str, batches: tuple[int, ...]
) -> None:
    barriers = [one for size in batches for one in [threading.Barrier(size)] * size]
    under_way, most, lock = 0, 0, threading.Lock()

    def answer_with_all(barrier: threading.Barrier) -> AnswerHandler:
        def answer(handler: FileServerHandler, at: int) -> None:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            with suppress(threading.BrokenBarrierError):
                barrier.wait(5)
                with lock:
                    under_way -= 1
                handler.send_head(200, 0)

        return answer

    start.tasks = tasks
    start.requests = (ONE_TOKEN, *[InstanceRequest("/warm")] * sum(batches))
    start.server.serve("warm", *map(answer_with_all, barriers))
    limits = start.folder / "limits"
    limits.touch()
    limits.chmod(0o666)
    for path in (start.folder, *start.folder.parents[:-2]):
        path.chmod(0o755)
    write_stand_in(start.folder / "bin", "curl", f'echo "$*" >> {limits}; exec /usr/bin/curl "$@"')
    done = start.ready(os.getpid())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [one.path for one in start.completions_asked] == [COMPLETIONS, *["warm"] * sum(batches)]
    assert most == max(batches)
    # all together may take as long as one after the other
    at_once = batches[0] if len(batches) > 1 else 64
    seconds = re.findall("--max-time ([0-9]+)", limits.read_text())
    assert sorted(seconds, key=int) == ["300", *[str(300 * at_once)] * sum(batches)]


def test_a_shell_that_cannot_start_the_requests_which_warm_it_up_does_not_fail_the_start(
    start: StartingInstance,
) -> None:
    start.requests = (ONE_TOKEN, *[InstanceRequest("/warm")] * 3)
    start.server.serve("warm", complete_file(b"{}"))
    start.write()
    script = start.generation / "ready"
    # as dash ends where it cannot fork
    script.write_text(script.read_text().replace("  under_way=0\n  for", '  [ "$1" = 1 ] || exit 2\n  for'))
    start.write = lambda: None  # type: ignore[method-assign]
    done = start.ready(os.getpid())
    assert done.returncode == 0, done.stderr
    assert [one.path for one in start.completions_asked] == [COMPLETIONS, *["warm"] * 3]


@pytest.mark.parametrize(
    ("opened", "cards", "ready"),
    [
        (["nvidia0", "nvidiactl", "nvidia-uvm"], 1, True),
        (["nvidia0", "nvidia1", "nvidia0", "nvidia-uvm"], 2, True),
        (["nvidia0", "nvidia0", "nvidiactl", "nvidia-uvm"], 2, False),
        (["nvidia0", "nvidiactl"], 1, False),
        (["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"], 1, False),
        ([], 1, False),
        ([], 0, True),
    ],
)
def test_an_answer_that_does_not_come_from_its_cards_does_not_count(
    start: StartingInstance, opened: list[str], cards: int, ready: bool
) -> None:
    start.processes = {4711: (f"0::{start.group}\n", [f"/dev/{name}" for name in opened])}
    done = start.ready(4711, cards=cards)
    assert (done.returncode == 0) is ready
    assert ready or f"of {cards} are open" in done.stderr + done.stdout


HOLDS = ["/dev/nvidia0", "/dev/nvidia-uvm"]


@pytest.mark.parametrize(
    "group",
    [
        "/rigwright.slice/rigwright-chat.service",
        r"/rigwright.slice/rigwright-a\x2db.slice/rigwright-a-b.service",
        "/a[b]c+",
    ],
)
@pytest.mark.parametrize("line", ["0::{}\n", "9:name=systemd:{}\n0::/\n"])
def test_cards_count_whichever_process_of_the_unit_has_them(start: StartingInstance, group: str, line: str) -> None:
    start.group = group
    start.processes = {4711: (line.format(group), ["/dev/null"]), 4712: (line.format(f"{group}/worker"), HOLDS)}
    done = start.ready(4711, cards=1)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_empty_key_is_never_ready(start: StartingInstance) -> None:
    assert start.ready(os.getpid(), key="").returncode != 0


def test_before_systemd_lists_the_units_processes_none_are_counted(start: StartingInstance) -> None:
    start.processes = {4711: (f"0::{start.group}\n", []), 4712: ("0::/rigwright.slice/rigwright-code.service\n", HOLDS)}
    start.busy = True
    done = start.ready(4711, cards=1)
    assert done.returncode != 0
    assert "0 of 1 are open" in done.stdout
    assert (start.folder / "heard").exists()


@pytest.mark.parametrize("other", ["/rigwright.slice/rigwright-chat-2.service", "/x{}", "{}x", "/rigwright.slice"])
def test_cards_of_another_units_processes_do_not_count(start: StartingInstance, other: str) -> None:
    start.processes = {4711: (f"0::{start.group}\n", []), 4712: (f"0::{other.format(start.group)}\n", HOLDS)}
    done = start.ready(4711, cards=1)
    assert done.returncode != 0
    assert "0 of 1 are open" in done.stdout
