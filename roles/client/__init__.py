"""A client on a host: a job there that sends requests to one place, and reports the answers as they come.

On the engine's own socket nothing of the network is measured. The job is a transient unit without rights, whose user
exists for as long as it does; systemd hands it the API key. It ends with the connection over which it gets its orders,
so lost requests load no server any more, and the results until then are here.

    place = instance_target(box.rig.roots, box.rig.accounts, box.rig.gateway, instance)
    with HostClient(box.target, place) as client:
        reply = client.send_request(InstanceRequest("/v1/models"), limit=5)
"""

from __future__ import annotations

import base64
import json
import secrets
import shlex
import threading
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from paramiko import Channel
from pydantic import TypeAdapter, ValidationError

from rigwright.engines.instance_request import InstanceRequest
from rigwright.host.script_output import free_text
from rigwright.operate.chat_reply import Reply
from rigwright.operate.client_target import ClientTarget
from rigwright.system_calls import filter_lines
from roles import root_shell

HOST = Path(__file__).with_name("host")
MODULES = ("http_exchange", "single_request", "json_orders")
"""Of the program, each after those that it imports; `json_orders` is called with those before it."""
MOST = 8 << 20  # bytes of an answer
LINE = 64 << 20  # bytes of what the job says in one line
WHOLE = 2 << 30  # bytes of all that it says
KEPT = 256 << 20  # bytes of it that are still unread
PIECE = 1 << 16  # bytes of complaints
BEGIN = 60.0  # seconds until it takes orders, and that its word may be late
BUSY = (429, 503)
"""Statuses by which a gateway reports that its queue is full, or that no instance is ready."""


class ClientJobLost(Exception):
    """The job, or the way to it, is gone; its output until then counts."""


class ClientJobFailed(Exception):
    """The job could not do its work."""


@dataclass(frozen=True)
class _JobMessage:
    value: object
    size: int


@dataclass(frozen=True)
class _OrderEnd:
    why: str


@cache
def render_client_program(*more: str) -> str:
    """The job's program, as it reads it in its first line.

    Args:
        more: Files of further modules, whose names are what orders call them.
    """
    paths = [*(HOST / f"{name}.py" for name in MODULES[:-1]), *map(Path, more), HOST / f"{MODULES[-1]}.py"]
    texts = {path.stem: path.read_text() for path in paths}
    return (
        "import sys, types\n"
        "package, made = 'roles.client.host', {}\n"
        "for end in range(1, 4):\n"
        "    name = '.'.join(package.split('.')[:end])\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    sys.modules[name].__path__ = []\n"
        f"for name, text in {texts!r}.items():\n"
        "    module = made[name] = sys.modules[f'{package}.{name}'] = types.ModuleType(f'{package}.{name}')\n"
        "    setattr(sys.modules[package], name, module)\n"
        "    exec(compile(text, f'{name}.py', 'exec', dont_inherit=True), module.__dict__)\n"
        "made.pop('json_orders').main(made)\n"
    )


def render_client_command(place: ClientTarget, unit: str) -> str:
    """The shell command that starts the job; no key and no prompt is in it."""
    families = "AF_UNIX" if place.at.startswith("/") else "AF_UNIX AF_INET AF_INET6"
    properties = {
        "DynamicUser": "yes",
        "SupplementaryGroups": " ".join(place.groups),
        "LoadCredential": f"api-key:{place.credential}" if place.credential else "",
        "PrivateNetwork": "yes" if place.at.startswith("/") else "no",
        "RestrictAddressFamilies": families,
        "PrivateDevices": "yes",
        "ProtectHome": "yes",
        "ProtectProc": "invisible",
        "CapabilityBoundingSet": "",
        "NoNewPrivileges": "yes",
        "RestrictNamespaces": "yes",
        "UMask": "0077",
        "MemoryMax": "4G",
        "LimitNOFILE": "65536",
    }
    start = "import sys,zlib,base64;exec(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())))"
    words = ["systemd-run", "--quiet", "--collect", "--pipe", "--wait", "--service-type=exec", f"--unit={unit}"]
    empty = ("CapabilityBoundingSet",)
    words += [f"--property={key}={value}" for key, value in properties.items() if value or key in empty]
    words += [f"--property={line}" for line in filter_lines()]
    return shlex.join([*words, "--", "/usr/bin/python3", "-I", "-S", "-B", "-c", start])


