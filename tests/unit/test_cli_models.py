"""`rigwright show models`: the files on hosts, and that only unneeded ones of ours are removed, on request."""

import fcntl
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli import show_deployed as verb
from roles.weights.host import records
from tests.unit.mapped_hosts import map_given_hosts
from tests.unit.weight_host import COMMIT, OTHER, WeightHost

OLD = f"org/name/{OTHER}/sub/x.gguf"
NEW = f"org/name/{COMMIT}/sub/x.gguf"
SMALL = f"small/{COMMIT}/small-q4.gguf"
Verb = Callable[..., Result]


@pytest.fixture
def host(tmp_path: Path) -> WeightHost:
    (tmp_path / "one").mkdir()
    made = WeightHost(tmp_path / "one")
    made.add_fetched_file(SMALL, b"small")
    made.add_fetched_file(NEW, b"new")
    made.add_fetched_file(OLD, b"old")
    made.add_generation(1, NEW)
    made.add_served_instance("chat", NEW)
    return made


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "rig.py"
    path.write_text("")
    return path


@pytest.fixture
def models(host: WeightHost, inventory: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """The verb, on the host and those that are given beside it."""

    def run(*words: str, beside: tuple[WeightHost, ...] = (), gone: tuple[str, ...] = (), answer: str = "") -> Result:
        found = [one.box(f"box{n}") for n, one in enumerate((host, *beside), 1)]
        monkeypatch.setattr(verb, "map_inventory", map_given_hosts(found, dict.fromkeys(gone, "")))
        return CliRunner().invoke(verb.models, [str(inventory), *words], input=answer)

    return run


def test_every_model_has_a_line_with_what_is_known_of_it(host: WeightHost, models: Verb) -> None:
    (host.root / f"org/name/{OTHER}/y.gguf.part").write_bytes(b"12345")
    (host.root / NEW).touch()
    done = models()
    assert done.exit_code == 0
    rows = {line.split()[2]: line for line in done.output.splitlines() if "org/name" in line}
    assert set(rows) == {COMMIT[:12], OTHER[:12]}
    assert rows[OTHER[:12]].split()[3:7] == ["1", "3", "B", "verified"]
    assert rows[OTHER[:12]].split()[-3:] == ["nothing", "5", "B"]
    assert "not verified (1 of 1 files)" in rows[COMMIT[:12]]
    assert rows[COMMIT[:12]].rstrip().endswith("chat, generation 1")
    assert "the inventory" in done.output


def test_programs_get_the_same(host: WeightHost, models: Verb) -> None:
    (old,) = [row for row in json.loads(models("--json").output) if row["version"] == OTHER]
    assert (old["host"], old["name"], old["state"], old["files"], old["size"]) == ("box1", "org/name", "verified", 1, 3)
    assert old["hashed"].startswith("20")
    assert old["users"] == []


def test_a_host_without_models_says_so_and_one_that_is_gone_too(tmp_path: Path, models: Verb, host: WeightHost) -> None:
    (tmp_path / "two").mkdir()
    done = models(beside=(WeightHost(tmp_path / "two"),), gone=("box9",))
    assert done.exit_code == 3
    assert "box9: cannot be reached" in done.output
    assert any(line.split() == ["box2", "none"] for line in done.output.splitlines())


def test_an_unneeded_model_is_removed_with_its_records(host: WeightHost, models: Verb) -> None:
    part = host.root / f"org/name/{OTHER}/sub/y.gguf.part"
    part.write_bytes(b"12345")
    with host.ledger.open("a") as ledger:
        ledger.write(f"file {part}\n")
    (host.records / "verity").mkdir()
    (host.records / "verity" / records.record_name(host.add_file(OLD, b"old"))).write_text("d\n")
    done = models("--remove", f"org/name@{OTHER}", "--yes")
    assert done.exit_code == 0, done.output
    assert "box1: 2 files removed, 8 B" in done.output
    assert not (host.root / f"org/name/{OTHER}").exists()
    assert (host.root / NEW).read_bytes() == b"new"
    assert {record.path for record in records.list_records(host.records)} == {host.root / SMALL, host.root / NEW}
    assert len([path for path in host.records.rglob("*") if path.is_file()]) == 4
    assert host.ledger.read_text().splitlines() == [
        f"dir {host.root}",
        f"file {host.root / SMALL}",
        f"file {host.root / NEW}",
    ]


def test_a_short_version_will_do_and_the_last_of_a_repository_takes_its_folders_along(host, models):
    host.add_fetched_file("other/model/" + COMMIT + "/x.gguf")
    assert models("--remove", f"other/model@{COMMIT[:7]}", "--yes").exit_code == 0
    assert not (host.root / "other").exists()
    assert host.root.is_dir()


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_it_asks_first(host: WeightHost, models: Verb, answer: str) -> None:
    done = models("--remove", f"org/name@{OTHER}", answer=answer)
    assert done.exit_code == 1
    assert f"box1: {host.root}/org/name/{OTHER}, 1 file, 3 B" in done.output
    assert (host.root / OLD).exists()
    assert models("--remove", f"org/name@{OTHER}", answer="y\n").exit_code == 0
    assert not (host.root / OLD).exists()


@pytest.mark.parametrize(
    ("asked", "who"),
    [(f"org/name@{COMMIT}", "on box1: chat, generation 1"), (f"small@{COMMIT}", "on box1: the inventory")],
)
def test_needed_files_stay(host: WeightHost, models: Verb, asked: str, who: str) -> None:
    done = models("--remove", asked, "--yes")
    assert done.exit_code == 1
    assert f"stays, because it is needed; {who}" in done.output
    assert (host.root / NEW).exists()
    assert (host.root / SMALL).exists()


def test_a_generation_on_one_host_keeps_it_on_all(host: WeightHost, models: Verb, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    second = WeightHost(tmp_path / "two")
    second.add_fetched_file(OLD, b"old")
    second.add_generation(7, OLD)
    done = models("--remove", f"org/name@{OTHER}", "--yes", beside=(second,))
    assert (done.exit_code, "on box2: generation 7" in done.output) == (1, True)
    assert (host.root / OLD).exists()


def test_a_generation_that_came_meanwhile_is_seen(host, models, monkeypatch):
    monkeypatch.setattr(verb.click, "confirm", lambda *_, **__: host.add_generation(2, OLD))
    done = models("--remove", f"org/name@{OTHER}")
    assert done.exit_code == 1
    assert "refused: " in done.output
    assert "generations/2/references refers to it" in done.output
    assert (host.root / OLD).exists()


def test_while_the_deploy_lock_is_held_nothing_is_removed(host: WeightHost, models: Verb) -> None:
    (host.folder / "run").mkdir()
    (host.folder / "run/locks").mkdir(0o700)
    with (host.folder / "run/locks/lease").open("w") as deploy_lock:
        deploy_lock.write('{"who": "ops@desk", "pid": 7, "since": "noon", "doing": "a deploy"}\n')
        deploy_lock.flush()
        fcntl.flock(deploy_lock, fcntl.LOCK_EX)
        done = models("--remove", f"org/name@{OTHER}", "--yes")
    assert done.exit_code == 1
    assert "refused: ops@desk (process 7) holds the deploy lock since noon: a deploy; wait" in done.output
    assert (host.root / OLD).exists()
    host.set_systemctl_answer("jobs", "rw-job-weights-x.service loaded active running\n")
    done = models("--remove", f"org/name@{OTHER}", "--yes")
    assert "refused: rw-job-weights-x.service is running" in done.output
    assert (host.root / OLD).exists()
    host.set_systemctl_answer("jobs", "")
    assert models("--remove", f"org/name@{OTHER}", "--yes").exit_code == 0
    assert json.loads((host.folder / "run/locks/lease").read_text())["doing"] == f"removing org/name@{OTHER[:12]}"


def test_a_failed_fetch_does_not_prevent_a_removal(host: WeightHost, models: Verb) -> None:
    host.set_systemctl_answer("jobs", "rw-job-weights-x.service loaded failed failed /bin/sh\n")
    done = models("--remove", f"org/name@{OTHER}", "--yes")
    assert done.exit_code == 0, done.output
    assert not (host.root / OLD).exists()


def test_foreign_files_stay_unless_they_were_verified(host: WeightHost, models: Verb) -> None:
    placed = host.root / f"org/name/{OTHER}/notes of mine.txt"
    placed.write_text("mine")
    adopted = host.add_file(f"org/name/{OTHER}/adopted.gguf", b"adopted")
    touched = host.add_file(f"org/name/{OTHER}/touched.gguf", b"touched")
    (host.root / touched.path).touch()
    done = models("--remove", f"org/name@{OTHER}", "--yes")
    assert done.exit_code == 0
    assert f"box1: {placed} stays: it is not managed by Rigwright" in done.output
    assert placed.read_text() == "mine"
    assert (host.root / touched.path).exists()
    assert not (host.root / adopted.path).exists()
    assert not (host.root / OLD).exists()
    assert not (host.root / OLD).parent.exists()


def test_a_file_that_was_gone_before_leaves_no_record(host: WeightHost, models: Verb) -> None:
    file = host.add_fetched_file(f"org/name/{OTHER}/z.gguf", b"z")
    (host.root / file.path).unlink()
    assert models("--remove", f"org/name@{OTHER}", "--yes").exit_code == 0
    assert not list(host.records.rglob(records.record_name(file)))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"org/nam@{OTHER}", "org/name@ffffffffffff"),
        ("org/name@ffffff", "org/name@ffffffffffff"),
        ("../..@x", "no model"),
    ],
)
def test_targets_that_no_host_has_are_reported(host: WeightHost, models: Verb, asked: str, said: str) -> None:
    done = models("--remove", asked, "--yes")
    assert done.exit_code == 1
    assert said in done.output
    assert (host.root / OLD).exists()


