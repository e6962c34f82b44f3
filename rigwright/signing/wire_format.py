"""SSH's wire format (RFC 4251, section 5), as far as signatures and public keys need it."""

from __future__ import annotations

from rigwright.signing.refusals import SignatureRefused


class WireReader:
    """Reads fields from bytes; missing and remaining bytes are refused."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._at = data, 0
        self._name = name

    def read_exactly(self, length: int) -> bytes:
        """The next bytes."""
        part = self._data[self._at : self._at + length]
        if len(part) < length:
            raise SignatureRefused("malformed", f"{self._name} is truncated")
        self._at += length
        return part

    def read_number(self) -> int:
        """A number of 32 bits."""
        return int.from_bytes(self.read_exactly(4), "big")

    def read_bytes(self) -> bytes:
        """Bytes with their length before them."""
        return self.read_exactly(self.read_number())

    def read_text(self) -> str:
        """Printable ASCII with its length before it."""
        value = self.read_bytes()
        if not value.isascii() or not value.decode("ascii").isprintable():
            raise SignatureRefused("malformed", f"{self._name} contains a field that is not plain text")
        return value.decode("ascii")

    def require_end(self) -> None:
        """Refuse further bytes."""
        if self._at < len(self._data):
            raise SignatureRefused("malformed", f"{self._name} has additional bytes")
