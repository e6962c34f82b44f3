"""The hub's own client, in a process of its own: `PYTHON -I hub.py REQUEST`, by a Python that has huggingface_hub.

REQUEST is JSON: endpoint ("" for the client's own), repository, revision, file, sha256, size, redirects (origins that
it may lead to although they are not public), and folder ("" when only the address is asked for). Every printed line is
JSON: `url`, `xet`, `path`, or what ended it: `status` with `code` and `message`, `other` (the hub's SHA-256 or size are
not the locked ones), `full`, or `error`.
"""

from __future__ import annotations

import errno
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, set_client_factory
from huggingface_hub.errors import HfHubHTTPError


def load_sibling(name: str) -> Any:
    """A file of this folder: with -I it is not looked into, and its names are those of the standard library."""
    path = Path(__file__).with_name(f"{name}.py")
    module = ModuleType(name)
    exec(compile(path.read_text(), path, "exec"), vars(module))  # noqa: S102 (it is ours, as this one is)
    return module


reach = load_sibling("reach")


def print_json_line(**said: Any) -> None:
    """One line for the program that started this one."""
    print(json.dumps(said), flush=True)


def main(request: dict[str, Any]) -> int:
    """Say where the file is, and fetch it if a folder is named."""
    place = {"repo_id": request["repository"], "filename": request["file"], "revision": request["revision"]}
    endpoint = request["endpoint"] or None
    url = hf_hub_url(**place, endpoint=endpoint)
    print_json_line(url=url)
    if not request["folder"]:
        return 0
    # with the client's own 10 MiB, a slow line looks like one that stands still, and what is cut off is lost
    constants.DOWNLOAD_CHUNK_SIZE = 1 << 18
    own = reach.origin_of(url)
    declared = frozenset((own, *request["redirects"]))

    def judge(asked: httpx2.Request) -> None:
        """Hold a request, and each that a redirect makes of it, to where it may go, and the token to its own origin."""
        reach.redirect_options(str(asked.url), url, declared)
        if reach.origin_of(str(asked.url)) != own or asked.url.scheme != "https":
            asked.headers.pop("Authorization", None)

    # as its own, but for the judge: its requests have their own time limits
    set_client_factory(lambda: httpx2.Client(event_hooks={"request": [judge]}, follow_redirects=True, timeout=None))
    with reach.only_public(declared):
        return fetch_file(request, place, url)


def fetch_file(request: dict[str, Any], place: dict[str, Any], url: str) -> int:
    """Fetch the file into its folder, and say how that went."""
    endpoint = request["endpoint"] or None
    try:
        known = get_hf_file_metadata(url, endpoint=endpoint)
        if other := describe_hub_difference(request, known.etag, known.size):
            print_json_line(other=other)
            return 1
        print_json_line(xet=known.xet_file_data is not None and not constants.HF_HUB_DISABLE_XET)
        print_json_line(path=hf_hub_download(**place, endpoint=endpoint, local_dir=request["folder"]))
    except HfHubHTTPError as error:
        headers = error.response.headers
        print_json_line(
            status=error.response.status_code,
            code=headers.get("X-Error-Code", ""),
            message=headers.get("X-Error-Message", ""),
        )
        return 1
    except OSError as error:
        print_json_line(**{"full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "error": first_line(error)})
        return 1
    return 0


def describe_hub_difference(request: dict[str, Any], etag: str | None, size: int | None) -> str:
    """The hub's file where that is not the locked one; a small file's ETag is no SHA-256."""
    if etag and re.fullmatch("[0-9a-f]{64}", etag) and etag != request["sha256"]:
        return f"SHA-256 {etag}"
    return f"{size} bytes" if size is not None and size != request["size"] else ""


def first_line(error: Exception) -> str:
    """An error in one line."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


if __name__ == "__main__":
    try:
        sys.exit(main(json.loads(sys.argv[1])))
    except Exception as error:
        # of its many libraries each has its own; the next way to the file is tried
        print_json_line(error=first_line(error))
        sys.exit(1)
