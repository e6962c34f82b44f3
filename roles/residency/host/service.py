"""The residency service: `python3 FOLDER CONFIG` serves the wake socket, `... CONFIG prove|start NAME` asks it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from . import observation
from .ledger import admit_clients, decide, estimates
from .ledger_file import ResidencyFiles, notify_operator
from .needs import load_seconds, measure_need, same_starts, share_of_host
from .state import (
    ASLEEP,
    AWAKE,
    HOST,
    LEAVING,
    STARTING,
    STOPPING,
    Action,
    InstanceSpec,
    LedgerState,
    MemoryDevice,
    Observation,
    UnitObserved,
    Waiter,
    refusal,
)
from .wake_states import publish_wake_states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAKE = re.compile(
    rb"wake ([a-z0-9][a-z0-9-]{0,47}) ([a-zA-Z0-9_.-]{1,64}) ([a-zA-Z0-9_.-]{1,80}) ([01])(?: ([0-9]{1,7}))?\r?\n"
)
PROVE = re.compile(rb"(prove|start) ([a-z0-9][a-z0-9-]{0,47})\n")
LINE_BYTES, LINE_S = 512, 5.0
BACKLOG = 4096  # as of the socket's unit
OLDEST_S = 3600.0  # the longest that a request waits, and the most that it may say to have waited
MOST_WAITERS = 512  # of one instance
LINES_S, INFORM_S = 5.0, 0.2  # between two lines to a client that waits, and between looks for it
# between two observations: while something is under way, while instances start and nothing else is, and otherwise
QUICK_S, START_S, SLOW_S = 0.1, 0.5, 1.0
LINK_S = 0.01  # between two looks for the link of an instance that starts
COUNT_S = 3.0  # the oldest count of requests that a stop follows; the gateway forgets after 10 s that one leaves


def notify_systemd(text: str) -> None:
    """Tell systemd of a state (sd_notify(3))."""
    if path := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, suppress(OSError):
            link.connect("\0" + path[1:] if path[0] == "@" else path)
            link.send(text.encode())
        # programs that it starts have nothing to tell
        del os.environ["NOTIFY_SOCKET"]


class Residency:
    """The service."""

    def __init__(self, config: str) -> None:
        self.declared = declared = observation.read_json(config)
        self.instances: dict[str, Any] = declared["instances"]
        self.units = {name: str(one["unit"]) for name, one in self.instances.items()}
        self.gateway = observation.GatewayCounters(declared["admin"])
        self.file = ResidencyFiles(f"{declared['folder']}/ledger.json", declared.get("metrics") or "")
        # an earlier process' ledger; observations correct it
        self.state = LedgerState(self.file.load())
        self.links: dict[str, asyncio.StreamWriter] = {}
        """Waiting client -> its connection."""
        self.lines: dict[str, float] = {}
        """Waiting client -> when it had its last line."""
        self.poke = asyncio.Event()
        self.number = 0
        self.cards = observation.CardSampler()
        self.records = observation.RecordReader()
        self.groups: dict[str, str] = {}
        """Instance -> its control group."""
        self.changed_at = 0.0
        """When a unit was last seen in another state than before."""
        self.seen = Observation(0.0)
        self.known: dict[str, InstanceSpec] = self.specs()

    # -- needs of instances ------------------------------------------------------------------------------------------

    def specs(self) -> dict[str, InstanceSpec]:
        """The specifications, with needs as measured where a record of the same instance says so."""
        return {name: self.spec_of(name, one) for name, one in self.instances.items()}

    def spec_of(self, name: str, one: Mapping[str, Any]) -> InstanceSpec:
        """One of them."""
        record = self.records.read(f"{self.declared['records']}/{name}.json")
        starts, sample, need = same_starts(record, str(one["fingerprint"])), self.cards.sample, {}
        for device, floor in one["floor"].items():
            card = sample.devices.get(device)
            total = card.total if card else share_of_host(str(self.declared["host_memory"]), device)
            limit, uuid = share_of_host(str(one["memory_max"]), device), sample.uuids.get(device, "")
            need[device] = measure_need(starts, device, uuid, int(floor), total, limit)
        seconds, residence = load_seconds(starts), float(one["residence"])
        numbers = (int(one["priority"]), float(one["idle"]), bool(one["keep_warm"]), residence, seconds)
        return InstanceSpec(need, *numbers, str(one["fingerprint"]))

    # -- observation --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Look at the box; runs beside the loop that serves clients."""
        entries = self.state.entries
        awaited = {one.instance for one in self.state.waiters}
        wanted = [name for name, one in self.instances.items() if name in awaited or one["keep_warm"]]
        asleep = [name for name in wanted if name not in entries or entries[name].phase == ASLEEP]
        names = {device for name in asleep for device in self.instances[name]["floor"]}
        if names - {HOST}:
            # nvidia-smi takes its time while systemd answers; a change of a unit makes its answer void
            self.cards.look(self.groups, self.changed_at)
        # without its marker there is no job, and systemd logs an error where it is asked for one that has gone
        jobs = [str(self.declared["job"])] if os.path.exists(self.declared["activating"]) else []
        units, self.groups = observation.show_units({**self.units, **{job: job for job in jobs}})
        job_states = [units.pop(job).state for job in jobs if job in units]
        units = self.with_links(units)
        is_activating = any(state in ("active", "activating", "deactivating") for state in job_states)
        if units != self.seen.units:
            self.changed_at = observation.monotonic()
        devices: dict[str, MemoryDevice] = {}
        if names - {HOST}:
            devices |= self.cards.look(self.groups, self.changed_at)
        if HOST in names and (host := observation.read_host(self.groups, str(self.declared["host_memory"]))):
            devices[HOST] = host
        by_hand = {name for name in self.units if os.path.exists(f"{self.declared['stopped']}/{name}")}
        # last: until a stop, the gateway must not forget that an instance leaves, which it hears after this moment
        now = observation.monotonic()
        leaving = [name for name, one in entries.items() if one.phase in (LEAVING, STOPPING)]
        requests, used = self.gateway.look(leaving, self.units)
        return Observation(
            now=now,
            units=units,
            devices=devices,
            requests=requests,
            used=used,
            stopped_by_hand=frozenset(by_hand),
            # a killed activation leaves a marker without its job
            paused=is_activating and os.path.exists(self.declared["activating"]),
        )

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Observe, decide, answer clients, write down, carry out; for ever."""
        loop = asyncio.get_running_loop()
        self.cards.notify = lambda: self.look_again(loop)
        while True:
            self.poke.clear()
            try:
                changed = await self.step()
            except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                # a systemd that is too busy
                notify_operator(f"not looked: {error}")
                changed = False
                await asyncio.sleep(SLOW_S)
            await self.pause(0.0 if changed else self.interval())

    def interval(self) -> float:
        """Seconds until the next observation. Each takes time of systemd's and of a processor that loads a model."""
        phases = {name: one.phase for name, one in self.state.entries.items()}
        if any(phases.get(one.instance) != STARTING for one in self.state.waiters):
            return QUICK_S
        if {LEAVING, STOPPING} & {*phases.values()}:
            return QUICK_S
        return START_S if STARTING in phases.values() else SLOW_S

    async def pause(self, seconds: float) -> None:
        """Wait so long, until there is a reason to observe, or until an instance that starts has its link."""
        until = observation.monotonic() + seconds
        while (left := until - observation.monotonic()) > 0 and not self.poke.is_set():
            starting = [name for name, one in self.state.entries.items() if one.phase == STARTING]
            linked = [name for name in starting if self.is_linked(name)]
            for name in linked:
                await self.send_on(name)
            if linked:
                return
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.poke.wait(), min(left, LINK_S) if starting else left)

    def is_linked(self, name: str) -> bool:
        """Whether an instance is ready. Until readiness opens its folder, a link of an earlier start leads nowhere."""
        return os.path.exists(f"{self.declared['links']}/{name}")

    def with_links(self, units: Mapping[str, UnitObserved]) -> dict[str, UnitObserved]:
        """Units, of which one that has its link has started, whatever its start has still to do."""
        ready = [name for name, unit in units.items() if unit.state == "activating" and self.is_linked(name)]
        return {**units, **dict.fromkeys(ready, UnitObserved("active"))}

    async def send_on(self, name: str) -> None:
        """Send the clients of an instance on, before the next observation."""
        before = {one: entry.phase for one, entry in self.state.entries.items()}
        seen = replace(self.seen, now=observation.monotonic())
        self.state, actions = admit_clients(self.known, self.state, seen, name)
        self.report(before)
        await self.carry_out_all(actions)

    def look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop observe at once; called by other threads."""
        with suppress(RuntimeError):  # a loop that has ended
            loop.call_soon_threadsafe(self.poke.set)

    async def step(self) -> bool:
        """One round; whether it changed a phase."""
        seen = await asyncio.to_thread(self.observe)
        # links may have come since
        self.seen = replace(seen, units=self.with_links(seen.units))
        self.known = specs = self.specs()
        before = {name: one.phase for name, one in self.state.entries.items()}
        # clients that came or went meanwhile count: nothing is awaited until the decision is in place
        self.state, actions = decide(specs, self.state, self.seen, float(self.declared["drain"]))
        after = {name: one.phase for name, one in self.state.entries.items()}
        self.report(before)
        await self.carry_out_all(actions)
        return before != after

    async def carry_out_all(self, actions: list[Action]) -> None:
        """Answer clients, write the ledger down, and carry out the rest."""
        answers = [one for one in actions if one.kind == "answer"]
        # a crash between the two: systemd knows that their instances run, and not that one runs as a proof only
        if any(one.sleep_next for one in self.state.entries.values()):
            await asyncio.to_thread(self.file.save, self.state)
        for one in answers:
            self.answer(one.target, one.text)
        await asyncio.to_thread(self.file.save, self.state)
        # a stop follows the count of requests at once
        for one in sorted((one for one in actions if one not in answers), key=lambda one: one.kind != "stop"):
            await self.carry_out(one)

    async def inform(self) -> None:
        """Tell clients that wait so, also while systemd or nvidia-smi takes its time; for ever."""
        reported = ""
        while True:
            now = observation.monotonic()
            due = [one.id for one in self.state.waiters if now - self.lines.get(one.id, -LINES_S) >= LINES_S]
            lines: dict[str, str] = {}
            try:
                lines = estimates(self.known, self.state, now, self.seen) if due else {}
            except Exception as error:
                text = f"nothing is estimated: {type(error).__name__}: {error}"
                if text != reported:
                    notify_operator(text)
                reported = text
            for client in due:
                self.lines[client] = now
                self.tell(client, lines.get(client, f"waiting {len(self.state.waiters)} -"))
            await asyncio.sleep(INFORM_S)

    def report(self, before: Mapping[str, str]) -> None:
        """Tell the gateway of instances that do not sleep, and the journal of changes of phases."""
        publish_wake_states(str(self.declared["states"]), self.state, self.seen)
        for name, one in self.state.entries.items():
            if before.get(name, ASLEEP) != one.phase and one.phase in (STARTING, AWAKE, STOPPING, ASLEEP):
                failed = f": {one.reason}" if one.reason and one.phase in (STOPPING, ASLEEP) else ""
                notify_operator(f"{name} is {one.phase}{failed}")

    async def carry_out(self, one: Action) -> None:
        """Carry out an action; the next observation shows one that failed."""
        if one.kind == "stop":
            await self.stop(one.target)
        elif one.kind == "start":
            await asyncio.to_thread(self.order, "start", self.units[one.target])
        else:
            await asyncio.to_thread(self.gateway.ask, "POST", f"/{one.kind}/{one.target}")

    async def stop(self, name: str) -> None:
        """Stop an instance while the gateway still knows that it leaves; else the next observation decides anew."""
        if observation.monotonic() - self.seen.now > COUNT_S:
            return
        ordering = asyncio.create_task(asyncio.to_thread(self.order, "stop", self.units[name]))
        while not (await asyncio.wait({ordering}, timeout=COUNT_S))[0]:
            await asyncio.to_thread(self.gateway.ask, "POST", f"/leave/{name}")

    @staticmethod
    def order(verb: str, unit: str) -> None:
        """Give systemd an order."""
        # starts on demand count for no limit; one that an earlier limit has refused is repeated
        orders = [[verb, "--no-block"], *([["reset-failed"]] if verb == "start" else [])]
        for words in orders:
            with suppress(OSError, subprocess.SubprocessError):
                command = ["systemctl", *words, unit]
                subprocess.run(command, capture_output=True, timeout=observation.SYSTEMCTL_S, check=False)

    # -- clients ------------------------------------------------------------------------------------------------------

    def answer(self, client: str, line: str) -> None:
        """Send a client the outcome."""
        self.tell(client, line)
        if writer := self.links.pop(client, None):
            writer.close()
        self.lines.pop(client, None)

    def tell(self, client: str, line: str) -> None:
        """Send a line to a client that may have gone."""
        if writer := self.links.get(client):
            with suppress(OSError, RuntimeError):
                writer.write(f"{line[: LINE_BYTES - 1]}\n".encode("ascii", "replace"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a line in, lines out; its end withdraws the request."""
        line = b""
        with suppress(OSError, ValueError, asyncio.TimeoutError):
            line = await asyncio.wait_for(reader.readline(), LINE_S)
        wake, prove = WAKE.fullmatch(line), PROVE.fullmatch(line)
        name = (wake[1] if wake else prove[2] if prove else b"").decode()
        if prove and peer_user(writer) != 0:
            name = ""
        text = ""
        if name not in self.instances:
            text = refusal("forbidden", 60, "it is no instance on demand")
        elif sum(one.instance == name for one in self.state.waiters) >= MOST_WAITERS:
            text = refusal("busy", 10, "too many requests wait for this model")
        if text:
            with suppress(OSError, RuntimeError):
                writer.write(f"{text}\n".encode())
            writer.close()
            return
        self.number += 1
        client = f"{self.number:09d}"
        may_evict = bool(prove) or (wake is not None and wake[4] == b"1")
        proof = prove is not None and prove[1] == b"prove"
        if prove and name in self.state.entries:
            # an operator does not wait for the next try
            self.state.entries[name].retry_at = 0.0
        self.links[client] = writer
        # a request that has waited before, and comes again after a restart of this service, keeps its place
        age = min(int(wake[5] or 0) / 1000, OLDEST_S) if wake else 0.0
        since = observation.monotonic() - age
        self.state.waiters.append(Waiter(client, name, since, may_evict=may_evict, proof=proof))
        self.poke.set()
        with suppress(OSError):
            # a client only reads: the next thing that comes of it is its end
            await reader.read(1)
        self.withdraw(client)

    def withdraw(self, client: str) -> None:
        """A client has gone."""
        self.state.waiters = [one for one in self.state.waiters if one.id != client]
        self.lines.pop(client, None)
        if writer := self.links.pop(client, None):
            writer.close()
            self.poke.set()


