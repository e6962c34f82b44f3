"""Malformed input, by class: each is refused before a host is reached, all at once, with file, key, value and what is
allowed.
"""

import re
import string
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli import main
from rigwright.address_types import canonical_host
from tests.unit.example_counts import example_count
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

Change = tuple[str, dict[str, object]]
"""The key that is refused, and the changes of an entry that bring it about."""
labels = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8).filter(
    lambda one: not re.fullmatch("[0-9]+|0x[0-9a-f]*", one)
)
names = st.lists(labels, min_size=1, max_size=3).map(".".join)
octets = st.integers(0, 255).map(str)
addresses = st.tuples(st.integers(1, 223).map(str), octets, octets, octets).map(".".join) | names
beyond = st.integers(65_536, 10**9) | st.just(0)
huge = st.integers(10**9, 10**12) | st.just(10**5000)


def input_class(
    key: str, values: st.SearchStrategy[Any], make: Callable[[Any], dict[str, object]]
) -> st.SearchStrategy[Change]:
    """A class: the values of a key that are refused, and how an entry gets one."""
    return values.map(lambda value: (key, make(value)))


impossible = (
    st.tuples(labels, addresses).map("@".join)
    | st.tuples(addresses, st.integers(1, 65535).map(str)).map(":".join)
    | st.tuples(labels, addresses, beyond.map(str)).map(lambda one: f"{one[0]}@{one[1]}:{one[2]}")
    | st.tuples(octets, octets, octets, st.integers(256, 999).map(str)).map(".".join)
    | st.lists(octets, min_size=2, max_size=3).map(".".join)
    | names.map(lambda one: f"{one}..{one}")
    | names.map(lambda one: f"{one}/{one}")
    | st.integers(64, 90).map(lambda size: "a" * size)
    | st.sampled_from(
        ["0.0.0.0", "::", "255.255.255.255", "224.0.0.5", "ff02::1", "[::1]", "http://box", "fe80::1%$(id)"]
    )
)
urls = st.tuples(addresses, beyond).map(lambda one: f"http://{one[0]}:{one[1]}") | st.tuples(
    octets, octets, octets, st.integers(256, 999).map(str)
).map(lambda one: f"http://{'.'.join(one)}/x")
reversed_ = st.tuples(st.integers(1000, 2000), st.integers(100, 999))
ours = {"pci_ids": ["10de:1111"], "capability": "8.6", "name": "A card", "vram_mib": 8192}
CLASSES: dict[str, st.SearchStrategy[Change]] = {
    "a host": input_class("box.ssh_hostname", impossible, lambda one: {"ssh_hostname": one}),
    "an ssh port": input_class("box.ssh_port", beyond, lambda one: {"ssh_port": one}),
    "a user": input_class("box.ssh_user", st.tuples(labels, labels).map(" ".join), lambda one: {"ssh_user": one}),
    "a key": input_class("box.ssh_key", labels.map("/nowhere/{}".format), lambda one: {"ssh_key": one}),
    "ssh's configuration": input_class(
        "box.ssh_config_file", labels, lambda one: {"ssh_config_file": f"/nowhere/{one}"}
    ),
    "a proxy": input_class("box.proxy", urls, lambda one: {"proxy": one}),
    "a mirror": input_class("box.mirrors.store[0]", urls, lambda one: {"mirrors": {"store": [one]}}),
    "a peer": input_class("box.peers[0]", urls, lambda one: {"peers": [one]}),
    "clocks": input_class(
        "box.driver.clocks_mhz", reversed_, lambda one: {"driver": {"managed": True, "clocks_mhz": one}}
    ),
    "power": input_class(
        "box.cards[0].power_w", reversed_, lambda one: {"cards": [{**ours, "power_w": one}, "ampere"]}
    ),
    "modules": input_class(
        "box.driver.flavour",
        st.sampled_from(["12.0", "10.0"]),
        lambda one: {"cards": [{**ours, "capability": one}, "ampere"], "driver": {"flavour": "proprietary"}},
    ),
    "tasks": input_class(
        "box.instances.chat.tasks_max", huge, lambda one: {"instances": chat_instances(tasks_max=one)}
    ),
    "memory": input_class(
        "box.instances.chat.memory_max",
        st.integers(65, 999_999).map("{}T".format) | st.integers(1, 63).map("{}M".format),
        lambda one: {"instances": chat_instances(memory_max=one)},
    ),
    "a kernel's setting": input_class(
        "box.driver.sysctl.vm.swappiness",
        st.integers(2**64, 2**70),
        lambda one: {"driver": {"managed": True, "sysctl": {"vm.swappiness": one}}},
    ),
    "bytes for a name": input_class("box.ssh_user", labels.map(str.encode), lambda one: {"ssh_user": one}),
    "bytes for an address": input_class(
        "box.ssh_hostname", addresses.map(str.encode), lambda one: {"ssh_hostname": one}
    ),
    "bytes in a list": input_class("box.no_proxy", addresses.map(str.encode), lambda one: {"no_proxy": [one]}),
    "bytes in a table": input_class(
        "box.mirrors", labels.map(lambda one: f"http://{one}/x".encode()), lambda one: {"mirrors": {"store": [one]}}
    ),
    "a set of cards": input_class(
        "box.instances.chat.cards",
        st.sets(st.integers(0, 1), min_size=1),
        lambda one: {"instances": chat_instances(variant="llamacpp/two", cards=one)},
    ),
    "mirrors in a set": input_class("box.mirrors", addresses, lambda one: {"mirrors": {"store": {f"http://{one}/x"}}}),
    "a queue": input_class(
        "box.gateway.queue",
        huge,
        lambda one: {"gateway": {"queue": one, "listeners": {"lan": {"address": "0.0.0.0", "port": 80}}}},
    ),
}
thorough = settings(
    max_examples=example_count(200),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> OperatorFolder:
    return OperatorFolder(tmp_path_factory.mktemp("box"))


def lines(box: OperatorFolder, entries: object, **shared: object) -> list[str]:
    """The messages about refused entries, without the inventory's name."""
    from rigwright.inventory import hosts

    with pytest.raises(SystemExit) as ended:
        exec(
            compile("hosts(entries, **shared)", str(box.inventory), "exec"),
            {"hosts": hosts, "entries": entries, "shared": shared},
        )
    assert isinstance(ended.value.code, str)
    return [line.removeprefix(f"{box.inventory}: ") for line in ended.value.code.splitlines()]


@thorough
@given(changes=st.lists(st.sampled_from([*CLASSES]).flatmap(CLASSES.__getitem__), min_size=1, max_size=3))
def test_every_mistake_is_reported_with_its_key_beside_all_others(place: OperatorFolder, changes: list[Change]) -> None:
    entries: dict[str, dict[str, object]] = {}
    for number, (_, change) in enumerate(changes):
        entries[f"box{number}"] = sample_entry(**{"ssh_hostname": f"h{number}.lan", **change})
    told = lines(place, entries)
    for number, (key, _) in enumerate(changes):
        wanted = key.replace("box.", f"box{number}.", 1)
        assert any(line.startswith(f"{wanted}: ") and "is refused" in line for line in told), (wanted, told)


@thorough
@given(user=labels, name=addresses, port=st.integers(1, 65535))
def test_user_and_port_in_a_host_name_are_refused_with_their_own_keys(
    place: OperatorFolder, user: str, name: str, port: int
) -> None:
    (told,) = [
        line for line in lines(place, {"box": sample_entry(ssh_hostname=f"{user}@{name}:{port}")}) if "hostname" in line
    ]
    assert told.endswith(f"did you mean {name!r} with ssh_user = {user!r} and ssh_port = {port}?")


def spellings(name: str) -> list[str]:
    return [name.upper(), f"{name}.", name.title()]


@thorough
@given(twins=st.tuples(names, st.integers(0, 2)).map(lambda one: (one[0], spellings(one[0])[one[1]])))
def test_one_machine_is_no_two_rigs_however_it_is_spelt(place: OperatorFolder, twins: tuple[str, str]) -> None:
    told = lines(place, {"a": sample_entry(ssh_hostname=twins[0]), "b": sample_entry(ssh_hostname=twins[1])})
    assert told == [f"b.ssh_hostname: {twins[1]} is already the address of a"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::7", "2001:0DB8:0::0:7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "::1"),
    ],
)
def test_addresses_of_one_machine_are_one(place: OperatorFolder, one: str, other: str) -> None:
    (told,) = lines(place, {"a": sample_entry(ssh_hostname=one), "b": sample_entry(ssh_hostname=other)})
    assert told == f"b.ssh_hostname: {other} is already the address of a"


