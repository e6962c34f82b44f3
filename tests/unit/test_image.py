"""Engines that come as images: the unit that podman starts them by, and what is refused beforehand."""

import json
from pathlib import Path

import pytest

from bench.alternating_runs import Deployed, MeasurementFailed
from rigwright import toml
from rigwright.engines.image import KIND
from rigwright.engines.log_causes import find_cause
from rigwright.host.systemd import ExpandedWord
from rigwright.model.roots import Roots
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import find_refusals
from rigwright.serving.instance_units import build_unit
from tests.stand_ins.oci_images import LayerEntry, build_image
from tests.unit.image_samples import IMAGE, image_instance, image_rig, image_rows, unpacked_image
from tests.unit.samples import sample_facts

NOW = 1_800_000_000


def words(*cards: int, **changes: object) -> tuple[str, ...]:
    one = image_rig(image_instance(cards=cards, **changes))  # type: ignore[arg-type] # keys of its variant
    return KIND.service(one, one.instances[0], unpacked_image(one)).command


def options(found: tuple[str, ...], name: str) -> list[str]:
    return [word.partition("=")[2] for word in found if word.startswith(f"--{name}=")]


def test_an_instance_is_a_container_without_network_privileges_or_anything_to_write_to() -> None:
    found = words(0)
    run = found.index("run")
    assert found[0] == "/usr/bin/podman"
    assert {
        *("--detach", "--pull=never", "--cgroups=split", "--sdnotify=conmon", "--log-driver=passthrough"),
        *("--network=none", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--ipc=private"),
        *("--image-volume=ignore", "--http-proxy=false"),
    } <= {*found[run:]}
    assert not [word for word in found if word.startswith(("--publish", "--privileged", "--memory", "--pid=", "-p"))]


def test_it_runs_as_a_user_that_only_the_host_knows() -> None:
    (user,) = [word for word in words(0) if word.startswith("--user=")]
    assert (user, type(user)) == ("--user=${RW_OWNER}", ExpandedWord)


def test_an_image_is_named_by_the_digest_of_its_configuration_alone() -> None:
    found = words(0)
    at = found.index("-I") - 1
    assert found[at] == json.loads(IMAGE.manifest)["config"]["digest"].removeprefix("sha256:")
    assert options(found, "entrypoint") == ["python3"]
    assert "docker" not in " ".join(found)


@pytest.mark.parametrize("cards", [(0,), (1, 3)])
def test_cards_come_by_cdi_and_are_counted_anew_inside(cards: tuple[int, ...]) -> None:
    found = words(*cards, tensor_parallel_size=len(cards))
    assert options(found, "device") == [f"nvidia.com/gpu={index}" for index in cards]
    seen = [value for value in options(found, "env") if value.startswith("CUDA_VISIBLE_DEVICES=")]
    assert seen == [f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(len(cards))))}"]


def test_it_writes_to_its_socket_and_its_cache_and_reads_weights_key_and_launcher() -> None:
    mounts = [one.split(":") for one in options(words(0), "volume")]
    writable = [target for _, target, mode in mounts if mode == "rw"]
    assert writable == ["/run/rigwright/instances/chat", "/var/cache/rigwright/compiled"]
    readable = {target: source for source, target, mode in mounts if mode == "ro"}
    assert readable.pop("/run/rigwright/api-key") == "/run/rigwright/containers/chat/api-key"
    assert [source for target, source in readable.items() if target == source and source.startswith("/srv/models/")]
    assert all(mode in ("ro", "rw") for *_, mode in mounts)


def test_its_temporary_folders_are_its_own_users_whatever_modes_the_image_has() -> None:
    # of an image only root may write to anything, and podman would give that mode to what it mounts there
    found = options(words(), "tmpfs")
    assert [one.partition(":")[0] for one in found] == ["/tmp", "/var/tmp"]
    assert all({"mode=1777", "notmpcopyup", "nosuid", "nodev"} <= {*one.partition(":")[2].split(",")} for one in found)


def test_shared_memory_is_the_variants() -> None:
    assert options(words(0, shm_size="16G"), "shm-size") == ["16g"]


def test_another_image_is_another_installation_and_another_cache() -> None:
    one = image_rig(image_instance())
    other = build_image({"bin/one": LayerEntry(b"another")})
    moved = image_rig(image_instance(), engine_artefacts={"vllm-image": image_rows(other)})
    assert unpacked_image(one).folder != unpacked_image(moved).folder
    caches = [KIND.service(box, box.instances[0], unpacked_image(box)).cache for box in (one, moved)]
    assert caches[0] != caches[1]
    assert caches[0].endswith(f"{unpacked_image(one).folder}-8.6")


