"""The look at a host's weights, on real folders: the files, the proof that they are right, and their users."""

import os
from pathlib import Path

import pytest

from rigwright.serving import weight_inventory
from rigwright.serving.weight_inventory import StoredModel, WeightInventory, list_models, model_of_path
from rigwright.weights.verification import recorded_file
from roles.weights.host import records
from tests.unit import samples
from tests.unit.channel_records import channel_lines_of, encode_records
from tests.unit.weight_host import COMMIT, OTHER, WeightHost

SMALL = f"small/{COMMIT}/small-q4.gguf"
HUB = f"org/name/{COMMIT}/sub/x.gguf"


@pytest.fixture
def host(tmp_path: Path) -> WeightHost:
    return WeightHost(tmp_path)


def is_verified(host: WeightHost, file: records.LockedFile) -> bool:
    return str(host.root / file.path) in host.read_inventory().verified_paths


def read_inventory(host: WeightHost) -> dict[str, StoredModel]:
    return {
        f"{one.name}@{one.version}": one
        for one in list_models(host.read_inventory(), host.read_serving(), host.rig.roots, host.rig.instances)
    }


def test_a_verified_file_is_known_and_one_that_was_touched_is_not(host: WeightHost) -> None:
    file = host.add_fetched_file(HUB)
    assert is_verified(host, file)
    os.utime(host.root / HUB, (1, 1))
    assert not is_verified(host, file)
    (host.records / records.record_name(file)).unlink()
    assert not is_verified(host, file)
    (host.root / HUB).unlink()
    assert not is_verified(host, file)


def test_an_empty_record_does_not_count(host: WeightHost) -> None:
    file = host.add_fetched_file(HUB)
    (host.records / records.record_name(file)).write_text("")
    assert not is_verified(host, file)


def test_names_with_blanks_and_quotes_are_read(host: WeightHost) -> None:
    file = host.add_fetched_file(f'org/name/{COMMIT}/it\'s a "file" /x  y:abc-def:.gguf')
    assert is_verified(host, file)


def test_a_name_with_a_line_break_is_left_out(host: WeightHost) -> None:
    host.add_fetched_file(SMALL)
    for name in ("x\nentry 81a4 0 1 1 1 1 faked", "x\x1b[2J faked", "faked\u202e"):
        (host.root / "small" / COMMIT / name).write_text("x")
    assert not [path for path in host.read_inventory().entries if "entry" in path or "faked" in path]
    assert f"{host.root}/{SMALL}" in host.read_inventory().entries


@pytest.mark.parametrize("name", ["a\\nb", "a\\0b", "%s", "-n", "$(id)", "a;b", "\u00e9"])
def test_a_name_is_reported_as_it_is(host: WeightHost, name: str) -> None:
    file = host.add_fetched_file(f"org/name/{COMMIT}/{name}")
    assert is_verified(host, file)


def test_on_a_blank_host_there_is_nothing(host: WeightHost) -> None:
    host.root.rmdir()
    host.records.rmdir()
    found = host.read_inventory()
    assert (found.entries, found.records, found.hashed, found.wrong, found.starts) == ({}, {}, {}, {}, {})
    assert found.now > 1_700_000_000


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["sudo: a password is required"],
        channel_lines_of([]),
        channel_lines_of([("now", "x")]),
        channel_lines_of([("now", "1"), ("entry", "81a4", "0", "1")]),
        channel_lines_of([("now", "1"), ("start", "x.service", "a")]),
        encode_records(("now", "1")),
    ],
)
def test_an_invalid_answer_is_refused(host: WeightHost, lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        weight_inventory.parse_weight_inventory(host.rig.roots, lines)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (f"org/name/{COMMIT}/x", ("org/name", COMMIT)),
        (f"org/name/{COMMIT}/sub/x", ("org/name", COMMIT)),
        ("own/1/x", ("own", "1")),
        (f"own/{COMMIT}/x", ("own", COMMIT)),
        ("own/1/sub/x", ("own", "1")),
        ("own/x", None),
        (".progress.json", None),
        (f".hub-x/name/{COMMIT}/x", None),
        (samples.sample_wheel().package_path, None),
        (f"_packages/0123456789abcdef/{COMMIT}/x", None),
    ],
)
def test_a_path_is_a_models(path: str, where: tuple[str, str] | None) -> None:
    assert model_of_path(path) == where