@pytest.mark.parametrize("good", ["box", "box.lan.", "my_alias", "192.0.2.7", "::1", "fe80::1%eth0", "xn--a-1"])
def test_valid_hosts_are_accepted(place: OperatorFolder, good: str) -> None:
    assert canonical_host(good)
    place.load_group({"box": sample_entry(ssh_hostname=good)})


def test_one_name_in_two_groups_is_refused_where_it_is_two_rigs(place: OperatorFolder) -> None:
    def load(text: str) -> str:
        place.write("rig.py", f"from rigwright.inventory import hosts\nE = {sample_entry()!r}\n{text}")
        done = CliRunner().invoke(main, ["validate", str(place.inventory)])
        return "valid" if done.exit_code == 0 else done.output

    one, other = "a = hosts({'box': E})\n", "b = hosts({'box': {**E, 'ssh_hostname': 'h2.lan'}})\n"
    assert "rig.py: box: is declared twice" in load(one + other)
    assert load(one + "b = hosts({'box': E})\nc = ['box']\nd = a\n") == "valid"
    assert "is already the address of box" in load(one + "b = hosts({'box2': E})\n")


@pytest.mark.parametrize("key", ["addres", "por", "modles"])
def test_an_unknown_key_deep_in_an_entry_gets_the_nearest_one(place: OperatorFolder, key: str) -> None:
    listener: dict[str, object] = {"address": "0.0.0.0", "port": 80, key: 1}
    declared = sample_entry(instances=chat_instances(), gateway={"listeners": {"port": listener}})
    (line,) = lines(place, {"box": declared})
    nearest = {"addres": "address", "por": "port", "modles": "models"}[key]
    assert line.startswith(f'box.gateway.listeners.port.{key}: unknown key; did you mean "{nearest}"?')


def test_a_mistake_in_keys_beside_the_rigs_is_reported_once_and_where_it_stands(place: OperatorFolder) -> None:
    rigs = {name: sample_entry(ssh_hostname=name, proxy="http://own:3128") for name in ("a", "b")}
    told = lines(place, rigs, mirors={}, keep_generations=0, proxy="never read")
    assert [line.split(": ")[0] for line in told] == ["hosts().keep_generations", "hosts().mirors"]
