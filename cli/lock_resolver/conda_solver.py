"""Run alone: solves match specs over conda channels with py-rattler. JSON comes in, and JSON goes out.

`cli.lock_resolver.conda` starts it and believes nothing that it says.

It is a process of its own, for a channel is untrusted: here its answers have a bounded memory and disk, and the parent
process ends it after a time. Also, py-rattler brings an event loop that must not meet the one of pyinfra's.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from datetime import datetime
from typing import Any

import rattler
from rattler.networking import Client

# Debian 12's and Ubuntu 22.04's oldest: their C library and their kernel. No card: which CUDA there is, others decide.
VIRTUAL = (("__unix", "0", "0"), ("__linux", "5.15", "0"), ("__glibc", "2.35", "0"), ("__archspec", "1", "x86_64"))
PLATFORMS: tuple[rattler.platform.SubdirLiteral, ...] = ("linux-64", "noarch")
FIELD = 300  # characters
RECORDS = 5000


async def solve_request(asked: dict[str, Any]) -> dict[str, object]:
    """The answer of `channels` for `specs`, `before` an instant or ever; without specs, the packages of `known`."""
    client = Client.default_client(max_retries=2, timeout=60)
    gateway = rattler.Gateway(cache_dir=asked["cache"], client=client)
    channels = [rattler.Channel(one) for one in asked["channels"]]
    there: list[rattler.RepoDataRecord] = []
    if asked["known"]:
        names, hashes = ({one[key] for one in asked["known"]} for key in ("name", "sha256"))
        listed = await gateway.query(channels, PLATFORMS, names, recursive=False, channel_relations="disabled")
        there = [one for group in listed for one in group if one.sha256 and one.sha256.hex() in hashes]
    if not asked["specs"]:
        return {"known": [one.sha256.hex() for one in there if one.sha256]}
    found = await rattler.solve(
        channels,
        asked["specs"],
        gateway=gateway,
        platforms=PLATFORMS,
        locked_packages=there,
        virtual_packages=[
            rattler.GenericVirtualPackage(
                rattler.PackageName(name), rattler.Version(version), rattler.BuildString(build)
            )
            for name, version, build in VIRTUAL
        ],
        exclude_newer=datetime.fromisoformat(asked["before"]) if asked["before"] else None,
        # a channel may not name others
        channel_relations="disabled",
    )
    if len(found) > RECORDS:
        return {"failed": f"the solution has {len(found)} packages"}
    return {"found": [_package_record(one) for one in found]}


def _package_record(one: rattler.RepoDataRecord) -> dict[str, object]:
    texts = {
        "name": one.name.source,
        "version": str(one.version),
        "build": str(one.build),
        "subdir": one.subdir,
        "file": one.file_name,
        "url": one.url,
        "sha256": one.sha256.hex() if one.sha256 else "",
        "channel": one.channel or "",
    }
    return {key: text[:FIELD] for key, text in texts.items()} | {"size": one.size or 0}


def main() -> None:
    """Answer once."""
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_FSIZE, (asked["disk"], asked["disk"]))
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory"], asked["memory"]))
    try:
        told = asyncio.run(solve_request(asked))
    except Exception as error:  # py-rattler's own have no common base
        told = {"failed": str(error)[:4000] or type(error).__name__}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
