"""Rollback: which generation is the one before, and why a host cannot go back to one."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import cli.deploy_verbs
import cli.rollback_preview
from cli import main
from cli.rollback_preview import describe_rollback
from rigwright.host.systemd import UnitState
from rigwright.model.roots import Roots
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, ObservedUnit, UnitUsage
from roles.rollback import describe_rollback_refusal, find_rollback_target
from tests.unit.host_states import CODE, CONFIG, host_generation, running_process
from tests.unit.mapped_hosts import map_given_hosts

THREE = (host_generation(1), host_generation(2), host_generation(10))
CHAT = "rigwright-chat.service"
UNKNOWN = (host_generation(1), replace(host_generation(2), unit_files=(CHAT, "rigwright.target")), host_generation(10))
KNOWN = (replace(UNKNOWN[1], unit_states=(UnitState(CHAT, "0" * 64, 8020, frozenset()),)),)
DAMAGED = (host_generation(1), host_generation(2, found="other"), host_generation(10))


@pytest.mark.parametrize(
    ("generations", "current", "number"),
    [
        (THREE, 10, 2),
        (THREE, 2, 1),
        (THREE, 1, None),
        (THREE, None, None),
        (THREE, 11, 10),
        (DAMAGED, 10, 1),
        ((host_generation(2, found="other"), host_generation(10)), 10, None),
        ((), None, None),
        ((host_generation(3),), 3, None),
    ],
)
def test_the_one_before_is_the_newest_unchanged_one_below_the_current(
    generations: tuple[ObservedGeneration, ...], current: int | None, number: int | None
) -> None:
    assert find_rollback_target(ObservedServing(generations=generations, current=current)) == number


@pytest.mark.parametrize(
    ("generations", "number", "text"),
    [
        (THREE, 1, ""),
        (THREE, 10, ""),
        (THREE, 3, "generation 3 does not exist; available: 1, 2, 10"),
        ((), 3, "generation 3 does not exist; available: none"),
        (DAMAGED, 2, "the files of generation 2 were changed since they were written"),
        (UNKNOWN, 2, "the manifest of generation 2 does not describe rigwright-chat.service"),
        (KNOWN, 2, ""),
        (
            THREE,
            None,
            "no earlier generation has served (available: 1, 2, 10): a deploy of other settings adds one",
        ),
        ((), None, "no earlier generation has served (available: none): a deploy of other settings adds one"),
    ],
)
def test_a_host_goes_back_only_to_an_unchanged_generation_that_is_there(
    generations: tuple[ObservedGeneration, ...], number: int | None, text: str
) -> None:
    assert describe_rollback_refusal(ObservedServing(generations=generations, current=10), number, ()) == text


def test_a_dry_rollback_lists_what_stops_starts_and_restarts() -> None:
    chat, embed = (UnitState(unit, "1" * 64, 0, frozenset()) for unit in (CHAT, "rigwright-embed.service"))
    running = replace(chat, started_from="0" * 64)
    served = ObservedServing(
        generations=(host_generation(1, unit_states=(chat, embed)), host_generation(2, unit_states=(running,))),
        current=2,
        processes={CHAT: running_process(running), CODE: running_process(replace(running, unit=CODE))},
    )
    use = {CHAT: UnitUsage("", None, 7.6)}
    assert sorted(describe_rollback(served, use, CONFIG, 1)) == [
        "chat: restart (about 8 s down)",
        "code: stop (not in that generation)",
        "embed: start",
    ]
    assert "chat: restart (down while it loads)" in describe_rollback(served, {}, CONFIG, 1)
    asleep = ObservedUnit("inactive", "dead", running=False)
    kept = (host_generation(1, unit_states=(replace(chat, on_demand=True),)), served.generations[1])
    assert list(describe_rollback(replace(served, generations=kept, processes={CHAT: asleep}), {}, CONFIG, 1)) == [
        "chat: load once, as a proof that it serves; then it sleeps, unless it has keep_warm or clients wait",
        "generation 1 interrupts nothing that is served now",
    ]
    only_new = replace(served, processes={CHAT: running_process(chat)})
    assert list(describe_rollback(only_new, use, CONFIG, 1)) == [
        "embed: start",
        "generation 1 interrupts nothing that is served now",
    ]


def test_a_dry_rollback_names_what_its_proofs_interrupt() -> None:
    embed, far = "rigwright-embed.service", "rigwright-far.service"
    chat, near, other, slow = (
        UnitState(unit, "1" * 64, 0, frozenset(cards), on_demand=True)
        for unit, cards in ((CHAT, {0, 1}), (embed, {1}), (far, {2}), (CODE, ()))
    )
    running = replace(chat, started_from="0" * 64)
    kept = (
        host_generation(1, unit_states=(chat, near, other, slow)),
        host_generation(2, unit_states=(running, near, other, slow)),
    )
    proof = "load once, as a proof that it serves; then it sleeps, unless it has keep_warm or clients wait"
    served = ObservedServing(
        generations=tuple(replace(one, proven=True) for one in kept),
        current=2,
        processes={one.unit: running_process(one) for one in (running, near, other, slow)},
    )
    assert list(describe_rollback(served, {}, CONFIG, 1)) == [
        f"chat: stop; {proof}",
        "embed: may be stopped if the proof of chat needs its memory, unless it has keep_warm",
    ]
    asleep = {**served.processes, CHAT: ObservedUnit("inactive", "dead", running=False)}
    assert list(describe_rollback(replace(served, processes=asleep), {}, CONFIG, 1)) == [
        f"chat: {proof}",
        "embed: may be stopped if the proof of chat needs its memory, unless it has keep_warm",
    ]
    in_ram = replace(served, generations=(replace(served.generations[0], unit_states=(chat, near, other)), kept[1]))
    assert "code: stop (not in that generation)" in describe_rollback(in_ram, {}, CONFIG, 1)


@pytest.mark.parametrize(("words", "shown"), [([], True), (["--to", "1"], True), (["--to", "7"], False)])
def test_the_verb_prints_the_interruption_before_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], shown: bool
) -> None:
    inventory = tmp_path / "rig.py"
    inventory.write_text("")
    chat = UnitState(CHAT, "1" * 64, 0, frozenset())
    served = ObservedServing(
        generations=(host_generation(1, unit_states=(chat,)), host_generation(2)),
        current=2,
        processes={CHAT: running_process(replace(chat, started_from="0" * 64))},
    )
    box = SimpleNamespace(
        name="box1",
        rig=SimpleNamespace(reserved_gpus=(), roots=Roots()),
        read_serving_state=lambda: served,
        read_resource_usage=dict,
    )
    box.prefetch = lambda *looks: box
    monkeypatch.setattr(cli.rollback_preview, "map_inventory", map_given_hosts([box]))
    runs: list[bool] = []
    monkeypatch.setattr(cli.deploy_verbs, "run_request", lambda wanted: runs.append(wanted.dry))
    done = CliRunner().invoke(main, ["rollback", str(inventory), "--dry", *words])
    assert (done.exit_code, runs) == (0, [True]), done.output
    assert done.output == ("box1: chat: restart (down while it loads)\n" if shown else "")
