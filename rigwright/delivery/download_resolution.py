"""The ways to a host of all that an inventory's entry needs: mirrors, peers, logins, tools and bundle."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rigwright.delivery.ca_certificates import load_ca_certificates
from rigwright.model.api_keys import load_api_key
from rigwright.model.feature import EntryDraft, Feature, Fields, RigDraft
from rigwright.model.network import DownloadNetwork
from rigwright.model.origins import refuse_token, token_origin
from rigwright.model.registries import refuse_logins
from rigwright.problems import Invalid, Problem
from rigwright.supply import bundle as bundles
from rigwright.supply.artefact_addresses import artefact_urls
from rigwright.supply.bundle import Bundle
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import HUB_CLIENT, TOOLS


def _validate_downloads(draft: EntryDraft) -> Fields:
    entry, certificates, token_file = draft.entry, "", None
    if entry.ca_file is not None:
        try:
            certificates = load_ca_certificates(draft.resolve_path(entry.ca_file))
        except ValueError as error:
            draft.refuse("ca_file", f"{entry.ca_file} {error}")
    if entry.hub_token_file is not None:
        token_file = draft.resolve_path(entry.hub_token_file)
        try:
            load_api_key(token_file, "token")
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
        registry_logins=refuse_logins(entry.registries, entry.mirrors, draft.resolve_path, draft.refuse),
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
        known = {"source": "index:", "weight": f"{HUB}:"}.get(artefact.kind, "")
        if not any(known and source.startswith(known) for source in artefact.sources) and not artefact_urls(
            artefact, draft.entry.mirrors
        ):
            lacking = dict.fromkeys(source.partition(":")[0] for source in artefact.sources if source[:6] != "index:")
            said = f"{artefact} of the lock has no address: its sources are {', '.join(artefact.sources)}"
            draft.refuse("mirrors", f"{said}; add a mirror named {' or '.join(lacking)}")


DOWNLOADS = Feature("downloads", _validate_downloads, _resolve_downloads)
# after all features that need artefacts
BUNDLE = Feature("bundle", resolve=_resolve_bundle)