class HostClient:
    """A job that asks one place. Orders may be given from several threads."""

    def __init__(self, target: Any, place: ClientTarget, *more: Path) -> None:
        """It begins with the block.

        Args:
            target: pyinfra's connected host.
            place: The server that is asked.
            more: Files of further modules of the program (roles/client/host/json_orders.py), for `run_module`.
        """
        self.place = place
        self.unit = f"rw-client-{place.name}-{secrets.token_hex(4)}"
        self._target, self._more = target, tuple(map(str, more))
        self._channel: Channel | None = None
        self._orders: dict[int, Queue[_JobMessage | _OrderEnd | ClientJobLost]] = {0: Queue()}
        self._last = self._kept = 0
        self._lost = ""
        self._writing, self._counting = threading.Lock(), threading.Lock()

    def __enter__(self) -> HostClient:
        """Start the job.

        Raises:
            ClientJobLost: it does not begin.
        """
        first = asdict(self.place)
        told = {key: first[key] for key in ("at", "key", "authority", "tls_name")}
        told["credential"] = bool(self.place.credential)
        text = (
            base64.b64encode(zlib.compress(render_client_program(*self._more).encode()))
            + b"\n"
            + json.dumps(told).encode()
        )
        try:
            self._channel = root_shell.start_command(self._target, render_client_command(self.place, self.unit), BEGIN)
            threading.Thread(target=self._read_messages, args=(self._channel,), daemon=True).start()
            root_shell.send_bytes(self._channel, text + b"\n", root_shell.TransferAllowance(BEGIN))
        except root_shell.BROKEN as error:
            raise ClientJobLost(free_text(str(error)) or "the connection was lost") from None
        try:
            with closing(self._receive_messages(0, BEGIN)) as answers:
                next(answers)
        except (StopIteration, ClientJobLost, ClientJobFailed) as error:
            why = self._lost or free_text(str(error)) or "the job has sent no output"
            self.close()
            raise ClientJobLost(why) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the job, whatever it is doing; its waiting callers learn that it is lost."""
        if self._channel is None:
            return
        self._lost = self._lost or "the job was ended"
        self._channel.close()
        with suppress(root_shell.ConnectionGone):
            root_shell.run_command(
                self._target, f"systemctl stop {shlex.quote(self.unit)} 2>/dev/null; true", limit=BEGIN
            )

    def send_request(
        self, request: InstanceRequest, limit: float, *, most: int = MOST, again: Sequence[int] = (), model: bool = True
    ) -> Reply:
        """Make one request.

        Args:
            request: The request; the model is named in it.
            limit: Seconds until the answer is whole.
            most: Bytes of it.
            again: Statuses that mean: later.
            model: Whether the model is named.

        Raises:
            ClientJobLost: the job or the connection is gone.
            ClientJobFailed: the job could not.
        """
        body = None if request.body is None else {**({"model": self.place.model} if model else {}), **request.body}
        asked = {"path": request.path, "body": body, "limit": limit, "most": most, "again": list(again)}
        with closing(self.run_module("single_request", asked, Reply, limit)) as answers:
            reply: Reply | None = next(answers, None)
        if reply is None:
            raise ClientJobFailed("the job did not answer the request")
        return reply

    def run_module(
        self, work: str, asked: Mapping[str, object], shape: Any, limit: float
    ) -> Generator[Any, None, None]:
        """Have a module of the program work; yields what it says, as it says it.

        Args:
            work: The module's name.
            asked: The arguments of its `work`.
            shape: The type of what it says: dataclasses, dicts, lists and the like, judged strictly.
            limit: Seconds for each word of it.

        Raises:
            ClientJobLost: the job or the connection is gone, or silent.
            ClientJobFailed: it failed, or said something else.
        """
        adapter = TypeAdapter(shape)
        with self._writing:
            number = self._last = self._last + 1
            self._orders[number] = Queue()
            line = json.dumps({"id": number, "work": work, "asked": asked}).encode() + b"\n"
            try:
                if self._lost or self._channel is None:
                    raise ClientJobLost(self._lost or "the job does not run")
                root_shell.send_bytes(self._channel, line, root_shell.TransferAllowance(BEGIN))
            except root_shell.BROKEN as error:
                raise ClientJobLost(self._lost or free_text(str(error)) or "the connection was lost") from None
        with closing(self._receive_messages(number, limit + BEGIN)) as answers:
            for value in answers:
                try:
                    # from JSON, a list is a tuple and a set, too; nothing else is taken for something that it is not
                    judged = adapter.validate_json(json.dumps(value, allow_nan=False), strict=True)
                except (ValidationError, RecursionError, ValueError) as error:
                    raise ClientJobFailed(f"unexpected reply of the job: {free_text(str(error))}") from None
                yield judged

    def _receive_messages(self, number: int, limit: float) -> Generator[object, None, None]:
        queue = self._orders[number]
        try:
            while not isinstance(found := queue.get(timeout=limit), _OrderEnd):
                if isinstance(found, ClientJobLost):
                    raise found
                with self._counting:
                    self._kept -= found.size
                yield found.value
        except Empty:
            raise ClientJobLost(f"the job has been silent for {limit:.0f} s") from None
        finally:
            self._orders.pop(number, None)
        if found.why:
            raise ClientJobFailed(free_text(found.why))

    def _read_messages(self, channel: Channel) -> None:
        """Sort the job's messages by their subject, until its end."""
        why = ""
        try:
            channel.settimeout(None)
            source, taken = channel.makefile("rb"), 0
            while line := source.readline(LINE):
                taken += len(line)
                if not line.endswith(b"\n") or taken > WHOLE:
                    raise ValueError("the job sent more output than allowed")
                self._dispatch_message(json.loads(line), len(line))
            complaint = channel.makefile_stderr("rb").read(PIECE).decode(errors="replace").split("\n")
            why = next((line for line in reversed(complaint) if line.strip()), "") or "the job has ended"
        except root_shell.BROKEN as error:
            why = str(error) or "the connection was lost"
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            why = f"the job sent an invalid line: {error}"
        self._lost = self._lost or free_text(why)
        with self._writing:
            for queue in tuple(self._orders.values()):
                queue.put(ClientJobLost(self._lost))

    def _dispatch_message(self, found: dict[str, Any], size: int) -> None:
        queue = self._orders.get(found["id"])
        if queue is None:
            if not 0 <= found["id"] <= self._last:
                raise ValueError("unexpected reply")
            return  # the caller has ended it
        if "end" in found:
            queue.put(_OrderEnd(str(found["end"])))
            return
        with self._counting:
            self._kept += size
        if self._kept > KEPT:
            raise ValueError("unread output exceeded the limit")
        queue.put(_JobMessage(found["told"], size))
