"""Which sleeping instances may start now, and which others leave their memory to them."""

from __future__ import annotations

from collections.abc import Mapping

from .state import (
    ASLEEP,
    AWAKE,
    HOST,
    LEAVING,
    LOADED,
    STARTING,
    STOPPING,
    Entry,
    InstanceSpec,
    LedgerState,
    Observation,
    Waiter,
    refusal,
)

MIB = 1 << 20
PATIENCE_S = 10.0
"""A driver may take so long to give back the memory of a process that has ended: until then nothing is refused."""
REFUSED_S = 30.0
ARRIVAL_S = 2.0
"""A client that was just sent to an instance is among its requests after this."""
UNKNOWN_S = 60.0
"""nvidia-smi may take so long to answer on a busy box."""


def describe_device(name: str) -> str:
    """A device in a message."""
    return "the host" if name == HOST else f"card {name}"


class Admission:
    """One pass over the queue, oldest model first. A model that waits for memory keeps younger ones from taking it."""

    def __init__(self, specs: Mapping[str, InstanceSpec], state: LedgerState, seen: Observation) -> None:
        self.specs, self.state, self.seen = specs, state, seen
        self.starts: list[str] = []
        self.victims: set[str] = set()
        """Instances that have to leave."""
        self.proof_victims: set[str] = set()
        """Those of them that an activation waits for."""
        self.refusals: list[tuple[Waiter, str]] = []
        self.free = {name: self._free_bytes(name) for name in seen.devices}
        """Device -> bytes that neither instances nor other processes have; less those that earlier models wait for."""
        self.coming = {
            name: self.free[name] + sum(self.reserved(one, name) for one in self._in_phase(STOPPING))
            for name in seen.devices
        }
        """The same with the memory of instances that are about to give it back."""

    def _in_phase(self, *phases: str) -> list[str]:
        return [name for name, one in self.state.entries.items() if name in self.specs and one.phase in phases]

    def reserved(self, name: str, device: str) -> int:
        """Bytes of a device that a loaded instance has, or is going to have."""
        return max(self.specs[name].need.get(device, 0), self.seen.devices[device].ours.get(name, 0))

    def held(self, name: str, device: str) -> int:
        """Bytes of a device's use that are a loaded instance's: its need where the driver does not name them."""
        one = self.seen.devices[device]
        measured = name in one.ours or self.state.entries[name].phase in (STARTING, STOPPING)
        return one.ours.get(name, 0) if measured and name not in one.unmeasured else self.reserved(name, device)

    def foreign(self, device: str) -> int:
        """Bytes that others use; also processes that a sleeping instance has left."""
        held = sum(self.held(name, device) for name in self._in_phase(*LOADED))
        return max(0, self.seen.devices[device].used - held)

    def _free_bytes(self, device: str) -> int:
        one = self.seen.devices[device]
        return one.total - self.foreign(device) - sum(self.reserved(name, device) for name in self._in_phase(*LOADED))

    def _queue(self) -> list[tuple[str, list[Waiter]]]:
        """Sleeping instances with clients, the one of the oldest first, then those that are to be warm."""
        clients: dict[str, list[Waiter]] = {}
        for waiter in sorted(self.state.waiters, key=lambda one: (not one.proof, one.since, one.id)):
            clients.setdefault(waiter.instance, []).append(waiter)
        queue = [(name, waiters) for name, waiters in clients.items() if self.state.entries[name].phase == ASLEEP]
        if not self.seen.paused:
            warm = [name for name in self._in_phase(ASLEEP) if self.specs[name].keep_warm and name not in clients]
            queue += [(name, []) for name in sorted(warm) if self._may_warm(self.state.entries[name], name)]
        return queue

    def _may_warm(self, entry: Entry, name: str) -> bool:
        return entry.retry_at <= self.seen.now and name not in self.seen.stopped_by_hand

    def decide(self) -> None:
        """Fill `starts`, `victims` and `refusals`."""
        awaited = {one.instance for one in self.state.waiters}
        for name in self.specs.keys() - awaited:
            entry = self.state.entries[name]
            entry.short_since = entry.unknown_since = None
        for name, waiters in self._queue():
            need = self.specs[name].need
            proof = any(one.proof for one in waiters)
            if self.seen.paused and not proof:
                continue
            if unknown := sorted(device for device in need if device not in self.seen.devices):
                # until it is known, those that leave go on to leave
                self.victims |= {one for one in self._in_phase(LEAVING) if self._may_go(one, name)}
                entry = self.state.entries[name]
                if entry.unknown_since is None:
                    entry.unknown_since = self.seen.now
                if self.seen.now - entry.unknown_since >= UNKNOWN_S:
                    text = f"the memory of {describe_device(unknown[0])} is unknown, for nvidia-smi does not list it"
                    self.refusals += [(one, refusal("memory", REFUSED_S, text)) for one in waiters]
                continue
            self.state.entries[name].unknown_since = None
            if self._fits(need, self.coming):
                self.state.entries[name].short_since = None
                if self._fits(need, self.free):
                    self.starts.append(name)
                self._claim(need)
            else:
                self._make_room(name, waiters, proof=proof)

    @staticmethod
    def _fits(need: Mapping[str, int], room: Mapping[str, int]) -> bool:
        return all(size <= room[device] for device, size in need.items())

    def _claim(self, need: Mapping[str, int]) -> None:
        for device, size in need.items():
            self.free[device] -= size
            self.coming[device] -= size

    def _make_room(self, name: str, waiters: list[Waiter], *, proof: bool) -> None:
        """Choose instances that leave, or have the clients wait; refuse where no wait can help."""
        entry, need = self.state.entries[name], self.specs[name].need
        others = [one for one in self._in_phase(STARTING, AWAKE, LEAVING) if self._may_go(one, name)]
        if any(size > self._most_bytes(name, device) for device, size in need.items()):
            self._refuse_for_memory(name, waiters)
            return
        entry.short_since = None
        for waiter in waiters:
            if not waiter.may_evict:
                text = "other models are loaded, and this client may not have them stopped"
                self.refusals.append((waiter, refusal("busy", REFUSED_S, text)))
        if not any(one.may_evict for one in waiters):
            return
        ready = [one for one in others if (proof and not self.is_arriving(one)) or self._has_resided(one)]
        chosen = self._choose(need, sorted(ready, key=self._cost))
        self.victims |= chosen
        if proof:
            self.proof_victims |= chosen
        for one in chosen:
            for device in self.specs[one].need:
                if device in self.coming:
                    self.coming[device] += self.reserved(one, device)
        self._claim(need)

    def _most_bytes(self, name: str, device: str) -> int:
        """The bytes that an instance can have once all others sleep that may."""
        return self.seen.devices[device].total - self.foreign(device) - self._warm_bytes(name, device)

    def _warm_bytes(self, name: str, device: str) -> int:
        """The bytes of others that stay loaded."""
        warm = [other for other in self._in_phase(*LOADED) if other != name and self.specs[other].keep_warm]
        return sum(self.reserved(other, device) for other in warm)

    def _may_go(self, name: str, waiting: str) -> bool:
        shares = self.specs[name].need.keys() & self.specs[waiting].need.keys()
        return bool(shares) and name not in self.victims and not self.specs[name].keep_warm

    def is_arriving(self, name: str) -> bool:
        """Whether a client that was sent to an instance may not be among its requests yet."""
        entry = self.state.entries[name]
        return entry.phase == AWAKE and self.seen.now - entry.answered_at < ARRIVAL_S

    def _has_resided(self, name: str) -> bool:
        entry = self.state.entries[name]
        if entry.phase == STARTING or self.seen.requests.get(name) is None or self.is_arriving(name):
            return False
        return entry.phase == LEAVING or self.seen.now - entry.ready_at >= self.specs[name].residence

    def _cost(self, name: str) -> tuple[bool, bool, int, float, float, str]:
        entry, spec = self.state.entries[name], self.specs[name]
        busy = bool(self.seen.requests.get(name))
        reload = entry.load_seconds or spec.seconds
        return (entry.phase != LEAVING, busy, spec.priority, reload, entry.last_used, name)

    def _is_enough(self, need: Mapping[str, int], names: list[str]) -> bool:
        return all(
            size <= self.coming[device] + sum(self.reserved(one, device) for one in names)
            for device, size in need.items()
        )

    def _choose(self, need: Mapping[str, int], candidates: list[str]) -> set[str]:
        """The cheapest that are enough; none where all are not enough yet."""
        chosen: list[str] = []
        for name in candidates:
            if self._is_enough(need, chosen):
                break
            short = [device for device, size in need.items() if not self._is_enough({device: size}, chosen)]
            if any(self.reserved(name, device) for device in short):
                chosen.append(name)
        if not self._is_enough(need, chosen):
            return set()
        # a later one may have made an earlier one superfluous
        for name in sorted(chosen, key=self._cost, reverse=True):
            rest = [one for one in chosen if one != name]
            if self._is_enough(need, rest):
                chosen = rest
        return set(chosen)

    def _has_unmeasured_start(self, need: Mapping[str, int]) -> bool:
        """Whether memory that is taken for others' may be that of an instance that starts."""
        starts = self._in_phase(STARTING)
        return any(
            device in self.specs[one].need and one not in self.seen.devices[device].ours
            for one in starts
            for device in need
        )

    def _refuse_for_memory(self, name: str, waiters: list[Waiter]) -> None:
        """Refuse clients if no memory can become free; not at once, for a driver gives it back late."""
        need = self.specs[name].need
        entry = self.state.entries[name]
        for device, size in need.items():
            if size > (total := self.seen.devices[device].total):
                # it never has the memory, so no wait can help
                text = f"it needs {size // MIB} MiB of {describe_device(device)}, which has {total // MIB}"
                text += " for instances on demand" if device == HOST else ""
                self.refusals += [(waiter, refusal("memory", REFUSED_S, text)) for waiter in waiters]
                return
        if entry.short_since is None or self._has_unmeasured_start(need):
            entry.short_since = self.seen.now
        if self.seen.now - entry.short_since < PATIENCE_S:
            return
        for device, size in need.items():
            found = self.seen.devices[device]
            text = f"it needs {size // MIB} MiB of {describe_device(device)}, of {found.total // MIB}; other processes "
            text += f"have {self.foreign(device) // MIB}"
            if warm := self._warm_bytes(name, device):
                text += f", instances that stay loaded {warm // MIB}"
            if size > self._most_bytes(name, device):
                self.refusals += [(waiter, refusal("memory", REFUSED_S, text)) for waiter in waiters]
                return
