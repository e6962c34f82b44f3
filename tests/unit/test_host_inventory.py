"""Inventories in Ansible's formats: the declaration of a file or a command, and its refusals."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli import main
from cli.inventory_loading import load_hosts
from rigwright.declaration.host_file_formats import parse_host_file
from rigwright.declaration.host_groups import rig_entries
from rigwright.inventory import RIG_KEYS, hosts
from rigwright.problems import Invalid
from roles.pyinfra_inventory import load_pyinfra_inventory

INI = """
# boxes with cards
[gpu]
gpu[08:10] ansible_user=ops ansible_become=true
big:2222 ansible_host=192.0.2.9 keep_generations=7

[gpu:vars]
service_user=serving
no_proxy=["a.example", "b.example"]

[site:children]
gpu

[site:vars]
service_user=outer
keep_generations=6
"""
YAML = """
all:
  children:
    site:
      vars: {service_user: outer, keep_generations: 6}
      children:
        gpu:
          vars:
            service_user: serving
            no_proxy: [a.example, b.example]
          hosts:
            gpu[08:10]: {ansible_user: ops, ansible_become: yes}
            big:
              ansible_port: 2222
              ansible_host: 192.0.2.9
              keep_generations: 7
"""
OPS = {"ssh_user": "ops", "_sudo": True}
GROUP = {"service_user": "serving", "no_proxy": ["a.example", "b.example"], "keep_generations": 6}
BIG = {"ssh_port": 2222, "ssh_hostname": "192.0.2.9", "keep_generations": 7}
EXPECTED = {**{f"gpu{n}": GROUP | OPS for n in ("08", "09", "10")}, "big": GROUP | BIG}
JSON = json.dumps(
    {
        "_meta": {"hostvars": EXPECTED},
        "all": {"children": ["ungrouped", "site"]},
        "site": {"children": ["gpu"]},
        "gpu": {"hosts": [*EXPECTED]},
    }
)


def entries(form: str, text: str | bytes, group: str = "all", ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    content = text.encode() if isinstance(text, str) else text
    return rig_entries(parse_host_file("f", content, form), group, ignore, RIG_KEYS)[0]


def lines(form: str, text: str | bytes, **options: Any) -> list[str]:
    with pytest.raises(Invalid) as refused:
        entries(form, text, **options)
    return str(refused.value).splitlines()


@pytest.mark.parametrize(("form", "text"), [("INI", INI), ("YAML", YAML), ("JSON", JSON)])
def test_the_same_hosts_groups_and_variables_are_the_same_rigs_in_each_format(form: str, text: str) -> None:
    found = entries(form, text)
    assert found == EXPECTED
    assert [*found] == [*EXPECTED]


@pytest.mark.parametrize(("suffix", "text"), [("ini", INI), ("yml", YAML), ("json", JSON)])
def test_a_file_is_an_inventory_with_its_groups_for_verbs_and_for_pyinfra(box, suffix: str, text: str) -> None:
    path = str(box.write(f"boxes.{suffix}", text))
    assert [*load_hosts(path, "gpu0?,big")] == ["gpu08", "gpu09", "big"]
    assert [*load_hosts(path, "site")] == [*load_hosts(path, None)] == [*EXPECTED]
    made = load_pyinfra_inventory(path, {"dry": True})
    assert [host.name for host in made] == [*EXPECTED]
    assert made.get_host("big").data.ssh_port == 2222
    assert {"gpu", "site", "boxes"} <= {*made.get_host("big").groups}
    done = CliRunner().invoke(main, ["validate", path])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "valid"), done.output


def test_a_file_is_judged_as_a_python_inventory_with_its_own_name(box) -> None:
    path = box.write("boxes.yml", "all: {hosts: {Box.1: , b: {instances: {c: {variant: no/ne, port: 1}}, cards: [x]}}}")
    done = CliRunner().invoke(main, ["validate", str(path)])
    assert done.exit_code == 2
    for start in ("Box.1: is not a valid rig name", "b.cards[0]: ", "b.instances.c.variant: ", "b.instances.c.port: "):
        assert f"{path}: {start}" in done.output


def test_a_python_inventory_takes_a_group_and_ignores_variables_of_others(box) -> None:
    box.write("hosts.ini", "[gpu]\na x=1\n[web]\nw y=1\n[all:vars]\nntp=z\n")
    box.write("list", f"#!/bin/sh\necho '{JSON}'\n").chmod(0o755)
    box.inventory.write_text(
        "from rigwright.host_inventory import hosts_of_command, hosts_of_file\n"
        "from rigwright.inventory import hosts\n"
        'a = hosts(hosts_of_file("hosts.ini", group="gpu", ignore=["x", "ntp"]), ssh_user="me")\n'
        'b = hosts(hosts_of_command(["./list"]))\n'
    )
    assert [*load_hosts(str(box.inventory), None)] == ["a", *EXPECTED]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ('"./list"', "must be a list, such as"),
        ('["./nothing"]', "the command ./nothing: does not exist"),
        ('["false"]', "the command false: ends with exit status 1"),
        ('["true"]', "the command true: prints nothing"),
        ('["echo", "{"]', "the command echo: line 2: cannot be read as JSON"),
    ],
)
def test_a_command_that_fails_or_prints_no_inventory_is_refused(box, command: str, text: str) -> None:
    box.inventory.write_text(
        f"from rigwright.host_inventory import hosts_of_command\nrigs = hosts_of_command({command})\n"
    )
    done = CliRunner().invoke(main, ["validate", str(box.inventory)])
    assert done.exit_code == 2
    assert text in done.output


@pytest.mark.parametrize("folder", ["group_vars", "host_vars"])
def test_folders_of_variables_are_refused_rather_than_left_out(box, folder: str) -> None:
    path = box.write("boxes.ini", "a\n")
    box.write(f"{folder}/a.yml", "x: 1\n")
    done = CliRunner().invoke(main, ["validate", str(path)])
    assert f"{folder}: is not read: `ansible-inventory -i boxes.ini --list" in done.output


REFUSED: list[tuple[str, str | bytes, tuple[str, ...]]] = [
    ("INI", "a prt=1\n", ("f: a.prt: unknown key; did you mean",)),
    ("INI", "a ansible_usr=x\n", ('f: a.ansible_usr: unknown key; did you mean "ansible_user"?',)),
    ("INI", "a ansible_ssh_pass=x\n", ("f: a.ansible_ssh_pass: unknown key; passwords are not supported",)),
    (
        "INI",
        "a ansible_connection=winrm\n",
        ("f: a.ansible_connection: 'winrm' is refused: Rigwright connects with ssh",),
    ),
    ("INI", "a ssh_user=x ansible_user=y\n", ("f: a.ansible_user: ssh_user is declared twice",)),
    ("INI", "a ssh_user={{ me }}\n", ("f: line 1: ",)),
    ("INI", 'a ssh_user="{{ me }}"\n', ("f: a.ssh_user: contains a Jinja expression",)),
    ("INI", "a ssh_port=1 ssh_port=2\n", ('f: line 1: "ssh_port" is listed twice',)),
    ("INI", 'a driver=\'{"x": 1, "x": 2}\'\n', ("f: line 1: 'x' is listed twice in one table",)),
    ("INI", "a driver={\n", ("f: line 1: driver: '{' is refused: must be a Python literal",)),
    ("INI", "a[5:1]\nb[1:99999999]\nc[1:2][1:2]\n", ("f: line 1: ", "f: line 2: ", "f: line 3: ")),
    ("INI", "[gpu\na\n", ("f: line 1: '[gpu' is refused: must be [GROUP]",)),
    ("INI", "[gpu:var]\na=1\n", ("f: line 1: '[gpu:var]' is refused",)),
    (
        "INI",
        "[gpu]\na\n[gpuu:vars]\nfs_verity=True\n",
        ("f: gpuu: the group has variables and no hosts; did you mean",),
    ),
    (
        "INI",
        "[a:children]\nb\n[b:children]\na\n[b]\nh\n",
        ("f: a.children: the group contains itself", "f: b.children: "),
    ),
    ("INI", "[a:children]\nc\n", ('f: a.children: there is no group "c"',)),
    (
        "INI",
        "[a]\nh\n[b]\nh\n[a:vars]\nservice_user=x\n[b:vars]\nservice_user=y\n",
        ("f: a.service_user: has another value in b, neither inside the other",),
    ),
    ("INI", "[override_data]\nh\n", ("f: line 1: 'override_data' is not a group name",)),
    ("INI", b"a\0\n", ("f: line 1: contains the control character U+0000",)),
    ("INI", b"a\n\xff\n", ("f: line 2: is not UTF-8",)),
    ("YAML", "all: {hosts: {a: , a: }}", ("f: line 1: 'a' is listed twice in one table",)),
    ("YAML", "all: {hosts: {a: &x {ssh_port: 1}, b: *x}}", ("f: line 1: the alias *x is refused",)),
    ("YAML", "all: {hosts: {a: {<<: {ssh_port: 1}}}}", ("f: a.<<: ", "f: line 1: the merge key << is refused")),
    ("YAML", "all:\n  hosts:\n    a: {ssh_user: !vault x}", ("f: line 3: the tag !vault is refused",)),
    ("YAML", "all: {hosts: {a: !!python/object/apply:os.system [id]}}", ("f: a: ", "f: line 1: the tag tag:yaml.org")),
    ("YAML", "all: {hosts: {a: {ssh_port: 022}}}", ("f: line 1: '022' is a different value in YAML 1.1 and 1.2",)),
    ("YAML", "all: {host: {a: }}", ('f: all.host: unknown key; did you mean "hosts"?',)),
    ("YAML", "all: {hosts: [a]}", ("f: all.hosts: ['a'] is refused: must be a table of names",)),
    ("YAML", "all: {hosts: {1: }}", ("f: all.hosts: 1 is refused: a name must be text, in quotes",)),
    ("YAML", "all: {hosts: {a: }}\n---\nx: 1\n", ("f: line 2: a second document is refused",)),
    ("YAML", "all: [\n", ("f: line 2: cannot be read as YAML",)),
    ("YAML", "- " * 3000 + "x", ("f: line 1: is nested too deeply",)),
    ("YAML", "", ("f: no hosts",)),
    ("JSON", '{"g": {"hosts": ["a"]}, "g": {}}', ("f: the file: 'g' is listed twice in one table",)),
    ("JSON", '{"g": {"hosts": {"a": {}}}}', ("f: g.hosts: {'a': {}} is refused: must be a list of names",)),
    ("JSON", '{"_meta": {"hostvars": {"a": {"ssh_port": NaN}}}}', ("f: the file: NaN is refused",)),
    (
        "JSON",
        '{"_meta": {"hostvars": {"a": {"ssh_user": {"__ansible_vault": "x"}}}}}',
        ("f: a.ssh_user: is encrypted",),
    ),
    ("JSON", "[" * 100_000, ("f: the file: is nested too deeply",)),
    ("JSON", '{"g": ' + "9" * 5000 + "}", ("f: the file: a number has too many digits",)),
]


@pytest.mark.parametrize(("form", "text", "starts"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_a_mistake_is_refused_by_file_and_line_or_key(form: str, text: str | bytes, starts: tuple[str, ...]) -> None:
    found = lines(form, text)
    for start in starts:
        assert any(line.startswith(start) for line in found), found


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    found = lines("INI", "a prt=1 x\nb ansible_usr=y\n[c\n[d:vars]\nfs_verity=True\n")
    assert [line.split(": ")[1] for line in found] == ["a.prt", "b.ansible_usr", "d", "line 1", "line 3"]


def test_an_alias_bomb_costs_nothing() -> None:
    text = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
    )
    began = time.process_time()
    assert any("alias *j is refused" in line for line in lines("YAML", text))
    assert time.process_time() - began < 5


def test_the_words_and_numbers_of_yaml_are_those_of_ansible() -> None:
    text = 'all: {hosts: {a: {v: [yes, "yes", No, 1, -2, 1.5, "1", ~, null, on, 192.0.2.7, 1.2.3, x y]}}}'
    assert entries("YAML", text, ignore=("v",)) == {"a": {}}
    tree = parse_host_file("f", text.encode(), "YAML")
    assert tree.hosts["a"]["v"] == [True, "yes", False, 1, -2, 1.5, "1", None, None, True, "192.0.2.7", "1.2.3", "x y"]


def test_a_thousand_hosts_of_a_file_are_read_in_a_second_or_two(tmp_path: Path) -> None:
    text = "all:\n  hosts:\n" + "".join(f"    b{n}: {{ansible_host: 10.0.{n // 250}.{n % 250}}}\n" for n in range(1000))
    began = time.process_time()
    assert len(hosts(entries("YAML", text))) == 1000
    assert time.process_time() - began < 10
