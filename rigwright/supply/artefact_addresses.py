"""The http(s) addresses that an artefact can be downloaded from."""

from __future__ import annotations

from collections.abc import Mapping

from rigwright.supply import image_manifest
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import HUB


def artefact_urls(artefact: Artefact, mirrors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The http(s) addresses to try, in order, with the mirrors that a rig has.

    Sources `index:` and `hub:` are not among them: an index, or the hub's own client, says where those files are.
    """
    if artefact.kind == "image":
        return image_manifest.blob_addresses(artefact, mirrors)
    found = []
    for source in artefact.sources:
        scheme, _, rest = source.partition(":")
        if scheme in ("http", "https"):
            found.append(source)
        elif scheme not in ("index", HUB):
            found += [f"{base.rstrip('/')}/{rest}" for base in mirrors.get(scheme, ())]
    return found
