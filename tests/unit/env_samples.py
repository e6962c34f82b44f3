"""A small environment as it is declared and locked, and what it is on a host."""

from rigwright.envs.environment import Environment, plan_environment
from rigwright.model.catalog_schema import EnvKeys
from rigwright.model.instance import EnvSpec
from rigwright.model.rig import Rig
from rigwright.supply.lock import Artefact
from tests.unit.samples import sample_artefact, sample_facts, sample_rig, sample_wheel


def conda_row(name: str = "python", version: str = "3.10.20", build: str = "0_a", **changes: object) -> Artefact:
    """A locked conda package."""
    file = f"{name}-{version}-{build}.conda"
    own = {"kind": "conda", "name": name, "version": version, "group": "py", "file": file, "sha256": "c" * 64}
    own |= {"build": build, "selection": "0" * 12}
    return sample_artefact(**(own | {"sources": [f"forge:linux-64/{file}"]} | changes))


def declared_env(*more: Artefact, cuda: bool = False) -> EnvSpec:
    """One of a Python and a wheel."""
    keys = EnvKeys(python="py", packages="pk", distribution="Demo", imports=("demo",), cuda=cuda)
    return EnvSpec("env", keys, (conda_row(),), (sample_wheel("demo", version="2.0", group="pk"), *more))


def env_installation(rig_: Rig | None = None, env: EnvSpec | None = None) -> Environment:
    """Its plan on a host."""
    return plan_environment(
        (rig_ or sample_rig()).roots,
        (rig_ or sample_rig()).cards,
        (rig_ or sample_rig()).instances,
        (rig_ or sample_rig()).envs,
        (rig_ or sample_rig()).toolkit,
        env or declared_env(),
        sample_facts(),
    )
