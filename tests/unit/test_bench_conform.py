"""What checks are compared with: questions that testinfra can be asked, about all that a rig has."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

from bench import conform
from tests.unit.samples import instance, rig


def test_each_instance_and_weight_is_asked_about() -> None:
    one, two = (conform.asks(rig(*(instance(name) for name in names))) for names in (("chat",), ("chat", "code")))
    text = str(two)
    assert len(two) > len(one) > 50
    assert "rigwright-chat.service" in text
    assert "rigwright-code.service" in text


def test_questions_are_asked_by_testinfra_itself(tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    host = SimpleNamespace(address="here", known_hosts=tmp_path / "known", key=tmp_path / "key")
    asked = [["says", "echo 1", "1"], ["owner", "/", "root"], ["mode", "/nothing", "755"]]
    words = [word.replace("ssh://root@here", "local://") for word in conform.peer(tmp_path, [host], asked)]
    (tmp_path / "asked1.json").write_text('{"local": [["says", "echo 1", "1"], ["owner", "/", "root"]]}')
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
