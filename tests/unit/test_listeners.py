"""How a port leads to an instance: the socket that holds it for good, and what carries it, as it was started."""

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.model.accounts import ServiceAccounts
from rigwright.model.instance import SOCKET_FOLDER, Instance
from rigwright.render import render
from rigwright.serving.instance_units import (
    OWNED_HEADER,
    PREFIX,
    PortListener,
    build_listener,
    build_unit,
    listener_units,
    port_socket,
)
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_card, sample_installation, sample_instance, sample_rig

ON_THE_HOST = "/usr/bin/nsenter --mount=/proc/1/ns/mnt"
SERVICE, HOLDER = listener_units(8020)
CHAT = sample_instance("chat")


def make_listener(one: Instance = CHAT, **changes: object) -> PortListener:
    box_rig = sample_rig(one, cards=(sample_card("8.6"),), **changes)
    return build_listener(box_rig.roots, box_rig.accounts, box_rig.gateway, one, OWNED_HEADER)


def values(text: str, directive: str) -> list[str]:
    return re.findall(rf"^{directive}=(.*)$", text, re.MULTILINE)


def test_a_ports_units_have_its_name_and_not_an_instances() -> None:
    """So that it stays held while instances behind it come and go; no instance's unit begins like them."""
    assert (SERVICE, HOLDER) == ("rigwright_listener-8020.service", "rigwright_listener-8020.socket")
    assert (make_listener().unit, make_listener().socket_unit) == (SERVICE, HOLDER)
    assert (make_listener(sample_instance("code")).unit, make_listener(sample_instance("code")).socket_unit) == (
        SERVICE,
        HOLDER,
    )
    assert not sample_instance("listener-8020").unit.startswith(PREFIX)


def test_the_socket_holds_the_port_on_the_loopback_interface_alone() -> None:
    text = make_listener().socket_text
    # localhost is either
    assert values(text, "ListenStream") == ["127.0.0.1:8020", "[::1]:8020"]
    assert values(make_listener(sample_instance(port=9000)).socket_text, "ListenStream") == [
        "127.0.0.1:9000",
        "[::1]:9000",
    ]
    assert text.startswith(f"{OWNED_HEADER}\n")


def test_the_socket_is_the_same_whichever_instance_its_port_leads_to() -> None:
    """A socket that changed would have to be let go of, and another process could take the port."""
    others = [
        make_listener(sample_instance("code")),
        make_listener(sample_instance(context=8192, model_name="other")),
        make_listener(sample_instance(cards=(0,))),
        make_listener(accounts=ServiceAccounts("svc")),
    ]
    assert {one.socket_text for one in others} == {make_listener().socket_text}


def test_the_service_carries_the_port_to_the_instances_socket_in_its_group() -> None:
    text = make_listener().text
    (command,) = values(text, "ExecStart")
    assert command.split()[0] == "/usr/lib/systemd/systemd-socket-proxyd"
    assert command.split()[-1] == CHAT.socket
    # as many as the socket lets wait are carried at once
    (backlog,) = values(make_listener().socket_text, "Backlog")
    assert f"--connections-max={backlog}" in command.split()
    assert (values(text, "Requires"), values(text, "After")) == ([HOLDER], [HOLDER])
    assert (
        values(text, "SupplementaryGroups")
        == values(build_unit(sample_rig(CHAT), CHAT, sample_installation()).text, "Group")
        == ["rigwright-chat"]
    )
    assert values(text, "ExecStartPost") == [f"+{ON_THE_HOST} /etc/rigwright/current/started {SERVICE}"]
    assert text.startswith(f"{OWNED_HEADER}\n")


def test_the_service_can_make_the_folder_of_sockets_before_any_instance_has_begun() -> None:
    """A file that the unit's process is to see would have to be there for the one that makes it, too."""
    text = make_listener().text
    (folder,) = values(text, "BindReadOnlyPaths")
    (before,) = values(text, "ExecStartPre")
    assert folder == f"-{before.split()[-1]}"


