"""Which advisories cover a rig, and whether each is open, closed or unknown on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from rigwright.advisories.advisory_catalog import DRIVER, LLAMA_CPP, AdvisoryKeys, BulletinKeys, MaintainedData
from rigwright.advisories.components import Component, Gap
from rigwright.advisories.osv_records import (
    AdvisoryExport,
    AffectedPackage,
    OsvRecord,
    normalize_name,
    parse_day,
    release_of,
    scheme_of,
)
from rigwright.advisories.predicates import AccessPath, PredicateAnswer, PredicateScene, access_paths, evaluate
from rigwright.advisories.versions import Event, Scheme, VersionRange, is_affected
from rigwright.problems import format_count

State = Literal["open", "unknown", "closed"]
STATES: tuple[State, ...] = ("open", "unknown", "closed")
# Days after which data are stale. Of vLLM 0.21.0 alone some twenty advisories were published within five months of its
# release (catalog/advisories/vllm.toml): a month misses about four.
STALE_DAYS = 30
_SCHEMES: Mapping[str, Scheme] = {LLAMA_CPP: "build", DRIVER: "driver"}


@dataclass(frozen=True)
class PathState:
    """One way to a fault."""

    path: str
    state: State
    reason: str
    closed_by: tuple[str, ...] = ()
    """The predicates that close it."""


@dataclass(frozen=True)
class AdvisoryFinding:
    """One advisory that covers a component of a rig, or may cover it."""

    advisory: str
    aliases: tuple[str, ...]
    component: str
    version: str
    place: str
    state: State
    paths: tuple[PathState, ...]
    summary: str = ""
    source: str = ""
    note: str = ""
    origin: str = ""
    """The data that name it."""


@dataclass(frozen=True)
class DataSource:
    """Data that advisories were read from."""

    origin: str
    as_of: date | None
    total: int
    unreadable: tuple[str, ...] = ()
    ecosystems: frozenset[str] = frozenset()
    """Those that it is an export of."""

    def problem(self, today: date) -> str:
        """Why its age is a problem; empty where it is no problem."""
        if self.as_of is None:
            return "has no date: its age is unknown"
        days = (today - self.as_of).days
        if days < -1:
            return f"is dated {self.as_of}, in the future: its age is unknown"
        if days > STALE_DAYS:
            return f"is {format_count(days, 'day')} old: later advisories are missing (stale after {STALE_DAYS} days)"
        return ""


@dataclass(frozen=True)
class Assessment:
    """The assessment of one rig."""

    rig: str
    findings: tuple[AdvisoryFinding, ...]
    gaps: tuple[Gap, ...]
    sources: tuple[DataSource, ...] = field(default=())

    def count(self, state: State) -> int:
        """Advisories of a state."""
        return len({one.advisory for one in self.findings if one.state == state})


def packages_of(found: Iterable[Component]) -> set[tuple[str, str]]:
    """The packages that exports are searched for: ecosystem and name."""
    return {(one.ecosystem, normalize_name(one.ecosystem, one.name)) for one in found if one.ecosystem}


def data_sources(data: MaintainedData, exports: Sequence[AdvisoryExport]) -> tuple[DataSource, ...]:
    """The maintained data and every export, with their dates."""
    shipped = DataSource("shipped data", parse_day(data.as_of), len(data.advisories) + len(data.bulletins))
    return (
        shipped,
        *(
            DataSource(one.origin, one.as_of, one.total, tuple(one.unreadable), one.covered_ecosystems)
            for one in exports
        ),
    )


def assess(
    scene: PredicateScene,
    found: Sequence[Component],
    gaps: Iterable[Gap],
    data: MaintainedData,
    exports: Sequence[AdvisoryExport] = (),
) -> Assessment:
    """Hold advisories against a rig.

    Args:
        scene: The rig with its lock and rendered units.
        found: Its components.
        gaps: Its parts that no component stands for.
        data: The maintained data.
        exports: OSV exports and tracker files, read for the packages of these components.
    """
    sources = data_sources(data, exports)
    findings = [
        *_find_maintained(scene, found, data),
        *_find_exported(scene, found, data, exports),
        *_bulletins(found, data),
    ]
    merged: dict[tuple[str, str, str, str], AdvisoryFinding] = {}
    for one in findings:
        # the maintained data come first, and have the ways
        merged.setdefault((_canonicalize(one, data), one.component, one.version, one.place), one)
    ordered = sorted(merged.values(), key=lambda one: (STATES.index(one.state), one.component, one.advisory, one.place))
    return Assessment(scene.rig.name, tuple(ordered), (*gaps, *_find_gaps(found, sources)), sources)


def _canonicalize(one: AdvisoryFinding, data: MaintainedData) -> str:
    names = data.by_alias
    return next((names[name] for name in (one.advisory, *one.aliases) if name in names), one.advisory)


def _find_maintained(
    scene: PredicateScene, found: Iterable[Component], data: MaintainedData
) -> Iterator[AdvisoryFinding]:
    for component in found:
        for identifier, keys in data.advisories.items():
            if keys.component != component.key:
                continue
            affected = _is_covered(component, keys)
            if affected is not False:
                yield _finding(scene, component, identifier, keys, affected)


def _is_covered(component: Component, keys: AdvisoryKeys) -> bool | None:
    if component.version and component.version in keys.listed:
        return True
    if not keys.affected:
        return None
    ranges = []
    for one in keys.affected:
        ends = [Event("introduced", one.introduced)]
        ends += [Event("fixed", one.fixed)] if one.fixed else []
        ends += [Event("last_affected", one.last_affected)] if one.last_affected else []
        ranges.append(VersionRange(tuple(ends)))
    return is_affected(_scheme(component), component.version, ranges)


def _scheme(component: Component) -> Scheme:
    return _SCHEMES.get(component.name) or (scheme_of(component.ecosystem) if component.ecosystem else "pep440")


def _finding(
    scene: PredicateScene, component: Component, identifier: str, keys: AdvisoryKeys, affected: bool | None
) -> AdvisoryFinding:
    if not keys.assessed:
        paths: list[PathState] = [PathState("", "unknown", "its text was not read")]
    else:
        paths = [*_paths(scene, component, keys)]
        if affected is None:
            why = "whether this version is affected is unknown"
            # a closed way stays closed, whatever the version
            paths = [one if one.state == "closed" else PathState(one.path, "unknown", why) for one in paths]
    return _shipped_finding(component, identifier, keys, keys.aliases, paths, keys.note or "")


def _shipped_finding(
    component: Component,
    identifier: str,
    keys: AdvisoryKeys | BulletinKeys,
    aliases: tuple[str, ...],
    paths: Sequence[PathState],
    note: str = "",
) -> AdvisoryFinding:
    return AdvisoryFinding(
        advisory=identifier,
        aliases=aliases,
        component=component.key,
        version=component.version,
        place=component.place,
        state=_combine_states(paths),
        paths=tuple(paths),
        summary=keys.summary,
        source=keys.source,
        note=note,
        origin="shipped data",
    )


def _combine_states(paths: Sequence[PathState]) -> State:
    """Open if one way is; closed only if there are ways and all are closed."""
    states = {one.state for one in paths}
    return "open" if "open" in states else "closed" if states == {"closed"} else "unknown"


def _paths(scene: PredicateScene, component: Component, keys: AdvisoryKeys) -> Iterator[PathState]:
    if keys.reached_by == "process":
        yield PathState("local processes that open the cards' device files", "open", "no option closes it")
        return
    if not component.instances:
        yield PathState("", "unknown", f"no instance runs it: the reachability of {component.place} is unknown")
        return
    for instance in component.instances:
        if keys.reached_by == "weights":
            yield _state(scene, AccessPath(instance, version=component.version), keys, f"{instance.name}: its model")
            continue
        for path in access_paths(scene.rig.instances, scene.rig.gateway, instance, component.version):
            yield _state(scene, path, keys, str(path))


def _state(scene: PredicateScene, path: AccessPath, keys: AdvisoryKeys, name: str) -> PathState:
    """The state of one way: closed by the first list of predicates of which all hold."""
    doubts: list[str] = []
    why_open: list[str] = []
    for conditions in keys.closed_by:
        answers: list[PredicateAnswer] = [evaluate(scene, path, one) for one in conditions]
        if answers and all(one.holds is True for one in answers):
            reasons = dict.fromkeys(one.reason for one in answers)
            return PathState(name, "closed", "; ".join(reasons), tuple(one.name for one in conditions))
        failed = [one.reason for one in answers if one.holds is False]
        if failed or not answers:
            why_open += failed
        else:
            doubts += [one.reason for one in answers if one.holds is None]
    if doubts:
        return PathState(name, "unknown", "; ".join(dict.fromkeys(doubts)))
    return PathState(name, "open", "; ".join(dict.fromkeys(why_open)) or "no setting or feature closes it")


def _find_exported(
    scene: PredicateScene, found: Iterable[Component], data: MaintainedData, exports: Iterable[AdvisoryExport]
) -> Iterator[AdvisoryFinding]:
    by_package: dict[tuple[str, str], list[tuple[AdvisoryExport, OsvRecord, AffectedPackage]]] = {}
    for export in exports:
        for record in export.records:
            for package in record.affected:
                key = (release_of(package.ecosystem), package.name)
                by_package.setdefault(key, []).append((export, record, package))
    names = data.by_alias
    for component in found:
        key = (component.ecosystem, normalize_name(component.ecosystem, component.name))
        for export, record, package in by_package.get(key, ()):
            affected = is_affected(_scheme(component), component.version, package.ranges, package.listed)
            if affected is False:
                continue
            known = next((names[name] for name in (record.id, *record.aliases) if name in names), "")
            keys = data.advisories.get(known)
            target = _engine_of(found, component) if component.ecosystem == "GIT" else component
            if keys is not None and keys.component == target.key:
                yield _finding(scene, target, known, keys, affected or _is_covered(target, keys))
                continue
            why = "no predicate is written for it" if affected else "whether this version is affected is unknown"
            yield AdvisoryFinding(
                advisory=record.id,
                aliases=record.aliases,
                component=target.key,
                version=target.version,
                place=target.place,
                state="unknown",
                paths=(PathState("", "unknown", f"{why} ({package.urgency})" if package.urgency else why),),
                summary=record.summary,
                source=record.source,
                origin=export.origin,
            )


def _engine_of(found: Iterable[Component], repository: Component) -> Component:
    """The engine that a repository's component stands for, by the name that people know."""
    return next((one for one in found if one.name == LLAMA_CPP and one.place == repository.place), repository)


