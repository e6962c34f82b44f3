"""What a host is told to fetch: files of weights and packages, and where each is had, in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from rigwright.delivery.network import INDEX
from rigwright.host.locks import LOCKS
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.network import DownloadNetwork
from rigwright.model.origins import HUB_ORIGIN, origin_of
from rigwright.model.roots import Roots
from rigwright.supply import image_manifest
from rigwright.supply.artefact_addresses import artefact_urls
from rigwright.supply.bundle import Bundle
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import below_models, records_folder

# What the credential with the token is called; systemd puts it where only the job reads it.
CREDENTIAL = "hub-token"


def credential_name(registry: str) -> str:
    """What the credential with a registry's login is called."""
    return f"login-{registry}"


def fetch_credentials(network: DownloadNetwork, bundle: Bundle | None, artefacts: Sequence[Artefact]) -> dict[str, str]:
    """The credentials that fetching needs: name -> the file on the operator's machine."""
    if bundle:
        return {}
    asked = {source.partition(":")[0] for artefact in artefacts for source in artefact.sources}
    found = {credential_name(name): path for name, path in network.registry_logins.items() if name in asked}
    return found | ({CREDENTIAL: network.hub_token_file} if HUB in asked and network.hub_token_file else {})


def artefact_sources(network: DownloadNetwork, artefact: Artefact) -> list[dict[str, object]]:
    """Where a file is had: from boxes that share theirs, then as its lock says.

    An index or a channel without an address is the host's own default: what the pip, or the py-rattler, of an
    environment on it would ask.
    """
    found: list[dict[str, object]] = [{"kind": "peer", "base": base.rstrip("/")} for base in network.peers]
    for source in artefact.sources:
        scheme, _, rest = source.partition(":")
        if artefact.kind == "image":
            places = image_manifest.repository_places(source, network.mirrors)
            login = {"login": credential_name(scheme)} if scheme in network.registry_logins else {}
            found += [{"kind": "registry", "base": base, "repository": name, **login} for base, name in places]
        elif scheme == HUB:
            one = {"kind": "hub", "repository": rest, "revision": artefact.version, "file": artefact.path}
            # without an endpoint the client's own is meant
            bases = network.mirrors.get(HUB) or ("",)
            found += [{**one, **_trust(network, base), "endpoint": base.rstrip("/")} for base in bases]
        elif scheme == INDEX:
            place = {"kind": "index", "project": rest, "file": artefact.file}
            found += [{**place, "base": base.rstrip("/")} for base in network.mirrors.get(INDEX) or ("",)]
        elif artefact.kind == "conda" and scheme not in ("http", "https", *network.mirrors):
            found.append({"kind": "channel", "channel": scheme, "file": rest, "base": ""})
        else:
            alone = artefact.model_copy(update={"sources": (source,)})
            named = {"locked": True} if scheme in ("http", "https") else {}
            found += [{"kind": "http", "url": url, **named} for url in artefact_urls(alone, network.mirrors)]
    return found


def _trust(network: DownloadNetwork, base: str) -> dict[str, object]:
    """What a hub is trusted with: the token that is for it, and, if it is the hub itself, with naming the addresses of
    Xet, which the client goes to without a look of ours.
    """
    place = origin_of(base) if base else HUB_ORIGIN
    return {"token": place == network.hub_token_origin, "xet": place == HUB_ORIGIN}


def render_fetch_spec(
    roots: Roots,
    accounts: ServiceAccounts,
    network: DownloadNetwork,
    fs_verity: bool,
    artefacts: Sequence[Artefact],
    client: str = "",
    sent: str = "",
    python: str = "",
    unlocked: Sequence[str] = (),
) -> str:
    """The file that a fetching run reads (roles/weights/host/spec.py), as JSON.

    Args:
        roots: Directories on the host.
        accounts: System users of the services.
        network: Where and how the host downloads.
        fs_verity: Whether the kernel verifies weights.
        artefacts: What is to be there.
        client: A Python that has the hub's own client; empty where none is needed.
        sent: The folder with what the operator's machine has sent; then there is no other source.
        python: A Python that has pip and py-rattler, which know the host's own package index and channels.
        unlocked: Paths from the models' root of files that no lock has any more, to be taken away.
    """
    value = {
        "root": roots.models,
        "records": records_folder(roots),
        "ledger": roots.ledger,
        "locks": LOCKS,
        "hub_python": client,
        "hub_user": accounts.hub if client else "",
        "package_python": python,
        "sent": sent,
        "fs_verity": fs_verity,
        "redirects": list(network.redirects),
        "files": [
            {
                "path": below_models(one),
                "sha256": one.sha256,
                "size": one.size,
                "sources": [] if sent else artefact_sources(network, one),
            }
            for one in artefacts
        ]
        + [{"path": path, "sha256": "", "size": 0} for path in unlocked],
    }
    return json.dumps(value, indent=1) + "\n"


def render_wheels_spec(network: DownloadNetwork, wheels: Sequence[Artefact], folder: str, python: str) -> str:
    """The file that the fetcher reads for wheels that one job installs and removes, as JSON.

    Args:
        network: Where and how the host downloads.
        wheels: The wheels; all of them come into one folder.
        folder: That folder on the host, with its own records: nothing of it outlives the job.
        python: A Python on the host that has pip, which knows the host's own package index.
    """
    value = {
        "root": folder,
        "records": f"{folder}/.records",
        "ledger": f"{folder}/.ledger",
        "locks": LOCKS,
        "package_python": python,
        "redirects": list(network.redirects),
        "files": [
            {
                "path": one.file,
                "sha256": one.sha256,
                "size": one.size,
                "sources": _without_peers(artefact_sources(network, one)),
            }
            for one in wheels
        ],
    }
    return json.dumps(value, indent=1) + "\n"


def _without_peers(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Peers share what lies below the models' root, and no wheels of tools are there."""
    return [row for row in rows if row["kind"] != "peer"]


def fetch_unit_name(artefacts: Sequence[Artefact]) -> str:
    """The unit that brings these files: two runs of the same files agree on it."""
    files = "".join(f"{one.sha256} {below_models(one)}\n" for one in artefacts)
    what = "weights" if all(one.kind == "weight" for one in artefacts) else "fetch"
    return f"rw-job-{what}-{hashlib.sha256(files.encode()).hexdigest()[:12]}"
