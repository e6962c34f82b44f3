"""`rigwright bench stress`: long prompts, long answers and many turns for instances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import click

from checks import Drift
from checks.connections import ConnectedHost
from checks.survey.health import read_health
from cli.exit_codes import HostUnreached, InvalidRequest
from cli.instance_access import INTERRUPTED, InterruptHandler, hold_deploy_lock, map_boxes, select_instances
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.measurement_refusals import refuse_foreign_server
from cli.option_types import OutputFile, WholeNumber
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION
from cli.verdict_report import HostVerdict, InstanceVerdict, StressVerdict, finish_report, print_finding
from rigwright.engines import kind_of
from rigwright.model.instance import Instance
from rigwright.operate import instance_health
from rigwright.operate.capability_probes import ProbeFinding
from rigwright.operate.client_target import instance_target
from rigwright.operate.gateway_probes import count_probing_gateways
from rigwright.operate.long_context_probes import ProbeResult, sum_known
from roles import root_shell
from roles.client import ClientJobFailed, ClientJobLost
from roles.client.instance_probes import StressTarget
from roles.connection_failures import describe_unreachable_host
from roles.progress import progress
from roles.progress_task import ProgressTask


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@INSTANCE_OPTION
@click.option("--up-to", type=WholeNumber(1000, 100_000_000), metavar="TOKENS", help="Longest prompt.")
@click.option("--soak", is_flag=True, help="Twenty conversations of five turns instead; half an hour.")
@click.option("--grow", is_flag=True, help="With --soak: five conversations that grow to 24,000 tokens.")
@click.option("--beside-others", is_flag=True, help="Run while others use the instance; slows them down.")
@click.option("--json", "as_json", is_flag=True, help="Print a report as JSON instead of text.")
@click.option("--junit", type=OutputFile(), help="Also write a JUnit XML report to this file.")
def stress(
    inventory: str,
    limit: str | None,
    instance: tuple[str, ...],
    up_to: int | None,
    soak: bool,
    grow: bool,
    beside_others: bool,
    as_json: bool,
    junit: str | None,
) -> None:
    """Test long prompts, long answers and many turns.

    Also long tool returns, ten tools and an image. Takes minutes; deploys wait. Refuses an instance in use without
    --beside-others.
    Exit status: 0, all passed. 1, a probe failed. 2, the command is refused, or the instance is in use. 3, a host was
    not reached, or was lost.
    Example: rigwright bench stress rig.py --limit box1 --instance chat --up-to 40000
    """
    if grow and not soak:
        raise InvalidRequest("--grow needs --soak")
    interrupt = InterruptHandler()

    def run(box: ConnectedHost) -> HostVerdict:
        mine = [one for _, one in select_instances([box], instance)]
        told: list[InstanceVerdict] = [StressVerdict(one.name, one.variant_name) for one in mine]
        if interrupt.asked:
            for judged in told:
                judged.ended = INTERRUPTED
            return HostVerdict.from_instances(box.name, told)
        try:
            with hold_deploy_lock(box, f"bench stress of {inventory}"):
                for one, judged in zip(mine, told, strict=True):
                    _one(box, one, judged)
        except HostUnreached as error:
            return HostVerdict(box.name, "not reached", why=error.message.removeprefix(f"{box.name}: "))
        except click.ClickException as error:
            for judged in told:
                judged.ended, judged.refused = error.message, isinstance(error, InvalidRequest)
        return HostVerdict.from_instances(box.name, told)

    def _one(box: ConnectedHost, one: Instance, judged: InstanceVerdict) -> None:
        if interrupt.asked:
            judged.ended = INTERRUPTED
            return
        checks: list[ProbeFinding] = []
        judged.checks = checks
        try:
            service = kind_of(one).service(box.rig, one, box.resolve_desired().installations[one.installed_as])
            target = instance_target(box.rig.roots, box.rig.accounts, box.rig.gateway, one)
            with interrupt.open_client(box, target) as client, progress.task(box.name, one.name) as task:
                refuse_foreign_server(box, one, client)
                context = (one.variant.capacity or (0, None))[1]
                show = partial(_show_step, task, one.name)
                stressed = StressTarget(client, one, service, context, lambda: _read_memory(box, one), show, up_to)
                if (why := stressed.check_idle()) and not beside_others:
                    judged.ended, judged.refused = f"{why}: --beside-others runs it anyway", True
                    return
                if gateways := count_probing_gateways(box.rig.instances, box.rig.gateway, one.name):
                    stressed.allow_gateway_probes(gateways)
                for probed in _probes(stressed, box, one):
                    checks.append(probed)
                    if not as_json:
                        print_finding(box.name, one.name, _with_described_figures(probed))
                judged.foreign_tokens = stressed.foreign_tokens
        except InvalidRequest as error:
            judged.ended, judged.refused = error.message, True
        except (ClientJobLost, ClientJobFailed) as error:
            judged.ended = interrupt.describe_error(error)
        except click.ClickException as error:
            judged.ended = error.message

    def _probes(stressed: StressTarget, box: ConnectedHost, one: Instance) -> Iterator[ProbeResult]:
        return stressed.run_soak(grow, lambda: _count_restarts(box, one)) if soak else stressed.run_probes()

    hosts, gone = map_boxes(inventory, limit, instance, run)
    hosts += [HostVerdict(name, "not reached", why=describe_unreachable_host(why)) for name, why in gone.items()]
    words = ("passed", "failed under load")
    finish_report(inventory, hosts, interrupted=interrupt.asked, as_json=as_json, junit=junit, words=words)


def _show_step(task: ProgressTask, instance: str, text: str) -> None:
    task.start_step(f"{instance}: {text}")


def _with_described_figures(probed: ProbeResult) -> ProbeResult:
    """With its figures in its words."""
    parts = [probed.detail] if probed.detail else []
    if probed.prompt_tokens and probed.first_s:
        rate = probed.prompt_tokens / probed.first_s
        parts.append(f"{probed.prompt_tokens:,} tokens read in {probed.first_s:.2f} s, {rate:.0f} a second")
    if probed.tokens_a_second:
        parts.append(f"{probed.tokens_a_second:.1f} tokens a second")
    if probed.growth_mib is not None:
        parts.append(f"memory {probed.growth_mib:+.0f} MiB")
    return replace(probed, detail="; ".join(parts))


def _observe_instance_host(box: ConnectedHost) -> instance_health.HealthFacts | None:
    try:
        return read_health(box.target, box.rig, ask=False)
    except (ValueError, Drift, root_shell.ConnectionGone):
        return None


def _read_memory(box: ConnectedHost, one: Instance) -> float | None:
    """MiB that its cards have in use; of one without cards, its service."""
    found = _observe_instance_host(box)
    if found is None:
        return None
    if one.cards:
        cards, _ = instance_health.parse_card_uses(found.cards)
        return sum_known(card.used_mib for card in cards if card.index in one.cards)
    unit = found.units.get(one.unit)
    return unit.memory / (1 << 20) if unit and unit.memory is not None else None


def _count_restarts(box: ConnectedHost, one: Instance) -> int | None:
    found = _observe_instance_host(box)
    unit = found.units.get(one.unit) if found else None
    return unit.restarts if unit else None