def _bulletins(found: Iterable[Component], data: MaintainedData) -> Iterator[AdvisoryFinding]:
    for component in found:
        for identifier, keys in data.bulletins.items():
            if keys.component != component.key:
                continue
            affected = _is_below(component, keys)
            if affected is False:
                continue
            state = PathState("", "unknown", "the bulletin does not name this version's branch")
            if affected:
                fix = _describe_fix(component, keys)
                state = PathState("local processes that open the cards' device files", "open", fix)
            yield _shipped_finding(component, identifier, keys, keys.cves, [state])


def _is_below(component: Component, keys: BulletinKeys) -> bool | None:
    """Whether a version is below the fixed one of its branch; None where the bulletin does not say it."""
    branch = component.version.partition(".")[0]
    fixed = keys.fixed.get("all") or keys.fixed.get(branch)
    if fixed is None:
        return False if keys.since and branch.isdigit() and int(branch) > keys.since else None
    scheme: Scheme = "driver" if keys.component == DRIVER else "pep440"
    return is_affected(scheme, component.version, [VersionRange((Event("introduced", "0"), Event("fixed", fixed)))])


def _describe_fix(component: Component, keys: BulletinKeys) -> str:
    fixed = keys.fixed.get("all") or keys.fixed[component.version.partition(".")[0]]
    return f"fixed in {fixed}"


def _find_gaps(found: Iterable[Component], sources: Iterable[DataSource]) -> Iterator[Gap]:
    """Components of ecosystems of which no export was read; unreadable records, which may be about any component."""
    sources = tuple(sources)
    covered = {name for one in sources for name in one.ecosystems}
    missing: dict[tuple[str, str], set[str]] = {}
    for component in found:
        if component.ecosystem in ("", "GIT") or component.ecosystem in covered:
            continue
        missing.setdefault((component.ecosystem, component.place), set()).add(component.name)
    for (ecosystem, place), names in sorted(missing.items()):
        what = f"{format_count(len(names), 'package')} of {ecosystem} in {place}"
        yield Gap(what, f"no export of {ecosystem}'s advisories was read: give one with --db")
    for source in sources:
        if source.unreadable:
            yield Gap(format_count(len(source.unreadable), "unreadable record"), f"in {source.origin}")
    for component in found:
        if component.key in (DRIVER, LLAMA_CPP) and not component.version:
            yield Gap(f"{component.key} in {component.place}", "its version is unknown")