def test_the_unit_is_roots_and_its_limits_hold_for_all_that_is_in_it() -> None:
    one = image_rig(image_instance(cards=(0,)))
    text = build_unit(one, one.instances[0], unpacked_image(one), node=1).text.splitlines()
    assert {"Type=notify", "NotifyAccess=all", "Delegate=yes", "KillMode=control-group", "MemoryMax=90%"} <= {*text}
    assert {"NUMAPolicy=bind", "NUMAMask=1"} <= {*text}
    # systemd would give the unit's control group to a user, and podman would leave it
    assert not [line for line in text if line.startswith(("User=", "Group=", "RuntimeDirectory=", "CacheDirectory="))]
    before = [line for line in text if line.startswith("ExecStartPre=")]
    assert " make /run/rigwright/containers/chat " in before[0]


def test_its_flags_are_judged_by_the_version_that_the_catalogue_says() -> None:
    bad = image_instance(flags={"num-scheduler-steps": 8, "swap-spce": 4})
    found = KIND.refusals(bad, Roots(), Path("/box"), frozenset({"8.6"}))
    assert any(line.startswith("flags.num-scheduler-steps") for line in found)
    assert any(line.startswith("flags.swap-spce") for line in found)
    assert KIND.refusals(image_instance(), Roots(), Path("/box"), frozenset({"8.6"})) == []


def test_downloads_and_unpacked_files_need_their_space() -> None:
    one = image_rig(image_instance(cards=()))
    large = [row.model_copy(update={"size": 10**12}) if row.name == "layer" else row for row in image_rows()]
    box = image_rig(image_instance(cards=()), engine_artefacts={"vllm-image": tuple(large)})
    assert unpacked_image(box).installed_kib > 50 * 1024 * 1024 > unpacked_image(one).installed_kib
    found = find_refusals(build_target_state(box, sample_facts(os_id="debian", os_version="13")), NOW)
    assert any(line.startswith("/opt/rigwright has") for line in found)
    assert any(line.startswith("/srv/models has") for line in found)


def test_a_container_is_not_measured_outside_of_its_unit() -> None:
    box = image_rig(image_instance())
    with pytest.raises(MeasurementFailed, match="chat cannot run outside its unit: it runs in a container"):
        _ = Deployed(box, box.instances[0], unpacked_image(box)).bare


def test_podmans_message_about_missing_cards_is_explained() -> None:
    said = "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0"
    cause = find_cause(KIND.causes, said)
    assert cause
    assert "journalctl -u nvidia-cdi-refresh.service" in cause.text


def test_podman_reads_settings_of_ours() -> None:
    one = image_rig(image_instance())
    service = KIND.service(one, one.instances[0], unpacked_image(one))
    name = service.environment["CONTAINERS_CONF"].rpartition("/")[2]
    found = toml.tomllib.loads(service.programs[name])["engine"]
    # its locks would else be shared with the operator's own podman
    assert found["lock_type"] == "file"


def test_nothing_that_the_host_says_of_all_containers_is_reported_of_these() -> None:
    one = image_rig(image_instance())
    service = KIND.service(one, one.instances[0], unpacked_image(one))
    found = toml.tomllib.loads(service.programs[service.environment["CONTAINERS_CONF"].rpartition("/")[2]])
    # without a list podman looks where packages and operators leave programs that root then runs for each container
    assert found["engine"]["hooks_dir"] == ["/usr/share/empty"]
    # and mounts what /etc/containers/mounts.conf says
    assert "--default-mounts-file=/dev/null" in service.command[: service.command.index("run")]
    storage = service.environment["CONTAINERS_STORAGE_CONF"].rpartition("/")[2]
    assert toml.tomllib.loads(service.programs[storage])["storage"]["driver"] == "overlay"
    assert "--security-opt=seccomp=/run/rigwright/containers/chat/seccomp.json" in service.command


def test_one_of_it_that_is_ended_for_its_memory_ends_all_of_it() -> None:
    one = image_rig(image_instance())
    # of a unit that delegates its control group systemd would let the rest go on
    assert "OOMPolicy=stop" in build_unit(one, one.instances[0], unpacked_image(one)).text.splitlines()
