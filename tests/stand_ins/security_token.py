"""A stand-in ssh-agent with one key of a security token (sk-ssh-ed25519@openssh.com), which it holds in software.

It speaks the protocol of ssh-agent (draft-miller-ssh-agent), and signs as a token does (OpenSSH's PROTOCOL.u2f):
Ed25519 over SHA256(application), flags, counter and SHA256(message).
"""

from __future__ import annotations

import base64
import hashlib
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KEY_TYPE = "sk-ssh-ed25519@openssh.com"
PRESENT, VERIFIED = 1, 4  # flags of a signature: a touch, and a PIN or a fingerprint
FAILURE, IDENTITIES, IDENTITIES_ANSWER, SIGN, SIGN_RESPONSE = 5, 11, 12, 13, 14  # messages of the protocol


def encode_field(data: bytes) -> bytes:
    """Bytes with their length before them."""
    return len(data).to_bytes(4, "big") + data


def split_field(data: bytes) -> tuple[bytes, bytes]:
    """The first field, and the bytes after it."""
    end = 4 + int.from_bytes(data[:4], "big")
    return data[4:end], data[end:]


class SoftwareToken:
    """A key, and the flags that its signatures have."""

    def __init__(self, name: str, application: str = "ssh:", flags: int = PRESENT) -> None:
        self.name, self.application, self.flags, self.counter = name, application.encode(), flags, 0
        self._key = Ed25519PrivateKey.generate()

    @property
    def blob(self) -> bytes:
        """The public key in SSH's wire format."""
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return b"".join(map(encode_field, (KEY_TYPE.encode(), public, self.application)))

    @property
    def line(self) -> str:
        """The line of its .pub file."""
        return f"{KEY_TYPE} {base64.b64encode(self.blob).decode()} {self.name}"

    def sign(self, message: bytes) -> bytes:
        """A signature in SSH's wire format."""
        self.counter += 1
        end = bytes([self.flags]) + self.counter.to_bytes(4, "big")
        application, digest = (hashlib.sha256(one).digest() for one in (self.application, message))
        signature = self._key.sign(application + end + digest)
        return encode_field(KEY_TYPE.encode()) + encode_field(signature) + end

    def answer(self, request: bytes) -> bytes:
        """The answer to a message of the agent's protocol."""
        kind, rest = request[0], request[1:]
        if kind == IDENTITIES:
            row = encode_field(self.blob) + encode_field(self.name.encode())
            return bytes([IDENTITIES_ANSWER]) + (1).to_bytes(4, "big") + row
        if kind == SIGN:
            key, rest = split_field(rest)
            message, _ = split_field(rest)
            if key == self.blob:
                return bytes([SIGN_RESPONSE]) + encode_field(self.sign(message))
        return bytes([FAILURE])


class _AgentHandler(socketserver.StreamRequestHandler):
    """One client of the agent."""

    token: SoftwareToken

    def handle(self) -> None:
        """Answer its messages."""
        while length := self.rfile.read(4):
            answer = self.token.answer(self.rfile.read(int.from_bytes(length, "big")))
            self.wfile.write(encode_field(answer))


@contextmanager
def token_agent(token: SoftwareToken) -> Iterator[str]:
    """An agent with a token: the path of its socket, for SSH_AUTH_SOCK."""
    handler = type("TokenHandler", (_AgentHandler,), {"token": token})
    with TemporaryDirectory() as folder:
        path = f"{folder}/agent"
        with socketserver.ThreadingUnixStreamServer(path, handler) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield path
            finally:
                server.shutdown()
