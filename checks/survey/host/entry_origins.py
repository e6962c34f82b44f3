"""Origins of entries: the package of a declared archive, the deploy or the derivation that explains each.

Root can forge each record that this reads. `check --deep` reads every byte, and `entry_debs` compares with archives.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from checks.survey.host import dpkg, packaged_modes
from checks.survey.host.entry_accounts import attribute_accounts
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.entry_boot import attribute_boot
from checks.survey.host.entry_derivations import attribute_derivations
from checks.survey.host.entry_generators import attribute_generated
from checks.survey.host.entry_live import attribute_live
from checks.survey.host.entry_packages import (
    PackageRecords,
    add_missing_files,
    add_unlisted_packages,
    attribute_links,
    attribute_packages,
    list_packages,
)
from checks.survey.host.entry_templates import attribute_templates
from checks.survey.host.host_entry import HostEntry

OURS = "rigwright"
ANYWHERE = ("privileged_files", "secret_copies", "authorised_keys")
"""Classes of what is foreign in our folders, too: no check of these compares it."""


def attribute(entries: list[HostEntry], asked: Mapping[str, Any]) -> tuple[list[dict[str, object]], PackageRecords]:
    """Set origin and expected_from of entries; returns the packages that bring entries, and owners of paths.

    Args:
        entries: All of them.
        asked: `folder`, root's folder for what is kept between runs, empty for none; `ours`, what a deploy wrote:
            `files`, path -> SHA-256, empty where the controller does not know the content; `links`, path -> target;
            `linked_folders`, folder -> folder of ours that its links lead to, by the same names; `folders`, those whose
            content other checks compare; `accounts`, name -> home; `groups`, name -> groups that it is put into, by
            commas; `jobs`, folder of the records of our jobs; `mounts`, folder of file systems in memory -> beginning
            of their sources; `addresses`, keys of entries of addresses that come and go.
    """
    index = PackageRecords(str(asked.get("folder", "")))
    index.load({entry.path for entry in entries if entry.path and entry.key == entry.path})
    host = Attribution(entries, index, asked.get("ours", {}))
    attribute_deployed(host)
    links = attribute_packages(entries, index)
    attribute_links(links, index, host.by_path.__contains__)
    attribute_templates(host)
    attribute_accounts(host)
    attribute_derivations(host)
    attribute_generated(host)
    attribute_live(host)
    attribute_boot(host)
    packages = list_packages(entries, index)
    add_missing_files(entries, index)
    add_unlisted_packages(entries, index)
    index.save()
    return packages, index


def attribute_deployed(host: Attribution) -> None:
    """Explain what a deploy wrote: exact paths, with the content where the controller knows it."""
    files, links = host.deployed.get("files", {}), host.deployed.get("links", {})
    linked = host.deployed.get("linked_folders", {})
    folders = tuple(f"{folder}/" for folder in host.deployed.get("folders", {}))
    for entry in host.entries:
        if entry.kind not in ANYWHERE and (entry.path.startswith(folders) or f"{entry.path}/" in folders):
            host.explain(entry, OURS)
            continue
        if not entry.path or entry.key != entry.path:
            continue
        folder, _, name = entry.path.rpartition("/")
        source = f"{linked[folder]}/{name}" if folder in linked else ""
        if source and host.target(entry) == source and os.path.isfile(f"{dpkg.ROOT}{source}"):
            host.explain(entry, OURS)
        elif entry.path in links:
            if host.target(entry) == links[entry.path]:
                host.explain(entry, OURS)
            else:
                entry.expected_from = OURS
        elif entry.path in files:
            wanted = files[entry.path]
            same = not wanted or _sha256(host, entry) == wanted
            try:
                mode = packaged_modes.has_packaged_mode(entry.path, os.lstat(f"{dpkg.ROOT}{entry.path}"))
            except OSError:
                mode = False
            if same and mode and host.content(entry) is not None:
                host.explain(entry, OURS)
            else:
                entry.expected_from = OURS


def _sha256(host: Attribution, entry: HostEntry) -> str:
    content = host.content(entry)
    return "" if content is None else hashlib.sha256(content).hexdigest()
