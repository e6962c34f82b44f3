"""The published generation of a box: files, scripts from each generation that it may serve, and its needs."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner

from cli import main
from cli.publish import publish_inventory
from cli.published_statements import last_serials_path
from rigwright.model.fact_types import PullFacts
from rigwright.model.installation import MARKER
from rigwright.model.pull_schema import PullEntry
from rigwright.monitoring.self_check import pull_program_folder, render_pull_files, render_units_of_pull
from rigwright.plan.generation_publication import (
    base_of_payload,
    build_payload,
    build_settled_serving,
    digest_declaration,
    parse_published,
)
from rigwright.plan.plan_inputs import TargetState, build_target_state
from rigwright.plan.self_check_declaration import render_declaration, render_self_check
from rigwright.pull.publication import (
    PublishedEntry,
    PublishedGeneration,
    PullPayload,
    SeenSerials,
    metadata_file,
    parse_payload,
    payload_file,
    verify_generation,
    verify_timestamp,
)
from rigwright.pull.pull_facts import describe_late_pull, describe_pull, describe_pull_problem, parse_pull_record
from rigwright.pull.pull_units import PULL_TIMER
from rigwright.serving.activation import goal_for, plan_activation
from rigwright.serving.serving_state import ObservedServing
from rigwright.signing.dsse import parse_envelope
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_statement
from rigwright.signing.statements import parse_statement
from rigwright.signing.timestamps import current_time
from tests.unit.host_states import CODE
from tests.unit.samples import sample_facts, sample_instance, sample_rig
from tests.unit.signing_keys import make_key, trust
from tests.unit.test_on_demand import on_demand_rig

MACHINE = "c" * 64
NOTHING = ObservedServing()


def build_wanted(port: int = 8020, **changes: object) -> TargetState:
    rig = sample_rig(sample_instance(port=port), pull=PullEntry(url="http://192.0.2.1"), **changes)
    return build_target_state(rig, sample_facts())


def test_a_payload_has_a_way_from_and_to_each_generation() -> None:
    old, new = build_wanted(8020), build_wanted(8021)
    first = build_payload(old, (), None)
    base = base_of_payload(parse_published(first.render()))
    assert base.digest == old.generation.digest == first.digest
    payload = build_payload(new, (base,), None)
    assert payload.digest == new.generation.digest
    (activate,), (restore,) = payload.activate.values(), payload.restore.values()
    assert (set(payload.activate), set(payload.restore)) == ({base.digest}, {base.digest})
    for script in (activate, restore):
        assert "\nnew=$1\n" in script
        done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert "systemctl start rigwright_listener-8021.socket " in activate
    assert "systemctl start rigwright_listener-8020.socket " in restore
    # the one that is served already needs no way
    assert build_payload(old, (base,), None).activate == {}


def test_a_settled_host_is_one_that_a_deploy_leaves_alone() -> None:
    made = build_wanted()
    base = base_of_payload(build_payload(made, (), None))
    found = build_settled_serving(made.rig.roots.config, base)
    assert plan_activation(found, made.rig.roots.config, goal_for(found, made.generation)) is None


def test_a_way_fits_an_instance_on_demand_that_sleeps_or_serves() -> None:
    before, after = (build_target_state(on_demand_rig(context=context), sample_facts()) for context in (8192, 16384))
    config, base = before.rig.roots.config, base_of_payload(build_payload(before, (), None))
    found = build_settled_serving(config, base)
    assert plan_activation(found, config, goal_for(found, before.generation)) is None
    way = plan_activation(found, config, goal_for(found, after.generation))
    assert way is not None
    # the script stops it where it runs, and wakes it once in either case
    assert (CODE in way.stop, CODE in way.restart, way.prove) == (True, False, (CODE,))


def test_a_payload_is_parsed_as_it_was_written() -> None:
    made = build_wanted()
    payload = build_payload(made, (), None)
    content = payload.render()
    published = PublishedGeneration(
        *(1, payload.digest, hashlib.sha256(content).hexdigest(), len(content), digest_declaration(made), "alice")
    )
    assert parse_payload(content, published) == payload
    engine = next(iter(made.installations.values()))
    assert f"/opt/rigwright/engines/{engine.folder}/{MARKER}" in payload.paths
    assert "rigwright-chat" in payload.users
    assert not any(path.startswith("/var/cache") for path in payload.paths)


def test_the_declaration_covers_all_that_a_pull_does_not_bring() -> None:
    plain = digest_declaration(build_wanted())
    # another port is part of the generation alone
    assert digest_declaration(build_wanted(8021)) == plain
    assert digest_declaration(build_wanted(keep_generations=4)) == plain
    other = replace(build_wanted().rig, pull=PullEntry(url="http://192.0.2.2"))
    assert render_declaration(other, "debian-12") != render_declaration(build_wanted().rig, "debian-12")


def test_the_program_of_a_box_needs_the_standard_library_only(tmp_path: Path) -> None:
    rig = replace(build_wanted().rig, signers=trust(make_key(tmp_path, "alice")))
    folder = pull_program_folder(rig.roots)
    for path, text in render_pull_files(rig).items():
        place = tmp_path / "box" / path.removeprefix(f"{folder}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    box = tmp_path / "box"
    code = "import sys; sys.path[:0] = [sys.argv[1]]; import rigwright_pull.run, rigwright_pull.fetch"
    code += "; print(*sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code, str(box)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["__main__", "rigwright", "rigwright_pull"]
    settings = json.loads((box / "settings.json").read_text())
    assert [one["signs"] for one in settings["signers"]] == [["generation", "timestamp"]]


def test_a_box_without_pull_has_nothing_of_it() -> None:
    rig = sample_rig(sample_instance())
    assert (render_pull_files(rig), render_units_of_pull(rig)) == ({}, {})
    assert not any("pull" in path for path in render_self_check(rig, "debian-12"))
    timer = next(text for path, text in render_units_of_pull(build_wanted().rig).items() if path.endswith(PULL_TIMER))
    assert "OnCalendar=*-*-* *:00/15:00\n" in timer
    assert "RandomizedDelaySec=300\n" in timer


@pytest.mark.parametrize(
    ("content", "problem", "sentence"),
    [
        ("", "", "pull: no run yet"),
        (
            '{"outcome":"activated","reason":"","run":1764400000,"serial":7,"text":"","verified":1764400000}',
            *("", "pull: activated at 2025-11-29 07:06 UTC, serial 7"),
        ),
        (
            '{"outcome":"refused","reason":"older_serial","run":1764400000,"text":"a\\u001bb"}',
            *(
                "refused: a\N{REPLACEMENT CHARACTER}b",
                "pull: refused at 2025-11-29 07:06 UTC: a\N{REPLACEMENT CHARACTER}b",
            ),
        ),
        ("[", "refused: the record of pulls is not readable", "pull: no run yet"),
        ("[]", "refused: the record of pulls is not readable", "pull: no run yet"),
        ('{"run": 1e999}', "refused: the record of pulls is not readable", "pull: no run yet"),
    ],
)
def test_a_record_is_described(content: str, problem: str, sentence: str) -> None:
    facts = parse_pull_record(content)
    assert (describe_pull_problem(facts), describe_pull(facts)) == (problem, sentence)


def test_a_late_pull_is_reported() -> None:
    facts, pull = (
        parse_pull_record('{"verified": 100000, "outcome": "unreachable", "text": "x"}'),
        PullEntry(url="http://a.b"),
    )
    assert describe_late_pull(facts, pull, 100000 + 3900, 0) == ""
    assert describe_late_pull(facts, pull, 100000 + 3960, 0) == "none for 66 minutes (x)"
    assert describe_late_pull(facts, pull, 100000 + 3960, 101000) == ""


def test_a_box_that_is_busy_for_long_is_reported() -> None:
    pull = PullEntry(url="http://a.b")
    facts = parse_pull_record('{"verified": 104000, "busy": 100000, "outcome": "busy", "text": "x"}')
    assert describe_late_pull(facts, pull, 100000 + 3900, 0) == ""
    assert describe_late_pull(facts, pull, 100000 + 3960, 0) == "busy for 66 minutes (x)"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--renew"], "--renew renews the timestamp of a folder: name it with --publish"),
        (["--publish", "out"], "no rig has signers"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, words: list[str], text: str) -> None:
    path = tmp_path / "rig.py"
    path.write_text(
        "from rigwright.inventory import hosts\nrigs = hosts({'box': {'ssh_hostname': '192.0.2.1', 'instances': {}}})\n"
    )
    done = CliRunner().invoke(main, ["sign", str(path), *words])
    assert done.exit_code != 0
    assert text in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("signs", "text"),
    [
        (None, "pull: needs signers"),
        ("", 'no signer may sign the generation: add "generation" to signs of one'),
        ("", 'no signer may sign the timestamp: add "timestamp" to signs of one'),
        ('["lock", "generation"]', "no signer may sign the timestamp"),
    ],
)
def test_pull_needs_signers(tmp_path: Path, signs: str | None, text: str) -> None:
    line = f"{make_key(tmp_path, 'alice').with_suffix('.pub').read_text().strip()}"
    declared = f", 'signs': {signs}" if signs else ""
    signers = f", signers={{'alice': {{'key': {line!r}{declared}}}}}" if signs is not None else ""
    path = tmp_path / "rig.py"
    entry = "{'ssh_hostname': '192.0.2.1', 'instances': {}, 'pull': {'url': 'http://192.0.2.9'}}"
    path.write_text(f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {entry}}}{signers})\n")
    done = CliRunner().invoke(main, ["validate", str(path)])
    assert done.exit_code != 0
    assert text in " ".join(done.output.split())


class StandInBox:
    """A connected box."""

    def __init__(self, name: str, made: TargetState, served: ObservedServing) -> None:
        self.name, self.rig, self._made, self._served = name, made.rig, made, served

    def resolve_desired(self) -> TargetState:
        """Its target state."""
        return self._made

    def read_serving_state(self) -> ObservedServing:
        """The state that it reports."""
        return self._served


class Publisher:
    """Publications of an inventory with one box or more."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.inventory = folder / "published", patch, str(folder / "rig.py")
        self.key = make_key(folder, "alice")
        self.signers = replace(trust(self.key), signed_as="rig")

    def publish(self, *boxes: StandInBox, gone: dict[str, str] | None = None) -> None:
        """Publish."""
        self.patch.setattr("cli.publish.connect_inventory", lambda *words: ([*boxes], gone or {}))
        publish_inventory(self.inventory, self.folder, self.signers, self.key, 30, only_timestamp=False)

    def renew(self) -> None:
        """Renew the timestamp."""
        publish_inventory(self.inventory, self.folder, self.signers, self.key, 30, only_timestamp=True)

    def read(self, box: str) -> tuple[SeenSerials, PublishedEntry]:
        """The verified row of a box."""
        content = (self.folder / "timestamp.json").read_bytes()
        return verify_timestamp(content, box, self.signers, SeenSerials(), current_time())

    def read_payload(self, box: str) -> PullPayload:
        """The verified payload of a box."""
        _, entry = self.read(box)
        content = (self.folder / metadata_file(box, entry.serial)).read_bytes()
        made = verify_generation(content, entry, box, MACHINE, self.signers, current_time())
        return parse_payload((self.folder / payload_file(made.payload_sha256)).read_bytes(), made)


