"""Every shell script that a template makes, for samples of what it is made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from rigwright.engines.llama_cpp.build import Build, plan_build
from rigwright.engines.log_causes import select_faults
from rigwright.engines.vllm.log_patterns import CAUSES
from rigwright.fetch_job_spec import JobNetwork, ToolEnvironment, job_network
from rigwright.gateway.gateway_units import ADMIN
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.host.generation_layout import ACTIVATING, PROVEN
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.rig import Rig
from rigwright.monitoring.textfile import DEPLOY_STARTED
from rigwright.nvidia.driver.driver_facts import MODPROBE, SOURCE
from rigwright.nvidia.driver.driver_files import COMPONENT
from rigwright.render import render
from rigwright.serving.activation import Activation
from rigwright.serving.instance_units import STOPPED
from rigwright.serving.standby import StandbyInstance
from rigwright.serving.takeover import Takeover
from rigwright.supply.bundle import BundledPackages
from roles.engines import render_install_script
from roles.python_tools import load_wheel_validators
from tests.unit.image_samples import image_rig as image_rig
from tests.unit.samples import (
    sample_card,
    sample_engine,
    sample_facts,
    sample_instance,
    sample_rig,
)

WHEELS = {
    "fetched": "/var/lib/rigwright/jobs/rw-job-x/wheels",
    "spec": '{"files": []}',
    "programs": "/var/lib/rigwright/programs",
    "package": "rigwright_weights",
}
"""The values of jobs that install wheels."""
TOOLS = ToolEnvironment("pip==26.0 \\\n    --hash=sha256:" + "0" * 64, "/opt/rigwright/tools-0123456789ab")
# everything that a rig can say about its way to the world
WIDE = sample_rig(
    proxy="http://proxy:3128",
    no_proxy=("example.org",),
    ca_certificates="-----BEGIN CERTIFICATE-----\n",
    mirrors={"apt": ("http://a/debian", "http://b/debian/"), "index": ("http://a/simple", "http://b/simple")},
)
PLAIN = sample_rig(mirrors={})
STATE = "/var/lib/rigwright"


def rig_build(made: Rig) -> Build:
    """The build for a rig."""
    return plan_build(made, "plain", sample_engine(subtree="vendor/llama.cpp", options={"EMPTY": ""}), sample_facts())


def rig_on_cards(*cards: int) -> Rig:
    """A rig whose instance runs on these of its cards."""
    return sample_rig(sample_instance(cards=cards), cards=(sample_card("8.6"), sample_card("12.0")))


def engine_build_script(*cards: int) -> str:
    """The build of an engine for these cards."""
    return render_install_script(rig_on_cards(*cards), rig_build(rig_on_cards(*cards)), TOOLS, "rw-job-x")


def packages_script(
    made: Rig,
    names: tuple[str, ...] = ("curl", "cmake"),
    ledger: str = "/var/lib/rigwright/owned",
    masked: Mapping[str, Sequence[str]] = MappingProxyType({}),
    accounts: Mapping[str, str] = MappingProxyType({}),
    sent: str = f"{STATE}/jobs/rw-job-packages/files",
    keyring: str = "",
) -> str:
    """The installation of packages."""
    bundled = made.bundle.packages("debian-12") if made.bundle else BundledPackages()
    bundled = replace(bundled, keyring=keyring or bundled.keyring)
    values = {"network": job_network(made.roots, made.network), "ledger": ledger, "packages": bundled}
    values |= {"sent": sent if bundled.files else ""}
    return render(
        "packages/install.sh.j2", names=names, masked=masked, accounts=accounts, units="/etc/systemd/system", **values
    )


def packages_look_script(made: Rig) -> str:
    """apt's plan for packages of a bundle."""
    packages = made.bundle.packages("debian-12").with_files_of(()) if made.bundle else BundledPackages()
    values = {"network": job_network(made.roots, made.network), "packages": packages, "names": ("curl", "cmake")}
    folder = f"{STATE}/jobs/rw-job-packages"
    paths = {"sent": f"{folder}-look/files", "kept": f"{folder}/files", "done": f"{folder}-look/done"}
    return render("packages/look.sh.j2", **values, **paths)


