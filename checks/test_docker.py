"""Docker's daemon: access to it, and cards of its containers."""

from contextlib import suppress
from typing import Any

from checks import Drift, check, expect
from checks.container_check_helpers import RESTART, running_daemon, skip_without_container_cards, skip_without_docker
from checks.nvidia import expect_no_items
from checks.remedy import instruction, restart_units
from checks.survey.answers import SurveyAnswers
from checks.survey.containers import CONTAINERS
from rigwright.containers import daemon_json
from rigwright.containers.daemon_json import UnreadableDaemonConfig
from rigwright.containers.dockerd_flags import parse_daemon_flags
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry

ROOTS = (0o660, 0o600)  # modes of the socket
METRICS = "metrics-addr"  # its figures, and no way in
SWARM = {"2377", "7946"}  # ports (docs.docker.com/engine/swarm, "Open protocols and ports between the hosts")


@check(
    "C04",
    "the Docker daemon is reachable only through its socket, by root and its group",
    severity="critical",
    why="access to the daemon is root access: any container may mount the whole host",
)
def test_reached(survey: SurveyAnswers, containers_entry: ContainersEntry | None, containers: object) -> None:
    skip_without_docker(containers_entry)
    seen, there = running_daemon(survey), dict[str, Any]()
    with suppress(UnreadableDaemonConfig):  # C02 tells of it
        there = daemon_json.parse_options(survey.read(CONTAINERS).options)
    # from its next start on
    hosts = there["hosts"] if isinstance(there.get("hosts"), list) else []
    wrong = [f"it is configured to listen on {one}" for one in hosts if not str(one).startswith(("fd://", "unix://"))]
    figures = [
        str(there.get(METRICS, "")),
        *(said for name, said in parse_daemon_flags(seen.arguments) if name == METRICS),
    ]
    known = {one.rpartition(":")[2] for one in figures} | (SWARM if seen.swarm else set())
    wrong += [f"it listens on {one}" for one in seen.listens if one.rpartition(":")[2] not in known]
    for path, lying in sorted(seen.sockets.items()):
        if lying.mode not in ROOTS or lying.owner != "root" or lying.group not in ("root", "docker"):
            wrong.append(f"its socket {path} has mode {lying.mode:o} of {lying.owner}:{lying.group}")
        if lying.listed:
            wrong.append(f"its socket {path} has an access list")
    cure = restart_units("docker.socket", "docker.service")
    if any("listen" in one for one in wrong):
        cure = instruction("remove that from docker.service, docker.socket or daemon.json") + cure
    expect_no_items("only its socket, of root and its group", wrong or ([] if seen.sockets else ["none"]), cure)


@check(
    "C08",
    "running containers get their cards through CDI",
    severity="low",
    why="other methods lose the cards at the next `systemctl daemon-reload`, such as by an upgrade, until a restart",
)
def test_carded(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    containers_entry: ContainersEntry | None,
    containers: object,
) -> None:
    skip_without_container_cards(declared_cards)
    skip_without_docker(containers_entry)
    old = [f"{name} gets them from {how}" for name, how in _daemon_rows(survey, "carded") if how != "cdi"]
    cure = instruction("recreate it with --device nvidia.com/gpu=all, or with the driver cdi in a compose file")
    expect("; ".join(old) or "CDI", "CDI", cure)


def _daemon_rows(survey: SurveyAnswers, what: str) -> list[list[str]]:
    """The daemon's containers; none where it does not run.

    Raises:
        Drift: it says nothing of that.
    """
    found = survey.read(CONTAINERS).daemon
    rows: list[list[str]] | None = getattr(found, what) if found else []
    if rows is None:
        raise Drift("Docker's list of running containers", "none", RESTART)
    return rows
