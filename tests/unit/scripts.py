"""Every shell script that a template makes, for samples of what it is made for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from rigwright import nginx
from rigwright.containers import leaving
from rigwright.containers.found import ContainerFacts
from rigwright.delivery import tools as tools_made
from rigwright.delivery.network import Network, network
from rigwright.delivery.tools import Tools
from rigwright.engines.image.install import patching
from rigwright.engines.installer import step
from rigwright.engines.llama_cpp.build import Build, build, compiling
from rigwright.engines.log import faults
from rigwright.engines.vllm.log_patterns import CAUSES
from rigwright.envs.told import installed_script
from rigwright.gateway import given, host_keys
from rigwright.gateway.given import GATEWAY_UNIT
from rigwright.gateway.key_version import version_for
from rigwright.gateway.service import ADMIN, ROUTER_RUNTIME, RUNTIME
from rigwright.host.locks import DEPLOY_LOCK, LOCKS
from rigwright.host.systemd import STARTED_FROM, UNITS
from rigwright.host.unit_states import UnitState
from rigwright.model.entry import Driver
from rigwright.model.installation import Job
from rigwright.model.nvidia.toolkit import Toolkit
from rigwright.model.rig import CACHES, COMPILED, CONTAINERS, WARM, Rig
from rigwright.model.theirs import Theirs
from rigwright.monitoring import found as watching
from rigwright.monitoring.figures import DEPLOY_STARTED
from rigwright.nvidia.cards import holders, live, topology
from rigwright.nvidia.driver import found
from rigwright.nvidia.driver.files import COMPONENT, release
from rigwright.nvidia.driver.found import MODPROBE, SOURCE
from rigwright.patches.patch import PROGRAM, Patch
from rigwright.render import render
from rigwright.serving import by_hand, stored, theirs
from rigwright.serving.activation import Activation
from rigwright.serving.beside import Beside, leave_script, room_script
from rigwright.serving.generation import ACTIVATING, PROVEN, generation
from rigwright.serving.listeners import names
from rigwright.serving.live import state_script
from rigwright.serving.theirs import Container, Found, Taking
from rigwright.serving.units import STOPPED
from rigwright.supply.archives import Suite
from rigwright.supply.bundle import Bundle, Packages, Row
from rigwright.weights import sharing
from rigwright.weights.records import REHASH_STAMP, REHASH_UNITS, recorded, records_folder, verified_test
from roles.engines import script as build_script
from roles.fetching import fetch_script
from roles.tools import load_judges
from roles.trees import program
from tests.unit.container_scripts import CONTAINER_SCRIPTS
from tests.unit.env_samples import declared
from tests.unit.env_samples import made as made_env
from tests.unit.image_samples import made as made_image
from tests.unit.image_samples import rig as image_rig
from tests.unit.image_samples import served
from tests.unit.patch_samples import sample
from tests.unit.plugin_samples import examination, examined
from tests.unit.samples import artefact, card, engine, facts, instance, plan, probed, rig, wheel

VERSION = version_for(None, "{}")
WHEELS = {
    "fetched": "/var/lib/rigwright/jobs/rw-job-x/wheels",
    "spec": '{"files": []}',
    "programs": "/var/lib/rigwright/programs",
    "package": "rigwright_weights",
}
"""What jobs that install wheels are rendered with."""
TOOLS = Tools("pip==26.0 \\\n    --hash=sha256:" + "0" * 64, "/opt/rigwright/tools-0123456789ab")
# everything that a rig can say about its way to the world
WIDE = rig(
    proxy="http://proxy:3128",
    no_proxy=("example.org",),
    ca_certificates="-----BEGIN CERTIFICATE-----\n",
    mirrors={"apt": ("http://a/debian", "http://b/debian/"), "index": ("http://a/simple", "http://b/simple")},
)
PLAIN = rig(mirrors={})
ADDRESSES = ("0000:01:00.0", "0000:02:00.0")
STATE = "/var/lib/rigwright"
SUITE = Suite(
    system="debian-12", archive=0, suite="bookworm", components=("main",), signed="2026-11-21 UTC", valid_until=None
)
ROWS = (
    Row(path=f"{SUITE.folder}/InRelease", sha256="a" * 64, size=5),
    Row(path=f"{SUITE.folder}/main/binary-amd64/Packages.xz", sha256="b" * 64, size=5),
    Row(path="packages/debian-12/0/pool/main/c/curl/curl_8.deb", sha256="c" * 64, size=5),
)
BUNDLED = rig(bundle=Bundle(Path("/home/ops/bundle"), ("debian-12",), ROWS, (SUITE,)))


def wanted(made: Rig) -> Build:
    """What is compiled for a rig."""
    return build(made, "plain", engine(subtree="vendor/llama.cpp", options={"EMPTY": ""}), facts())


def running(*cards: int) -> Rig:
    """A rig whose instance runs on these of its cards."""
    return rig(instance(cards=cards), cards=(card("8.6"), card("12.0")))


def compiled(*cards: int) -> str:
    """The build of an engine for these cards."""
    return build_script(running(*cards), wanted(running(*cards)), TOOLS, "rw-job-x")


def environment(*patches: Patch) -> str:
    """The job that puts an environment together, and removes its packages."""
    env = replace(declared(), patches=patches)
    one = made_env(env=env)
    return build_script(rig(envs=(env,)), one, TOOLS, "rw-job-x", one.artefacts)


def environment_step() -> str:
    """The step that installs and patches its wheels."""
    place = Job("/opt/x/engines/env", "/var/w", "/var/l", "/opt/tools")
    return step(made_env(env=replace(declared(), patches=(sample(),))), "wheels", place)


def generated(name: str) -> str:
    """A script that lies in a generation."""
    return generation(rig(instance()), {"plain": plan()}, TOOLS).files[name]


def image(*patches: Patch) -> str:
    """The job that unpacks an image."""
    one = image_rig(served(patches=patches))
    return build_script(one, made_image(one), TOOLS, "rw-job-x")


def image_step() -> str:
    """The step that changes copies of its files."""
    place = Job("/opt/x/engines/vllm-image", "/var/w", "/var/l", "/opt/tools")
    return patching(made_image(image_rig(served(patches=(sample("vllm"),)))), place, "0" * 64)


def container() -> str:
    """What makes, and takes away, what a container needs."""
    one = image_rig(served())
    files = generation(one, {"vllm-image": made_image(one)}, TOOLS).files
    return next(text for name, text in files.items() if name.startswith("programs/container-"))


def packages(
    made: Rig,
    names: tuple[str, ...] = ("curl", "cmake"),
    ledger: str = "/var/lib/rigwright/owned",
    masked: Mapping[str, Sequence[str]] = MappingProxyType({}),
    accounts: Mapping[str, str] = MappingProxyType({}),
    sent: str = f"{STATE}/jobs/rw-job-packages/files",
    keyring: str = "",
) -> str:
    """The installation of packages."""
    bundled = made.bundle.packages("debian-12") if made.bundle else Packages()
    bundled = replace(bundled, keyring=keyring or bundled.keyring)
    values = {"network": network(made), "ledger": ledger, "packages": bundled}
    values |= {"sent": sent if bundled.files else ""}
    return render("packages/install.sh.j2", names=names, masked=masked, accounts=accounts, **values)


def tools(
    network: Network,
    tools: Tools = TOOLS,
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
    return render("tools/install.sh.j2", tools=tools, judging=load_judges(), requested=requested, **values)


def activate(
    way: Activation,
    foreign: tuple[str, ...] = (),
    config: str = "/etc/rigwright",
    units: str = UNITS,
    beside: tuple[Beside, ...] = (),
    run: str = "/run/x",
    taking: Taking | None = None,
) -> str:
    """An activation."""
    values = {"config": config, "units": units, "activating": ACTIVATING, "number": 2, "proven": PROVEN}
    limits = {
        "causes": {"rigwright-chat.service": faults(CAUSES)},
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
    limits |= (taking.values(rig()) if taking else {"theirs": None, "back": False}) | {"drain": 1}
    return render("generation/activate.sh.j2", way=way, foreign=list(foreign), **values | limits)


def hold(patience: int = 0, silence: int = 60, marks: str = "") -> str:
    """The lease's far end."""
    said = {"marks": marks, "mark": DEPLOY_STARTED}
    return render("deploy_lock/hold.sh.j2", locks=LOCKS, patience=patience, silence=silence, removing=False, **said)


