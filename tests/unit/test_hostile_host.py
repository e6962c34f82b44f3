"""Whatever a host tells, what is run there because of it is made of plain words and names of ours."""

import json
import random
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pytest

from rigwright.host.script_output import Schema
from rigwright.serving import serving_state
from rigwright.serving.activation import find_surplus, goal_for, goal_of, plan_activation
from rigwright.serving.serving_state import ObservedServing
from tests.unit.channel_records import channel_lines_of
from tests.unit.host_states import CONFIG, target_generation
from tests.unit.samples import sample_instance, sample_rig
from tests.unit.test_parsers import PARSERS

RIG, AIM = sample_rig(sample_instance("chat")), target_generation(sample_rig(sample_instance("chat")))
# A unit of ours, be it an instance's or a port's; any other one is left alone or has a name that we never give.
OURS = re.compile(r"rigwright[A-Za-z0-9:_.\\@-]*")
PATH = re.compile(r"(/opt/rigwright/(engines/|tools-|cuda-)|/etc/rigwright/credentials/)[A-Za-z0-9._+-]+")
NASTY = (
    "$(id)",
    "`id`",
    ";id",
    "a b",
    "a\nb",
    "-rf",
    "--",
    "..",
    "/",
    "../../etc",
    "\x1b[2J",
    "'",
    '"',
    "|",
    "&",
    "*",
    "~",
    "",
)
PLAIN = (
    *(
        "rigwright-chat.service",
        "rigwright-old.service",
        "rigwright_listener-8020.socket",
        "rigwright_listener-8020.service",
    ),
    *("rigwright_listener-9.socket", "0", "1", "7", "yes", "no", "a" * 64, "active", "inactive", "failed", "running"),
    *(
        "generations/1",
        "/opt/rigwright/engines/a-1",
        "/etc/rigwright/credentials/a.api-key",
        "127.0.0.1:8020",
        "/home/victim",
    ),
    *("/etc/rigwright/current/units/rigwright-chat.service", AIM.files["manifest.json"], "2026-11-01T12:00:00Z"),
)


def value(pick: random.Random) -> str:
    """Something plain, something nasty, or both in one."""
    plain, nasty = pick.choice(PLAIN), pick.choice(NASTY)
    return pick.choice((plain, plain, nasty, plain + nasty, nasty + plain))


def manifest(pick: random.Random) -> str:
    """A manifest with some of its words replaced."""
    made = AIM.files["manifest.json"]
    for old in ("rigwright-chat.service", "chat", "8020", "rigwright-chat"):
        if pick.random() < 0.3:
            made = made.replace(old, json.dumps(value(pick))[1:-1])
    return made


@cache
def accepted_texts(type_: Callable[[str], object]) -> tuple[str, ...]:
    """The texts that a type takes: plain and, where it can be had past it, nasty."""
    found = []
    for text in (*PLAIN, *NASTY, *(plain + nasty for plain in PLAIN for nasty in NASTY)):
        with suppress(ValueError):
            type_(text)
            found.append(text)
    return tuple(found)


def records(pick: random.Random, schema: Schema) -> list[str]:
    """The output of a host: mostly each record once, and of each value mostly one that its type takes."""
    rows: list[tuple[str, ...]] = []
    for key, types in schema.items():
        for _ in range(pick.choices((1, 0, 2), (20, 1, 1))[0]):
            row = [
                pick.choice(accepted_texts(one)) if pick.random() < 0.99 and accepted_texts(one) else value(pick)
                for one in types
            ]
            rows.append((key, "1", manifest(pick)) if key == "manifest" else (key, *row))
    return channel_lines_of(rows)


def words(found: ObservedServing) -> Iterator[tuple[re.Pattern[str], str]]:
    """The commands of a deploy there, word by word, each with its allowed form."""
    ways = [goal_for(found, AIM), *(goal_of(kept) for kept in found.generations)]
    for aim in ways:
        if way := plan_activation(found, CONFIG, aim):
            for name in (*way.new_units, *way.stop, *way.release, *way.stopped_units, *way.idle, *way.slices):
                yield OURS, name
    gone = find_surplus(found, RIG, AIM, [])
    for path in gone.paths:
        yield PATH, path


def fuzz(rounds: int) -> int:
    """Tell parsers anything; returns how often what serves was understood."""
    understood = 0
    for number in range(rounds):
        pick = random.Random(number)
        name = pick.choice([*PARSERS, *["served"] * len(PARSERS)])
        parser, schema = (serving_state.parse, serving_state.SCHEMA) if name == "served" else PARSERS[name]
        try:
            found = parser(records(pick, schema))
        except ValueError as error:
            assert str(error).isprintable(), (number, name)
            continue
        if isinstance(found, ObservedServing):
            understood += 1
            for pattern, word in words(found):
                assert pattern.fullmatch(word), (number, word)
                assert shlex.split(shlex.quote(word)) == [word]
    return understood


def test_output_of_a_host_never_becomes_more_than_words_of_ours() -> None:
    assert fuzz(5_000) > 0


@pytest.mark.all_only
def test_a_hundred_thousand_hosts_tell_what_they_like() -> None:
    assert fuzz(100_000) > 100
