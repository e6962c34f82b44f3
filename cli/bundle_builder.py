"""The bundle of an inventory: missing files downloaded, hashed and listed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import requests

import roles
from cli.bundled_drivers import BundledDriver
from cli.lock_resolver import downloads
from cli.lock_resolver.distribution_packages import (
    PART,
    DistributionArchive,
    LockedArchive,
    PackageTransaction,
    PartialMirror,
)
from cli.lock_resolver.downloads import DownloadUnavailable, FileContent, declared_origins
from cli.lock_resolver.image_registry import ImageResolver
from cli.lock_resolver.lock_run import NothingToLock, address_lookup, hub_endpoints, image_registries, load_rigs
from cli.lock_resolver.model_hub import HubEndpoint
from cli.lock_resolver.package_index import PackageIndex, index_url
from cli.tables import format_size, print_prose, print_table
from rigwright.containers.container_packages import distribution_packages, groups_for
from rigwright.file_lock import FileLockHeld, file_lock
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.rig import locked_artefacts
from rigwright.nvidia.packages.driver_target import HEADERS
from rigwright.plan.host_probe import required_packages
from rigwright.problems import Invalid, Problem, format_count
from rigwright.supply.apt_release import PACKAGES, TIME, ArchiveSuite
from rigwright.supply.bundle import (
    ADVISORIES,
    DEBS,
    INDEX,
    BundleRow,
    format_digest,
    listed_paths,
    load_bundle,
    render_index,
    supply_digest,
)
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import HUB
from roles.progress import progress
from roles.weights.host.reach import only_public

LOCK = ".lock"
FOLDERS = {
    "source": "sources",
    "wheel": "wheels",
    "conda": "conda",
    "weight": "weights",
    "image": "images",
    "deb": DEBS,
    "plugin": "plugins",
    "advisories": ADVISORIES,
}
# Hosts, too, learn from it where a channel is.
DEFAULTS_FILE = Path(roles.__file__).with_name("weights") / "host/defaults.py"


class BundleBuilder:
    """Makes one bundle."""

    def __init__(
        self,
        inventory: Path,
        output: Path | None,
        from_dir: Path | None,
        advisories: tuple[Path, ...] = (),
        kernels: tuple[str, ...] = (),
    ) -> None:
        """Read what is needed.

        Raises:
            NothingToLock: the inventory is refused, has no rigs, or names no folder.
        """
        self.inventory = inventory
        self.rigs = load_rigs(inventory, "bundle")
        if not self.rigs:
            raise NothingToLock(f"{inventory}: no rigs: there is nothing to bundle")
        if faults := [fault for rig in self.rigs for fault in rig.signature_faults]:
            raise Invalid(faults)
        if kernels and not any(rig.driver.managed for rig in self.rigs):
            raise NothingToLock(f"{inventory}: no rig has a managed driver, so --kernel {kernels[0]} has no use")
        self.folder = output or self._declared_folder()
        self.from_dir = from_dir
        self.advisories = advisories
        self.kernels = kernels
        self.session = downloads.open_session()
        self.index = PackageIndex(self.session, index_url())
        self.addresses = address_lookup(self.rigs)
        self.places = hub_endpoints(self.rigs)
        self.registries = ImageResolver(self.session, image_registries(self.rigs))

    def _declared_folder(self) -> Path:
        named = {rig.bundle_folder for rig in self.rigs}
        if len(named) != 1 or None in named:
            problem = (
                "the rigs name different bundle folders, or only some name one"
                if named - {None}
                else "no rig names a bundle folder"
            )
            raise NothingToLock(f"{self.inventory}: {problem}: choose one with --output")
        return Path(str(named.pop()))

    @property
    def locked_artefacts(self) -> list[Artefact]:
        """All that is locked for these rigs."""
        needed = {a for rig in self.rigs for a in locked_artefacts(rig)}
        return sorted(needed, key=lambda artefact: (artefact.kind, *artefact.order))

    def build_bundle(self, systems: list[str]) -> None:
        """Bring everything there, and write the index last.

        Raises:
            Invalid: with everything that is not to be had.
            NothingToLock: another process holds the lock.
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (
                file_lock(self.folder / LOCK, f"bundle of {self.inventory}", patience=0),
                only_public(declared_origins((rig.network for rig in self.rigs), self.index.url)),
            ):
                self._collect_files(systems)
        except FileLockHeld as error:
            raise NothingToLock(f"{self.folder}: another `rigwright bundle` is running there: {error}") from None

    def _collect_files(self, systems: list[str]) -> None:
        brought: dict[str, BundleRow] = {}  # by path: models may share files
        problems: list[Problem] = []
        counted: Counter[str] = Counter()
        drivers = {system: BundledDriver(self.rigs, system, self.folder) for system in systems}
        debs = {row for system in systems for one in self._package_groups(system) for row in one.packages.values()}
        debs |= {row for one in drivers.values() for row in one.rows}
        for artefact in [*self.locked_artefacts, *sorted(debs, key=lambda row: row.order)]:
            try:
                row = self._add_artefact(artefact)
            except DownloadUnavailable as error:
                what = f"{artefact} ({artefact.path})" if artefact.group and artefact.kind == "weight" else artefact
                problems.append(Problem(str(self.inventory), str(what), str(error)))
                continue
            counted[artefact.kind] += row.path not in brought
            brought[row.path] = row
        for path in self.advisories:
            try:
                row = self._add_advisories(path)
            except DownloadUnavailable as error:
                problems.append(Problem(str(self.inventory), "--advisories", str(error)))
                continue
            if row.path in brought:
                problems.append(Problem(str(self.inventory), "--advisories", f"two files are named {path.name}"))
            counted["advisories"] += 1
            brought[row.path] = row
        rows, suites, staged = list(brought.values()), list[ArchiveSuite](), list[Path]()
        mirrors = tuple(dict.fromkeys(url for rig in self.rigs for url in rig.network.mirrors.get("apt", ())))
        for system in systems:
            try:
                found, relations = self._add_packages(system, mirrors, drivers[system])
            except (DownloadUnavailable, ValueError) as error:
                problems.append(Problem(str(self.inventory), f"packages of {system}", str(error)))
                continue
            place = f"{PACKAGES}/{system}"
            rows += [
                BundleRow(path=f"{place}/{path}", sha256=one.sha256, size=one.size) for path, one in found.files.items()
            ]
            rows += relations
            suites += found.suites
            staged += [self.folder / place / path for path in found.staged]
            counted[f"packages of {system}"] = len(found.files)
        if not problems:
            problems = self._find_missing_headers({row.path.rpartition("/")[2].partition("_")[0] for row in rows})
        if problems:
            raise Invalid(problems)
        made = datetime.now(timezone.utc).strftime(TIME)
        earlier = listed_paths(self.folder)
        new = self.folder / f"{INDEX}.new"
        new.write_text(render_index(made, systems, suites, rows))
        for path in staged:
            path.with_name(f"{path.name}{PART}").replace(path)
        new.replace(self.folder / INDEX)
        self._remove_stale(earlier - {row.path for row in rows})
        self._print_summary(rows, counted, suites)

    def _find_missing_headers(self, names: set[str]) -> list[Problem]:
        """The named kernels of which no archive has headers."""
        said = "no archive has its headers: name kernels as `uname -r` prints them on the boxes, and mirrors with them"
        return [
            Problem(str(self.inventory), f"--kernel {one}", said)
            for one in self.kernels
            if f"{HEADERS}{one}" not in names
        ]

    def _package_groups(self, system: str) -> list[PackageGroup]:
        """The locked packages of other archives than the system's."""
        found = [one for rig in self.rigs for one in groups_for(rig.container_supply.groups, system)]
        return list({one.name: one for one in found}.values())

    def _artefact_path(self, artefact: Artefact) -> Path:
        # weights lie as on hosts: the folder of a bundle's weights, served as it is, is a peer
        name = artefact.weight_path if artefact.kind == "weight" else artefact.file
        if artefact.kind == "conda":  # one name may be there for two platforms
            name = f"{artefact.sha256[:16]}/{name}"
        if artefact.kind == "deb":
            name = f"{artefact.group}/{name}"
        return Path(FOLDERS[artefact.kind], name)

    def _add_artefact(self, artefact: Artefact) -> BundleRow:
        place = self._artefact_path(artefact)
        path = self.folder / place
        wanted = FileContent(artefact.sha256, artefact.size)
        row = BundleRow(path=str(place), sha256=artefact.sha256, size=artefact.size)
        if _is_same_file(path, wanted):
            return row
        path.parent.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys((artefact.path, artefact.file)) if self.from_dir else ()
        given = [self.from_dir / name for name in names if self.from_dir]
        part = path.with_name(f"{path.name}.part")
        if artefact.is_written:
            part.write_bytes(str(artefact.text).encode())
        elif right := next((one for one in given if _is_same_file(one, wanted)), None):
            shutil.copyfile(right, part)
        else:
            self._fetch_artefact(artefact, part, wanted, [f"{one} is another file" for one in given if one.exists()])
        part.replace(path)
        return row

    def _add_advisories(self, path: Path) -> BundleRow:
        """Copy a file of advisories; its own records say its date."""
        place = Path(ADVISORIES, re.sub(r"[^A-Za-z0-9._+~-]", "_", path.name).lstrip(".") or "advisories.json")
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        shutil.copy2(path, part)  # of the tracker's file its time is its date
        copied = downloads.hash_file(part, lambda done, total: None)
        part.replace(target)
        return BundleRow(path=str(place), sha256=copied.sha256, size=copied.size)

    def _fetch_artefact(self, artefact: Artefact, part: Path, wanted: FileContent, failed: list[str]) -> None:
        for session, url, hub in self._artefact_addresses(artefact, failed):
            with part.open("wb") as into, progress.task("bundle", f"fetching {artefact.file}") as task:
                try:
                    found = downloads.fetch_file(
                        session, url, lambda done, total: task.report_done(done, total, "bytes"), into, wanted.size
                    )
                except DownloadUnavailable as error:
                    failed.append(_explain_hub_error(hub, artefact, error) or f"{url} {error}")
                    continue
            if found == wanted:
                return
            failed.append(f"{url} has {found.size} bytes with SHA-256 {found.sha256}")
        with suppress(FileNotFoundError):
            part.unlink()
        tried = "; ".join(failed) or f"no address ({', '.join(artefact.sources)})"
        raise DownloadUnavailable(f"is not available: {tried}: add a mirror, or provide it with --from-dir")

    def _artefact_addresses(
        self, artefact: Artefact, failed: list[str]
    ) -> Iterator[tuple[requests.Session, str, HubEndpoint | None]]:
        """The addresses of a file, in order, each with its source; for an address of the hub, its place there."""
        for source in artefact.sources:
            if source.startswith("index:"):
                try:
                    packages = self.index.project_page(source.removeprefix("index:")).packages
                except DownloadUnavailable as error:
                    failed.append(str(error))
                    continue
                found = [package.url for package in packages if package.filename == artefact.file]
            elif source.startswith(f"{HUB}:"):
                repository = source.removeprefix(f"{HUB}:")
                for place in self.places:
                    yield place.open_session(), place.file_url(repository, artefact.version, artefact.path), place
                continue
            elif artefact.kind == "image":
                for asked in self.registries.places(source):
                    try:
                        yield *self.registries.blob_address(artefact, asked), None
                    except DownloadUnavailable as error:
                        failed.append(f"{asked.base} {error}")
                continue
            else:
                found = self.addresses(artefact.model_copy(update={"sources": (source,)}))
                if artefact.kind == "conda" and not found:
                    found = _channel_addresses(source, failed)
            for url in found:
                yield self.session, url, None

    def _add_packages(
        self, system: str, mirrors: tuple[str, ...], driver: BundledDriver
    ) -> tuple[PartialMirror, list[BundleRow]]:
        with progress.task("bundle", f"packages of {system}"):
            wanted = [
                PackageTransaction(
                    tuple(dict.fromkeys(name for rig in self.rigs for name in required_packages(rig, system)))
                )
            ]
            wanted += [
                PackageTransaction(*distribution_packages(rig.containers, rig.container_supply, system))
                for rig in self.rigs
            ]
            for one in self._package_groups(system):
                files = tuple(self.folder / self._artefact_path(row) for row in one.packages.values())
                wanted += [PackageTransaction(debs=files)] if all(map(Path.exists, files)) else []
            relations, locked = list[BundleRow](), list[LockedArchive]()
            if driver.rows and all((self.folder / self._artefact_path(row)).exists() for row in driver.rows):
                relations, locked = [driver.write_relations()], [driver.locked_archive()]
                wanted += driver.transactions(self.kernels)
            of = [one for one in dict.fromkeys(wanted) if one != PackageTransaction()]
            archive, place = DistributionArchive(system, mirrors), self.folder / PACKAGES / system
            return archive.fetch_packages(of, place, driver.components, locked), relations

    def _remove_stale(self, paths: set[str]) -> None:
        """Remove files that only the earlier bundle had; other files next to it stay."""
        for path in paths:
            with suppress(FileNotFoundError):
                (self.folder / path).unlink()
            with suppress(OSError):  # one that still holds something
                for folder in list(Path(path).parents)[:-1]:
                    (self.folder / folder).rmdir()

    def _print_summary(self, rows: list[BundleRow], counted: Counter[str], suites: list[ArchiveSuite]) -> None:
        sizes: Counter[str] = Counter()
        kinds = {folder: kind for kind, folder in FOLDERS.items()}
        for row in rows:
            first, second = row.path.split("/")[:2]
            sizes[kinds.get(first, f"packages of {second}")] += row.size
        print_table(
            ("kind", "files", "size"), [(kind, str(counted[kind]), format_size(sizes[kind])) for kind in counted]
        )
        print_table(
            ("suite", "signed", "valid until"),
            [(f"{one.system} {one.suite}", one.signed, one.valid_until or "no end") for one in suites],
        )
        print_prose(f"{self.folder}: {format_count(len(rows), 'file')}, {format_size(sum(sizes.values()))}")
        found = format_digest(supply_digest(self.rigs[0].lock, load_bundle(self.folder)))
        print_prose(f"the digest of lock and bundle, for `deploy --expect`: {found}")
        if any(rig.signers for rig in self.rigs):
            print_prose(f"the inventory has signers: sign the bundle with `rigwright sign {self.inventory}`")


