"""Where podman is too old: the unit that crun starts a container by, and what is written for it before each start."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.survey.processes import PROCESSES
from checks.survey.section import SurveyScope
from rigwright.engines.image import KIND, bundle
from rigwright.engines.image.bundle import Unfit, calls, configuration, edits, image
from rigwright.engines.image.container_command import image_service
from rigwright.plan.host_probe import find_missing_host_packages, required_packages
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import find_refusals
from rigwright.serving.instance_units import build_unit
from tests.unit.image_samples import ENGINE, image_instance, image_rig, unpacked_image
from tests.unit.samples import sample_facts

OLDER = ["debian 12", "ubuntu 22.04", "ubuntu 24.04"]
FOLDER = "/run/rigwright/containers/chat"
CARD, CONTROL = "/dev/null", "/dev/zero"
SPEC: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "nvidia.com/gpu",
    "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": CONTROL}],
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "VLLM_HOST_IP=1.2.3.4"],
        "hooks": [
            {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "x"]}
        ],
        "mounts": [
            {"containerPath": "/usr/lib/libcuda.so.1", "hostPath": "/lib/libcuda.so", "options": ["ro", "rbind"]}
        ],
    },
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": CARD}], "additionalGids": [44]}},
        {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/none-such"}]}},
    ],
}
PROFILE = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "archMap": [
        {"architecture": "SCMP_ARCH_AARCH64"},
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
    ],
    "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [], "includes": {}, "excludes": {}},
        {"names": ["arch_prctl"], "action": "SCMP_ACT_ALLOW", "args": None, "includes": {"arches": ["amd64", "x32"]}},
        {"names": ["sync_file_range2"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["ppc64le"]}},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
        {"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": {"caps": ["CAP_BPF"]}},
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "excludes": {"arches": ["amd64"]}},
    ],
}


def started(*cards: int) -> Any:
    box = image_rig(image_instance(cards=cards))
    return image_service(
        box.roots, box.cards, box.driver, box.network, box.instances[0], replace(unpacked_image(box), by="crun")
    )


def lines(*cards: int) -> list[str]:
    box = image_rig(image_instance(cards=cards))
    return build_unit(box, box.instances[0], replace(unpacked_image(box), by="crun")).text.splitlines()


def container_entry(*cards: int) -> dict[str, Any]:
    """As `bundle.py` reads it."""
    (text,) = [text for name, text in started(*cards).programs.items() if name.endswith(".json")]
    found: dict[str, Any] = json.loads(text)
    return found


def crun_config(*cards: int, **said: Any) -> dict[str, Any]:
    """The configuration of crun."""
    one = container_entry(*cards)
    return configuration(one, said, (990, 991), calls(PROFILE), edits(SPEC, one["devices"]) if cards else [])


@pytest.mark.parametrize("system", OLDER)
def test_where_podman_is_too_old_it_is_not_brought_and_crun_starts_containers(system: str) -> None:
    name, _, release = system.partition(" ")
    box, host = image_rig(image_instance(cards=())), sample_facts(os_id=name, os_version=release)
    assert {*required_packages(box, host.system)} & {"crun", "podman", "skopeo"} == {"crun", "skopeo"}
    assert KIND.installation(box, "vllm-image", ENGINE, host).by == "crun"  # type: ignore[attr-defined]
    assert not any("podman" in line for line in find_refusals(build_target_state(box, host), host.clock))
    assert find_missing_host_packages(box, replace(host, missing_packages=("podman", "crun"))) == ("crun",)


def test_elsewhere_podman_does_and_the_image_is_the_same() -> None:
    box, host = image_rig(image_instance(cards=())), sample_facts(os_id="debian", os_version="13")
    assert "podman" in required_packages(box, host.system)
    newer, older = (KIND.installation(box, "vllm-image", ENGINE, one) for one in (host, replace(host, os_version="12")))
    assert newer.by == "podman"  # type: ignore[attr-defined]
    assert newer.folder == older.folder


def test_its_process_is_the_units_own_in_the_units_own_group() -> None:
    found = lines()
    assert {"Type=forking", f"PIDFile={FOLDER}/pid", "KillMode=control-group", "DevicePolicy=closed"} <= {*found}
    assert not [line for line in found if line.startswith(("Delegate=", "NotifyAccess=", "DeviceAllow="))]
    words = started().command
    assert words[0] == "/usr/bin/crun"
    assert words.index("--cgroup-manager=disabled") < words.index("run") < words.index("--detach")
    assert f"--pid-file={FOLDER}/pid" in words


def test_its_unit_is_looked_at_as_any_other() -> None:
    box = image_rig(image_instance(cards=()))
    asked = PROCESSES.asks(SurveyScope(box, build_target_state(box, sample_facts(os_id="debian", os_version="12"))))
    assert asked["units"]["rigwright-chat.service"][0] == "/usr/bin/crun"  # type: ignore[index] # what is asked


def test_an_instance_with_cards_may_open_those_and_has_their_spec_written_before_each_start() -> None:
    found = lines(0)
    assert "DeviceAllow=char-nvidia* rwm" in found
    asks, writes = [line for line in found if "cdi generate" in line or "/bundle-" in line]
    assert asks.endswith(f"nvidia-ctk --quiet cdi generate --format=json --output={FOLDER}/cards.json")
    assert writes.startswith("ExecStartPre=/usr/bin/python3 -I ")
    assert not [line for line in lines() if "cdi generate" in line]


def test_its_user_has_no_privilege_and_its_root_is_read_only() -> None:
    found = crun_config()
    assert found["root"] == {"path": f"{FOLDER}/root", "readonly": True}
    process = found["process"]
    assert (process["user"], process["capabilities"]) == ({"uid": 990, "gid": 991, "umask": 0o007}, {})
    assert process["noNewPrivileges"] is True
    assert {one["type"] for one in found["linux"]["namespaces"]} == {"cgroup", "ipc", "mount", "network", "pid", "uts"}
    assert all("path" not in one for one in found["linux"]["namespaces"])


def test_it_runs_what_podman_would_and_sees_and_writes_to_the_same() -> None:
    one = image_instance(cards=())
    words = KIND.service(image_rig(one), one, unpacked_image(image_rig(one))).command
    found = crun_config()
    assert tuple(found["process"]["args"][1:]) == words[words.index("-I") :]
    volumes = [word.removeprefix("--volume=").split(":") for word in words if word.startswith("--volume=")]
    mounts = {mount["destination"]: mount for mount in found["mounts"]}
    for source, target, mode in volumes:
        assert (mounts[target]["source"], mounts[target]["type"]) == (source, "bind")
        assert {mode, "nosuid", "nodev"} <= {*mounts[target]["options"]}
    own = {target for target, mount in mounts.items() if mount["type"] == "bind"}
    assert own == {target for _, target, _ in volumes} | {"/etc/passwd", "/etc/group"}
    assert "mode=1777" in mounts["/tmp"]["options"]
    assert "size=16g" in mounts["/dev/shm"]["options"]


def test_variables_are_the_images_then_its_cards_and_then_the_declared_ones() -> None:
    given = dict(
        line.split("=", 1) for line in crun_config(0, Env=["PATH=/own", "NVIDIA_VISIBLE_DEVICES=all"])["process"]["env"]
    )
    assert (given["PATH"], given["NVIDIA_VISIBLE_DEVICES"], given["VLLM_HOST_IP"]) == ("/own", "void", "127.0.0.1")
    assert "PATH=/usr/local/sbin" in " ".join(crun_config()["process"]["env"])
    assert (crun_config(WorkingDir="/work")["process"]["cwd"], crun_config()["process"]["cwd"]) == ("/work", "/")


def test_invalid_variables_of_an_image_are_left_out() -> None:
    assert crun_config(Env=["nothing", ""])["process"]["env"] == crun_config()["process"]["env"]


def test_cards_bring_what_their_spec_says_and_no_group() -> None:
    found = crun_config(0)
    nodes = {node["path"]: (node["type"], node["major"], node["minor"]) for node in found["linux"]["devices"]}
    assert nodes == {"/dev/nvidiactl": ("c", 1, 5), CARD: ("c", 1, 3)}
    hook = {"path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "x"]}
    assert found["hooks"] == {"createContainer": [hook]}
    library = {"destination": "/usr/lib/libcuda.so.1", "type": "bind", "source": "/lib/libcuda.so"}
    assert library | {"options": ["bind", "ro", "rbind"]} in found["mounts"]
    assert "additionalGids" not in found["process"]["user"]


def test_a_missing_card_is_reported_in_words_that_are_explained() -> None:
    with pytest.raises(Unfit) as missing:
        edits(SPEC, ["nvidia.com/gpu=7"])
    with pytest.raises(Unfit) as gone:
        configuration(container_entry(), {}, (990, 990), {}, edits(SPEC, ["nvidia.com/gpu=1"]))
    for said in (missing, gone):
        assert [one for one in KIND.causes if re.search(one.pattern, str(said.value))]


@pytest.mark.parametrize(
    "changed", [{"intelRdt": {}}, {"hooks": [{"hookName": "prestart", "path": "/x", "more": 1}]}, {"netDevices": []}]
)
def test_unknown_parts_of_a_spec_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Unfit, match="which is unsupported"):
        edits({**SPEC, "containerEdits": changed}, ["nvidia.com/gpu=0"])


def test_a_file_is_no_card() -> None:
    with pytest.raises(Unfit, match="not a character device"):
        bundle.device({"path": "/dev/nvidia0", "hostPath": __file__})


def test_the_filter_of_system_calls_is_that_of_a_process_without_capabilities() -> None:
    found = calls(PROFILE)
    assert (found["defaultAction"], found["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert found["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]
    assert found["syscalls"] == [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": []},
        {"names": ["arch_prctl"], "action": "SCMP_ACT_ALLOW", "args": []},
        {"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": 1},
    ]


def test_an_images_layers_and_words_are_read_from_its_store(tmp_path: Path) -> None:
    digest = "i" * 64
    name = base64.b64encode(f"sha256:{digest}".encode()).decode()
    texts: dict[str, Any] = {
        "overlay-images/images.json": [{"id": "j", "layer": "c"}, {"id": digest, "layer": "b"}],
        "overlay-layers/layers.json": [{"id": "a"}, {"id": "b", "parent": "a"}, {"id": "c"}],
        f"overlay-images/{digest}/={name}": {"config": {"Env": ["A=b"]}},
    }
    for path, value in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(value))
    assert image(tmp_path, digest) == ([tmp_path / f"overlay/{one}/diff" for one in "ba"], {"Env": ["A=b"]})
    with pytest.raises(Unfit, match="has no image"):
        image(tmp_path, "k" * 64)


def test_its_user_has_a_name_in_it() -> None:
    found = bundle.accounts("rigwright-chat", (990, 991))
    assert found["passwd"].splitlines()[1].startswith("rigwright-chat:x:990:991:")
    assert found["group"].splitlines()[1] == "rigwright-chat:x:991:"
    mounts = {one["destination"]: one["source"] for one in crun_config()["mounts"]}
    assert mounts["/etc/passwd"] == f"{FOLDER}/passwd"
