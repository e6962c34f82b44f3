"""Whose key it is, and how many requests a minute it may make."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Callable
from time import monotonic, time

from .settings import Key, Keys

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,512})", re.IGNORECASE)


class Keyring:
    """Keys, and of each that has a limit how many requests it may make now."""

    def __init__(
        self, keys: Keys, clock: Callable[[], float] = monotonic, calendar: Callable[[], float] = time
    ) -> None:
        self.keys = keys
        self._clock, self._calendar = clock, calendar
        self._buckets: dict[str, tuple[float, float]] = {}
        """By id: requests that are left, and when that was so."""

    def change(self, keys: Keys) -> None:
        """Go on with other keys; those that stay have not more requests left than before."""
        self.keys = keys
        self._buckets = {one: left for one, left in self._buckets.items() if one in keys.by_id}

    def whose(self, authorization: str) -> Key | None:
        """The key of an Authorization header.

        The clear key is hashed before anything is compared, so that no time tells how much of one was right.
        """
        found = _BEARER.fullmatch(authorization)
        digest = hashlib.sha256((found[1] if found else "").encode("ascii")).hexdigest()
        key = self.keys.by_id.get(digest[:16])
        if key is None or not hmac.compare_digest(key.sha256, digest):
            return None
        return key if self._good(key) else None

    @property
    def good(self) -> set[str]:
        """Ids of the keys that are valid now."""
        return {name for name, key in self.keys.by_id.items() if self._good(key)}

    def _good(self, key: Key) -> bool:
        return key.until is None or self._calendar() < key.until

    def wait(self, key: Key) -> int:
        """Count a request of a key; whole seconds until it may make one where it may not now, else 0.

        A minute's requests may come at once; what was used comes back evenly.
        """
        most = key.requests_per_minute
        if most is None:
            return 0
        now = self._clock()
        left, since = self._buckets.get(key.id, (float(most), now))
        left = min(float(most), left + (now - since) * most / 60)
        if left < 1:
            self._buckets[key.id] = (left, now)
            return max(1, math.ceil((1 - left) * 60 / most))
        self._buckets[key.id] = (left - 1, now)
        return 0
