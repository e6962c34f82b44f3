"""The probe's output about a host's containers, hostile answers among it."""

import json

import pytest

from rigwright.containers.container_facts import ContainerFacts, parse, render_probe
from tests.unit.channel_records import channel_lines_of
from tests.unit.container_samples import container_rig

PLAIN = [("os_id", "debian"), ("os_version", "13"), ("docker", "no"), ("ours", "no")]
RUNS = [("os_id", "debian"), ("os_version", "13"), ("docker", "yes"), ("ours", "yes")]


def test_a_host_that_has_nothing() -> None:
    assert parse(channel_lines_of(PLAIN)) == ContainerFacts("debian", "13")


def test_a_host_that_has_all_of_it() -> None:
    rows = json.dumps([{"Id": "0a", "Names": ["/web"]}, {"Id": "0b", "Names": []}, {"Id": "0c"}])
    facts = parse(
        channel_lines_of(
            [
                *RUNS,
                ("package", "docker.io", "installed", "26.1.5+dfsg1-9+b9", ""),
                ("candidate", "podman", "5.4.2+ds1-2+b2"),
                ("held", "docker-ce"),
                ("recorded", "docker.io", "26.1.5+dfsg1-9+b9"),
                ("kept", "container-toolkit", "1.20.0-0123456789ab"),
                ("source", "/etc/apt/sources.list", "deb http://archive.lan/debian trixie main"),
                ("options", '{"debug": true}'),
                ("in_force", ""),
                ("containers", rows),
                ("info", '{"LiveRestoreEnabled": false}'),
                ("stale", "the spec has no card GPU-1"),
                ("refresh", "nvidia-cdi-refresh.service", "enabled"),
                ("refresh", "nvidia-cdi-refresh.path", ""),
                ("foreign_spec", "/etc/cdi/nvidia.yaml"),
            ]
        )
    )
    assert facts.containers == ("web", "0b", "0c")
    assert facts.has_running_containers
    assert (facts.in_force, facts.options, facts.found) == ("", '{"debug": true}', None)
    assert facts.refresh == (("nvidia-cdi-refresh.service", "enabled"), ("nvidia-cdi-refresh.path", "none"))
    assert facts.kept == (("container-toolkit", "1.20.0-0123456789ab"),)


@pytest.mark.parametrize(
    "answer", ["", "no json", "{}x", "null", "[1]", '[{"Names": 5}]', '{"message": "no"}', "[" * 100_000]
)
def test_a_daemon_that_does_not_say_what_runs_on_it_may_have_anything(answer: str) -> None:
    facts = parse(channel_lines_of([*RUNS, ("containers", answer), ("info", answer)]))
    assert (facts.asked, facts.live_restore, facts.has_running_containers) == (False, False, True)


def test_whether_containers_stay_when_their_daemon_ends() -> None:
    rows = [("containers", '[{"Id": "0a", "Names": ["/web"]}]'), ("info", '{"LiveRestoreEnabled": true}')]
    seen = parse(channel_lines_of([*RUNS, *rows]))
    assert (seen.has_running_containers, seen.live_restore) == (True, True)


def test_a_containers_name_steers_no_terminal() -> None:
    (name,) = parse(
        channel_lines_of([*RUNS, ("containers", json.dumps([{"Id": "0a", "Names": ["/\x1b[2Jx"]}]))])
    ).containers
    assert "\x1b" not in name


@pytest.mark.parametrize(
    "row",
    [
        ("package", "docker.io; reboot", "installed", "1", ""),
        ("candidate", "podman", "$(reboot)"),
        ("held", "--all"),
        ("source", "relative", "deb x"),
        ("docker", "maybe"),
        ("more", "x"),
    ],
)
def test_meaningless_output_of_a_host_is_refused(row: tuple[str, ...]) -> None:
    rows = [one for one in PLAIN if one[0] != row[0]]
    with pytest.raises(ValueError, match=row[0]):
        parse(channel_lines_of([*rows, row]))


def test_only_a_rig_with_cards_is_asked_about_specs() -> None:
    box_rig = container_rig()
    assert "nvidia-smi" in render_probe(box_rig.roots, box_rig.cards, box_rig.containers, box_rig.container_supply)
    box_rig = container_rig(cards=False)
    assert "nvidia-smi" not in render_probe(box_rig.roots, box_rig.cards, box_rig.containers, box_rig.container_supply)
