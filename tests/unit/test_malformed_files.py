"""Malformed files, and what is refused before a host is reached."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checks import connections
from cli import main
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.test_malformed_values import lines

VARIANT = '[variants."llamacpp/x"]\nengine = "plain"\nmodel = "small"\n'
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "is not a file: a pipe, a socket or a device"),
    "too large": (lambda path: path.write_bytes(b"#" * (65 << 20)), "has more than 64 MiB"),
    "deep": (lambda path: path.write_text(f"a = {'[' * 5000}{']' * 5000}"), "it is nested too deeply"),
    "a long number": (lambda path: path.write_text(f"a = {'9' * 5000}"), "a number has too many digits"),
    "a folder": (Path.mkdir, "is not a file: a folder"),
    "context": (
        lambda path: path.write_text(f"{VARIANT}context = 1000000000\n"),
        "variants.llamacpp/x.context: 1000000000 is refused: must be at most 100000000",
    ),
    "parallel sequences": (
        lambda path: path.write_text(f"{VARIANT}context = 4096\nparallel = 257\n"),
        "variants.llamacpp/x.parallel: 257 is refused: must be at most 256",
    ),
    "a timeout": (
        lambda path: path.write_text(f"{VARIANT}context = 4096\nready_timeout = 100000\n"),
        "variants.llamacpp/x.ready_timeout: 100000 is refused: must be at most 86400",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_of_the_catalogue_that_cannot_be_used_is_named_and_hides_nothing(box: OperatorFolder, case: str) -> None:
    make, said = FILES[case]
    make(box.folder / "catalog" / "odd.toml")
    told = box.refusal_lines(keep_generations=0, ca_file="gone.pem", peers=["http://h:99999"])
    assert any(line.startswith(f"{box.folder}/catalog/odd.toml: ") and said in line for line in told), told
    for key in ("keep_generations", "ca_file", "peers[0]"):
        assert any(line.startswith(f"{box.inventory}: box.{key}: ") for line in told), (key, told)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is not a file: a pipe"),
        (lambda path: path.write_bytes(b"#" * (17 << 20)), "has more than 16 MiB"),
        (Path.mkdir, "is not a file: a folder"),
        (lambda path: path.with_name("boxes.py").write_text(""), 'did you mean "'),
    ],
)
@pytest.mark.parametrize("verb", ["validate", "deploy", "status", "logs"])
def test_an_inventory_that_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, verb: str, make: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "boxs.py"
    make(path)
    done = CliRunner().invoke(main, [verb, str(path)])
    assert done.exit_code == 2
    assert f"{path} {said}" in done.output or said in done.output


PROGRAMS = {
    "raise GeneratorExit": "GeneratorExit",
    "class Own(BaseException): pass\nraise Own('mine')": "Own: mine",
    "class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute": "Mute",
    "import gevent; raise gevent.GreenletExit('g')": "GreenletExit: g",
    "raise SystemExit": "defines no hosts",
    "def f(): return f()\nf()": "RecursionError: maximum recursion depth exceeded",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_whatever_an_inventory_raises_is_reported_in_one_line(tmp_path: Path, program: str) -> None:
    path = tmp_path / "rig.py"
    path.write_text(program)
    done = CliRunner().invoke(main, ["validate", str(path)])
    assert done.exit_code == 2
    assert re.search(rf"Error: {path}: (line \d+: )?{re.escape(PROGRAMS[program])}", done.output)


class Unprintable:
    """An object without a printable form."""

    def __repr__(self) -> str:
        raise ValueError


def deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(20_000):
        made = [made]
    return made


@pytest.mark.parametrize(
    "value", [Unprintable(), [Unprintable()], deep(), 10**5000], ids=["mute", "mute in a list", "deep", "long"]
)
def test_a_value_that_cannot_be_shown_is_refused_nonetheless(box: OperatorFolder, value: object) -> None:
    told = lines(box, {"box": sample_entry(cards=value, ca_file="gone.pem")})
    assert any(line.startswith("box.cards") and "is refused" in line for line in told)
    assert any(line.startswith("box.ca_file: gone.pem does not exist") for line in told)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", 0o600, ""),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", 0o644, "is readable by others (mode 0644): chmod 600 "),
        ("ssh-ed25519 AAAA", 0o600, "contains no private key: must begin with -----BEGIN ... PRIVATE KEY-----"),
    ],
)
def test_a_private_key_is_judged_before_it_is_used(box: OperatorFolder, content: str, mode: int, said: str) -> None:
    path = box.write("id", content)
    path.chmod(mode)
    if not said:
        box.load_group({"box": sample_entry(ssh_key=str(path))})
        return
    (line,) = box.refusal_lines(ssh_key=str(path))
    assert line.startswith(f"{box.inventory}: box.ssh_key: '{path}' is refused: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs", "{}", "--instance", "chta"], '--instance: there is no instance "chta"; did you mean "chat"?'),
        (["logs", "{}", "--limit", "bix"], 'there is no host or group "bix"; did you mean "box"?'),
        (["ssh", "{}", "--in", "vllm"], 'box: there is no environment or instance "vllm"; allowed: chat, code'),
        (["show", "models", "{}", "--remove", "name"], "'name' is refused: must be NAME@VERSION"),
        (["status", "{}", "--limit", "box,bix"], 'there is no host or group "bix"; did you mean "box"?'),
    ],
)
def test_a_verb_refuses_before_it_connects(
    box: OperatorFolder, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(connections, "connect_targets", lambda *_: pytest.fail("a host was reached"))
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {sample_entry()!r}}})\n")
    done = CliRunner().invoke(main, [word.format(box.inventory) for word in words])
    assert (done.exit_code, said in done.output) in ((1, True), (2, True)), done.output


def test_secrets_that_others_can_read_are_warned_of(box: OperatorFolder) -> None:
    key = box.write("chat.key", "0123456789abcdef\n")
    declared = sample_entry(instances=chat_instances(api_key_file="chat.key"))
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {declared!r}}})\n")
    for mode, warned in ((0o600, False), (0o640, True)):
        key.chmod(mode)
        done = CliRunner().invoke(main, ["validate", str(box.inventory)])
        assert done.exit_code == 0
        said = f"box: the API key in {key} is readable by others (mode 0640): chmod 600 {key}"
        assert (said in done.output) is warned
