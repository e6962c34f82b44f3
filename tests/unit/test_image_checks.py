"""Messages about a container that differs from its declaration, and the survey's facts about one."""

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checks import test_images
from checks.remedy import instruction
from checks.survey.answers import SurveyAnswers
from checks.survey.containers import IMAGES, Images, ObservedMount, RunningContainer
from checks.survey.host import running_containers
from checks.survey.kernel import KERNEL, BusDisplay
from checks.survey.processes import PROCESSES, KernelProcess
from rigwright.engines.image import KIND
from tests.unit.check_runner import red_checks
from tests.unit.image_samples import image_instance, image_rig, unpacked_image

BOX = image_rig(image_instance(cards=(0, 1), tensor_parallel_size=2))
(INSTANCE,) = BOX.instances
SERVICE = KIND.service(BOX, INSTANCE, unpacked_image(BOX))
DECLARED = cast("test_images.RunningContainer", SERVICE.container)
UID = 990
GROUP = f"/rigwright.slice/{INSTANCE.slice}/{INSTANCE.unit}"
PAYLOAD = f"{GROUP}/libpod-payload-0"
SPACES = {space: f"{space}:[1]" for space in (*test_images.SPACES, "user")}
OWN = {space: f"{space}:[2]" for space in test_images.SPACES} | {"user": "user:[1]"}
LAYERS = ["/opt/store/overlay/b/diff", "/opt/store/overlay/a/diff"]
CARDS = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
NO_CAPABILITIES = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16)
STATUS = {"Uid": f"{UID}\t" * 4, "Gid": f"{UID}\t" * 4, "Groups": f"{UID} ", "NoNewPrivs": "1", "Seccomp": "2"}


def process(pid: int, group: str, words: tuple[str, ...] = (), **changes: Any) -> KernelProcess:
    """One, as it is to be."""
    given = {"status": {**STATUS, **NO_CAPABILITIES}, "spaces": OWN, "exe": "/usr/bin/python3", "code": []} | changes
    given_to_it = {**DECLARED.environment, "A": "b", "container": "podman", "HOSTNAME": "x"}
    given_to_it |= {"NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_CTK_LIBCUDA_DIR": "/usr/lib"}
    variables = [f"{name}={value}" for name, value in given_to_it.items()]
    more = {"limits": {}, "oom": 0, "threads": [], "ioprio": 0, "variables": variables}
    return KernelProcess(pid=pid, words=list(words), group=group, **{**more, **given})


