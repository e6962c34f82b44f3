"""Role serving: keys, then one generation with a hardened unit an instance, activated with a way back."""

from __future__ import annotations

from rigwright.declaration.variant_selection import VariantSwitch
from rigwright.engines import kind_of
from rigwright.gateway.gateway_units import ROTATION, render_logrotate
from rigwright.host.generation_layout import JOB
from rigwright.model import api_keys
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import TargetState, numa_node_of
from rigwright.serving.instance_units import OWNED_HEADER, credential_path
from rigwright.serving.plugin_selftest import plan_selftests
from rigwright.serving.standby import StandbyInstance, plan_standby
from rigwright.serving.takeover import Takeover
from roles.operations.files import TextFile, remove_files, write_text_files
from roles.operations.generations import activate_generation, prune_generations, write_generation
from roles.operations.jobs import ensure_job
from roles.operations.secrets import install_credentials
from roles.rig_lookup import DeployContext, role
from roles.trees import write_tree_records

STOPPING = 60  # seconds that an old process may take to end before the new one starts


@role("Serving")
def serving(context: DeployContext) -> None:
    """Bring keys, units and running processes to their state; instances that are not declared any more go.

    Clients of an instance that is switched notice as little as can be. It takes the place of the existing service.
    """
    desired, switch, existing = context.target, context.options.switch, context.existing
    rig, wanted = desired.rig, desired.generation
    install_credentials(
        name="API keys",
        keys={
            credential_path(rig.roots, i): api_keys.load_api_key(i.api_key_file) if i.api_key_file else None
            for i in rig.instances
        },
    )
    if rig.gateway:
        # the judge of certificates takes as long to load as all else together
        from roles.gateway import ensure_gateway_secrets

        ensure_gateway_secrets(rig)
    write_generation(name="Write generation", rig=rig, wanted=wanted)
    for one in plan_selftests(rig, desired.installations):
        ensure_job(name=one.title, unit=one.unit, script=one.script, test=one.test, folder=rig.roots.jobs)
    activate_generation(
        name="Activate generation",
        rig=rig,
        wanted=wanted,
        timeout=max((i.variant.ready_timeout for i in rig.instances), default=0) + STOPPING,
        beside=_collect_standby(desired, switch),
        taking=Takeover(existing, _switched_unit(rig, switch)) if switch and existing else None,
    )
    if rig.gateway:
        from roles.gateway import reload_gateway

        reload_gateway(rig)
    _apply_log_rotation(rig)
    ours = [account.name for account in desired.facts.users if account.ours]
    prune_generations(name="Prune generations", rig=rig, wanted=wanted, users=ours)
    write_tree_records(name="Record what is installed", rig=rig, wanted=desired)


def _collect_standby(desired: TargetState, switch: VariantSwitch | None) -> dict[str, StandbyInstance]:
    """Unit of the instance that is switched -> what may be started beside the one that runs."""
    rig = desired.rig
    return {
        one.unit: plan_standby(
            rig, one, desired.installations[one.installed_as], f"{JOB}.service", numa_node_of(desired.facts, one)
        )
        for one in rig.instances
        if switch and one.name == switch.instance and not kind_of(one).container_engine and not one.is_on_demand
    }


def _switched_unit(rig: Rig, switch: VariantSwitch) -> str:
    """Of the instance that is switched."""
    return next(one.unit for one in rig.instances if one.name == switch.instance)


def _apply_log_rotation(rig: Rig) -> None:
    """How long lines of the gateway's log are kept."""
    name = "Gateway log rotation"
    if rig.gateway:
        write_text_files(name=name, files=[TextFile(ROTATION, render_logrotate(rig.accounts, OWNED_HEADER))])
    else:
        remove_files(name=name, paths=[ROTATION])
