"""What an environment is on a host: a pure function of what is declared and locked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from rigwright.declaration.rig import DeclaredEnv, Rig
from rigwright.engines.kind import Installation, Job
from rigwright.nvidia.cuda.toolkit import toolkit
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.host.facts import HostFacts

# Raised when the steps change in a way that changes what they install.
RECIPE = 1
# Measured with vLLM 0.21.0: 3.8 GB of wheels become 7.9 GB of files, and compiled Python beside them.
GROWN = 2.4
# Measured: conda packages are unpacked once beside the prefix.
WORK_KIB = 1 * 1024 * 1024


@dataclass(frozen=True)
class Environment(Installation):
    """One environment."""

    python: tuple[Artefact, ...] = ()
    """Its conda packages."""
    packages: tuple[Artefact, ...] = ()
    """Its wheels."""
    imports: tuple[str, ...] = ()

    @property
    def interpreter(self) -> Artefact:
        """The conda package of its Python."""
        return next(one for one in self.python if one.name == "python")

    @property
    def distributions(self) -> dict[str, str]:
        """Name, as an index spells it, and version of every wheel."""
        return {canonicalize_name(one.name): one.version for one in self.packages}


def environment(rig: Rig, env: DeclaredEnv, facts: HostFacts) -> Environment:
    """What one of a rig's environments is on its host. The distribution's release is no input: it brings its own C++
    library, and asks nothing of the host's Python.
    """
    cuda = toolkit(rig, facts) if env.keys.cuda and rig.cards else None
    artefacts = (*env.python, *env.packages)
    inputs = {
        "recipe": RECIPE,
        "artefacts": sorted(one.sha256 for one in artefacts),
        "imports": env.keys.imports,
        "cuda": cuda.identity if cuda else None,
    }
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]
    named = canonicalize_name(env.keys.distribution)
    version = next((one.version for one in env.packages if canonicalize_name(one.name) == named), "0")
    size = sum(one.size for one in artefacts)
    return Environment(
        name=env.name,
        version=version,
        digest=digest,
        artefacts=artefacts,
        what=f"make the environment {env.name} of {len(env.python)} conda packages and {len(env.packages)} wheels",
        record={"env": env.name, "digest": digest, "artefacts": listed(artefacts), "cuda": inputs["cuda"]},
        toolkit=cuda,
        work_kib=WORK_KIB,
        installed_kib=int(size * GROWN) // 1024,
        python=env.python,
        packages=env.packages,
        imports=env.keys.imports,
    )


def listed(artefacts: Iterable[Artefact]) -> dict[str, dict[str, str]]:
    """File -> what it is."""
    return {one.file: one.identity for one in sorted(artefacts, key=lambda one: one.file)}


def prefix(folder: str) -> str:
    """The environment in its installation's folder: CONDA_PREFIX."""
    return f"{folder}/env"


def plan(rig: Rig, made: Environment, folder: str) -> str:
    """What is to be put together, as the program that does it reads it (roles/envs/host/make.py), in JSON.

    Args:
        rig: The rig.
        made: The environment.
        folder: Its installation's, on the host.
    """
    models = rig.roots.models
    value = {
        "prefix": prefix(folder),
        "conda": [{"path": f"{models}/{one.package_path}", "url": f"file:///{one.file}"} for one in made.python],
        "wheels": [
            {"name": one.name, "version": one.version, "sha256": one.sha256, "path": f"{models}/{one.package_path}"}
            for one in made.packages
        ],
        "imports": list(made.imports),
    }
    return json.dumps(value, indent=1) + "\n"
