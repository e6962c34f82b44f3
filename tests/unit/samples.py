"""Small rigs, catalogues, locks and hosts that the unit tests begin from."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.engines.llama_cpp.build import Build
from rigwright.engines.llama_cpp.catalog_keys import LlamaEngine, LlamaVariant
from rigwright.engines.llama_cpp.option_table import load_snapshot, snapshot_file_name
from rigwright.host.pci_cards import PciCard
from rigwright.inventory import HostGroup, hosts
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.archive_tables import load_container_tables
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.fact_types import HostFacts
from rigwright.model.installation import Installation
from rigwright.model.instance import Instance, ModelPart
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec, load_driver_tables
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.plan import host_probe
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from tests.lock_files import reseal_text
from tests.unit.sample_texts import CATALOG, COMMIT, LOCK

# The options of the llama.cpp that is shipped, which the sample engine has too
HELP_FILE = ROOT / "catalog" / "flags" / "llama.cpp-0.3.36-0c1e570.txt"
HELP = load_snapshot(HELP_FILE)


def sample_entry(**changes: object) -> dict[str, object]:
    """A valid inventory entry over CATALOG and LOCK, with some of its keys changed."""
    return {
        "ssh_hostname": "192.0.2.7",
        "cards": ["turing", "ampere"],
        "instances": {
            "chat": {"variant": "llamacpp/two", "cards": [0, 1], "port": 8020},
            "code": {"variant": "llamacpp/cpu", "port": 8021},
        },
        "mirrors": {"store": ["http://127.0.0.1:8000/files/"]},
        # several tests lock a stand-in for these beside the inventory
        "allow": ["locks.tools"],
    } | changes


def chat_instances(**changes: object) -> dict[str, object]:
    """The entry's instances: one on the CPU, with some of its keys changed."""
    return {"chat": {"variant": "llamacpp/cpu", "port": 8020} | changes}


class OperatorFolder:
    """An operator's folder: an inventory, and a catalogue and a lock of its own beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = folder / "rig.py"
        self.write("catalog/box.toml", CATALOG)
        self.write("locks/box.lock.toml", LOCK)
        self.write(f"catalog/flags/{snapshot_file_name('1.0', COMMIT)}", HELP_FILE.read_bytes())

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file of the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".lock.toml") and isinstance(text, str):
            text = reseal_text(text)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load_group(self, entries: Any, **shared: object) -> HostGroup:
        """The result of the inventory's `hosts(entries, **shared)`."""
        scope = {"hosts": hosts, "entries": entries, "shared": shared}
        # the file that calls it counts
        exec(compile("rigs = hosts(entries, **shared)", str(self.inventory), "exec"), scope)
        made: Any = scope["rigs"]
        return made

    def refusal_lines(self, **changes: object) -> list[str]:
        """The lines that `hosts()` ends with for one changed entry."""
        with pytest.raises(SystemExit) as ended:
            self.load_group({"box": sample_entry(**changes)})
        assert isinstance(ended.value.code, str)
        return ended.value.code.splitlines()


def sample_artefact(**changes: object) -> Artefact:
    """A locked weight file."""
    values: dict[str, object] = {
        "kind": "weight",
        "name": "small",
        "version": COMMIT,
        "file": "small-q4.gguf",
        "sha256": "b" * 64,
        "size": 2 * 1024 * 1024,
        "sources": ["store:small-q4.gguf"],
    }
    return Artefact.model_validate(values | changes)


SOURCE = sample_artefact(
    kind="source",
    name="engine-source",
    version="1.0",
    file="engine-1.0.tar.gz",
    sha256="a" * 64,
    sources=["index:some-project", "store:engine-1.0.tar.gz"],
)


def sample_wheel(name: str = "tool", **changes: object) -> Artefact:
    """A locked wheel of the hosts' tools."""
    file = f"{name}-1.0-py3-none-any.whl"
    own = {
        "kind": "wheel",
        "name": name,
        "version": "1.0",
        "group": "tools",
        "file": file,
        "sources": [f"index:{name}"],
    }
    return sample_artefact(**own | changes)