def stand_in(name: str, port: int, served: ObservedServing = NOTHING) -> StandInBox:
    made = build_wanted(port)
    facts = replace(made.facts, pull=PullFacts(MACHINE))
    return StandInBox(name, build_target_state(replace(made.rig, name=name), facts), served)


def test_each_publication_begins_from_earlier_ones_and_removes_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, digests = Publisher(tmp_path, monkeypatch), []
    for port in range(8020, 8027):
        publisher.publish(stand_in("box", port), stand_in("box.2", port))
        payload = publisher.read_payload("box")
        assert sorted(payload.activate) == sorted(digests[-3:])
        digests.append(payload.digest)
    assert len([*(publisher.folder / "boxes").iterdir()]) == len([*(publisher.folder / "payloads").iterdir()]) == 8
    # a box that is not reached keeps its row, and one that is not declared any more has none
    before = publisher.read("box")[1]
    publisher.publish(stand_in("box.2", 8030), gone={"box": "no route"})
    assert publisher.read("box")[1] == before
    assert publisher.read("box.2")[1].serial > before.serial
    publisher.publish(stand_in("box.2", 8030))
    with pytest.raises(SignatureRefused, match="no generation of box"):
        publisher.read("box")
    serial = publisher.read("box.2")[0].timestamp
    publisher.renew()
    assert publisher.read("box.2")[0].timestamp > serial
    (publisher.folder / "timestamp.json").write_text("{}")
    with pytest.raises(ClickException, match="is not a timestamp of these signers: "):
        publisher.publish(stand_in("box", 8020))


