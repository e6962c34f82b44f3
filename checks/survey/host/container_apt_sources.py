"""Whether apt can read and verify each container source, without touching the host's package lists."""

from __future__ import annotations

from typing import Any

from checks.survey.host import apt
from checks.survey.host.thread_pool import Pool


def look(asked: dict[str, Any]) -> dict[str, object]:
    """The exit status and the output of an update of apt's, for each of them that is there.

    Args:
        asked: `sources`, their files; the rest as for `nvidia_apt_source.look`.
    """
    shared = {name: asked[name] for name in ("authority", "proxy", "none")}
    with Pool(2) as pool:
        found = list(pool.map(lambda source: apt.update(source, shared), asked["sources"]))
    return {"read": [one for one in found if one["source"]]}