def tools_script(
    network: JobNetwork,
    tools: ToolEnvironment = TOOLS,
    ledger: str = "/var/lib/rigwright/owned",
    sent: str = "",
    title: str = "host tools",
    alone: str = "",
    requested: Sequence[str] = ("tool",),
) -> str:
    """The installation of an environment of Python."""
    values = {"network": network, "ledger": ledger, "sent": sent, "title": title, "alone": alone}
    values["record"] = f"{STATE}/trees/0-tools"
    values |= WHEELS
    return render("tools/install.sh.j2", tools=tools, judging=load_wheel_validators(), requested=requested, **values)


def activation_script(
    way: Activation,
    foreign: tuple[str, ...] = (),
    config: str = "/etc/rigwright",
    units: str = UNIT_FOLDER,
    beside: tuple[StandbyInstance, ...] = (),
    run: str = "/run/x",
    taking: Takeover | None = None,
    number: int | None = 2,
) -> str:
    """An activation; without a number, of the generation that its first argument names."""
    values = {"config": config, "units": units, "activating": ACTIVATING, "number": number, "proven": PROVEN}
    limits = {
        "causes": {"rigwright-chat.service": select_faults(CAUSES)},
        "smi_timeout": 20,
        "tolerance_mib": 256,
        "patience": 1,
        "admin": ADMIN,
        "drain": 1,
        "silence": 1,
        "beside": beside,
        "beside_folder": f"{run}/rigwright_beside",
        "runtime_units": f"{run}/systemd/system",
        "links": f"{run}/rigwright/gateway",
    }
    limits |= {"log_lines": 20, "read_lines": 5000, "stopped": STOPPED}
    limits |= (taking.template_values(sample_rig().roots, None) if taking else {"theirs": None, "back": False}) | {
        "drain": 1
    }
    return render("generation/activate.sh.j2", way=way, foreign=list(foreign), **values | limits)


def lock_holder_script(patience: int = 0, silence: int = 60, marks: str = "") -> str:
    """The lease's far end."""
    said = {"marks": marks, "mark": DEPLOY_STARTED}
    return render("deploy_lock/hold.sh.j2", locks=LOCKS, patience=patience, silence=silence, removing=False, **said)


def driver_script(name: str, made: Rig = PLAIN, **changes: object) -> str:
    """One of the driver's jobs."""
    values: dict[str, object] = {
        "network": job_network(made.roots, made.network),
        "ledger": f"{STATE}/owned",
        "done": f"{STATE}/jobs/rw-job-driver/done",
        "component": "restricted",
        "component_file": COMPONENT,
        "source_file": SOURCE,
        "removed": ("libnvidia-compute-570",),
        "sent": "",
        "offline": False,
        "targets": ("nvidia-driver-cuda=595.71.05-1", "libnvidia-compute-570-"),
    }
    if name == "look":
        values |= {
            "first": ("linux-headers-amd64",),
            "kept": f"{STATE}/driver/595.71.05",
            "names": ("nvidia-driver-cuda",),
            "kernel": "",
        }
    else:
        values |= {
            "folder": f"{STATE}/driver",
            "hashes": [("nvidia-driver-cuda", "c" * 64)],
            "kept": "",
            "names": ("nvidia-driver-cuda",),
            "whole": True,
            "version": "595.71.05",
            "fresh": ("nvidia-driver-cuda", "dkms"),
            "dkms": True,
            "kernels": ("6.12.94+deb13-amd64", "6.12.107+deb13-amd64"),
            "newest": "6.12.107+deb13-amd64",
            "modprobe": MODPROBE,
        }
    return render(f"nvidia_driver/{name}.sh.j2", **values | changes)


def write_stand_in(folder: Path, name: str, body: str) -> Path:
    """A program of this name that does what a few lines of shell say, in place of the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
