"""The fingerprint of a host: entries of all classes, with origin and author; an explained one is only counted."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache

from checks.survey.archive_comparison import ArchiveComparison
from checks.survey.deployed_entries import deployed_entries
from checks.survey.entry_churn import CHURN
from checks.survey.fingerprint_classes import ENTRY_CLASSES
from checks.survey.section import Section, SurveyScope
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.model.instance import SOCKET_FOLDER
from rigwright.model.rig import Rig
from rigwright.monitoring.self_check import results_folder
from rigwright.nginx_package import LEFTOVER_FILES
from rigwright.plan.host_probe import required_packages

DRIVER_NAMES = (
    r"(?:lib|xserver-xorg-video-)?(?:nvidia|cuda|xnvctrl)[a-z0-9+.-]*|dkms|linux-(?:headers|image|modules)-.*"
)
CONTAINER_NAMES = r"docker[a-z0-9.-]*|containerd(?:[.]io)?|podman|buildah|crun|runc"
"""Names of packages that a driver and container engines bring; on what they depend follows from dpkg's records."""
DEEP_S = 600  # seconds in which all files of the classes are read, a hundred megabytes each


@dataclass(frozen=True)
class FingerprintEntry:
    """One entry that no package, deploy or derivation explains, or that differs from what does."""

    kind: str
    """The name of its class."""
    key: str
    """Its name within its class: a path, or the name that a reader gives (`user alice`)."""
    value: str
    """Its present state: kind, mode, owner, group and a digest keyed by the host, or a reader's words; empty for a
    packaged entry that is gone."""
    run_value: str
    """The same, keyed by this run's nonce: equal on hosts where the entry is equal."""
    problem: str = ""
    """Why it can never be accepted; empty where it can."""
    expected_from: str = ""
    """The package or derivation that it differs from; empty where nothing has it."""
    since: float = 0.0
    """When it changed, in seconds since 1970, as far as the host knows; 0 where it does not."""
    author: str = ""
    """Its author, as far as logs of the host tell; empty where they do not."""
    before: str = ""
    """The accepted value, of an entry that the accepted copy on the host has."""
    difference: list[str] = field(default_factory=list)
    """Lines of a redacted difference to the accepted copy; at most 20."""


@dataclass(frozen=True)
class EntryPackage:
    """A package that brings entries."""

    name: str
    version: str
    archive: str
    """The declared, signed archive that has this version; empty for none: then its entries are entries themselves."""
    classes: dict[str, int]
    """Class -> number of its entries there."""


@dataclass(frozen=True)
class HostFingerprint:
    """All of it."""

    entries: list[FingerprintEntry]
    packages: list[EntryPackage]
    explained: dict[str, int]
    """Class -> number of entries that a package, a deploy or a derivation explains."""
    excluded: dict[str, int]
    """Reason of the churn table -> number of entries that it leaves out."""
    accepted_serial: int
    """Of the accepted entries that the host knows; 0 for none."""
    accepted_digest: str
    """SHA-256 of those; empty for none."""
    archives: ArchiveComparison = field(default_factory=lambda: ArchiveComparison(0, 0, 0.0, []))
    accepted_explained: list[tuple[str, str]] = field(default_factory=list)
    """Class and key of accepted entries that a package, a deploy or a derivation explains by now."""
    gone: list[tuple[str, str, str]] = field(default_factory=list)
    """Class, key and author of accepted entries that the host has no more."""


@cache
def run_nonce() -> str:
    """A key of this run alone, by which equal entries of several hosts have equal values."""
    return secrets.token_hex(16)


@cache
def _class_questions() -> dict[str, list[dict[str, object]]]:
    """The classes of entries, the same for each host."""
    return {"classes": [asdict(one) for one in ENTRY_CLASSES], "churn": [asdict(one) for one in CHURN]}


def collection_question(scene: SurveyScope) -> dict[str, object]:
    """The question by which a host collects its entries."""
    roots, ours = scene.rig.roots, deployed_entries(scene)
    return {
        **_class_questions(),
        "folder": results_folder(roots),
        "nonce": run_nonce(),
        "deep": scene.deep,
        "credentials": roots.credentials,
        "locks": LOCKS,
        "ledger": _ledger_question(scene.rig, ours),
        "state": roots.state,
        "ours": ours,
    }


def _ledger_question(rig: Rig, ours: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    """The ledger's possible entries of a rig: packages, and places in which or above which a deploy makes folders."""
    places = (*ours["folders"], *ours["files"], *ours["links"], *LEFTOVER_FILES, SOCKET_FOLDER)
    declared = (
        (DRIVER_NAMES, rig.driver.managed or rig.containers is not None),
        (CONTAINER_NAMES, rig.containers is not None),
    )
    return {
        "path": rig.roots.ledger,
        "packages": required_packages(rig),
        "patterns": [pattern for pattern, wanted in declared if wanted],
        "folders": sorted(places),
    }


FINGERPRINT: Section[HostFingerprint] = Section(
    "fingerprint",
    HostFingerprint,
    lambda scene: collection_question(scene) if scene.compares_entries else None,
    lambda scene: float(DEEP_S) if scene.deep else 60.0,
    blind="anything that root hides or forges: dpkg's database, the cache of digests, the kernel's answers; code in "
    "firmware",
    start_order=0,
)


@dataclass(frozen=True)
class StoredCopies:
    """Accepted entries as the host has stored them."""

    serial: int
    """Of what it has stored last; one that is not higher than that is not stored."""
    digest: str
    changed: list[tuple[str, str]]
    """Class and key of entries that are others than those that were reviewed; then nothing is stored."""
    copies: int
    """Contents of which it keeps a copy for differences."""


def acceptance_question(
    scene: SurveyScope, serial: int, digest: str, entries: Iterable[Sequence[str]]
) -> dict[str, object]:
    """The question by which a host stores accepted entries.

    Args:
        scene: The host.
        serial: Of the accepted entries; higher than the last one.
        digest: SHA-256 of the file of them.
        entries: Class, key and value of each.
    """
    return {**collection_question(scene), "serial": serial, "digest": digest, "entries": [[*one] for one in entries]}


ACCEPTED_COPIES: Section[StoredCopies] = Section(
    "accepted_copies",
    StoredCopies,
    lambda scene: None,
    120.0,
    phase="separate",
    blind="files that root replaces afterwards",
)
"""Its question is `acceptance_question`: an acceptance alone asks it."""
