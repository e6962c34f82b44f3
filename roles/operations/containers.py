"""Operations on what runs containers: apt's sources of others, Docker's daemon, and the specs of cards."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence

from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError

from rigwright.containers import container_facts, daemon_json
from rigwright.containers.container_facts import IN_FORCE, REFRESH_PATH, REFRESH_UNIT, ContainerFacts, store_folder
from rigwright.containers.container_plan import ContainerPlan, find_unheld_packages
from rigwright.containers.daemon_json import Options
from rigwright.containers.dockerd_flags import is_ending_containers, is_keeping_containers
from rigwright.model.rig import Rig
from rigwright.render import render
from roles.operations.files import PathEntriesFact, PathEntry
from roles.operations.packages import PackageRun, fail_host_on_error

KEPT = 2  # sets of package files of each archive that stay: the one that is installed, and the one before
Commands = Generator[FunctionCommand, None, None]


class ContainersFact(FactBase[ContainerFacts]):
    """The containers of a host, in one command."""

    def command(self, script: str) -> StringCommand:
        """The probe."""
        return StringCommand("sh", "-c", QuoteString(script))

    def process(self, output: list[str]) -> ContainerFacts:
        """Read what it tells."""
        try:
            return container_facts.parse(output)
        except ValueError as error:
            raise FactProcessError(f"its containers: {error}") from error


def read_container_facts(rig: Rig) -> ContainerFacts | None:
    """The containers of the running deploy's host; None where looking failed, and with it this host."""
    facts: ContainerFacts | None = host.get_fact(
        ContainersFact, script=container_facts.render_probe(rig.roots, rig.cards, rig.containers, rig.container_supply)
    )
    return facts


@operation()
def move_duplicate_sources(paths: Sequence[str], folder: str) -> Generator[StringCommand, None, None]:
    """Move files away that name an archive of ours a second time; a removal has them back.

    + paths: the files
    + folder: where they go, each at its path
    """
    if not paths:
        host.noop("no conflicting apt sources")
    for path in paths:
        place = QuoteString(f"{folder}{path.rpartition('/')[0]}")
        yield StringCommand("mkdir -p", place, "&& mv -f", QuoteString(path), place)


@operation()
def keep_original_file(path: str, copy: str, record: str) -> Generator[StringCommand, None, None]:
    """Keep a copy of a file as it was before us.

    + path: the file
    + copy: where it goes
    + record: the record of the file once it is ours: later than that it is changed
    """
    there = host.get_fact(PathEntriesFact, paths=[path, record])
    if there.get(path, PathEntry()).kind != "file" or there.get(record, PathEntry()).kind != "absent":
        host.noop("already stored, or there was no file")
        return
    yield StringCommand("cp -p", QuoteString(path), QuoteString(copy))


@operation()
def hold_container_packages(rig: Rig, plan: ContainerPlan, facts: ContainerFacts, lacking: bool) -> Commands:
    """Hold packages that are there, and write down which those are.

    + rig: the rig
    + plan: its host's
    + facts: the facts before the run
    + lacking: whether the run has brought some
    """
    recorded = {name: facts.packages[name] for name in plan.packages if name in facts.packages}
    if not lacking and not find_unheld_packages(plan, facts) and dict(facts.recorded) == recorded:
        host.noop("the packages are held")
        return
    yield FunctionCommand(fail_host_on_error, (_hold_packages, rig, plan), {})


@operation()
def apply_running_options(rig: Rig, plan: ContainerPlan, facts: ContainerFacts, lacking: bool) -> Commands:
    """Have Docker's daemon run with the options that are there now, by as little as that takes.

    + rig: the rig
    + plan: its host's
    + facts: the facts before the run
    + lacking: whether the run has brought packages
    """
    if facts.docker_runs and not plan.step and not lacking:
        host.noop("the Docker daemon has its options")
        return
    step = plan.step if facts.docker_runs else "restart"
    yield FunctionCommand(fail_host_on_error, (_run_daemon_step, rig, step, plan.options or {}), {})


@operation()
def require_undisturbed_containers(rig: Rig) -> Commands:
    """Go on only where Docker's packages, which restart its daemon, end no containers by that.

    + rig: the rig
    """
    yield FunctionCommand(fail_host_on_error, (_leaves_containers_running, rig), {})


@operation()
def refresh_cdi_spec(rig: Rig, facts: ContainerFacts, changed: bool) -> Commands:
    """Have the spec of the cards name them as they are, now and after each boot.

    + rig: the rig
    + facts: the facts before the run
    + changed: whether the run has changed its writer, or the packages
    """
    if not changed and not facts.stale and all(state == "enabled" for _, state in facts.refresh):
        host.noop("the CDI spec matches the cards")
        return
    yield FunctionCommand(fail_host_on_error, (_refresh_spec, rig), {})


