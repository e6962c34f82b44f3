"""Looks whether instances answer, takes out those that do not, and tells nginx which keys are gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from . import admin
from .admin import State, Unanswered
from .answers import linked
from .routing import Router
from .settings import Settings
from .telling import say

NO_ANSWER = (500, 502, 503, 504)
"""Of an engine that is not well, or of nginx that has reached none; whatever else it says, it answers."""
HEAD = 1 << 10
"""Bytes that are read of an instance's answer."""


class Prober:
    """One task, and one more for each instance that is being asked."""

    def __init__(self, router: Router, failed: Callable[[], None]) -> None:
        """It calls `failed` where it cannot go on."""
        self._router = router
        self._failed = failed
        self._changed = asyncio.Event()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()
        """Ids of the keys that nginx was told are good."""
        self._silent = ""
        """Why nginx tells nothing, as it was said last."""
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Take note of what is new in settings and keys, at once."""
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(lambda _: self._failed())

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            settings = self._router.settings
            try:
                self._tidy(settings)
                state = await admin.state(settings.admin)
                await self._tell(settings, state)
                self._look(settings, state)
                self._silent = ""
            except (Unanswered, OSError) as error:
                # nothing is known of the instances then: they stay as they are
                if str(error) != self._silent:
                    self._silent = str(error)
                    say(f"nginx's socket, or the folder of who is out: {error}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), settings.every)

    def _tidy(self, settings: Settings) -> None:
        """Forget who is not there any more, or has become ready anew: who is out has the time of the link that it was
        out by, for the host's clock may have been set since.

        nginx's user reads who is out, whatever mask this service has.
        """
        if not settings.out.is_dir():
            settings.out.mkdir()
            settings.out.chmod(0o755)
        names = {settings.out_file(name): name for name in settings.instances}
        for file in settings.out.iterdir():
            if file not in names or settings.ready_since(names[file]) != file.stat().st_mtime_ns:
                file.unlink(missing_ok=True)

    async def _tell(self, settings: Settings, state: State) -> None:
        """Tell nginx which keys are gone, those included whose time is over and those whose streams it has and of which
        we know nothing, and which are good, for one may have been gone before.
        """
        good = self._router.keyring.good
        for one in sorted((self._told | state.keys) - good):
            await admin.tell(settings.admin, f"/gone/{one}")
            self._told.discard(one)
        for one in sorted(good - self._told):
            await admin.tell(settings.admin, f"/back/{one}")
            self._told.add(one)

    def _look(self, settings: Settings, state: State) -> None:
        self._asking = {name: task for name, task in self._asking.items() if not task.done()}
        for name, model in settings.instances.items():
            if name in self._asking or not linked(settings.links, name):
                continue
            if self._well_since(state, name, time.monotonic() - settings.every):
                self._in(settings, name)
            else:
                self._asking[name] = asyncio.create_task(self._ask(settings, name, model))

    @staticmethod
    def _well_since(state: State, name: str, moment: float) -> bool:
        return state.progress.get(name, 0) > moment

    async def _ask(self, settings: Settings, name: str, model: str) -> None:
        """Ask an instance for one token, and take it out if none comes, nor any of another request."""
        try:
            before = settings.ready_since(name)
            why = await self._unwell(settings, name, model)
            # of one that was started anew meanwhile this says nothing: the next look asks it
            if before is None or before != settings.ready_since(name):
                return
            if why:
                self._out(settings, name, why, before)
            else:
                self._in(settings, name)
        except (Unanswered, OSError):
            return

    async def _unwell(self, settings: Settings, name: str, model: str) -> str:
        """Why an instance is not well, or nothing.

        Raises:
            Unanswered: nobody knows: nginx does not say.
        """
        began = time.monotonic()
        message = {"role": "user", "content": "ping"}
        body = json.dumps({"model": model, "messages": [message], "max_tokens": 1, "stream": False}).encode("ascii")
        asking = asyncio.create_task(admin.ask(settings.admin, "POST", f"/probe/{name}", body, most=HEAD))
        try:
            while True:
                left = began + settings.timeout - time.monotonic()
                done, _ = await asyncio.wait({asking}, timeout=max(0.0, min(left, settings.every)))
                if done:
                    status, _ = asking.result()
                    return f"answer {status}" if status in NO_ANSWER else ""
                if self._well_since(await admin.state(settings.admin), name, began):
                    return ""
                if left <= 0:
                    return f"no answer within {settings.timeout:g} s"
        finally:
            asking.cancel()

    @staticmethod
    def _out(settings: Settings, name: str, why: str, ready: int) -> None:
        file = settings.out_file(name)
        if not file.exists():
            say(f"{name} is out: {why}")
        _write(file, f"{why}\n", ready)

    @staticmethod
    def _in(settings: Settings, name: str) -> None:
        file = settings.out_file(name)
        if file.exists():
            file.unlink()
            say(f"{name} answers again")


def _write(file: Path, text: str, ready: int) -> None:
    file.write_text(text)
    file.chmod(0o644)
    os.utime(file, ns=(ready, ready))
