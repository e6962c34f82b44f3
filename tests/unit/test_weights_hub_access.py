"""The answers of a hub to each client: tokens of the program that brings weights, and the message for a missing one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stand_ins.hub.faults import StalledAnswer
from tests.unit.file_server import complete_file, redirect_to
from tests.unit.polling import wait_until
from tests.unit.weights_world import (
    CONTENT,
    REPOSITORY,
    WeightsFixture,
    client_python,
    make_weights_fixture,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WeightsFixture]:
    with make_weights_fixture(tmp_path, private=True) as made:
        made.token = True
        yield made


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[WeightsFixture]:
    """One whose hub speaks plain http."""
    with make_weights_fixture(tmp_path) as made:
        yield made


def give_token(host: WeightsFixture, token: str) -> None:
    credentials = host.folder / "credentials"
    credentials.mkdir()
    (credentials / "hub-token").write_text(f"{token}\n")
    host.environment["CREDENTIALS_DIRECTORY"] = str(credentials)


def readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def has(path: Path) -> bool:
    return b"verysecret" in path.read_bytes()


@pytest.mark.parametrize("client", [pytest.param(True, marks=pytest.mark.all_only), False], ids=["client", "plain"])
@pytest.mark.parametrize(
    ("how", "token", "text"),
    [
        ({"gated": True}, "", "gated, answer 401 (Access to model org/name is restricted"),
        ({"gated": True, "token": "right"}, "wrong", "gated, answer 403 (Access"),
        ({"private": True, "token": "right"}, "", "no such repository, or not without a token, answer 401"),
        ({"private": True, "token": "right"}, "wrong", "no such repository, or not without a token, answer 404"),
    ],
    ids=["no token", "not granted", "private", "private for others"],
)
def test_a_refusal_is_one_sentence_with_what_to_do(
    host: WeightsFixture, how: dict[str, object], token: str, text: str, client: bool
) -> None:
    host.python = client_python() if client else ""
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT}, **how)
    if token:
        give_token(host, token)
    done = host.run_fetch(wanted)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert text in last
    assert "hub_token_file" in last
    assert not host.is_fetched(one)
    # plain HTTP would get the same answer
    assert not [asked for asked in host.hub.asked if asked.method == "GET"] or not client


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_a_token_opens_the_hub_and_stays_secret(host: WeightsFixture, client: bool) -> None:
    host.python = client_python() if client else ""
    (one,) = wanted = host.commit_files({"x.gguf": CONTENT * 5}, gated=True, token="hf_verysecret")
    give_token(host, "hf_verysecret")
    stall = host.hub.add_fault(StalledAnswer(100_000), REPOSITORY, "x.gguf", times=1)
    with host.start_fetch(wanted) as process:
        wait_until(stall.met.is_set)
        arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)]
        assert any(b"rigwright_weights" in one for one in arguments)
        assert not any(b"verysecret" in one for one in arguments)
        host.hub.clear_faults()  # a stalled answer is cut off
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "verysecret" not in said
    assert host.is_fetched(one)
    # the second server is another host to the token
    assert all(asked.authorised != asked.path.startswith("/cdn/") for asked in host.hub.asked)
    leaked = [path for path in host.folder.rglob("*") if path.is_file() and path.name != "hub-token" and has(path)]
    assert leaked == []


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_a_hub_that_the_token_is_not_for_does_not_see_it(host: WeightsFixture, client: bool) -> None:
    host.python, host.token = client_python() if client else "", False
    give_token(host, "hf_verysecret")
    wanted = host.commit_files({"x.gguf": CONTENT})
    host.fetch(wanted)
    assert host.hub.asked
    assert not any(asked.authorised for asked in host.hub.asked)


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
def test_it_is_not_sent_over_plain_http(plain: WeightsFixture, client: bool) -> None:
    plain.python, plain.token = client_python() if client else "", True
    give_token(plain, "hf_verysecret")
    plain.run_fetch(plain.commit_files({"x.gguf": CONTENT}, gated=True, token="hf_verysecret"))
    assert not any(asked.authorised for asked in plain.hub.asked)


def test_mirrors_and_peers_do_not_see_the_token(host: WeightsFixture) -> None:
    give_token(host, "hf_verysecret")
    host.server.serve("real", complete_file(CONTENT))
    host.fetch_file(host.server.serve("m", redirect_to("real")))
    assert [one.authorization for one in host.server.asked] == [None, None]


def test_another_person_s_settings_of_the_client_are_not_followed(host: WeightsFixture) -> None:
    host.environment |= {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_TOKEN": "hf_theirs", "HF_HUB_OFFLINE": "1"}
    wanted = host.commit_files({"x.gguf": CONTENT})
    done = host.fetch(wanted)
    assert "plain HTTP" not in done.stdout
    assert not any(asked.authorised for asked in host.hub.asked)