def peer_user(writer: asyncio.StreamWriter) -> int:
    """The user of the process at the other end."""
    link = writer.get_extra_info("socket")
    return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


async def serve_for_ever(config: str) -> None:
    """Serve the socket that systemd hands over."""
    service = Residency(config)
    link = socket.socket(fileno=3)
    link.setblocking(False)
    server = await asyncio.start_unix_server(service.serve, sock=link, limit=LINE_BYTES, backlog=BACKLOG)
    notify_systemd("READY=1")
    async with server:
        informing = asyncio.create_task(service.inform())
        await service.run()
        informing.cancel()


def ask(config: str, verb: str, name: str) -> int:
    """Wake an instance: `start` it, or `prove` it for an activation, after which it sleeps again."""
    path = observation.read_json(config)["socket"]
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        link.sendall(f"{verb} {name}\n".encode())
        for line in link.makefile("r", encoding="ascii", errors="replace"):
            words = line.split()
            if words[:1] == ["ready"]:
                return 0
            if words[:1] == ["refused"]:
                print(f"{name}: {' '.join(words[3:])}", flush=True)
                return 1
    print(f"{name}: the residency service ended", flush=True)
    return 1


def main(words: list[str]) -> int:
    """Serve, or ask a service for a proof."""
    if len(words) == 3 and words[1] in ("prove", "start"):
        return ask(words[0], words[1], words[2])
    if os.environ.get("LISTEN_FDS") != "1":
        print("this is started by systemd, with its socket", file=sys.stderr)
        return 1
    asyncio.run(serve_for_ever(words[0]))
    return 0
