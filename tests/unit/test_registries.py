"""Logins of registries: refused where they would be readable on their way, and never repeated."""

import base64

import pytest

from rigwright.model.download_origins import load_login
from tests.unit.samples import OperatorFolder

LOGIN = base64.b64encode(b"robot:password-0123").decode()
LAN = {"lan": {"login_file": "login"}}
MIRRORS = {"store": ["http://127.0.0.1:8000/files/"], "lan": ["https://registry.lan"]}


@pytest.fixture
def box(box: OperatorFolder) -> OperatorFolder:
    (box.folder / "login").write_text(f"{LOGIN}\n")
    return box


def test_a_login_is_read_as_docker_writes_it(box: OperatorFolder) -> None:
    assert load_login(str(box.folder / "login")) == LOGIN


@pytest.mark.parametrize(
    "text", ["", "robot:password-0123", "A" * 20, base64.b64encode(b"robot" * 5).decode(), base64.b64encode(b":x" * 9)]
)
def test_an_invalid_login_is_refused_without_repeating_it(box: OperatorFolder, text: str | bytes) -> None:
    (box.folder / "login").write_bytes(text if isinstance(text, bytes) else text.encode())
    (line,) = box.refusal_lines(registries=LAN, mirrors=MIRRORS)
    assert line.startswith(f"{box.inventory}: box.registries.lan.login_file: {box.folder}/login contains no login")
    assert "password" not in line


def test_a_login_for_a_registry_over_plain_http_is_refused(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(registries=LAN, mirrors={**MIRRORS, "lan": ["http://registry.lan"]})
    assert "box.registries.lan: http://registry.lan is plain http, which sends the login" in line


def test_a_login_for_nowhere_is_refused(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(registries=LAN, mirrors={"store": MIRRORS["store"]})
    assert "box.registries.lan: its address is unknown: add it to mirrors" in line


def test_a_registry_that_everybody_knows_needs_no_mirror(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(registries={"ghcr": {"login_file": "gone"}})
    assert "box.registries.ghcr.login_file" in line