def _channel_addresses(source: str, failed: list[str]) -> list[str]:
    """Where a file of a conda channel without mirrors is, by the program that tells it to hosts."""
    name, _, path = source.partition(":")
    command = [sys.executable, "-I", str(DEFAULTS_FILE), "channel", name]
    try:
        told = subprocess.run(command, capture_output=True, check=True).stdout
    except subprocess.CalledProcessError:
        failed.append(f"py-rattler, needed to locate the channel {name}, does not run")
        return []
    return [f"{base.rstrip('/')}/{path}" for base in json.loads(told)]


def _explain_hub_error(hub: HubEndpoint | None, artefact: Artefact, error: DownloadUnavailable) -> str:
    """Why the hub refuses a file, in one sentence with what to do; "" where it did not answer, or has it after all."""
    if hub and (error.refused or error.gone):
        try:
            hub.check_access(str(artefact.repository), artefact.version, artefact.path)
        except DownloadUnavailable as explained:
            return str(explained)
    return ""


def _is_same_file(path: Path, wanted: FileContent) -> bool:
    if not path.is_file() or path.stat().st_size != wanted.size:
        return False
    with progress.task("bundle", f"verifying {path.name}") as task:
        return downloads.hash_file(path, lambda done, total: task.report_done(done, total, "bytes")) == wanted
