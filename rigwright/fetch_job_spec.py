"""Delivery of files to hosts: the network of jobs, orders to the fetcher, and environments of tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rigwright import local_files
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.api_keys import load_api_key
from rigwright.model.download_origins import HUB_ORIGIN, origin_of, refuse_logins, refuse_token, token_origin
from rigwright.model.inventory_feature import EntryDraft, Feature, Fields, RigDraft
from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots
from rigwright.model.secret_sources import SecretSource, validate_secret
from rigwright.problems import Invalid, Problem
from rigwright.supply import bundle as bundles
from rigwright.supply import image_manifest
from rigwright.supply.artefact_addresses import artefact_urls
from rigwright.supply.bundle import Bundle
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import HUB
from rigwright.supply.root_programs import HUB_CLIENT, INSTALLERS, LOCKED_GROUPS, TOOLS
from rigwright.weights.verification import below_models, records_folder

if TYPE_CHECKING:
    from rigwright.model.fact_types import HostFacts

# Mirror names with a protocol of their own; every other name is a folder of files.
APT = "apt"
INDEX = "index"


@dataclass(frozen=True)
class JobNetwork:
    """The network settings of a job on the host (templates/jobs/network.sh.j2)."""

    authority: str
    """The file with the rig's own authorities; empty without any."""
    proxy: str
    no_proxy: str
    apt: tuple[str, ...]
    """Base addresses of Debian or Ubuntu archives, in order; none leaves the host's own configuration."""


def authority_path(roots: Roots) -> str:
    """Where the rig's own authorities lie on the host."""
    return f"{roots.config}/ca.pem"


def job_network(roots: Roots, network: DownloadNetwork) -> JobNetwork:
    """The network of a rig."""
    return JobNetwork(
        authority_path(roots) if network.ca_certificates else "",
        network.proxy or "",
        # peers are in the boxes' own network: a proxy would not reach them, or would be the client that asks there
        ",".join(
            ("localhost", "127.0.0.1", *network.no_proxy, *(str(urlsplit(peer).hostname) for peer in network.peers))
        ),
        network.mirrors.get(APT, ()),
    )


@dataclass(frozen=True)
class ToolEnvironment:
    """The environment on one host."""

    requirements: str
    """Text of the hashed requirements."""
    folder: str

    @property
    def marker(self) -> str:
        """Written last: the environment is whole."""
        return f"{self.folder}/.complete"


def render_requirements(wheels: Iterable[Artefact]) -> str:
    """Locked wheels as pip's hashed requirements, the same text for the same wheels.

    Raises:
        ValueError: root would install a group that is not in the list of what it starts.
    """
    hashes: dict[str, set[str]] = {}
    for wheel in wheels:
        if wheel.group not in LOCKED_GROUPS:
            raise ValueError(f"{wheel.group} is not among the locked groups of rigwright.supply.root_programs")
        pin = f"{wheel.name}=={wheel.version}" + (f" ; {wheel.marker}" if wheel.marker else "")
        hashes.setdefault(pin, set()).add(wheel.sha256)
    return "".join(
        " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[pin]))]) + "\n"
        for pin in sorted(hashes)
    )


def host_tools(roots: Roots, tools: tuple[Artefact, ...], facts: HostFacts) -> ToolEnvironment:
    """The tools of a host."""
    return _tool_environment(roots, facts, TOOLS, tools)


def hub_client_tools(roots: Roots, hub_client: tuple[Artefact, ...], facts: HostFacts) -> ToolEnvironment | None:
    """The hub's own client on a host; None where nothing is fetched with it."""
    return _tool_environment(roots, facts, HUB_CLIENT, hub_client) if hub_client else None


def installer_tools(roots: Roots, installers: tuple[Artefact, ...], facts: HostFacts) -> ToolEnvironment:
    """The programs that put environments together on a host."""
    return _tool_environment(roots, facts, INSTALLERS, installers)


def _tool_environment(roots: Roots, facts: HostFacts, name: str, wheels: Iterable[Artefact]) -> ToolEnvironment:
    """The distribution's release is an input, for a release brings another Python."""
    text = render_requirements(wheels)
    digest = hashlib.sha256(f"{text}{facts.os_id}{facts.os_version}".encode()).hexdigest()[:12]
    return ToolEnvironment(text, f"{roots.software}/{name}-{digest}")


MAXIMUM = 4 * 1024 * 1024  # bytes; the list that a system trusts has 0.2 MiB


def load_ca_certificates(path: str) -> str:
    """The certificates in a PEM file, and nothing else of it: a private key beside them stays where it is.

    Raises:
        ValueError: the file cannot be read, or holds no certificate.
    """
    # importing it takes longer than reading an inventory, and few have authorities of their own
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    content = local_files.read_content(path, MAXIMUM)
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ValueError("contains no PEM certificate (-----BEGIN CERTIFICATE-----)") from None
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)


