"""Scripts of the table that need more than a call."""

from __future__ import annotations

from dataclasses import replace

from rigwright.containers import end_of_management
from rigwright.containers.container_facts import ContainerFacts
from rigwright.engines.environment_installer import render_step
from rigwright.engines.image.install import render_patch_step
from rigwright.engines.llama_cpp_wheel import WheelEngine
from rigwright.engines.llama_cpp_wheel.install import plan_wheel, render_install_job
from rigwright.fetch_job_spec import job_network
from rigwright.gateway.gateway_units import ROUTER_RUNTIME, RUNTIME
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.installation import InstallJob
from rigwright.model.instance import CACHES, COMPILED, CONTAINER_RUNTIME_FOLDER, WARM
from rigwright.model.nvidia_tables import Toolkit
from rigwright.monitoring import monitoring_facts, self_check
from rigwright.nvidia.driver.driver_files import driver_release_values
from rigwright.patches.patch import Patch
from rigwright.render import render
from rigwright.serving import takeover
from rigwright.serving.generation import build_generation
from rigwright.weights import weight_server
from rigwright.weights.verification import (
    REHASH_STAMP,
    REHASH_UNITS,
)
from roles.engines import render_install_script
from roles.python_tools import load_wheel_validators
from tests.unit.env_samples import declared_env, env_installation
from tests.unit.image_samples import image_instance, unpacked_image
from tests.unit.image_samples import image_rig as image_rig
from tests.unit.patch_samples import sample_patch
from tests.unit.rendered_scripts import (
    PLAIN,
    STATE,
    TOOLS,
    WHEELS,
)
from tests.unit.samples import (
    sample_build,
    sample_instance,
    sample_rig,
    sample_wheel,
)


def environment_script(*patches: Patch) -> str:
    """The job that puts an environment together, and removes its packages."""
    env = replace(declared_env(), patches=patches)
    one = env_installation(env=env)
    return render_install_script(sample_rig(envs=(env,)), one, TOOLS, "rw-job-x", one.artefacts)


def environment_step() -> str:
    """The step that installs and patches its wheels."""
    place = InstallJob("/opt/x/engines/env", "/var/w", "/var/l", "/opt/tools")
    return render_step(env_installation(env=replace(declared_env(), patches=(sample_patch(),))), "wheels", place)


def engine_wheel_script() -> str:
    """The job that installs llama.cpp from a wheel."""
    wheel = sample_wheel("xllamacpp", group="xllamacpp")
    made = plan_wheel(wheel, "wheel", WheelEngine(kind="llama.cpp-wheel", wheel="xllamacpp", build=1))
    job = InstallJob("/opt/x/engines/wheel", "/var/w", "/var/l", "/opt/tools")
    return f"work={job.work}\n{render_install_job(sample_rig().roots, made, job)}"


def generation_script(name: str) -> str:
    """A script that lies in a generation."""
    return build_generation(sample_rig(sample_instance()), {"plain": sample_build()}, TOOLS).files[name]


def image_script(*patches: Patch) -> str:
    """The job that unpacks an image."""
    one = image_rig(image_instance(patches=patches))
    return render_install_script(one, unpacked_image(one), TOOLS, "rw-job-x")


def image_step() -> str:
    """The step that changes copies of its files."""
    place = InstallJob("/opt/x/engines/vllm-image", "/var/w", "/var/l", "/opt/tools")
    return render_patch_step(
        unpacked_image(image_rig(image_instance(patches=(sample_patch("vllm"),)))), place, "0" * 64
    )


def container_script() -> str:
    """The program that makes, and takes away, a container's needs."""
    one = image_rig(image_instance())
    files = build_generation(one, {"vllm-image": unpacked_image(one)}, TOOLS).files
    return next(text for name, text in files.items() if name.startswith("programs/container-"))


def removal_script(units: tuple[str, ...] = ("rigwright-chat.service",), keep_weights: bool = False) -> str:
    """The removal."""
    return render(
        "removal/remove.sh.j2",
        caches=[CACHES, WARM],
        mounted=[RUNTIME, ROUTER_RUNTIME],
        compiled=COMPILED,
        containers=CONTAINER_RUNTIME_FOLDER,
        helpers=REHASH_UNITS,
        stamp=REHASH_STAMP,
        units=units,
        unit_folder=UNIT_FOLDER,
        links=["/etc/rigwright/current"],
        trees=["/etc/rigwright/generations", "/var/lib/rigwright/jobs"],
        models="/srv/models",
        run="/run",
        token="hub-token",
        ledger="/var/lib/rigwright/owned",
        started_from=STARTED_FROM_FOLDER,
        keep_weights=keep_weights,
        theirs=takeover.takeover_folder(sample_rig().roots),
        **driver_release_values(sample_rig().roots),
        **weight_server.share_release_values(sample_rig().roots),
        **monitoring_facts.monitoring_release_values(sample_rig().roots),
        **self_check.self_check_release_values(sample_rig().roots),
        **end_of_management.container_release_values(sample_rig().roots, ContainerFacts("debian", "13")),
    )


def remove_model(folder: str = "/srv/models/small/1", root: str = "/srv/models", **changes: str) -> str:
    """The removal of one model."""
    values = {"records": f"{STATE}/weights", "ledger": f"{STATE}/owned", "config": "/etc/rigwright", "holder": "{}"}
    return render("removal/model.sh.j2", root=root, folder=folder, locks=LOCKS, **values | changes)


def sharing_script(restart: bool) -> str:
    """The start of the unit that shares weights."""
    where = {"listens": "src 10.0.0.5:8090", "endpoint": "10.0.0.5:8090"}
    return render("sharing/start.sh.j2", share_unit=weight_server.SHARE_UNIT, restart=restart, tries=2, **where)


def monitoring_script(restart: bool) -> str:
    """The start of what watches, and what of it goes."""
    one = {"unit": "rigwright_node.service", "package": "prometheus-node-exporter", "floor": "1.5.0"}
    one |= {"restart": restart, "listens": "src 10.0.0.5:9100", "endpoint": "10.0.0.5:9100"}
    gone = monitoring_facts.monitoring_release_values(sample_rig().roots, ["prometheus"] if restart else [])
    secrets = ["/etc/rigwright/credentials/monitoring-old.token"] if restart else []
    return render("monitoring/start.sh.j2", **gone, secrets=secrets, starting=[one], tries=2)


def cuda_toolkit(patching: str) -> str:
    """The job that installs the locked toolkit."""
    return render(
        "cuda_toolkit/install.sh.j2",
        toolkit=Toolkit("/opt/rigwright/cuda-13.0-0/site/nvidia/cu13", "13.0", "/opt/rigwright/cuda-13.0-0", "a==1"),
        tools="/opt/rigwright/tools-0",
        network=job_network(PLAIN.roots, PLAIN.network),
        ledger=f"{STATE}/owned",
        record=f"{STATE}/trees/0-cuda",
        sent="",
        judging=load_wheel_validators(),
        requested=["cuda-toolkit[nvcc]==13.0.2"],
        patching=patching,
        patches='{"patches": []}',
        **WHEELS,
    )
