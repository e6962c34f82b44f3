"""The local hub speaks the hub's protocol: shown with the hub's own client, and byte by byte where that hides it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from tests.stand_ins.hub import StandInHub

NAME = "org/name"
LARGE = bytes(range(256)) * 4000
FILES: dict[str, bytes | Path] = {"x.gguf": LARGE, "sub/config.json": b"{}"}


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    with StandInHub() as made:
        made.add_commit(NAME, FILES, licence="mit")
        yield made


def url(hub: StandInHub, path: str = "x.gguf", revision: str = "main") -> str:
    return hf_hub_url(NAME, path, revision=revision, endpoint=hub.url)


def fetch_from_hub(hub: StandInHub, folder: Path, path: str = "x.gguf", token: str | bool = False) -> bytes:
    made = hf_hub_download(NAME, path, revision="main", local_dir=folder, endpoint=hub.url, token=token)
    return Path(made).read_bytes()


def test_a_repository_is_described_with_sizes_and_hashes(hub: StandInHub):
    commit = hub.add_commit(NAME, FILES, licence="mit")
    info = HfApi(endpoint=hub.url, token=False).model_info(NAME, revision="main", files_metadata=True)
    assert (info.sha, info.gated, info.card_data and info.card_data.license) == (commit, False, "mit")
    large, small = info.siblings or []
    assert (large.rfilename, large.size) == ("x.gguf", len(LARGE))
    assert large.lfs and large.lfs.sha256 == hashlib.sha256(LARGE).hexdigest()
    # as `printf '{}' | git hash-object --stdin` prints it
    assert (small.lfs, small.size, small.blob_id) == (None, 2, "9e26dfeeb6e641a33dae4961196235bdb965b21b")


def test_its_files_are_listed_alone(hub: StandInHub):
    commit = hub.add_commit(NAME, FILES)
    found = HfApi(endpoint=hub.url, token=False).list_repo_tree(NAME, revision=commit, recursive=True)
    listed = {one.path: (one.size, one.lfs and one.lfs.sha256) for one in found if isinstance(one, RepoFile)}
    assert listed["x.gguf"] == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    assert {path: size for path, (size, _) in listed.items()} == {path: len(data) for path, data in FILES.items()}


def test_without_being_asked_for_them_sizes_are_left_out(hub: StandInHub):
    (large, _) = HfApi(endpoint=hub.url, token=False).model_info(NAME).siblings or []
    assert (large.size, large.lfs) == (None, None)


def test_files_are_had_large_ones_from_the_second_server(hub: StandInHub, tmp_path: Path):
    assert fetch_from_hub(hub, tmp_path) == LARGE
    assert fetch_from_hub(hub, tmp_path, "sub/config.json") == b"{}"
    assert hub.sent_bytes == len(LARGE) + 2
    assert [one.path.startswith("/cdn/") for one in hub.asked if one.method == "GET"] == [True, False]


def test_a_file_that_lies_on_disk_is_the_same_file(hub: StandInHub, tmp_path: Path):
    lies = tmp_path / "lies.gguf"
    lies.write_bytes(LARGE)
    assert hub.add_commit(NAME, {**FILES, "x.gguf": lies}) == hub.add_commit(NAME, FILES)
    hub.add_commit(NAME, {**FILES, "x.gguf": lies})
    assert fetch_from_hub(hub, tmp_path / "to") == LARGE


def test_a_branch_moves_and_its_commits_stay(hub: StandInHub):
    old = hub.add_commit(NAME, FILES)
    new = hub.add_commit(NAME, {"x.gguf": b"new"})
    assert old != new
    api = HfApi(endpoint=hub.url, token=False)
    assert [api.model_info(NAME, revision=one).sha for one in ("main", old, new)] == [new, old, new]
    assert get_hf_file_metadata(url(hub, revision=old), token=False).size == len(LARGE)
    hub.add_commit(NAME, FILES, branch="v1")
    assert api.model_info(NAME, revision="v1").sha == old


def test_what_is_not_there(hub: StandInHub):
    api = HfApi(endpoint=hub.url, token=False)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/other")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(NAME, revision="other")
    with pytest.raises(RemoteEntryNotFoundError):
        get_hf_file_metadata(url(hub, "other"), token=False)
    hub.remove_repository(NAME)
    with pytest.raises(RepositoryNotFoundError) as gone:
        api.model_info(NAME, token="somebody")
    assert gone.value.response.status_code == 404


def test_a_gated_repository_is_described_to_all_and_given_to_who_was_let_in(hub: StandInHub, tmp_path: Path):
    hub.add_commit(NAME, FILES, gated=True, token="let-in")
    assert HfApi(endpoint=hub.url, token=False).model_info(NAME).gated == "manual"
    refused = []
    for token in (False, "somebody"):
        with pytest.raises(GatedRepoError) as error:
            get_hf_file_metadata(url(hub), token=token)
        refused.append(error.value.response.status_code)
    assert refused == [401, 403]
    assert fetch_from_hub(hub, tmp_path, token="let-in") == LARGE
    on_cdn = [one.authorised for one in hub.asked if one.path.startswith("/cdn/")]
    assert on_cdn == [False], "the token left the hub"


def test_a_private_repository_is_seen_only_by_who_was_let_in(hub: StandInHub):
    hub.add_commit(NAME, FILES, private=True, token="let-in")
    with pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=hub.url, token=False).model_info(NAME)
    assert HfApi(endpoint=hub.url, token="let-in").model_info(NAME).private is True


def test_a_token_of_nobody(hub: StandInHub):
    hub.revoked.add("old")
    with pytest.raises(HfHubHTTPError) as error:
        HfApi(endpoint=hub.url, token="old").model_info(NAME)
    assert error.value.response.status_code == 401
    assert not isinstance(error.value, RepositoryNotFoundError)


@pytest.mark.parametrize("path", ["x.gguf", "sub/config.json"])
def test_parts_of_a_file(hub: StandInHub, path: str):
    whole = FILES[path]
    assert isinstance(whole, bytes)
    first = requests.get(url(hub, path), timeout=10)
    tag = first.headers["ETag"]

    def part(asked: str, **more: str) -> tuple[int, bytes, str]:
        answer = requests.get(url(hub, path), headers={"Range": asked, **more}, timeout=10)
        return answer.status_code, answer.content, answer.headers.get("Content-Range", "")

    size = len(whole)
    assert part("bytes=1-") == (206, whole[1:], f"bytes 1-{size - 1}/{size}")
    assert part("bytes=0-0") == (206, whole[:1], f"bytes 0-0/{size}")
    assert part("bytes=-1") == (206, whole[-1:], f"bytes {size - 1}-{size - 1}/{size}")
    assert part(f"bytes={size}-") == (416, b"", f"bytes */{size}")
    assert part("bytes=1-", **{"If-Range": tag})[0] == 206
    assert part("bytes=1-", **{"If-Range": '"other"'})[:2] == (200, whole)


@pytest.mark.parametrize("path", ["../x", "/abs", "a/../../b", "with space", "two\nlines", "ünder%20"])
def test_any_file_name_is_listed_as_it_is(hub: StandInHub, path: str):
    hub.add_commit(NAME, {path: b"content"})
    (one,) = HfApi(endpoint=hub.url, token=False).model_info(NAME, files_metadata=True).siblings or []
    assert one.rfilename == path
    answer = requests.Request("GET", "http://x").prepare()
    answer.url = f"{hub.url}/{NAME}/resolve/main/{quote(path, safe='')}"
    with requests.Session() as session:
        assert session.send(answer, timeout=10).content == b"content"
