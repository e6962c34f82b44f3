"""Before a stop: the gateway sends no new requests there, requests under way have their time, and a longer one gets an
error."""

from pathlib import Path

import pytest

from rigwright.gateway.gateway_units import ADMIN
from rigwright.host.systemd import UnitState
from rigwright.serving.activation import Activation
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, CODE, serving_host
from tests.unit.rendered_scripts import activation_script, write_stand_in

WAY = Activation((), (CHAT,), (), (UnitState(CHAT, "0" * 64, 8020, frozenset()),))
# The gateway: it says the next of the numbers that a test has written for an instance, the last one again and again.
GATEWAY = r"""
for url; do :; done
cd "$(dirname "$0")/../gateway"
echo "${url#http://localhost/} $(wc -l < ../systemd/asked)" >> asked
[ -e "${url##*/}" ] || exit 22
head -n 1 "${url##*/}"
[ "$(wc -l < "${url##*/}")" = 1 ] || sed -i 1d "${url##*/}"
"""


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    """A host that serves generation 1 behind a gateway."""
    made = serving_host(tmp_path)
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway/asked").touch()
    write_stand_in(tmp_path / "bin", "curl", GATEWAY)
    write_stand_in(tmp_path / "bin", "sleep", "true")
    return made


def drain_output(host: HostFolder, **numbers: str) -> None:
    for name, lines in numbers.items():
        (host.root / "gateway" / name).write_text("".join(f"{one}\n" for one in lines.split(",")))


def run(host: HostFolder, way: Activation = WAY, *, seconds: int = 1) -> str:
    script = activation_script(way, (), str(host.config), str(host.units))
    script = script.replace("$(($(date +%s) + 1))", f"$(($(date +%s) + {seconds}))")
    done = host.run_script(script.replace("/proc/", f"{host.root}/proc/"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def drain_orders(host: HostFolder) -> list[str]:
    """The gateway's orders, and after how many orders to systemd."""
    return (host.root / "gateway/asked").read_text().splitlines()


def test_nothing_is_waited_for_where_nothing_is_under_way(host: HostFolder) -> None:
    drain_output(host, chat="0")
    assert "under way" not in run(host)
    # the stop lies between the two
    assert drain_orders(host) == ["leave/chat 0", "stay/chat 1"]
    assert host.systemctl_commands[0] == f"stop {CHAT}"


def test_requests_under_way_end_before_the_stop(host: HostFolder) -> None:
    drain_output(host, chat="2,2,1,0")
    # of a single one, as clocks count them, hardly any may be left
    said = run(host, seconds=60)
    assert "==> 2 requests in progress: up to 1 s to finish" in said
    assert "did not finish" not in said
    assert drain_orders(host) == [*["leave/chat 0"] * 4, "stay/chat 1"]


def test_longer_requests_get_an_error_and_are_stopped(host: HostFolder) -> None:
    drain_output(host, chat="3")
    assert "3 requests did not finish in time: their streams are told to retry" in run(host)
    told = drain_orders(host)
    assert {"leave/chat 0", "cut/chat 0"} == {*told[:-1]}
    assert told[-1] == "stay/chat 1"


def test_an_engine_that_ends_its_streams_on_request_is_stopped_at_once(host: HostFolder) -> None:
    # a busy machine may ask fewer or more often within the second that it has
    write_stand_in(
        host.root / "bin", "curl", GATEWAY.replace("head", "case $url in */cut/*) echo 0 ;; *) echo 1 ;; esac; : head")
    )
    drain_output(host, chat="1")
    run(host)
    assert [one for one in drain_orders(host) if one.startswith("cut")] == ["cut/chat 0"]


def test_several_instances_have_the_same_time(host: HostFolder) -> None:
    drain_output(host, chat="1,0", code="0,2,0")
    slots = tuple(UnitState(unit, "0" * 64, 0, frozenset()) for unit in (CHAT, CODE))
    run(host, Activation((), (CHAT, CODE), (), slots), seconds=60)
    assert drain_orders(host)[:2] == ["leave/chat 0", "leave/code 0"]
    assert drain_orders(host).count("leave/code 0") == 3
    assert drain_orders(host)[-2:] == ["stay/chat 1", "stay/code 1"]


@pytest.mark.parametrize("answer", ["", "many", "-1", "9999999999", "<html>"])
def test_a_gateway_that_cannot_drain_delays_no_stop(host: HostFolder, answer: str) -> None:
    drain_output(host, chat=answer)
    assert "under way" not in run(host)
    (host.root / "gateway/chat").unlink()
    assert "under way" not in run(host)


def test_ports_and_the_gateway_itself_are_not_drained() -> None:
    units = ("rigwright_listener-8020.service", "rigwright_router.service", "rigwright_gateway.service")
    way = Activation((), (), (), tuple(UnitState(unit, "", 0, frozenset()) for unit in units))
    assert way.draining_instances == ()
    assert ADMIN not in activation_script(way)