def sign_by(key: Path, publisher: Publisher, serial: int) -> None:
    """Sign the timestamp again, with another serial."""
    found = parse_statement(parse_envelope((publisher.folder / "timestamp.json").read_bytes()), "timestamp")
    content = sign_statement(replace(found, serial=serial), key).render()
    (publisher.folder / "timestamp.json").write_bytes(content)


def test_a_publisher_verifies_all_that_it_reads_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(tmp_path, monkeypatch)
    publisher.publish(stand_in("box", 8020))
    shutil.copytree(publisher.folder, tmp_path / "first")
    publisher.publish(stand_in("box", 8021))
    newest = publisher.read("box")[1]
    folder, timestamp = publisher.folder, publisher.folder / "timestamp.json"
    genuine = timestamp.read_bytes()

    # another key, and a serial that no later one reaches
    sign_by(make_key(tmp_path, "mallory"), publisher, newest.serial)
    with pytest.raises(ClickException, match="of no signer"):
        publisher.renew()
    sign_by(publisher.key, publisher, 99991231235959)
    with pytest.raises(ClickException, match="ahead of the clock"):
        publisher.renew()

    # an older timestamp of the same key, with and without the newer statement
    shutil.copy(tmp_path / "first/timestamp.json", timestamp)
    with pytest.raises(ClickException, match="older than the last one"):
        publisher.renew()
    timestamp.unlink()
    with pytest.raises(ClickException, match="older than the last one"):
        publisher.renew()
    timestamp.write_bytes(genuine)
    statement = folder / metadata_file("box", newest.serial)
    content = statement.read_bytes()
    statement.unlink()
    with pytest.raises(ClickException, match=f"the statement {newest.serial} of box is missing"):
        publisher.renew()
    with pytest.raises(ClickException, match=f"the statement {newest.serial} of box is missing"):
        publisher.publish(gone={"box": "no route"})
    statement.write_bytes(content)
    publisher.renew()
    assert publisher.read("box")[1] == newest

    # without its file a machine takes the newest statement, and never one that the signed rows are above
    last_serials_path(Path(publisher.inventory)).unlink()
    shutil.copy(tmp_path / "first/timestamp.json", timestamp)
    publisher.renew()
    assert publisher.read("box")[1] == newest

    # statements of others and changed payloads are no bases
    found = parse_statement(parse_envelope(content), "generation")
    made = sign_statement(replace(found, serial=newest.serial + 1), tmp_path / "mallory")
    (folder / metadata_file("box", newest.serial + 1)).write_bytes(made.render())
    publisher.renew()
    assert publisher.read("box")[1] == newest
    for path in (folder / "payloads").iterdir():
        path.write_bytes(path.read_bytes() + b" ")
    publisher.publish(stand_in("box", 8022))
    assert publisher.read_payload("box").activate == {}
