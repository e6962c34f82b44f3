"""What clients of a host are answered: of its instances, of its gateway, and of what shares its weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rigwright.engines.request import InstanceRequest

PATIENCE = 60.0  # seconds for an answer that an engine computes
SOON = 20.0  # seconds for any other
# What is read of an answer, bytes: a taken-over instance may send as long as it is listened to. One token takes less
# than a tenth of it.
ANSWER = 65536


@dataclass(frozen=True)
class SurveyRequest:
    """A request."""

    name: str
    at: str
    """The path of a unix socket, or ADDRESS:PORT."""
    path: str
    method: str = "GET"
    headers: tuple[str, ...] = ()
    body: str = ""
    tls: bool = False
    key: str = ""
    """The file on the host whose key is sent; none is without."""
    group: str = ""
    """The group of the process that asks; it is nobody's."""
    source: str = ""
    """The host's own address that it comes from."""
    lane: str = ""
    """Of several requests of one lane, each is made when the one before is answered; of whoever has not answered one in
    time, nothing more is asked.
    """
    again: tuple[int, ...] = ()
    """Statuses that mean: later."""
    units: tuple[str, ...] = ()
    """Services that answer it: once none of them runs any more, it is not asked again."""
    limit: float = SOON
    """Seconds until the answer is whole, those of asking again among them."""
    single: float = PATIENCE
    """Seconds of these until one answer is whole, that of a busy one too."""
    connect: float = SOON
    """Seconds until there is a connection."""
    most: int = ANSWER
    """Bytes of its body that are read."""
    shown: int = ANSWER
    """Bytes of them that are told."""
    told: tuple[str, ...] = ()
    """Headers that are told, in small letters."""

    @staticmethod
    def from_engine_request(name: str, at: str, request: InstanceRequest, **more: object) -> SurveyRequest:
        """One that a kind of engine knows."""
        made = SurveyRequest(name, at, request.path, **more)  # type: ignore[arg-type]
        if request.body is None:
            return made
        return SurveyRequest(**{**asdict(made), "method": "POST", "body": json.dumps(request.body)})


@dataclass(frozen=True)
class FilePart:
    """Bytes of a file that an answer is compared with."""

    name: str
    path: str
    start: int
    length: int


@dataclass(frozen=True)
class SurveyAnswer:
    """What came."""

    status: int
    """0 for no answer."""
    body: str
    sha256: str
    """Of all of the body that was read."""
    headers: dict[str, str]
    certificate: str
    """In DER and base64; empty without TLS."""
    error: str
    """Why there is no answer; empty where there is one."""

    @property
    def describe(self) -> str:
        """What to tell people of it: its status, or why there is none."""
        return str(self.status or self.error)


@dataclass(frozen=True)
class RequestAnswers:
    """All answers by the name of the request, and hashes of parts of files."""

    answers: dict[str, SurveyAnswer]
    parts: dict[str, str]