KEY_TEXT = "an armoured key"


def sample_deb(name: str = "libcuda1", version: str = "595.91.07-1", **changes: object) -> Artefact:
    """A locked package of a driver for Debian 13."""
    file = f"{name}_{version.rpartition(':')[2]}_amd64.deb"
    own = {
        "kind": "deb",
        "name": name,
        "version": version,
        "group": "driver-debian-13",
        "file": file,
        "sources": [f"nvidia:debian13/x86_64/{file}"],
    }
    return sample_artefact(**own | changes)


def archive_key(**changes: object) -> Artefact:
    """The locked key of NVIDIA's archive for Debian 13, whose text is KEY_TEXT."""
    own = {
        "kind": "key",
        "name": "nvidia-debian-13",
        "version": "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
        "group": "driver-debian-13",
        "file": "driver-debian-13.asc",
        "sha256": hashlib.sha256(KEY_TEXT.encode()).hexdigest(),
        "size": len(KEY_TEXT),
        "sources": ["nvidia:debian13/x86_64/8793F200.pub"],
    }
    return sample_artefact(**own | changes)


def sample_card(capability: str, pci_id: str = "10de:2204", name: str = "NVIDIA GeForce RTX 3090") -> Card:
    """A card of a compute capability."""
    return Card(name=name, pci_ids=(pci_id,), capability=capability, vram_mib=24576)


def sample_engine(**changes: object) -> LlamaEngine:
    """An engine without options of its own."""
    return LlamaEngine.model_validate({"kind": "llama.cpp", "source": "engine-source", "commit": COMMIT} | changes)


def sample_parts(model: Artefact | None = None, **others: Artefact) -> tuple[ModelPart, ...]:
    """The files of an instance's model: option, with underscores -> its only file."""
    return tuple(
        ModelPart(option.replace("_", "-"), (file,))
        for option, file in {"model": model or sample_artefact(), **others}.items()
    )


def sample_instance(name: str = "chat", *, cards: tuple[int, ...] = (), **changes: object) -> Instance:
    """An instance; keys of its variant may be changed beside its own."""
    own = {key: changes.pop(key) for key in tuple(changes) if key in Instance.__dataclass_fields__}
    recipe = {"engine": "plain", "model": "small", "cards": len(cards), "context": 4096} | changes
    made = Instance(
        name=name,
        variant_name="llamacpp/sample",
        variant=LlamaVariant.model_validate(recipe),
        model_name="small",
        parts=sample_parts(),
        engine_name="plain",
        engine=sample_engine(),
        artefacts=(SOURCE,),
        known=HELP,
        cards=cards,
        port=8020,
        memory_max="90%",
        tasks_max=4096,
        api_key_file=None,
        key_fingerprint=None,
    )
    return replace(made, **own)  # type: ignore[arg-type] # a test names the fields it means


def sample_installation(folder: str = "plain-1.0-0123456789ab") -> Installation:
    """The installation of an engine on a host, in this folder."""
    name, version, digest = folder.rsplit("-", 2)
    return Installation(name, version, digest, (SOURCE,), f"make {name}")


def sample_rig(*instances: Instance, cards: tuple[Card, ...] = (), **changes: object) -> Rig:
    """A rig with default roots."""
    made = Rig(
        name="box",
        inventory="/home/ops/rig.py",
        cards=cards,
        reserved_gpus=(),
        driver=DriverEntry(),
        driver_supply=DriverSupply(load_driver_tables(ROOT)),
        containers=None,
        container_supply=ContainerSupply(load_container_tables(ROOT)),
        instances=instances,
        roots=Roots(),
        accounts=ServiceAccounts("rigwright"),
        network=DownloadNetwork(mirrors={"store": ("http://127.0.0.1:8000/files/",)}),
        share=None,
        gateway=None,
        monitoring=None,
        scrape_targets=(),
        fs_verity=False,
        keep_generations=5,
        maintenance_windows=(),
        toolkit=ToolkitSpec(own_root="/usr/local/cuda"),
        also_build_for=(),
        bundle_folder=None,
        bundle=None,
        bundle_faults=(),
        signers=None,
        signatures=(),
        signature_faults=(),
        pull=None,
        waivers=(),
        variants=(),
        engine_artefacts={"plain": (SOURCE,)},
        tools=(sample_wheel(),),
        gpu_exporter=(),
        hub_client=(),
        envs=(),
        installers=(),
        lock=Lock({}),
    )
    return changed_rig(made, **changes)


