"""An environment on a host: a pure function of declaration and lock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from rigwright.host.systemd import escape_expansions
from rigwright.model.catalog_schema import Card
from rigwright.model.installation import Installation
from rigwright.model.instance import EnvSpec, Instance
from rigwright.model.nvidia_tables import ToolkitSpec
from rigwright.model.roots import Roots
from rigwright.nvidia.cuda_toolkit import plan_toolkit
from rigwright.patches.new_files import shadow_pattern
from rigwright.patches.patch import Patch, collect_digests, describe_patches
from rigwright.plugins.plugin import Plugin, describe_plugins
from rigwright.problems import format_count
from rigwright.render import render
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.model.fact_types import HostFacts

# Raised when the steps change in a way that changes what they install.
RECIPE = 1
# CUDA's first number -> driver branch (NVIDIA, "CUDA Compatibility", minor version compatibility).
LEAST_DRIVER = {12: 525, 13: 580}
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
    patches: tuple[Patch, ...] = ()
    """The changes to its packages."""
    plugins: tuple[Plugin, ...] = ()
    """The plugins that are installed with them."""
    inputs: tuple[str, str] = ("", "")
    """The inputs of the catalogue that its conda packages and its wheels are of."""

    @property
    def interpreter(self) -> Artefact:
        """The conda package of its Python."""
        return next(one for one in self.python if one.name == "python")

    @property
    def distributions(self) -> dict[str, str]:
        """Name, as an index spells it, and version of every wheel."""
        found = [(one.name, one.version) for one in self.packages]
        found += [(one.keys.distribution, one.row.version) for one in self.plugins]
        return {canonicalize_name(name): version for name, version in found}

    @property
    def least_driver(self) -> int:
        """The oldest branch of NVIDIA's driver that can run its CUDA; 0 where nothing in it is for CUDA."""
        version = self.distributions.get("nvidia-cuda-runtime", "0")
        return LEAST_DRIVER.get(int(version.partition(".")[0]), 0)


def plan_environment(
    roots: Roots,
    cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    envs: tuple[EnvSpec, ...],
    toolkit_spec: ToolkitSpec,
    env: EnvSpec,
    facts: HostFacts,
) -> Environment:
    """Plan one of a rig's environments on its host. The distribution's release is no input: it brings its own C++
    library, and asks nothing of the host's Python.
    """
    cuda = plan_toolkit(roots, cards, instances, envs, toolkit_spec, facts) if env.keys.cuda and cards else None
    artefacts = env.artefacts
    imports = (*env.keys.imports, *(module for one in env.plugins for module in one.keys.imports))
    inputs: dict[str, object] = {
        "recipe": RECIPE,
        "artefacts": sorted(one.sha256 for one in artefacts),
        "imports": imports,
        "cuda": cuda.identity if cuda else None,
    }
    record: dict[str, object] = {"artefacts": artefact_table(artefacts), "cuda": inputs["cuda"]}
    if env.patches:
        inputs["patches"] = record["patches"] = collect_digests(env.patches)
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]
    version = env.version
    size = sum(one.size for one in artefacts)
    return Environment(
        name=env.name,
        version=version,
        digest=digest,
        artefacts=artefacts,
        what=f"install {env.name} {version}: {format_count(len(env.python), 'conda package')} and "
        + format_count(len(env.packages), "wheel")
        + describe_plugins(env.plugins)
        + describe_patches(env.patches),
        record={"env": env.name, "digest": digest, **record},
        toolkit=cuda,
        work_kib=WORK_KIB,
        installed_kib=int(size * GROWN) // 1024,
        python=env.python,
        packages=env.packages,
        imports=imports,
        patches=env.patches,
        plugins=env.plugins,
        inputs=(env.keys.python, env.keys.packages),
    )


def artefact_table(artefacts: Iterable[Artefact]) -> dict[str, dict[str, str]]:
    """File -> what it is."""
    return {one.file: one.identity for one in sorted(artefacts, key=lambda one: one.file)}


def prefix_folder(folder: str) -> str:
    """The environment in its installation's folder: CONDA_PREFIX."""
    return f"{folder}/env"


def activation_variables(made: Environment) -> dict[str, str]:
    """The variables of programs in it in addition to PATH and conda's own: activated, in a unit or in a shell."""
    return {"CUDA_HOME": made.toolkit.root} if made.toolkit else {}