def remove(units: tuple[str, ...] = ("rigwright-chat.service",), keep_weights: bool = False) -> str:
    """The removal."""
    return render(
        "removal/remove.sh.j2",
        caches=[CACHES, WARM],
        mounted=[RUNTIME, ROUTER_RUNTIME],
        compiled=COMPILED,
        containers=CONTAINERS,
        helpers=REHASH_UNITS,
        stamp=REHASH_STAMP,
        units=units,
        unit_folder=UNITS,
        links=["/etc/rigwright/current"],
        trees=["/etc/rigwright/generations", "/var/lib/rigwright/jobs"],
        models="/srv/models",
        run="/run",
        token="hub-token",
        ledger="/var/lib/rigwright/owned",
        started_from=STARTED_FROM,
        keep_weights=keep_weights,
        theirs=theirs.folder(rig()),
        **release(rig()),
        **sharing.release(rig()),
        **watching.release(rig()),
        **leaving.release(rig(), ContainerFacts("debian", "13")),
    )


def remove_model(folder: str = "/srv/models/small/1", root: str = "/srv/models", **changes: str) -> str:
    """The removal of one model."""
    values = {"records": f"{STATE}/weights", "ledger": f"{STATE}/owned", "config": "/etc/rigwright", "holder": "{}"}
    return render("removal/model.sh.j2", root=root, folder=folder, locks=LOCKS, **values | changes)


