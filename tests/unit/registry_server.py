"""A registry of container images on the loopback interface, with or without a token server."""

import json
from dataclasses import dataclass

from tests.stand_ins.oci_images import OCIImage
from tests.unit.file_server import AnswerHandler, FileServerHandler, LoopbackFileServer, complete_file, error_status

TOKEN = "anybodys.token"  # given to everybody
REPOSITORY = "vllm/vllm-openai"


@dataclass
class LoopbackRegistry:
    """A file server's image files."""

    files: LoopbackFileServer
    guarded: bool = False
    """Whether it asks for a token, which its token server gives to anybody."""
    login: str = ""
    """`USER:PASSWORD` in base64, without which it gives none; empty for anybody."""

    def __post_init__(self) -> None:
        challenge = f'Bearer realm="{self.files.url}/token",service="reg",scope="ignored"'
        self.files.serve("v2/", _challenge_answer(challenge) if self.guarded else complete_file(b"{}"))
        self.files.serve(
            f"token?scope=repository%3A{REPOSITORY.replace('/', '%2F')}%3Apull&service=reg", self._token_answer()
        )

    def _token_answer(self) -> AnswerHandler:
        answer = complete_file(
            json.dumps({"token": TOKEN, "expires_in": 300}).encode(), ("Content-Type", "application/json")
        )
        return _require_login(answer, f"Basic {self.login}") if self.login else answer

    def push_image(self, image: OCIImage, tag: str, index: bytes = b"", repository: str = REPOSITORY) -> None:
        """Have an image under a tag, led to by an index where there is one."""
        kind = ("Content-Type", image.media_type)
        for digest, content in image.blobs.items():
            self._serve(f"v2/{repository}/blobs/sha256:{digest}", complete_file(content))
        self._serve(f"v2/{repository}/manifests/sha256:{image.manifest_digest}", complete_file(image.manifest, kind))
        self._serve(
            f"v2/{repository}/manifests/{tag}", complete_file(index or image.manifest, *([] if index else [kind]))
        )

    def _serve(self, path: str, answer: AnswerHandler) -> None:
        self.files.serve(path, _require_login(answer, f"Bearer {TOKEN}") if self.guarded else answer)


def _challenge_answer(challenge: str) -> AnswerHandler:
    return lambda handler, start: handler.send_head(401, 0, ("WWW-Authenticate", challenge))


def _require_login(answer: AnswerHandler, wanted: str) -> AnswerHandler:
    def check_token(handler: FileServerHandler, start: int) -> None:
        (answer if handler.headers.get("Authorization") == wanted else error_status(401))(handler, start)

    return check_token
