"""The end of management of a host's containers: the values of templates/containers/release.sh.j2."""

from __future__ import annotations

from typing import cast

from rigwright.containers import daemon_json
from rigwright.containers.container_facts import CDI_SPEC, IN_FORCE, ContainerFacts, store_folder
from rigwright.containers.container_files import PREFERENCES, managed_paths
from rigwright.containers.daemon_json import Options, UnreadableDaemonConfig
from rigwright.containers.dockerd_flags import is_ending_containers
from rigwright.model.roots import Roots

WAITS = "Docker keeps the managed options until its daemon is restarted: containers are running"
LOST = "the managed Docker options stay: {}/daemon.json, which lists them, cannot be read"


def container_release_values(roots: Roots, facts: ContainerFacts, removing: bool = False) -> dict[str, object]:
    """The values that the end of their management needs.

    Args:
        roots: Directories on the host.
        facts: Its host.
        removing: Whether our packages go, too; otherwise the spec stays with those that write it.
    """
    return {
        "container_store": store_folder(roots),
        "container_files": [path for path in managed_paths(roots) if path != PREFERENCES],
        "container_preferences": PREFERENCES,
        "container_spec": CDI_SPEC if removing else "",
        "container_folders": [f"{roots.config}/containers"],
        "in_force": IN_FORCE,
        **_restored_options(roots, facts),
    }


def describe_release(roots: Roots, facts: ContainerFacts) -> list[str]:
    """The messages for the operator before their management ends."""
    return cast("list[str]", _restored_options(roots, facts)["daemon_notes"])


def _restored_options(roots: Roots, facts: ContainerFacts) -> dict[str, object]:
    """The earlier options of Docker, and the step by which its daemon reads them."""
    before = daemon_json.parse_record(facts.record)
    found = _read_options(facts.found)
    nothing: dict[str, object] = {
        "daemon_json": "",
        "daemon_as": "",
        "daemon_text": "",
        "daemon_step": "",
        "daemon_notes": [LOST.format(store_folder(roots))] if facts.record and before is None else [],
    }
    there = _read_options(facts.options)
    # another program has removed or rewritten it meanwhile: it is no longer Rigwright's
    if before is None or not before.set or there is None or facts.odd:
        return nothing
    made, _ = daemon_json.merge_options(there, {}, before)
    same = found is not None and (found == made or daemon_json.is_untouched(there, found, before))
    how = "absent" if before.absent and not made else "found" if same else "text"
    step = (
        daemon_json.choose_reload_action(_read_options(facts.in_force), made, before.names) if facts.docker_runs else ""
    )
    waits = step == "restart" and is_ending_containers(facts, made)
    return nothing | {
        "daemon_json": daemon_json.PATH,
        "daemon_as": how,
        "daemon_text": daemon_json.render_daemon_json(made),
        "daemon_step": "" if waits else step,
        "daemon_notes": [WAITS] if waits else [],
    }


def _read_options(text: str | None) -> Options | None:
    """The options of a daemon.json; None for none, and for one that cannot be read."""
    try:
        return None if text is None else daemon_json.parse_options(text)
    except UnreadableDaemonConfig:
        return None