def _validate_downloads(draft: EntryDraft) -> Fields:
    entry, certificates, token_file = draft.entry, "", None
    if entry.ca_file is not None:
        try:
            certificates = load_ca_certificates(draft.resolve_path(entry.ca_file))
        except ValueError as error:
            draft.refuse("ca_file", f"{entry.ca_file} {error}")
    if entry.hub_token_file is not None:
        token_file = draft.resolve_secret(entry.hub_token_file)
        try:
            validate_secret(token_file, partial(load_api_key, what="token"))
        except ValueError as error:
            draft.refuse("hub_token_file", f"{token_file} {error}")
    refuse_token(entry.hub_token_file, entry.hub_token_origin, entry.mirrors, draft.refuse)
    network = DownloadNetwork(
        mirrors=entry.mirrors,
        peers=entry.peers,
        redirects=entry.redirects,
        proxy=entry.proxy,
        no_proxy=entry.no_proxy,
        ca_certificates=certificates,
        hub_token_file=token_file,
        hub_token_origin=token_origin(entry.hub_token_origin) if token_file else None,
        registry_logins=refuse_logins(entry.registries, entry.mirrors, draft.resolve_secret, draft.refuse),
    )
    return {"network": network, "share": entry.share, "fs_verity": entry.fs_verity}


def _resolve_downloads(draft: RigDraft) -> Fields:
    tools = draft.select_wheels(TOOLS, "tools")
    draft.artefacts += tools
    rows = [row for one in draft.fields["instances"] for row in one.weights]
    client: tuple[Artefact, ...] = ()
    if draft.entry.bundle is None and any(source.startswith(f"{HUB}:") for row in rows for source in row.sources):
        client = draft.select_wheels(
            HUB_CLIENT, "instances", "some weights come from the hub, and its client cannot be used: "
        )
    return {"tools": tools, "hub_client": client}


def _resolve_bundle(draft: RigDraft) -> Fields:
    """The bundle of an entry that has one, and its faults; without one, refuse artefacts that have no address."""
    path = draft.entry.bundle
    folder = None if path is None else draft.resolve_path(path)
    bundle, faults = None, list[Problem]()
    if folder is not None and not draft.purpose:
        try:
            bundle = bundles.load_bundle(Path(folder))
            rows = (row for system in bundle.systems for rows in draft.release_artefacts for row in rows(system))
            faults = _find_unbundled(draft, bundle, [*draft.artefacts, *dict.fromkeys(rows)])
        except Invalid as error:
            faults = error.problems
    elif folder is None and draft.purpose != "bundle":
        _refuse_unreachable(draft)
    return {"bundle_folder": folder, "bundle": bundle, "bundle_faults": tuple(faults)}


def _find_unbundled(draft: RigDraft, bundle: Bundle, artefacts: Iterable[Artefact]) -> list[Problem]:
    return [
        Problem(draft.file, f"{draft.name}.bundle", f"{bundle.folder} lacks {one} ({one.file}): {bundles.AGAIN}")
        for one in artefacts
        if bundle.find(one) is None
    ]


def _refuse_unreachable(draft: RigDraft) -> None:
    for artefact in draft.addressed:
        if artefact.is_written:
            continue
        known = {"source": "index:", "wheel": "index:", "weight": f"{HUB}:"}.get(artefact.kind, "")
        if not any(known and source.startswith(known) for source in artefact.sources) and not artefact_urls(
            artefact, draft.entry.mirrors
        ):
            names = dict.fromkeys(source.partition(":")[0] for source in artefact.sources if source[:6] != "index:")
            places = " or ".join(f"the mirror {name}" for name in names or (INDEX,))
            forms = " or ".join(f'"mirrors": {{"{name}": ["https://..."]}}' for name in names or (INDEX,))
            said = f"{artefact} has no address: the lock places it in {places} ({', '.join(artefact.sources)})"
            draft.refuse("mirrors", f"{said}; add {forms}")


DOWNLOADS = Feature("downloads", _validate_downloads, _resolve_downloads)
# after all features that need artefacts
BUNDLE = Feature("bundle", resolve=_resolve_bundle)


# The name of the credential with the token; systemd puts it where only the job reads it.
CREDENTIAL = "hub-token"


def credential_name(registry: str) -> str:
    """The name of the credential with a registry's login."""
    return f"login-{registry}"


def fetch_credentials(
    network: DownloadNetwork, bundle: Bundle | None, artefacts: Sequence[Artefact]
) -> dict[str, SecretSource]:
    """The credentials that fetching needs: name -> the file or command on the operator's machine."""
    if bundle:
        return {}
    asked = {source.partition(":")[0] for artefact in artefacts for source in artefact.sources}
    found = {credential_name(name): source for name, source in network.registry_logins.items() if name in asked}
    return found | ({CREDENTIAL: network.hub_token_file} if HUB in asked and network.hub_token_file else {})


def artefact_sources(network: DownloadNetwork, artefact: Artefact) -> list[dict[str, object]]:
    """Where a file is had: from boxes that share theirs, then as its lock says.

    An index or a channel without an address is the host's own default: the one that the pip, or the py-rattler, of an
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
    """The trust in a hub: the token that is for it, and, if it is the hub itself, the right to name the addresses of
    Xet, which the client uses without a check by Rigwright.
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
        artefacts: The target artefacts.
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