# short names of fields -> the part of a rig, and its field; fields of `network` are called as they are
PARTS_OF_RIG = {
    "drivers": ("driver_supply", "tables"),
    "driver_packages": ("driver_supply", "packages"),
    "driver_keys": ("driver_supply", "keys"),
    "container_groups": ("container_supply", "groups"),
    "cuda_root": ("toolkit", "own_root"),
    "cuda": ("toolkit", "wheels"),
    "toolkit_patches": ("toolkit", "patches"),
}


def changed_rig(made: Rig, **changes: object) -> Rig:
    """A rig with other values of its fields, or of those of its parts."""
    for key in [*changes]:
        part, field = PARTS_OF_RIG.get(key, ("network" if hasattr(made.network, key) else "", key))
        if part:
            made = replace(made, **{part: replace(getattr(made, part), **{field: changes.pop(key)})})
    return replace(made, **changes)  # type: ignore[arg-type]


GIB = 1024 * 1024  # in KiB
NOW = 1_800_000_000  # seconds since the epoch, on both sides


def sample_facts(**changes: object) -> HostFacts:
    """A host on which nothing stands in the way of a rig with a CUDA toolkit."""
    space: Mapping[str, int] = {"/opt/rigwright": 50 * GIB, "/srv/models": 50 * GIB, "/var/lib/rigwright": 50 * GIB}
    made = HostFacts(
        os_id="debian",
        os_version="12",
        architecture="x86_64",
        kernel="6.1.0-40-amd64",
        systemd=252,
        uid=0,
        clock=NOW,
        memory_kib=64 * GIB,
        disk_free_kib=MappingProxyType(dict(space)),
        cuda_version="13.0",
        glibc="2.41",
        apt_lock_holder="",
        cpu_features=frozenset({"avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"}),
    )
    pairs: tuple[Any, ...] = changes.pop("pci_cards", ())  # type: ignore[assignment]
    cards = tuple(one if isinstance(one, PciCard) else PciCard(*one) for one in pairs)
    return replace(made, pci_cards=cards, **changes)  # type: ignore[arg-type]


def sample_build(**changes: object) -> Build:
    """A build for the CPU."""
    made = Build(
        name="plain",
        version="1.0",
        digest="0123456789ab",
        artefacts=(SOURCE,),
        what="compile engine-source 1.0 for the CPU",
        options={"GGML_NATIVE": "OFF"},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def sample_probe_values(**changes: object) -> dict[str, object]:
    """The probe's questions on a machine without anything of ours."""
    nothing: dict[str, object] = {
        "folders": ["/", "/etc"],
        "parts": [one.template for one in host_probe.SOURCES if one.template],
        "engines": "/nowhere",
        "builds": "/nowhere",
        "jobs": "/nowhere",
        "weights": [],
        "cuda_root": "/nowhere",
        "mathematical": ["rsqrt", "sinpi"],
        "users": ["nobody-at-all"],
        "packages": ["base-files", "dpkg"],
        "ledger": "/nowhere/owned",
        "inside": ["/nowhere"],
        "weight_files": [],
        "config": "/etc/nowhere",
        "units": "/nowhere",
        "programs": ["llama-server"],
        "cpu_features": [],
        "settings": ["/nowhere"],
        "containers": "/nowhere",
        "undeclared": ["/nowhere"],
        "share_unit": "nowhere.service",
        "share_path": "/nowhere",
        "watching": {"node": "nowhere.service"},
        "watching_units": "/nowhere",
        "watching_secrets": "/nowhere",
        "self_check_files": ["/nowhere"],
        "self_check_units": ["nowhere.timer"],
        "accepted_serials": "/nowhere",
        "pull_record": "/nowhere",
    }
    return nothing | changes