def program_folders(made: Environment, folder: str) -> tuple[str, ...]:
    """The folders of its programs, first of PATH first.

    Args:
        made: The environment.
        folder: Its installation's, on the host.
    """
    toolkit_ = (f"{made.toolkit.root}/bin",) if made.toolkit else ()
    return (f"{prefix_folder(folder)}/bin", *toolkit_)


def render_activation(made: Environment, folder: str) -> dict[str, str]:
    """The scripts that `conda activate` and `conda deactivate` run: path in the prefix -> text."""
    given = activation_variables(made)
    if not given:
        return {}
    values = {"variables": given, "paths": program_folders(made, folder)[1:]}
    return {
        f"etc/conda/{what}.d/rigwright.sh": render(f"envs/{what}.d.sh.j2", **values)
        for what in ("activate", "deactivate")
    }


def render_install_plan(roots: Roots, requests: Mapping[str, tuple[str, ...]], made: Environment, folder: str) -> str:
    """The plan of an installation, as the programs in roles/envs/host/ read it, in JSON.

    Args:
        roots: Directories on the host.
        requests: Group -> its requirements.
        made: The environment.
        folder: Its installation's, on the host.
    """
    models = roots.models
    value = {
        "prefix": prefix_folder(folder),
        "work": f"{folder}/work",
        "conda": [{"path": f"{models}/{one.package_path}", "sha256": one.sha256} for one in made.python],
        "wheels": [
            {"name": one.name, "version": one.version, "sha256": one.sha256, "path": f"{models}/{one.package_path}"}
            for one in made.packages
        ],
        "requests": {what: requests.get(name) for what, name in zip(("conda", "wheels"), made.inputs, strict=True)},
        "texts": render_activation(made, folder),
        "patches": [patch_record(made, one) for one in made.patches],
        "plugins": [one.plan | {"path": f"{models}/{one.row.package_path}"} for one in made.plugins],
    }
    return json.dumps(value, indent=1) + "\n"


def patch_record(made: Environment, patch: Patch) -> dict[str, object]:
    """A patch as the programs in roles/envs/host/ read it: with the wheel that its files are of, and patterns of what
    would be imported in the place of each.
    """
    of = canonicalize_name(patch.keys.target_distribution)
    wheel = next(one for one in made.packages if canonicalize_name(one.name) == of)
    shadowed = {path: pattern for path in patch.patched_digests if (pattern := shadow_pattern(path))}
    return {**patch.plan, "wheel": wheel.file, "shadows": shadowed}


def site_packages(made: Environment) -> str:
    """Where its packages are, from the prefix: the base of patches' paths."""
    major, minor, _ = made.interpreter.version.split(".", 2)
    return f"lib/python{major}.{minor}/site-packages"


# Permissions of a process inside an environment: as few as user `nobody` has, but with its cards and the network.
UNPRIVILEGED_PROPERTIES = (
    "DynamicUser=yes",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "RestrictSUIDSGID=yes",
    "LimitCORE=0",
    # the host's own would outlast it, and be anybody's to read
    "PrivateIPC=yes",
    "TemporaryFileSystem=/dev/shm:mode=1777",
    "WorkingDirectory=/tmp",
)


def environment_command(
    roots: Roots, folder: str, words: tuple[str, ...], unit: str, *, terminal: bool
) -> tuple[str, ...]:
    """The command that runs another one in an environment, as user `nobody`.

    Args:
        roots: Directories on the host.
        folder: The environment's installation, on the host.
        words: The program and its arguments; a shell without any.
        unit: The unit that it runs as.
        terminal: Whether it has one.
    """
    properties = (*UNPRIVILEGED_PROPERTIES, f"InaccessiblePaths=-{roots.state}")
    options = (
        f"--unit={unit}",
        "--quiet",
        "--wait",
        "--collect",
        "--pty" if terminal else "--pipe",
        "--service-type=exec",
    )
    within = ("/bin/sh", "-c", '. "$0" && exec "$@"', f"{folder}/activate", *(words or ("/bin/bash",)))
    begin = ("systemd-run", *options, *(f"--property={one}" for one in properties), "--setenv=HOME=/tmp", "--")
    return (*begin, *escape_expansions(within))