def test_the_service_has_a_user_of_its_own_and_no_network() -> None:
    text = make_listener().text
    assert (values(text, "DynamicUser"), values(text, "PrivateNetwork")) == (["yes"], ["yes"])
    assert values(text, "RestrictAddressFamilies") == ["AF_UNIX"]
    assert (values(text, "CapabilityBoundingSet"), values(text, "LoadCredential")) == ([""], [])


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (make_listener(sample_instance("code")), False),
        (make_listener(sample_instance(port=8021)), False),
        (make_listener(accounts=ServiceAccounts("svc")), False),
        (make_listener(sample_instance(context=8192)), True),
        (make_listener(sample_instance(cards=(0,))), True),
        (make_listener(keep_generations=1), True),
    ],
    ids=["another instance", "another port", "another group", "its context", "its cards", "what is kept"],
)
def test_a_service_is_started_again_for_what_it_carries_and_nothing_else(other: PortListener, same: bool) -> None:
    assert (other.unit_state == make_listener().unit_state) is same


def test_the_target_of_a_service_is_its_text_and_its_holding_is_its_sockets_port() -> None:
    unit_state = make_listener().unit_state
    assert unit_state.started_from == hashlib.sha256(make_listener().text.encode()).hexdigest()
    assert (unit_state.unit, unit_state.port, unit_state.cards) == (SERVICE, 8020, frozenset())
    assert ([one.unit for one in unit_state.holders], unit_state.leads_to) == ([HOLDER], "rigwright-chat.service")
    assert replace(make_listener(), socket_text="").unit_state == unit_state


@pytest.mark.parametrize("unread", [False, True])
def test_a_service_that_has_started_is_known_by_its_text_once_systemd_has_read_it(tmp_path: Path, unread: bool) -> None:
    units, records = tmp_path / "units", tmp_path / "records"
    units.mkdir()
    records.mkdir()
    (units / SERVICE).write_text(make_listener().text)
    (records / SERVICE).write_text("of an earlier start\n")
    script = tmp_path / "started"
    script.write_text(render("serving/started.j2", units=units, started_from=records))
    # a stand-in for systemd, which knows no such unit here
    write_stand_in(tmp_path / "bin", "systemctl", f"echo {'yes' if unread else 'no'}")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = short_programs.run_program(["sh", str(script), SERVICE], env={"PATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = {one.name: one.read_text() for one in records.iterdir()}
    assert found == ({} if unread else {SERVICE: f"{make_listener().unit_state.started_from}\n"})


def test_every_user_can_get_to_the_folder_of_sockets_of_any_maker(tmp_path: Path) -> None:
    """Where weights lie on a slow disk, it is a port's service, whose own files no other service reads."""
    (umask,), (before,) = values(make_listener().text, "UMask"), values(make_listener().text, "ExecStartPre")
    command = before.partition("/proc/1/ns/mnt ")[2].replace(SOCKET_FOLDER, f"{tmp_path}/run{SOCKET_FOLDER}")
    short_programs.run_program(["sh", "-c", f"umask {umask}; {command}"], check=True)
    folders = [tmp_path / "run", *(tmp_path / "run").glob("**/*")]
    assert len(folders) > 1
    assert {one.stat().st_mode & 0o777 for one in folders} == {0o755}


@pytest.mark.parametrize(
    ("addresses", "right"),
    [
        ({"127.0.0.1:8020"}, True),
        ({"127.0.0.1:8020", "[::1]:8020"}, True),
        ({"[::1]:8020"}, False),
        ({"127.0.0.1:8020", "0.0.0.0:8020"}, False),
        ({"127.0.0.1:8020", "[::]:8020"}, False),
        ({"127.0.0.1:8021"}, False),
        (set(), False),
    ],
)
def test_a_port_is_held_on_the_loopback_interface_by_one_protocol_or_both(addresses: set[str], right: bool) -> None:
    assert port_socket(8020).is_listening(frozenset(addresses)) is right
