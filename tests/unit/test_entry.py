"""An inventory's entries: keys that rigs share, and those of the way to the world and of generations."""

import pytest

from rigwright.inventory import HostGroup, hosts, load_rig
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry


def group(box: OperatorFolder, entries: object, **shared: object) -> HostGroup:
    """The result of the inventory's `hosts(entries, **shared)`."""
    scope = {"hosts": hosts, "entries": entries, "shared": shared}
    exec(compile("rigs = hosts(entries, **shared)", str(box.inventory), "exec"), scope)
    made: HostGroup = scope["rigs"]  # type: ignore[assignment]
    return made


def without(*keys: str) -> dict[str, object]:
    return {key: value for key, value in sample_entry().items() if key not in keys}


def test_shared_keys_are_every_rigs_unless_it_says_otherwise(box: OperatorFolder) -> None:
    other = {"keep_generations": 9, "ssh_user": "me", "ssh_hostname": "192.0.2.8"}
    entries = {"a": without("mirrors"), "b": without("mirrors") | other}
    mirrors = {"store": ["http://shared/"]}
    made = group(box, entries, mirrors=mirrors, keep_generations=3, ssh_user="ops", _sudo=True)
    rigs = {name: load_rig(data["rig"]) for name, data in made}
    assert {name: rig.keep_generations for name, rig in rigs.items()} == {"a": 3, "b": 9}
    assert {name: data["ssh_user"] for name, data in made} == {"a": "ops", "b": "me"}
    assert [data["_sudo"] for _, data in made] == [True, True]
    assert {rig.network.mirrors["store"] for rig in rigs.values()} == {("http://shared/",)}


def test_a_table_of_its_own_takes_the_place_of_the_shared_one(box: OperatorFolder) -> None:
    ((_, data),) = group(box, {"a": sample_entry()}, mirrors={"store": ["http://shared/"], "apt": ["http://apt/"]})
    assert load_rig(data["rig"]).network.mirrors == {"store": ("http://127.0.0.1:8000/files/",)}


def test_a_mistake_in_a_shared_key_is_reported_once(box: OperatorFolder) -> None:
    with pytest.raises(SystemExit) as ended:
        entries = {"a": sample_entry(), "b": sample_entry(), "c": sample_entry(proxy="http://own")}
        rigs = {name: {**keys, "ssh_hostname": name} for name, keys in entries.items()}
        group(box, rigs, proxy="proxy:3128", card=["turing"])
    keys = [line.removeprefix(f"{box.inventory}: ").split(": ")[0] for line in str(ended.value.code).splitlines()]
    assert keys == ["hosts().card", "hosts().proxy"]


def test_shared_keys_alone_are_no_rigs(box: OperatorFolder) -> None:
    with pytest.raises(SystemExit, match="must be a table with at least one rig"):
        group(box, {}, ssh_user="ops")


def test_a_rig_keeps_five_generations_and_goes_through_nothing_by_default(box: OperatorFolder) -> None:
    ((_, data),) = box.load_group({"box": sample_entry()})
    rig = load_rig(data["rig"])
    assert (rig.keep_generations, rig.network.proxy, rig.network.no_proxy, rig.network.ca_certificates) == (
        5,
        None,
        (),
        "",
    )
    assert rig.inventory == str(box.inventory)
    assert rig.roots.ledger == "/var/lib/rigwright/owned"


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"keep_generations": 1}, 1),
        ({"keep_generations": 100}, 100),
        ({"proxy": "http://proxy.example.org:3128"}, "http://proxy.example.org:3128"),
        ({"proxy": "https://10.0.0.1"}, "https://10.0.0.1"),
        ({"no_proxy": ["localhost", ".example.org", "10.0.0.1"]}, ("localhost", ".example.org", "10.0.0.1")),
        ({"no_proxy": []}, ()),
    ],
    ids=repr,
)
def test_valid_values_of_a_rig_reach_it(box: OperatorFolder, changes: dict[str, object], value: object) -> None:
    ((_, data),) = box.load_group({"box": sample_entry(**changes)})
    rig, name = load_rig(data["rig"]), next(iter(changes))
    assert getattr(rig.network if hasattr(rig.network, name) else rig, name) == value


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"keep_generations": 0}, "keep_generations"),
        ({"keep_generations": 101}, "keep_generations"),
        ({"keep_generations": -1}, "keep_generations"),
        ({"keep_generations": "5"}, "keep_generations"),
        ({"keep_generations": 5.0}, "keep_generations"),
        ({"keep_generations": True}, "keep_generations"),
        ({"keep_generations": None}, "keep_generations"),
        ({"keep_generations": 10**5000}, "keep_generations"),
        ({"proxy": ""}, "proxy"),
        ({"proxy": "proxy:3128"}, "proxy"),
        ({"proxy": "socks5://proxy"}, "proxy"),
        ({"proxy": "http://user:secret@proxy:3128"}, "proxy"),
        ({"proxy": "http://proxy\nX=y"}, "proxy"),
        ({"proxy": "http://$(id)"}, "proxy"),
        ({"proxy": ["http://proxy"]}, "proxy"),
        ({"no_proxy": "localhost"}, "no_proxy"),
        ({"no_proxy": ["a,b"]}, "no_proxy[0]"),
        ({"no_proxy": ["a", "*"]}, "no_proxy[1]"),
        ({"no_proxy": [""]}, "no_proxy[0]"),
        ({"no_proxy": ["a b"]}, "no_proxy[0]"),
        ({"no_proxy": ["a\n"]}, "no_proxy[0]"),
        ({"ca_file": 5}, "ca_file"),
        ({"ca_file": []}, "ca_file"),
        ({"ca_file": ""}, "ca_file"),
        ({"roots": {"config": "/srv/config"}}, "roots"),
        ({"roots": {"config": "/etc"}}, "roots.config"),
        ({"roots": {"config": "/etcetera/rigwright"}}, "roots"),
        ({"roots": {"config": "/etc/../srv"}}, "roots.config"),
        ({"instances": chat_instances(port=10**5000)}, "instances.chat.port"),
        ({"ssh_port": 10**5000}, "ssh_port"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else str(value),
)
def test_an_invalid_value_of_a_rig_is_refused_with_its_key(box, changes, place):
    (line,) = box.refusal_lines(**changes)
    assert line.startswith(f"{box.inventory}: box.{place}: "), line
    assert len(line) < 400


def test_configuration_lies_below_etc_wherever_there(box: OperatorFolder) -> None:
    ((_, data),) = box.load_group({"box": sample_entry(roots={"config": "/etc/boxes/one"})})
    assert load_rig(data["rig"]).roots.config == "/etc/boxes/one"