def test_a_models_files_are_counted_and_told_apart(host: WeightHost) -> None:
    host.add_fetched_file(HUB, b"12345", 3)
    bad = host.add_fetched_file(f"org/name/{COMMIT}/y.gguf", b"123", 9)
    host.add_fetched_file(f"org/name/{OTHER}/x.gguf", b"1")
    (host.root / f"org/name/{COMMIT}/z.gguf.part").write_bytes(b"1234567")
    (host.root / f"org/name/{COMMIT}/w.gguf.wrong").write_bytes(b"12")
    (host.root / ".progress.json").write_text("{}")
    made = read_inventory(host)
    one = made[f"org/name@{COMMIT}"]
    assert (one.files, one.size, one.verified, one.wrong, one.left_over) == (2, 8, 2, 0, 9)
    assert one.state_word == "verified"
    assert one.hashed == pytest.approx(host.deep_record(bad).stat().st_mtime)
    assert set(made) == {f"org/name@{COMMIT}", f"org/name@{OTHER}"}
    records.withdraw_record(host.records, records.record_name(bad), "cd" * 32)
    assert read_inventory(host)[f"org/name@{COMMIT}"].state_word == "wrong (1 of 2 files)"
    records.write_record(host.records, host.root, bad)
    assert read_inventory(host)[f"org/name@{COMMIT}"].state_word == "verified"
    (host.root / bad.path).touch()
    assert read_inventory(host)[f"org/name@{COMMIT}"].state_word == "not verified (1 of 2 files)"


def test_a_mark_of_bytes_that_were_replaced_says_nothing_of_the_new_ones(host: WeightHost) -> None:
    before = host.add_fetched_file("own/1/x", b"before")
    records.withdraw_record(host.records, records.record_name(before), "cd" * 32)
    host.add_fetched_file("own/1/x", b"now")
    assert read_inventory(host)["own@1"].state_word == "verified"


def test_unfinished_fetches_are_listed(host: WeightHost) -> None:
    (host.root / "own/1").mkdir(parents=True)
    (host.root / "own/1/x.part").write_bytes(b"123")
    assert read_inventory(host)["own@1"].state_word == "not completely fetched"


def test_users_are_instances_generations_and_the_inventory(host: WeightHost) -> None:
    for path in (SMALL, HUB, f"org/name/{OTHER}/x", "own/1/x"):
        host.add_fetched_file(path)
    host.add_generation(3, HUB, f"org/name/{OTHER}/x")
    host.add_generation(4, HUB)
    (host.config / "current/units").rmdir()
    (host.config / "current").rmdir()
    (host.config / "generations/4/units").mkdir()
    (host.config / "current").symlink_to("generations/4")
    host.add_served_instance("chat", HUB)
    made = read_inventory(host)
    assert made[f"org/name@{COMMIT}"].users == ("chat", "generation 3")
    assert made[f"org/name@{OTHER}"].users == ("generation 3",)
    assert made[f"small@{COMMIT}"].users == ("the inventory",)
    assert made["own@1"].users == ()
    (host.config / "generations/4/units/rigwright-chat.service").unlink()
    assert read_inventory(host)[f"org/name@{COMMIT}"].users == ("generation 3", "generation 4")


def test_a_row_of_a_repository_is_where_its_record_is() -> None:
    row = samples.sample_artefact(repository="org/name", folder="sub", file="x.gguf", group="name", name="name")
    assert recorded_file(samples.sample_rig().roots, row).path == HUB


def test_nothing_stored_is_a_value() -> None:
    assert WeightInventory().entries == {}