def _collect_container_facts(one: PackageRun) -> ContainerFacts:
    return container_facts.parse(
        one.shell.run(
            container_facts.render_probe(one.rig.roots, one.rig.cards, one.rig.containers, one.rig.container_supply)
        )
    )


def _hold_packages(one: PackageRun, plan: ContainerPlan) -> bool:
    facts, folder = _collect_container_facts(one), store_folder(one.rig.roots)
    before = set(one.shell.run(f"cat {shlex.quote(f'{folder}/held')} 2>/dev/null || true"))
    # holds of the operator are not ours to release one day
    ours = [name for name in plan.holds if name in before or name not in facts.held]
    one.write_lines(folder, "held", ours)
    one.write_lines(
        folder, "installed", (f"{name} {facts.packages[name]}" for name in plan.packages if name in facts.packages)
    )
    known = [name for name in sorted(before - set(ours)) if name in facts.held]
    one.mark_packages("unhold", known)
    one.mark_packages("hold", ours)
    for group in plan.groups:
        # remains of an interrupted job are newer than the files of a way back
        script = f"rm -rf fetched.* ./*.new; ls -1dt */ | tail -n +{KEPT + 1:d} | xargs -r rm -rf"
        one.shell.run(f"! cd {shlex.quote(f'{folder}/kept/{group.name}')} 2>/dev/null || {{ {script}; }}")
    left = find_unheld_packages(plan, _collect_container_facts(one))
    return one.report_error(*left) if left else True


def _leaves_containers_running(one: PackageRun) -> bool:
    facts = _collect_container_facts(one)
    return _has_restart_consent(one, facts, daemon_json.parse_options(facts.options))


def _has_restart_consent(one: PackageRun, facts: ContainerFacts, options: Options) -> bool:
    if not is_ending_containers(facts, options) or (one.rig.containers and one.rig.containers.restart):
        return True
    names = ", ".join(facts.containers) or "it does not report which"
    return one.report_error(f"refused: Docker containers were started since this run began: {names}")


def _run_daemon_step(one: PackageRun, step: str, options: Options) -> bool:
    facts = _collect_container_facts(one)
    if step == "restart" and is_ending_containers(facts, options) and is_keeping_containers(facts, options):
        # a daemon keeps them from when it has read that, and takes the rest when it is started
        one.shell.run("systemctl reload docker.service")
        facts = _collect_container_facts(one)
    if step == "restart" and not _has_restart_consent(one, facts, options):
        return False
    if not facts.docker_runs:
        how = "systemctl reset-failed docker.service 2>/dev/null; systemctl enable -q --now docker.service"
    else:
        # systemd starts it three times a minute at most, whatever has started it before
        again = "systemctl reset-failed docker.service; " if step == "restart" else ""
        how = f"{again}systemctl {shlex.quote(step)} docker.service" if step else ""
    if how:
        logger.info(f"{one.host.print_prefix}applying Docker daemon options: {step}")
        if not _run_unit_to_end(one, "rw-job-docker-options", how):
            return one.report_error("the Docker daemon rejects its options: see `journalctl -u docker.service`")
    one.shell.run(render("containers/in_force.sh.j2", in_force=IN_FORCE, daemon_json=daemon_json.PATH))
    if not _collect_container_facts(one).docker_runs:
        return one.report_error("the Docker daemon is not running: see `journalctl -u docker.service`")
    return True


def _run_unit_to_end(one: PackageRun, unit: str, script: str) -> bool:
    """Run what takes as long as a daemon or the cards do, through lost connections; whether it succeeds."""
    done = shlex.quote(one.done_path(unit))
    return one.run_package_job(unit, f"rm -f {done}\n{{ {script}; }} && touch {done}")


def _refresh_spec(one: PackageRun) -> bool:
    units = shlex.join((REFRESH_UNIT, REFRESH_PATH))
    # the error is asked for afterwards, and reported in the unit's own words
    script = (
        f"systemctl daemon-reload; systemctl enable --quiet {units} 2>/dev/null; systemctl start {REFRESH_PATH}; "
        f"systemctl reset-failed {REFRESH_UNIT} 2>/dev/null; systemctl restart {REFRESH_UNIT} || true"
    )
    _run_unit_to_end(one, "rw-job-cdi", script)
    now = _collect_container_facts(one)
    for line in now.stale:
        one.report_error(f"the CDI spec is wrong: {line}")
    if now.stale:
        for line in one.shell.run(f"journalctl -b -u {REFRESH_UNIT} -n 10 -o cat --no-pager 2>/dev/null || true"):
            one.report_error(f"  {line}")
    off = [(unit, state) for unit, state in now.refresh if state != "enabled"]
    for unit, state in off:
        one.report_error(f"{unit} is {state}, and must be enabled at boot: see `systemctl status {unit}`")
    return not now.stale and not off
