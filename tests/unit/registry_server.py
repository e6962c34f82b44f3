"""A registry of container images on the loopback interface, with or without a token server."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lab.oci import Image
from tests.unit.file_server import Answer, FileServer, Handler, status, whole

TOKEN = "anybodys.token"  # given to everybody
REPOSITORY = "vllm/vllm-openai"


@dataclass
class Registry:
    """What a file server has of images."""

    files: FileServer
    guarded: bool = False
    """Whether it asks for a token, which its token server gives to anybody."""
    login: str = ""
    """`USER:PASSWORD` in base64, without which it gives none; empty for anybody."""

    def __post_init__(self) -> None:
        challenge = f'Bearer realm="{self.files.url}/token",service="reg",scope="ignored"'
        self.files.serve("v2/", _refused(challenge) if self.guarded else whole(b"{}"))
        self.files.serve(f"token?scope=repository%3A{REPOSITORY.replace('/', '%2F')}%3Apull&service=reg", self._token())

    def _token(self) -> Answer:
        answer = whole(json.dumps({"token": TOKEN, "expires_in": 300}).encode(), ("Content-Type", "application/json"))
        return _guarded(answer, f"Basic {self.login}") if self.login else answer

    def push(self, image: Image, tag: str, index: bytes = b"", repository: str = REPOSITORY) -> None:
        """Have an image under a tag, led to by an index where there is one."""
        kind = ("Content-Type", image.media_type)
        for digest, content in image.blobs.items():
            self._serve(f"v2/{repository}/blobs/sha256:{digest}", whole(content))
        self._serve(f"v2/{repository}/manifests/sha256:{image.digest}", whole(image.manifest, kind))
        self._serve(f"v2/{repository}/manifests/{tag}", whole(index or image.manifest, *([] if index else [kind])))

    def _serve(self, path: str, answer: Answer) -> None:
        self.files.serve(path, _guarded(answer, f"Bearer {TOKEN}") if self.guarded else answer)


def _refused(challenge: str) -> Answer:
    return lambda handler, start: handler.begin(401, 0, ("WWW-Authenticate", challenge))


def _guarded(answer: Answer, wanted: str) -> Answer:
    def judged(handler: Handler, start: int) -> None:
        (answer if handler.headers.get("Authorization") == wanted else status(401))(handler, start)

    return judged