def share(restart: bool) -> str:
    """The start of the unit that shares weights."""
    where = {"listens": "src 10.0.0.5:8090", "endpoint": "10.0.0.5:8090"}
    return render("sharing/start.sh.j2", share_unit=sharing.UNIT, restart=restart, tries=2, **where)


def watch(restart: bool) -> str:
    """The start of what watches, and what of it goes."""
    one = {"unit": "rigwright_node.service", "package": "prometheus-node-exporter", "floor": "1.5.0"}
    one |= {"restart": restart, "listens": "src 10.0.0.5:9100", "endpoint": "10.0.0.5:9100"}
    gone = watching.release(rig(), ["prometheus"] if restart else [])
    secrets = ["/etc/rigwright/credentials/monitoring-old.token"] if restart else []
    return render("monitoring/start.sh.j2", **gone, secrets=secrets, starting=[one], tries=2)


def driver(name: str, made: Rig = PLAIN, **changes: object) -> str:
    """One of the driver's jobs."""
    values: dict[str, object] = {
        "network": network(made),
        "ledger": f"{STATE}/owned",
        "done": f"{STATE}/jobs/rw-job-driver/done",
        "component": "restricted",
        "component_file": COMPONENT,
        "source_file": SOURCE,
        "removed": ("libnvidia-compute-570",),
        "sent": "",
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


def cuda_toolkit(patching: str) -> str:
    """The job that installs the locked toolkit."""
    return render(
        "cuda_toolkit/install.sh.j2",
        toolkit=Toolkit("/opt/rigwright/cuda-13.0-0/site/nvidia/cu13", "13.0", "/opt/rigwright/cuda-13.0-0", "a==1"),
        tools="/opt/rigwright/tools-0",
        network=network(PLAIN),
        ledger=f"{STATE}/owned",
        record=f"{STATE}/trees/0-cuda",
        sent="",
        judging=load_judges(),
        requested=["cuda-toolkit[nvcc]==13.0.2"],
        patching=patching,
        patches='{"patches": []}',
        **WHEELS,
    )


CONTAINER = Container("podman", "0" * 64, "vllm", "running", "always", removed=False, unit="")
TUNED = Driver(managed=True, power_w=280, sysctl={"kernel.numa_balancing": 0, "vm.swappiness": 10})
CHAT, CODE = "rigwright-chat.service", "rigwright-code.service"
(PORT, HOLDER), OLD_HOLDER = names(8020), names(8021)[1]
SCRIPTS: dict[str, Callable[[], str]] = {
    "survey": lambda: render("probe/survey.sh.j2"),
    "build for the CPU": compiled,
    "build for cards": lambda: compiled(0, 1),
    "compilation": lambda: compiling(wanted(running())),
    "compilation of what is patched": lambda: compiling(wanted(rig(instance(patches=(sample("llama.cpp"),))))),
    "compilation for cards": lambda: compiling(wanted(running(0, 1))),
    "fetch": lambda: fetch_script(rig(mirrors={"store": ("http://a", "http://b")}), [artefact()]),
    "fetch through a proxy": lambda: fetch_script(WIDE, [artefact(sources=["http://a/b"])]),
    "fetch from nowhere": lambda: fetch_script(rig(), [artefact(sources=["index:project"])]),
    "fetch packages": lambda: fetch_script(rig(), [wheel()], python="/opt/rigwright/installers/bin/python"),
    "what is verified": lambda: render("weights/verified.sh.j2", folder=f"{STATE}/weights", records=["0", "a b"]),
    "fetch from a bundle": lambda: fetch_script(BUNDLED, [artefact()]),
    "tools from a bundle": lambda: tools(network(BUNDLED), sent=f"{STATE}/jobs/rw-job-tools/files"),
    "packages from a bundle": lambda: packages(BUNDLED),
    "cuda toolkit": lambda: cuda_toolkit(""),
    "cuda toolkit that is patched": lambda: cuda_toolkit(PROGRAM),
    "trees": lambda: render("trees/look.sh.j2", program=program("look"), asked='{"a": "b c"}'),
    "tools": lambda: tools(network(PLAIN)),
    "hub's client": lambda: tools(network(PLAIN), title="the hub's client", alone="/opt/rigwright/hub-client-"),
    "tools from mirrors": lambda: tools(network(WIDE)),
    "environment": environment,
    "step of an image that is patched": image_step,
    "environment that is patched": lambda: environment(sample()),
    "step of an environment that is patched": environment_step,
    "a plugin's doctor": lambda: examination(examined()).script,
    "image": image,
    "image that is patched": lambda: image(sample("vllm")),
    "container": container,
    "what an environment has": lambda: installed_script(rig(), made_env()),
    "packages": lambda: packages(PLAIN),
    "packages with a service": lambda: packages(PLAIN, ("nginx",), masked={"nginx.service": nginx.LEFT}),
    "what watches": lambda: render("look/monitoring.sh.j2", **watching.questions(rig())),
    "stop watching": lambda: render("monitoring/release.sh.j2", **watching.release(rig())),
    "watch": lambda: watch(restart=True),
    "watch at boot": lambda: watch(restart=False),
    "packages with a user": lambda: packages(PLAIN, ("prometheus",), accounts={"prometheus": "prometheus"}),
    "what is shared": lambda: render("look/sharing.sh.j2", **sharing.questions()),
    "entries": lambda: render("look/entries.sh.j2", paths=["/srv/a b", "/etc/c"]),
    "what is compiled": lambda: render(
        "look/compiled.sh.j2", own="/var/cache/a b/c", user="svc", parents=["/var/cache"], warm="/var/cache/warm"
    ),
    "a unit": lambda: render("look/unit.sh.j2", unit="x.timer", read=["x.timer", "x.service"]),
    "users": lambda: render("look/passwd.sh.j2", users=["svc", "a b"]),
    "use": lambda: render("look/use.sh.j2"),
    "packages of ours": lambda: render("look/ledger.sh.j2", ledger=f"{STATE}/owned"),
    "written": lambda: render("look/written.sh.j2", config="/etc/rigwright"),
    "a condition": lambda: render("look/holds.sh.j2", test="[ -e /srv/x ] && [ -e /srv/y ]"),
    "what a job was sent": lambda: render("look/sent.sh.j2", folder=f"{STATE}/jobs/rw-job-x/files"),
    "what ends a shell": lambda: render("shell/hold.sh.j2", unit="rigwright_shell-0.service", silence=60),
    "a job": lambda: render("look/job.sh.j2", unit="rw-job-x", grown="/srv/x", document="/srv/p", log="/run/x/log"),
    "the lease's holder": lambda: render("deploy_lock/holder.sh.j2", deploy_lock=DEPLOY_LOCK),
    "share": lambda: share(restart=True),
    "packages of tools": lambda: tools_made.installed_script("/opt/rigwright/tools-0"),
    "share at boot": lambda: share(restart=False),
    **CONTAINER_SCRIPTS,
    "stop sharing": lambda: render("sharing/release.sh.j2", **sharing.release(rig())),
    "packages from mirrors": lambda: packages(WIDE),
    "ready": lambda: generated("ready"),
    "seed": lambda: generated("seed"),
    "started": lambda: generated("started"),
    "settle": lambda: generated("settle"),
    "state": lambda: state_script(
        "/etc/rigwright",
        "/opt/rigwright",
        "/var/lib/rigwright/starts",
        "/var/lib/rigwright/build",
        "/var/lib/rigwright/owned",
    ),
    "activate": lambda: activate(Activation((CODE,), (CHAT,), ()), ("rigwright-old.service",)),
    "activate after cards are free": lambda: activate(
        Activation((CODE,), (CHAT,), (), (UnitState(CHAT, "0" * 64, 8020, frozenset({0, 1})),))
    ),
    "activate and wait": lambda: activate(Activation((), (), (CHAT,))),
    "activate and listen": lambda: activate(
        Activation((), (PORT,), (), (), (OLD_HOLDER,), (HOLDER,), (GATEWAY_UNIT,), (CHAT,), {HOLDER: (PORT, 8020)})
    ),
    "activate nothing": lambda: activate(Activation()),
    "activate beside": lambda: activate(
        Activation((), (CHAT,), (), (UnitState(CHAT, "0" * 64, 8020, frozenset({0, 1})),)),
        beside=(
            Beside(
                *("chat", "rigwright_beside-chat.service", "chat.beside", "/run/rigwright_beside/chat", "[Unit]\n"),
                *({"requests/chat": "url = x\n"}, (0, 1)),
            ),
        ),
    ),
    "leave what runs beside": lambda: leave_script(replace(instance(), beside=True), 30),
    "activate in the place of a unit": lambda: activate(
        Activation((), (CHAT,)), taking=Taking(Found(Theirs("vllm.service"), ports=frozenset({8020})), CHAT)
    ),
    "activate in the place of a container": lambda: activate(
        Activation((), (CHAT,)), taking=Taking(Found(Theirs("vllm"), containers=(CONTAINER,)), CHAT)
    ),
    "activate and bring a container back": lambda: activate(
        Activation((), (CHAT,)),
        taking=Taking(Found(Theirs("vllm"), containers=(replace(CONTAINER, restart="no"),)), ""),
    ),
    "bring a unit back": lambda: theirs.back_script(rig(), Found(Theirs("vllm.service"))),
    "a unit of theirs": lambda: theirs.script(rig(instance()), Theirs("vllm.service")),
    "a container of theirs": lambda: theirs.script(rig(instance()), Theirs("vllm")),
    "what was taken over": lambda: theirs.records_script(rig()),
    "room": lambda: room_script(instance()),
    "hold": hold,
    "hold where somebody watches": lambda: hold(marks="/var/lib/rigwright/metrics/deploy.prom"),
    "hold after a while": lambda: hold(120),
    "remove": remove,
    "remove a model": remove_model,
    **{f"{verb} by hand": partial(by_hand.script, rig(instance()), verb, ["chat"], "{}") for verb in by_hand.DOING},
    "restart and recompile by hand": lambda: by_hand.script(rig(instance()), "restart", ["chat"], "{}", recompile=True),
    "look at weights": lambda: stored.script(rig()),
    "verified weights": lambda: verified_test(records_folder(rig()), [recorded(rig(), artefact())]),
    "remove from a host without units": lambda: remove((), True),
    "probe": lambda: render("probe/probe.sh.j2", **probed(folders=["/srv", "/opt"], weights=["/srv/a", "/srv/b"])),
    "driver probe": lambda: found.script(rig()),
    "look for a driver": lambda: driver("look"),
    "look through mirrors": lambda: driver("look", WIDE, component="", first=(), kept="", kernel="linux-image-generic"),
    "install a driver": lambda: driver("install"),
    "build modules alone": lambda: driver("install", targets=(), names=(), hashes=[], fresh=()),
    "install kept files": lambda: driver("install", kept="/var/lib/rigwright/driver/1", targets=("old-",)),
    "install prebuilt modules": lambda: driver("install", WIDE, dkms=False, hashes=[], fresh=()),
    "live cards": lambda: live.script(rig(driver=TUNED)),
    "live cards of nobody's": lambda: live.script(rig()),
    "holders of cards": holders.script,
    "held packages": lambda: render("nvidia_driver/held.sh.j2", held=f"{STATE}/driver/held"),
    "load modules": lambda: render("nvidia_driver/load.sh.j2"),
    "release a driver": lambda: render("nvidia_driver/release.sh.j2", **release(rig())),
    "where the cards are": topology.script,
    "give keys": lambda: given.programs(rig())["give-keys"],
    "give credentials": lambda: given.programs(rig())["prepare"],
    "bring a secret": lambda: given.bring("/etc/rigwright/credentials/gateway-lan.pem", "0" * 64),
    "bring keys in a deploy": lambda: given.bring("/etc/rigwright/credentials/gateway-keys.json", "0" * 64, VERSION),
    "have keys read": lambda: given.give_keys("0" * 64),
    "have credentials given": lambda: given.give_credentials(rig()),
    "bring keys": lambda: host_keys.bringing(rig(), "0" * 64, VERSION, '{"who": "a b"}', 5),
    "which keys are there": lambda: host_keys.having_script(rig()),
    "what a gateway is given": lambda: given.script(rig()),
    "probe of a rig without weights": lambda: render("probe/probe.sh.j2", **probed()),
}


def stand_in(folder: Path, name: str, body: str) -> Path:
    """A program of this name that does what a few lines of shell say, in place of the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
