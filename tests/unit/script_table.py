"""Every shell script that a template makes, by what it is made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from checks.tpm_quote import render_quote_script
from rigwright import nginx_package
from rigwright.engines.llama_cpp.build import render_compile_step
from rigwright.engines.llama_cpp_wheel.install import LARGEST
from rigwright.fetch_job_spec import job_network
from rigwright.gateway import deployed_keys, secrets_distribution
from rigwright.gateway.keys_file_version import version_for
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT
from rigwright.gateway.token_usage import render_usage_query
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.host.systemd import UnitState
from rigwright.model.inventory_schema import DriverEntry
from rigwright.monitoring import monitoring_facts, self_check
from rigwright.nvidia.cards import card_facts, topology
from rigwright.nvidia.driver import driver_facts
from rigwright.nvidia.driver.driver_files import driver_release_values
from rigwright.patches.patch import APPLY_PROGRAM_TEXT
from rigwright.plan.repairs import Repair, render_repairs
from rigwright.plan.state_digests import render_owned_state_query
from rigwright.render import render
from rigwright.rollout import box_marker, shared_build
from rigwright.rollout.state_file import BoxRecord
from rigwright.serving import start_stop_by_hand, takeover, weight_inventory
from rigwright.serving.activation import Activation
from rigwright.serving.instance_units import listener_units
from rigwright.serving.residency import render_proof_script
from rigwright.serving.serving_state import render_state_query
from rigwright.serving.standby import StandbyInstance, render_memory_query, render_standby_drain
from rigwright.serving.takeover import ExistingContainer, ExistingService, ExistingServiceFacts, Takeover
from rigwright.supply.apt_release import ArchiveSuite
from rigwright.supply.bundle import Bundle, BundledPackages, BundleRow, LocalFile
from rigwright.weights import weight_server
from rigwright.weights.verification import (
    recorded_file,
    records_folder,
    render_verified_test,
)
from roles.artefact_fetch import render_fetch_script
from roles.trees import render_tree_program
from tests.unit.container_scripts import CONTAINER_SCRIPTS
from tests.unit.image_samples import image_rig as image_rig
from tests.unit.patch_samples import sample_patch
from tests.unit.plugin_samples import instance_with_selftest, make_examination
from tests.unit.rendered_scripts import (
    PLAIN,
    STATE,
    WIDE,
    activation_script,
    driver_script,
    engine_build_script,
    lock_holder_script,
    packages_look_script,
    packages_script,
    rig_build,
    rig_on_cards,
    tools_script,
)
from tests.unit.rollout_samples import make_marker
from tests.unit.samples import (
    sample_artefact,
    sample_instance,
    sample_probe_values,
    sample_rig,
    sample_wheel,
)
from tests.unit.script_samples import (
    container_script,
    cuda_toolkit,
    engine_wheel_script,
    environment_script,
    environment_step,
    generation_script,
    image_script,
    image_step,
    monitoring_script,
    removal_script,
    remove_model,
    sharing_script,
)

VERSION = version_for(None, "{}")
ADDRESSES = ("0000:01:00.0", "0000:02:00.0")
SUITE = ArchiveSuite(
    system="debian-12", archive=0, suite="bookworm", components=("main",), signed="2026-11-21 UTC", valid_until=None
)
ROWS = (
    BundleRow(path=f"{SUITE.folder}/InRelease", sha256="a" * 64, size=5),
    BundleRow(path=f"{SUITE.folder}/main/binary-amd64/Packages.xz", sha256="b" * 64, size=5),
    BundleRow(path="packages/debian-12/0/pool/main/c/curl/curl_8.deb", sha256="c" * 64, size=5),
)
BUNDLED = sample_rig(bundle=Bundle(Path("/home/ops/bundle"), ("debian-12",), ROWS, (SUITE,)))
SENT_DRIVER = f"{STATE}/jobs/rw-job-driver/files"
DRIVER_PACKAGES = BundledPackages(
    suites=(SUITE,), keyring="/usr/share/keyrings/debian-archive-keyring.gpg"
).with_locked(
    [LocalFile(Path("/home/ops/bundle/libcuda1.deb"), "libcuda1_595.91.07-1_amd64.deb", "e" * 64, 9)],
    "Package: libcuda1\nVersion: 595.91.07-1\nDepends: libc6 (>= 2.36)\n",
)


CONTAINER = ExistingContainer("podman", "0" * 64, "vllm", "running", "always", removed=False, unit="")
TUNED = DriverEntry(managed=True, power_w=280, sysctl={"kernel.numa_balancing": 0, "vm.swappiness": 10})
CHAT, CODE = "rigwright-chat.service", "rigwright-code.service"
(PORT, HOLDER), OLD_HOLDER = listener_units(8020), listener_units(8021)[1]
SCRIPTS: dict[str, Callable[[], str]] = {
    "survey": lambda: render("probe/survey.sh.j2"),
    "build for the CPU": engine_build_script,
    "build for cards": lambda: engine_build_script(0, 1),
    "compilation": lambda: render_compile_step(rig_build(rig_on_cards())),
    "compilation of what is patched": lambda: render_compile_step(
        rig_build(sample_rig(sample_instance(patches=(sample_patch("llama.cpp"),))))
    ),
    "compilation for cards": lambda: render_compile_step(rig_build(rig_on_cards(0, 1))),
    "wheel of llama.cpp": engine_wheel_script,
    "unpacking of a wheel": lambda: render("llama_cpp_wheel/unpack.sh.j2", wheel=sample_wheel(), largest=LARGEST),
    "fetch": lambda: render_fetch_script(sample_rig(mirrors={"store": ("http://a", "http://b")}), [sample_artefact()]),
    "fetch through a proxy": lambda: render_fetch_script(WIDE, [sample_artefact(sources=["http://a/b"])]),
    "fetch from nowhere": lambda: render_fetch_script(sample_rig(), [sample_artefact(sources=["index:project"])]),
    "fetch packages": lambda: render_fetch_script(
        sample_rig(), [sample_wheel()], python="/opt/rigwright/installers/bin/python"
    ),
    "what is verified": lambda: render("weights/verified.sh.j2", folder=f"{STATE}/weights", records=["0", "a b"]),
    "fetch from a bundle": lambda: render_fetch_script(BUNDLED, [sample_artefact()]),
    "tools from a bundle": lambda: tools_script(
        job_network(BUNDLED.roots, BUNDLED.network), sent=f"{STATE}/jobs/rw-job-tools/files"
    ),
    "packages from a bundle": lambda: packages_script(BUNDLED),
    "packages that apt takes of a bundle": lambda: packages_look_script(BUNDLED),
    "cuda toolkit": lambda: cuda_toolkit(""),
    "cuda toolkit that is patched": lambda: cuda_toolkit(APPLY_PROGRAM_TEXT),
    "trees": lambda: render("trees/look.sh.j2", program=render_tree_program("tree_records"), asked='{"a": "b c"}'),
    "what a deploy owns": lambda: render_owned_state_query(PLAIN),
    "repairs": lambda: render_repairs(
        PLAIN.roots,
        [
            Repair("remove", "/run/systemd/system/rigwright-a.service.d/a b.conf"),
            Repair("open", "/srv/models/a b", "755", "root:root"),
            Repair("restart", "rigwright-a.service"),
            Repair("reload", "rigwright_gateway.service"),
            Repair("thaw", "rigwright.slice"),
        ],
    ),
    "tools": lambda: tools_script(job_network(PLAIN.roots, PLAIN.network)),
    "hub's client": lambda: tools_script(
        job_network(PLAIN.roots, PLAIN.network), title="the hub's client", alone="/opt/rigwright/hub-client-"
    ),
    "tools from mirrors": lambda: tools_script(job_network(WIDE.roots, WIDE.network)),
    "environment": environment_script,
    "step of an image that is patched": image_step,
    "environment that is patched": lambda: environment_script(sample_patch()),
    "step of an environment that is patched": environment_step,
    "a plugin's doctor": lambda: make_examination(instance_with_selftest()).script,
    "image": image_script,
    "image that is patched": lambda: image_script(sample_patch("vllm")),
    "container": container_script,
    "packages": lambda: packages_script(PLAIN),
    "packages with a service": lambda: packages_script(
        PLAIN, ("nginx",), masked={"nginx.service": nginx_package.LEFTOVER_FILES}
    ),
    "what watches": lambda: render(
        "look/monitoring.sh.j2", **monitoring_facts.monitoring_state_values(sample_rig().roots)
    ),
    "a box's own checks": lambda: render("look/self_check.sh.j2", files=self_check.history_paths(sample_rig().roots)),
    "stop watching": lambda: render(
        "monitoring/release.sh.j2", **monitoring_facts.monitoring_release_values(sample_rig().roots)
    ),
    "watch": lambda: monitoring_script(restart=True),
    "watch at boot": lambda: monitoring_script(restart=False),
    "packages with a user": lambda: packages_script(PLAIN, ("prometheus",), accounts={"prometheus": "prometheus"}),
    "what is shared": lambda: render("look/sharing.sh.j2", **weight_server.share_state_values()),
    "entries": lambda: render("look/entries.sh.j2", paths=["/srv/a b", "/etc/c"]),
    "a unit": lambda: render("look/unit.sh.j2", unit="x.timer", read=["x.timer", "x.service"]),
    "users": lambda: render("look/passwd.sh.j2", users=["svc", "a b"]),
    "use": lambda: render("look/use.sh.j2"),
    "a quote of a TPM": lambda: render_quote_script("a" * 64),
    "usage": lambda: render_usage_query("rw gateway", "2026-11-01"),
    "packages of ours": lambda: render("look/ledger.sh.j2", ledger=f"{STATE}/owned"),
    "written": lambda: render("look/written.sh.j2", config="/etc/rigwright"),
    "a condition": lambda: render("look/holds.sh.j2", test="[ -e /srv/x ] && [ -e /srv/y ]"),
    "what a job was sent": lambda: render("look/sent.sh.j2", folder=f"{STATE}/jobs/rw-job-x/files"),
    "what ends a shell": lambda: render("shell/hold.sh.j2", unit="rigwright_shell-0.service", silence=60),
    "a job": lambda: render("look/job.sh.j2", unit="rw-job-x", grown="/srv/x", document="/srv/p", log="/run/x/log"),
    "the lease's holder": lambda: render("deploy_lock/holder.sh.j2", deploy_lock=DEPLOY_LOCK),
    **{
        f"a rollout's marker, {'out' if is_out else 'in'}": lambda is_out=is_out: box_marker.render_mark_script(
            sample_rig().roots, make_marker(record=BoxRecord(is_out=is_out)), ""
        )
        for is_out in (True, False)
    },
    "the marker of a rollout": lambda: box_marker.render_marker_query(sample_rig().roots),
    "builds of a rollout": lambda: shared_build.render_builds_query(sample_rig().roots, ["llama.cpp-0.3.36-a", "b"]),
    "the folder of a copied build": lambda: shared_build.render_prepare_script(
        sample_rig().roots, "llama.cpp-0.3.36-a"
    ),
    "a copied build": lambda: shared_build.render_receive_script(
        sample_rig().roots, "llama.cpp-0.3.36-a", "a" * 64, '{"inputs": "an \'engine\'"}'
    ),
    "a rollout's drain": lambda: box_marker.render_drain_script(30),
    "a box's return to a gateway": lambda: box_marker.render_return_script(["one/chat", "two/chat"]),
    "share": lambda: sharing_script(restart=True),
    "share at boot": lambda: sharing_script(restart=False),
    **CONTAINER_SCRIPTS,
    "stop sharing": lambda: render("sharing/release.sh.j2", **weight_server.share_release_values(sample_rig().roots)),
    "packages from mirrors": lambda: packages_script(WIDE),
    "ready": lambda: generation_script("ready"),
    "seed": lambda: generation_script("seed"),
    "started": lambda: generation_script("started"),
    "settle": lambda: generation_script("settle"),
    "state": lambda: render_state_query(
        "/etc/rigwright",
        "/opt/rigwright",
        "/var/lib/rigwright/starts",
        "/var/lib/rigwright/build",
        "/var/lib/rigwright/owned",
    ),
    "activate": lambda: activation_script(Activation((CODE,), (CHAT,), ()), ("rigwright-old.service",)),
    "activate after cards are free": lambda: activation_script(
        Activation((CODE,), (CHAT,), (), (UnitState(CHAT, "0" * 64, 8020, frozenset({0, 1})),))
    ),
    "activate and wait": lambda: activation_script(Activation((), (), (CHAT,))),
    "activate and listen": lambda: activation_script(
        Activation((), (PORT,), (), (), (OLD_HOLDER,), (HOLDER,), (GATEWAY_UNIT,), (CHAT,), {HOLDER: (PORT, 8020)})
    ),
    "activate and prove": lambda: activation_script(Activation((CODE,), (CHAT,), (), prove=(CODE,))),
    "activate nothing": lambda: activation_script(Activation()),
    "activate the generation of an argument": lambda: activation_script(Activation(), number=None),
    "activate beside": lambda: activation_script(
        Activation((), (CHAT,), (), (UnitState(CHAT, "0" * 64, 8020, frozenset({0, 1})),)),
        beside=(
            StandbyInstance(
                *("chat", "rigwright_beside-chat.service", "chat.beside", "/run/rigwright_beside/chat", "[Unit]\n"),
                *({"requests/chat": "url = x\n"}, (0, 1)),
            ),
        ),
    ),
    "leave what runs beside": lambda: render_standby_drain(replace(sample_instance(), beside=True), 30),
    "activate in the place of a unit": lambda: activation_script(
        Activation((), (CHAT,)),
        taking=Takeover(ExistingServiceFacts(ExistingService("vllm.service"), ports=frozenset({8020})), CHAT),
    ),
    "activate in the place of a container": lambda: activation_script(
        Activation((), (CHAT,)),
        taking=Takeover(ExistingServiceFacts(ExistingService("vllm"), containers=(CONTAINER,)), CHAT),
    ),
    "activate and bring a container back": lambda: activation_script(
        Activation((), (CHAT,)),
        taking=Takeover(
            ExistingServiceFacts(ExistingService("vllm"), containers=(replace(CONTAINER, restart="no"),)), ""
        ),
    ),
    "bring a unit back": lambda: takeover.render_restore_script(
        (box_rig := sample_rig()).roots, box_rig.gateway, ExistingServiceFacts(ExistingService("vllm.service"))
    ),
    "a unit of theirs": lambda: takeover.render_takeover_query(
        (box_rig := sample_rig(sample_instance())).roots,
        box_rig.instances,
        box_rig.gateway,
        ExistingService("vllm.service"),
    ),
    "a container of theirs": lambda: takeover.render_takeover_query(
        (box_rig := sample_rig(sample_instance())).roots, box_rig.instances, box_rig.gateway, ExistingService("vllm")
    ),
    "what was taken over": lambda: takeover.render_records_query(sample_rig().roots),
    "room": lambda: render_memory_query(sample_instance()),
    "hold": lock_holder_script,
    "hold where somebody watches": lambda: lock_holder_script(marks="/var/lib/rigwright/metrics/deploy.prom"),
    "hold after a while": lambda: lock_holder_script(120),
    "remove": removal_script,
    "remove a model": remove_model,
    **{
        f"{verb} by hand": lambda verb=verb: start_stop_by_hand.render_lifecycle_script(
            (box_rig := sample_rig(sample_instance())).roots, box_rig.instances, verb, ["chat"], "{}"
        )
        for verb in start_stop_by_hand.DOING
    },
    "restart on demand by hand": lambda: start_stop_by_hand.render_lifecycle_script(
        (box_rig := sample_rig(sample_instance(start="on-demand"))).roots, box_rig.instances, "restart", ["chat"], "{}"
    ),
    "proof on demand": lambda: render_proof_script(sample_rig().roots, "chat", 60.0),
    "restart and recompile by hand": lambda: start_stop_by_hand.render_lifecycle_script(
        (box_rig := sample_rig(sample_instance())).roots, box_rig.instances, "restart", ["chat"], "{}", recompile=True
    ),
    "look at weights": lambda: weight_inventory.render_weights_query(sample_rig().roots),
    "verified weights": lambda: render_verified_test(
        records_folder(sample_rig().roots), [recorded_file(sample_rig().roots, sample_artefact())]
    ),
    "remove from a host without units": lambda: removal_script((), True),
    "probe": lambda: render(
        "probe/probe.sh.j2", **sample_probe_values(folders=["/srv", "/opt"], weights=["/srv/a", "/srv/b"])
    ),
    "driver probe": lambda: driver_facts.render_probe((box_rig := sample_rig()).roots, box_rig.toolkit),
    "look for a driver": lambda: driver_script("look"),
    "look through mirrors": lambda: driver_script(
        "look", WIDE, component="", first=(), kept="", kernel="linux-image-generic"
    ),
    "look for a driver in a bundle": lambda: driver_script(
        "look", sent=SENT_DRIVER, packages=DRIVER_PACKAGES, first=()
    ),
    "install a driver from a bundle": lambda: driver_script("install", sent=SENT_DRIVER, packages=DRIVER_PACKAGES),
    "install a driver": lambda: driver_script("install"),
    "build modules alone": lambda: driver_script("install", targets=(), names=(), hashes=[], fresh=()),
    "install kept files": lambda: driver_script("install", kept="/var/lib/rigwright/driver/1", targets=("old-",)),
    "install kept files of a box with a bundle": lambda: driver_script(
        "install", kept=f"{STATE}/driver/1", offline=True
    ),
    "install prebuilt modules": lambda: driver_script("install", WIDE, dkms=False, hashes=[], fresh=()),
    "live cards": lambda: card_facts.render_card_query((box_rig := sample_rig(driver=TUNED)).roots, box_rig.driver),
    "live cards of nobody's": lambda: card_facts.render_card_query((box_rig := sample_rig()).roots, box_rig.driver),
    "holders of cards": card_facts.render_holders_query,
    "held packages": lambda: render("nvidia_driver/held.sh.j2", held=f"{STATE}/driver/held"),
    "load modules": lambda: render("nvidia_driver/load.sh.j2"),
    "release a driver": lambda: render("nvidia_driver/release.sh.j2", **driver_release_values(sample_rig().roots)),
    "where the cards are": topology.render_topology_query,
    "give keys": lambda: secrets_distribution.render_root_programs((box_rig := sample_rig()).roots, box_rig.accounts)[
        "give-keys"
    ],
    "give credentials": lambda: secrets_distribution.render_root_programs(
        (box_rig := sample_rig()).roots, box_rig.accounts
    )["prepare"],
    "bring a secret": lambda: secrets_distribution.render_secret_install(
        "/etc/rigwright/credentials/gateway-lan.pem", "0" * 64
    ),
    "bring keys in a deploy": lambda: secrets_distribution.render_secret_install(
        "/etc/rigwright/credentials/gateway-keys.json", "0" * 64, VERSION
    ),
    "have keys read": lambda: secrets_distribution.render_keys_reload("0" * 64),
    "have credentials given": lambda: secrets_distribution.render_credentials_reload(sample_rig().roots),
    "bring keys": lambda: deployed_keys.render_key_delivery(sample_rig().roots, "0" * 64, VERSION, '{"who": "a b"}', 5),
    "which keys are there": lambda: deployed_keys.render_keys_query(sample_rig().roots),
    "which programs a gateway has": lambda: deployed_keys.render_programs_query(sample_rig().roots),
    "what a gateway is given": lambda: secrets_distribution.render_state_query(sample_rig().roots),
    "probe of a rig without weights": lambda: render("probe/probe.sh.j2", **sample_probe_values()),
}
