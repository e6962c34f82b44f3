"""The meaning of a server's refusal, and how a file is hashed behind its writer."""

import hashlib
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from roles.weights.host.answers import describe_http_error, is_transient, retry_delay
from roles.weights.host.hashing import CHUNK, GrowingFileHasher, digest_file
from tests.unit.polling import wait_until

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(100_000))
assert len(CONTENT) > 3 * CHUNK


@pytest.mark.parametrize(
    ("status", "code", "said", "do"),
    [
        (401, "GatedRepo", "gated, answer 401", "accept its terms"),
        (403, "GatedRepo", "gated, answer 403", "wait until access is granted"),
        (401, "RepoNotFound", "no such repository, or not without a token", "hub_token_file"),
        (401, "", "no such repository, or not without a token", "hub_token_file"),
        (404, "RepoNotFound", "no such repository", "check its name"),
        (404, "RevisionNotFound", "the commit is not there any more", "lock the model anew"),
        (404, "EntryNotFound", "the commit has no such file", "lock the model anew"),
        (404, "", "has it not, answer 404", "lock the model anew"),
        (403, "", "refused, answer 403", "hub_token_file"),
        (429, "", "too many requests", "name a peer or a mirror"),
        (503, "", "the server fails, answer 503", "deploy again later"),
        (418, "", "answer 418", ""),
    ],
)
def test_a_refusal_of_a_hub_is_one_sentence(status: int, code: str, said: str, do: str) -> None:
    text = describe_http_error(status, code, "Because.\n", hub=True)
    assert text.startswith(said)
    assert do in text
    assert "\n" not in text


@pytest.mark.parametrize("status", [401, 403, 404, 410, 418, 429, 500])
def test_a_refusal_of_another_server_does_not_mention_tokens(status: int) -> None:
    text = describe_http_error(status, "GatedRepo", "because")
    assert str(status) in text
    assert "token" not in text


@pytest.mark.parametrize(
    ("status", "soon"), [(401, False), (403, False), (404, False), (408, True), (429, True), (500, True), (503, True)]
)
def test_repeated_requests(status: int, soon: bool) -> None:
    assert is_transient(status) == soon


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 1), ("0", 1), ("7", 7), ("7200", 120), ("soon", 1), ("-5", 1), (formatdate(0), 1), (formatdate(4e9), 120)],
)
def test_a_server_s_wish_to_wait_is_followed_within_bounds(header: str, seconds: float) -> None:
    assert retry_delay(header, pause=1, most=120) == seconds


def test_a_date_to_wait_for_is_followed() -> None:
    assert 20 < retry_delay(formatdate(time.time() + 30), pause=1, most=120) <= 30


def followed(path: Path) -> tuple[GrowingFileHasher, list[int]]:
    seen: list[int] = []
    follower = GrowingFileHasher(path, seen.append)
    follower.start()
    return follower, seen


def end(follower: GrowingFileHasher) -> str:
    follower.finish()
    return follower.digest


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_that_grows_is_hashed_behind_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "x"
    follower, seen = followed(path)
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(CONTENT), CHUNK):
            file.write(CONTENT[at : at + CHUNK])
            wait_until(lambda at=at: seen and seen[-1] == min(at + CHUNK, len(CONTENT)))  # type: ignore[misc]
    assert end(follower) == sha256(CONTENT)
    assert sum(later - before for before, later in zip([0, *seen], seen, strict=False)) == len(CONTENT)


@pytest.mark.parametrize("how", ["removed", "replaced", "cut", "renamed"])
def test_a_file_that_begins_anew_is_hashed_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "x"
    follower, seen = followed(path)
    path.write_bytes(CONTENT[::-1])
    wait_until(lambda: seen and seen[-1] == len(CONTENT))
    if how == "removed":
        path.unlink()
        path.write_bytes(CONTENT)
    elif how == "replaced":
        (tmp_path / "y").write_bytes(CONTENT)
        (tmp_path / "y").replace(path)
    elif how == "cut":
        path.write_bytes(b"")
        wait_until(lambda: follower.digest == sha256(b""))
        path.write_bytes(CONTENT)
    else:
        path.rename(tmp_path / "y")
        follower.path = tmp_path / "y"
        assert end(follower) == sha256(CONTENT[::-1])
        return
    assert end(follower) == sha256(CONTENT)


def test_a_file_that_is_there_is_hashed_at_once(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    assert digest_file(tmp_path / "x") == sha256(CONTENT)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    (tmp_path / "y").symlink_to(tmp_path / "x")
    with pytest.raises(OSError, match="symbolic link"):
        digest_file(tmp_path / "y")


def test_no_thread_waits_for_an_unneeded_hash(tmp_path: Path) -> None:
    follower, _ = followed(tmp_path / "x")
    follower.abandon()
    follower.join(timeout=10)
    assert not follower.is_alive()