@pytest.mark.parametrize("asked", ["org/name", "@", "a@b@c"])
def test_an_unknown_model_is_refused_before_a_host_is_reached(asked, tmp_path, monkeypatch):
    inventory = tmp_path / "rig.py"
    inventory.write_text("")
    monkeypatch.setattr(verb, "map_inventory", lambda *_: pytest.fail("a host was reached"))
    done = CliRunner().invoke(verb.models, [str(inventory), "--remove", asked])
    assert (done.exit_code, "must be NAME@VERSION" in done.output) == (2, True)


def test_a_removal_where_no_host_is_in_reach_says_that(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "map_inventory", map_given_hosts([], {"box9": ""}))
    done = CliRunner().invoke(verb.models, [str(inventory), "--remove", "org/name@ffffffffffff"])
    assert (done.exit_code, done.output) == (3, "box9: cannot be reached\n")


def test_one_of_two_that_begin_alike_has_to_be_named_whole(host: WeightHost, models: Verb) -> None:
    host.add_fetched_file(f"org/name/{'f' * 39}0/x.gguf")
    done = models("--remove", f"org/name@{'f' * 12}", "--yes")
    assert done.exit_code == 1
    assert "more than one version begins with" in done.output
    assert models("--remove", f"org/name@{OTHER}", "--yes").exit_code == 0
    assert (host.root / f"org/name/{'f' * 39}0/x.gguf").exists()


def test_a_removal_that_is_cut_off_is_no_success(host, models, monkeypatch):
    real = host.run_script

    def cut(script: str) -> subprocess.CompletedProcess[str]:
        done = real(script)
        if "ledger=" in script:
            done.stdout = done.stdout[:-8]
        return done

    monkeypatch.setattr(host, "run_script", cut)
    done = models("--remove", f"org/name@{OTHER}", "--yes")
    assert done.exit_code == 1
    assert "cut off" in done.output


def test_json_and_a_removal_do_not_go_together(models: Verb) -> None:
    assert models("--json", "--remove", "x@y").exit_code == 2