def mounts() -> list[ObservedMount]:
    """The mounts of a container."""
    found = [saw(one.target, "ext4", one.writable, one.source) for one in DECLARED.mounts]
    found += [saw("/", "overlay", False, "/"), saw("/proc", "proc", True, "/"), saw("/dev", "tmpfs", True, "/")]
    found += [saw("/etc/hostname", "tmpfs", False, "/x"), saw("/proc/acpi", "tmpfs", False, "/")]
    # the kernel has one of all
    found += [saw("/sys/fs/cgroup", "cgroup2", False, "/x", hosts=True)]
    return [*found, saw("/usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "ext4", False, "/usr/lib/libcuda.so.580.1")]


def saw(target: str, kind: str, writable: bool, root: str, hosts: bool = False) -> ObservedMount:
    return ObservedMount(target, kind, writable, root, hosts)


FOUND = RunningContainer(
    first=10,
    group=PAYLOAD,
    mounts=mounts(),
    elsewhere=[],
    layers=LAYERS,
    locked=LAYERS,
    variables=["A=b", "NVIDIA_VISIBLE_DEVICES=all"],
    brought=["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib", "VLLM_HOST_IP=1.2.3.4"],
    interfaces=["lo"],
    devices=[*sorted(test_images.DEVICES), *CARDS],
    forged=[],
)
# the second card on the bus has the first device file
DISPLAYS = [
    BusDisplay(f"0000:0{at}:00.0", "10de:2204", "nvidia", minor, rendering=[f"card{at}", f"renderD{128 + at}"])
    for at, minor in enumerate((1, 0, 3, 5))
]
ENGINE = process(10, PAYLOAD, DECLARED.command)
CONMON = process(9, f"{GROUP}/runtime", exe="/usr/bin/conmon", spaces=SPACES, code=["file /usr/bin/conmon"])


def image_red_checks(
    found: RunningContainer = FOUND,
    engine: KernelProcess = ENGINE,
    conmon: KernelProcess = CONMON,
    code: dict[str, str] | None = None,
    beside: tuple[str, ...] = (),
) -> dict[str, str]:
    """The checks that are red, with what they say."""
    unit = SimpleNamespace(processes=[conmon, engine])
    seen = {
        IMAGES.name: Images({INSTANCE.unit: found}, list(beside)),
        PROCESSES.name: SimpleNamespace(
            units={INSTANCE.unit: unit}, first=process(1, "/", spaces=SPACES), code=code or {}
        ),
        KERNEL.name: SimpleNamespace(cards=DISPLAYS),
        "accounts": SimpleNamespace(user=lambda name: SimpleNamespace(uid=UID, gid=UID)),
    }
    survey = cast("SurveyAnswers", SimpleNamespace(read=lambda section: seen[section.name]))
    given = {"rig": BOX, "contained": INSTANCE, "declared": DECLARED, "container_unit": found, "within": [engine]}
    return red_checks(test_images, survey, restart=instruction("restart it"), **given)


def test_a_container_as_it_is_declared_is_green() -> None:
    assert image_red_checks() == {}


def without(name: str) -> KernelProcess:
    return replace(ENGINE, variables=[one for one in ENGINE.variables if not one.startswith(f"{name}=")])


def with_variable(name: str, value: str) -> KernelProcess:
    return replace(without(name), variables=[*without(name).variables, f"{name}={value}"])


def with_status(**changes: str) -> KernelProcess:
    return replace(ENGINE, status={**ENGINE.status, **changes})


def seeing(*more: ObservedMount) -> RunningContainer:
    return replace(FOUND, mounts=[*FOUND.mounts, *more])


WRONG: dict[str, tuple[Callable[[], dict[str, str]], str, str]] = {
    "another layer": (lambda: image_red_checks(replace(FOUND, layers=["/opt/x"])), "I01", "/opt/x, none of /opt/store"),
    "layers in another order": (
        lambda: image_red_checks(replace(FOUND, layers=LAYERS[::-1])),
        "I01",
        "expected the layers",
    ),
    "an image that the store has not": (
        lambda: image_red_checks(replace(FOUND, locked=[])),
        "I01",
        "image not in the store",
    ),
    "another word": (lambda: image_red_checks(engine=replace(ENGINE, words=["sh"])), "I02", "found sh"),
    "a variable less": (
        lambda: image_red_checks(engine=without("VLLM_HOST_IP")),
        "I02",
        "VLLM_HOST_IP unset, not 127.0.0.1",
    ),
    "a declared variable, as a spec says it": (
        lambda: image_red_checks(engine=with_variable("VLLM_HOST_IP", "1.2.3.4")),
        "I02",
        "VLLM_HOST_IP 1.2.3.4, not 127.0.0.1",
    ),
    "other cards than the spec says": (
        lambda: image_red_checks(engine=with_variable("NVIDIA_VISIBLE_DEVICES", "3")),
        "I02",
        "NVIDIA_VISIBLE_DEVICES 3, not all",
    ),
    "void, which no spec says": (
        lambda: image_red_checks(replace(FOUND, brought=[]), engine=with_variable("NVIDIA_VISIBLE_DEVICES", "void")),
        "I02",
        "NVIDIA_VISIBLE_DEVICES void, not all",
    ),
    "the image's variable gone": (lambda: image_red_checks(engine=without("A")), "I02", "A unset, not b"),
    "a variable more": (
        lambda: image_red_checks(engine=replace(ENGINE, variables=[*ENGINE.variables, "LD_PRELOAD=/x"])),
        "I02",
        "the variable LD_PRELOAD",
    ),
    "root": (lambda: image_red_checks(engine=with_status(Uid="0\t0\t0\t0")), "I03", "the user ids 0 0 0 0"),
    "a group more": (lambda: image_red_checks(engine=with_status(Groups="990 44")), "I03", "44"),
    "no group": (
        lambda: image_red_checks(engine=with_status(Groups="", Gid="0\t0\t0\t0")),
        "I03",
        "the groups 0 0 0 0",
    ),
    "a capability": (
        lambda: image_red_checks(engine=with_status(CapEff="0000000000200000")),
        "I03",
        "CapEff 0000000000200000",
    ),
    "new privileges": (
        lambda: image_red_checks(engine=with_status(NoNewPrivs="0")),
        "I03",
        "the right to gain privileges",
    ),
    "every call": (lambda: image_red_checks(engine=with_status(Seccomp="0")), "I03", "every system call"),
    "a folder of the host's": (
        lambda: image_red_checks(seeing(saw("/mnt", "ext4", False, "/etc"))),
        "I04",
        "/etc at /mnt",
    ),
    "a tmpfs over one of the image's": (
        lambda: image_red_checks(seeing(saw("/app", "tmpfs", True, "/"))),
        "I04",
        "/ at /app",
    ),
    "the host's own sockets": (
        lambda: image_red_checks(seeing(saw("/run", "tmpfs", True, "/", hosts=True))),
        "I04",
        "the host's own tmpfs at /run",
    ),
    "other weights": (
        lambda: image_red_checks(replace(FOUND, elsewhere=["/srv/m"])),
        "I04",
        "another file than the host's at /srv/m",
    ),
    "weights away": (
        lambda: image_red_checks(
            replace(FOUND, mounts=[one for one in FOUND.mounts if "/srv/models" not in one.target])
        ),
        "I04",
        "no mount at /srv/models",
    ),
    "weights that it may write to": (
        lambda: image_red_checks(replace(FOUND, mounts=[replace(one, writable=True) for one in FOUND.mounts])),
        "I04",
        ", writable",
    ),
    "a writable root": (
        lambda: image_red_checks(replace(FOUND, mounts=[saw("/", "overlay", True, "/"), *mounts()])),
        "I04",
        "a root that is overlay, writable",
    ),
    "the host's network": (
        lambda: image_red_checks(engine=replace(ENGINE, spaces={**OWN, "net": "net:[1]"})),
        "I05",
        "net",
    ),
    "an interface": (lambda: image_red_checks(replace(FOUND, interfaces=["lo", "eth0"])), "I05", "the interface eth0"),
    "a disk": (lambda: image_red_checks(replace(FOUND, devices=[*FOUND.devices, "/dev/sda"])), "I06", "/dev/sda"),
    "a card less": (lambda: image_red_checks(replace(FOUND, devices=CARDS[1:])), "I06", "none of /dev/nvidia0"),
    "what renders on another's card": (
        lambda: image_red_checks(replace(FOUND, devices=[*FOUND.devices, "/dev/dri/renderD131"])),
        "I06",
        "/dev/dri/renderD131",
    ),
    "another's card": (
        lambda: image_red_checks(replace(FOUND, devices=[*FOUND.devices, "/dev/nvidia3"])),
        "I06",
        "/dev/nvidia3",
    ),
    "another's card instead of its own": (
        lambda: image_red_checks(replace(FOUND, devices=["/dev/nvidia3", *CARDS[1:]])),
        "I06",
        "/dev/nvidia3; none of /dev/nvidia0",
    ),
    "a disk under another name": (
        lambda: image_red_checks(replace(FOUND, forged=["/dev/null"])),
        "I06",
        "/dev/null, which is another device",
    ),
    "another conmon": (
        lambda: image_red_checks(conmon=replace(CONMON, exe="/usr/local/bin/conmon")),
        "I07",
        "/usr/local/bin",
    ),
    "a changed conmon": (
        lambda: image_red_checks(code={"/usr/bin/conmon": "is not its package's"}),
        "I07",
        "/usr/bin/conmon in",
    ),
    "code of no file": (
        lambda: image_red_checks(conmon=replace(CONMON, code=["deleted /x"])),
        "I07",
        "/x in /usr/bin/conmon",
    ),
    "another container": (lambda: image_red_checks(beside=("/rigwright.slice/x",)), "I08", "/rigwright.slice/x"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_deviation_is_one_red_check(what: str) -> None:
    look, identifier, said = WRONG[what]
    found = look()
    assert list(found) == [identifier]
    assert said in found[identifier]


def test_renderers_on_its_own_cards_are_its_too() -> None:
    assert image_red_checks(replace(FOUND, devices=[*FOUND.devices, "/dev/dri/card0", "/dev/dri/renderD129"])) == {}


def store(folder: Path, image: str = "i" * 64) -> Path:
    """A store of podman's with one image of two layers."""
    texts = {
        "overlay-images/images.json": [{"id": image, "layer": "b"}],
        "overlay-layers/layers.json": [{"id": "a"}, {"id": "b", "parent": "a"}, {"id": "c", "parent": "c"}],
        f"overlay-images/{image}/={base64.b64encode(f'sha256:{image}'.encode()).decode()}": {
            "config": {"Env": ["A=b"]}
        },
    }
    for name, value in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


def test_the_layers_and_variables_of_an_image_are_those_of_its_store(tmp_path: Path) -> None:
    found = store(tmp_path)
    assert running_containers._chain(found, "i" * 64) == [f"{found}/overlay/b/diff", f"{found}/overlay/a/diff"]
    assert (running_containers._variables(found, "i" * 64), running_containers._chain(found, "j" * 64)) == (["A=b"], [])


@pytest.mark.parametrize("text", ["", "[", '{"a": 1}', "[1]", '[{"id": 5}]', "[" * 100_000])
def test_a_store_whose_lists_say_something_else_has_no_image(tmp_path: Path, text: str) -> None:
    found = store(tmp_path)
    for name in ("overlay-images/images.json", "overlay-layers/layers.json"):
        (found / name).write_text(text)
    assert running_containers._chain(found, "i" * 64) == []


def test_layers_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    found = store(tmp_path)
    (found / "overlay-images/images.json").write_text(json.dumps([{"id": "x", "layer": "c"}]))
    assert running_containers._chain(found, "x") == [f"{found}/overlay/c/diff"]


def test_the_folders_of_an_overlay_are_where_they_lie() -> None:
    assert running_containers._lower("rw,lowerdir=/a/l/X:/b\\040c,upperdir=/u") == ["/a/l/X", "/b c"]


def test_a_file_system_is_the_hosts_where_that_has_it_elsewhere_too(monkeypatch: pytest.MonkeyPatch) -> None:
    host = (
        "1 2 0:9 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:20 / /run rw - tmpfs tmpfs rw\n"
        "3 2 0:31 / /run/rigwright/containers/chat/graph/shm rw - tmpfs shm rw\n"
        "4 2 0:32 / /run/rigwright/containers/chatter rw - tmpfs shm rw\n"
    )
    monkeypatch.setattr(running_containers.common, "read", lambda path, most=0: host)
    assert running_containers._hosts("/run/rigwright/containers/chat") == {"0:9", "0:20", "0:32"}


def test_a_spec_is_read_as_the_toolkit_writes_it(tmp_path: Path) -> None:
    spec = tmp_path / "nvidia.yaml"
    spec.write_text(
        'containerEdits:\n  env:\n  - NVIDIA_CTK_LIBCUDA_DIR=/usr/lib\n  - "NVIDIA_VISIBLE_DEVICES=void"\n'
        "  hooks:\n  - args:\n    - nvidia-cdi-hook\n    - --folder=/usr/lib\n"
    )
    found = ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib", "NVIDIA_VISIBLE_DEVICES=void"]
    assert running_containers._cdi_variables(str(spec)) == found
    assert running_containers._cdi_variables("") == running_containers._cdi_variables(str(tmp_path / "gone")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="device files are root's to make")
def test_a_device_under_another_ones_name_is_seen(tmp_path: Path) -> None:
    for name, numbers in {"null": (1, 3), "zero": (8, 0), "none-such": (1, 3)}.items():
        os.mknod(tmp_path / name, 0o020666, os.makedev(*numbers))
    os.mknod(tmp_path / "full", 0o060666, os.makedev(1, 7))
    (tmp_path / "shm").mkdir()
    os.mknod(tmp_path / "shm/x", 0o020666, os.makedev(1, 3))
    found = dict(running_containers._devices(tmp_path, {"/dev/shm"}))
    assert found == {"/dev/null": False, "/dev/zero": True, "/dev/none-such": True, "/dev/full": True}


def test_an_instance_without_a_container_has_none(tmp_path: Path) -> None:
    one = {"image": "i" * 64, "store": str(store(tmp_path)), "folder": str(tmp_path / "chat"), "mounts": []}
    one |= {"spec": "", "by": "podman"}
    (tmp_path / "folders/old").mkdir(parents=True)
    said = running_containers.look(
        {"units": {"x.service": one}, "folder": str(tmp_path / "folders"), "slice": f"none-{os.getpid()}"}
    )
    assert said["units"]["x.service"]["first"] == 0  # type: ignore[index]
    assert said["beside"] == [str(tmp_path / "folders/old")]
    assert SurveyAnswers({"running_containers": {"told": said}}).read(IMAGES).units["x.service"].variables == ["A=b"]


def test_crun_leaves_a_container_in_its_units_own_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.slice/x.slice/x.service/libpod-payload-1").mkdir(parents=True)
    monkeypatch.setattr(running_containers, "GROUPS", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr(running_containers, "_first", lambda group: asked.append(group) or 0)
    one = {"image": "i" * 64, "store": str(tmp_path), "folder": str(tmp_path / "chat"), "mounts": [], "spec": ""}
    said = running_containers.look(
        {"units": {"x.service": {**one, "by": "crun"}}, "folder": str(tmp_path), "slice": "own.slice"}
    )
    assert asked == ["/own.slice/x.slice/x.service"]
    # one of podman's there is none that is declared
    assert "/own.slice/x.slice/x.service/libpod-payload-1" in said["beside"]  # type: ignore[operator] # a list
