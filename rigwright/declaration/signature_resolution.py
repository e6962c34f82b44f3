"""Signers of an entry, and the signatures of its lock and bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from rigwright.declaration.shared_resolution import read_once
from rigwright.model.inventory_feature import EntryDraft, Feature, Fields, RigDraft
from rigwright.model.rig import Rig
from rigwright.model.signer_schema import resolve_signers
from rigwright.problems import Invalid, Problem
from rigwright.supply.supply_signatures import verify_supply


def _validate_signers(draft: EntryDraft) -> Fields:
    entry = draft.entry
    if not entry.signers:
        for name in ("revoked_keys", "signed_as"):
            if getattr(entry, name):
                draft.refuse(name, "needs signers: without signers, no signature is required")
        return {"signers": None}
    signers = resolve_signers(entry.signers, entry.revoked_keys, entry.signed_as)
    for fingerprint, number in Counter(one.key.fingerprint for one in signers.signers).items():
        if number > 1:
            names = ", ".join(one.principal for one in signers.signers if one.key.fingerprint == fingerprint)
            draft.refuse("signers", f"{names} have the same key {fingerprint}: each signer has a key of its own")
    needed = ("lock", "bundle") if entry.bundle is not None else ("lock",)
    for kind in needed:
        able = [one for one in signers.signers if kind in one.kinds and one.key.fingerprint not in signers.revoked]
        if not able:
            draft.refuse("signers", f'no signer may sign the {kind}: add "{kind}" to signs of one with a valid key')
    return {"signers": signers}


def _resolve_signatures(draft: RigDraft) -> Fields:
    signers = draft.fields["signers"]
    if not signers or draft.purpose in ("lock", "audit"):
        return {"signatures": (), "signature_faults": ()}
    bundle = draft.fields["bundle"]
    verify = partial(verify_supply, Path(draft.file), draft.lock, bundle, signers)
    # boxes of an inventory mostly share lock and bundle
    key = (verify_supply, draft.file, draft.lock.digest, bundle and (str(bundle.folder), bundle.index_sha256), signers)
    signatures, faults = read_once(key, verify)
    return {"signatures": signatures, "signature_faults": faults}


def find_signer_differences(
    file: str,
    rigs: Mapping[str, Rig],
    earlier: Iterable[tuple[str, Mapping[str, object]]],
    load: Callable[[object], Rig],
) -> list[Problem]:
    """Refuse rigs of an inventory with other signers: a rig without them would take the lock without a signature.

    Args:
        file: The inventory.
        rigs: Rigs of a group, by name.
        earlier: Name and data of the rigs of its earlier groups, all of which have the same signers.
        load: Loads a rig from the data.
    """
    for name, data in earlier:
        with suppress(Invalid):  # one that is refused, and only looked at
            rigs = {name: load(data["rig"]), **rigs}
            break
    first = next((name for name, rig in rigs.items() if rig.signers), None)
    if first is None:
        return []
    text = f"differ from those of {first}: give signers, revoked_keys and signed_as to hosts(), for every rig"
    return [Problem(file, f"{name}.signers", text) for name, rig in rigs.items() if rig.signers != rigs[first].signers]


SIGNATURES = Feature("signatures", _validate_signers, _resolve_signatures)
"""After the bundle."""
