"""The target state of a rig's containers on a host, and refusals before anything is touched."""

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.apt_transactions import SourceFile
from rigwright.containers import daemon_json
from rigwright.containers.container_files import render_settings
from rigwright.containers.container_plan import describe_container_changes, find_missing_packages, find_unheld_packages
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.rig import Rig
from rigwright.supply.bundle import Bundle, BundleRow
from tests.unit.container_samples import (
    FIVE,
    FOUR,
    IN_DEBIAN,
    OWN_DOCKER,
    container_facts,
    container_rig,
    docker_group,
    plan_for_host,
    refusal_reasons,
    toolkit_group,
)

OLDER = MappingProxyType({"docker.io": "20.10.24+dfsg1-1+deb12u1+b6", "podman": "4.3.1+ds1-8+deb12u1+b3"})


@pytest.mark.parametrize(
    ("locked", "keys", "facts", "groups", "distribution"),
    [
        # nothing there, nothing locked: the distribution's
        ((), {}, {}, [], ["docker.io", "docker-cli"]),
        ((), {"engines": ("docker", "podman")}, {}, [], ["docker.io", "docker-cli", "podman"]),
        ((), {"engines": ("podman",)}, {}, [], ["podman"]),
        # locked: its own
        ((docker_group(),), {}, {}, [OWN_DOCKER], []),
        ((docker_group(),), {"docker": "docker"}, {}, [OWN_DOCKER], []),
        ((docker_group(),), {"docker": "distribution"}, {}, [], ["docker.io", "docker-cli"]),
        # a package that is there and new enough stays
        ((docker_group(),), {}, {"packages": {"docker.io": "26.1.5+dfsg1-9"}}, [], ["docker.io", "docker-cli"]),
        ((docker_group(),), {"docker": "docker"}, {"packages": {"docker.io": "26.1.5+dfsg1-9"}}, [OWN_DOCKER], []),
        ((), {}, {"packages": {"docker-ce": "5:29.1.0-1~debian.13~trixie"}}, [], []),
        # too old, and a newer one is locked
        ((docker_group(),), {}, {"packages": {"docker.io": "20.10.24+dfsg1-1"}}, [OWN_DOCKER], []),
        # older releases have the command in the daemon's package
        ((), {}, {"candidates": MappingProxyType({"docker.io": "28.2.2-0ubuntu1"})}, [], ["docker.io"]),
    ],
)
def test_docker_is_what_is_there_or_locked_or_the_distributions(locked, keys, facts, groups, distribution):
    plan = plan_for_host(container_rig(toolkit_group(), *locked, **keys), container_facts(**facts))
    assert [one.name for one in plan.groups] == ["container-toolkit", *groups]
    assert list(plan.distribution) == distribution


@pytest.mark.parametrize(
    ("keys", "facts", "said"),
    [
        ({}, {"candidates": OLDER}, "docker.io 20.10.24+dfsg1 is too old: CDI needs 26.1 or later"),
        ({"engines": ("podman",)}, {"candidates": OLDER}, "podman 4.3.1+ds1 is too old: CDI needs 5.1"),
        ({}, {"candidates": MappingProxyType({})}, 'no archive of debian-13 has docker.io: add [inputs."docker-debian'),
        ({"engines": ("podman",)}, {"candidates": MappingProxyType({})}, "no archive of debian-13 has podman"),
        (
            {"engines": ("podman",)},
            {"candidates": MappingProxyType({}), "apt_failure": "apt-cache ended with status 100: E: x"},
            "it is unknown whether an archive has podman, for the host's apt-cache ended with status 100: E: x: repair",
        ),
        ({"docker": "docker"}, {}, "no Docker is locked for debian-13"),
        ({}, {"packages": {"docker-ce": "5:25.0.5-1"}}, "docker-ce 25.0.5 is too old"),
        (
            {"docker": "distribution"},
            {"packages": {"docker-ce": "5:28.5.2-1"}},
            "docker-ce is installed, but containers.docker",
        ),
        ({}, {"options": "{"}, "/etc/docker/daemon.json is not JSON"),
        ({}, {"options": '{"mtu": 1, "mtu": 2}'}, "/etc/docker/daemon.json has mtu twice"),
        ({}, {"odd": "a link"}, "/etc/docker/daemon.json is a link: correct it"),
        ({}, {"odd": "no file"}, "/etc/docker/daemon.json is no file: correct it"),
        ({}, {"record": "{"}, "/var/lib/rigwright/containers/daemon.json, which lists the managed Docker options"),
        ({}, {"snap": True}, "Docker is installed as a snap"),
        ({}, {"packages": {"podman-docker": "5.4.2"}}, "podman-docker is installed"),
        ({}, {"options": '{"cdi-spec-dirs": ["/opt/cdi"]}'}, "cdi-spec-dirs in /etc/docker/daemon.json lacks /run"),
    ],
)
def test_an_impossible_value_is_refused_with_a_remedy(keys: dict[str, Any], facts: dict[str, Any], said: str) -> None:
    (reason,) = refusal_reasons(container_rig(**keys), container_facts(**facts))
    assert reason.startswith(said)


DOCKERD = "/usr/sbin/dockerd"


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("/usr/local/bin/dockerd", "", "docker.service runs /usr/local/bin/dockerd, which is not from a package"),
        (DOCKERD, "--config-file /srv/d.json", "the Docker daemon is started with --config-file /srv/d.json"),
        (DOCKERD, "--config-file=/srv/d.json", "the Docker daemon is started with --config-file /srv/d.json"),
        (DOCKERD, "--config-file=/etc/docker/daemon.json -H fd://", ""),
        (DOCKERD, "-H fd:// --containerd=/run/containerd/containerd.sock", ""),
        (DOCKERD, "-H fd:// --log-driver=local", "the Docker daemon is started with a flag for log-driver"),
        (DOCKERD, "--feature cdi=true", "the Docker daemon is started with a flag for features"),
        (DOCKERD, "-DH fd:// --label a=b", "the Docker daemon is started with a flag for debug, labels"),
        # of a runtime dockerd takes both
        (DOCKERD, "--add-runtime crun=/usr/bin/crun", ""),
    ],
)
def test_a_daemon_that_its_unit_starts_with_something_else_is_refused_before_it_fails(program, words, said):
    there = container_facts(
        toolkit_group(), packages=IN_DEBIAN, docker_runs=True, program=program, arguments=(program, *words.split())
    )
    one = container_rig(daemon={"log-driver": "journald", "debug": True, "labels": ["x"]})
    if said:
        (reason,) = refusal_reasons(one, there)
        assert reason.startswith(said)
    else:
        assert plan_for_host(one, there).options


def test_a_locked_docker_that_is_too_old_is_refused() -> None:
    (reason,) = refusal_reasons(container_rig(toolkit_group(), docker_group("25.0.5")), container_facts())
    assert reason.startswith("Docker 25.0.5 is locked, but CDI needs 26.1")


def test_a_rig_without_cards_needs_no_toolkit() -> None:
    plan = plan_for_host(container_rig(docker_group(), cards=False), container_facts())
    assert [one.name for one in plan.groups] == [OWN_DOCKER]
    assert plan.options is None


@pytest.mark.parametrize(
    ("facts", "step", "why"),
    [
        ({"docker_runs": False}, "", ""),
        ({"in_force": ""}, "restart", "its options have changed"),
        (
            {
                "in_force": json.dumps(
                    daemon_json.required_options((box_rig := container_rig()).cards, box_rig.containers)
                )
            },
            "",
            "",
        ),
        (
            {
                "in_force": json.dumps(
                    {
                        **daemon_json.required_options((box_rig := container_rig()).cards, box_rig.containers),
                        "runtimes": {},
                    }
                )
            },
            "reload",
            "",
        ),
        # when the daemon takes what its operator has written is his matter
        (
            {
                "in_force": json.dumps(
                    daemon_json.required_options((box_rig := container_rig()).cards, box_rig.containers)
                ),
                "options": '{"data-root": "/srv"}',
            },
            "",
            "",
        ),
        ({"in_force": "{"}, "restart", "its options have changed"),
        (
            {
                "in_force": json.dumps(
                    daemon_json.required_options((box_rig := container_rig()).cards, box_rig.containers)
                ),
                "options": '{"cdi-spec-dirs": []}',
            },
            "",
            "",
        ),
    ],
)
def test_a_daemon_is_started_again_only_where_it_must(facts: dict[str, Any], step: str, why: str) -> None:
    plan = plan_for_host(
        container_rig(), container_facts(toolkit_group(), packages=IN_DEBIAN, **{"docker_runs": True, **facts})
    )
    assert (plan.step, plan.restarting) == (step, why)


@pytest.mark.parametrize(
    ("keys", "facts", "refused"),
    [
        ({}, {"containers": ("web", "db")}, "web, db are running"),
        ({}, {"asked": False}, "it does not report its running containers"),
        ({}, {}, ""),
        ({"restart": True}, {"containers": ("web",)}, ""),
        # kept by the daemon that ends, and not by the one that starts
        ({}, {"containers": ("web",), "live_restore": True}, "web are running"),
        ({"daemon": {"live-restore": True}}, {"containers": ("web",), "live_restore": True}, ""),
        ({}, {"containers": ("web",), "live_restore": True, "arguments": ("dockerd", "--live-restore")}, ""),
        # the daemon reads that one before it is started again
        ({"daemon": {"live-restore": True}}, {"containers": ("web",)}, ""),
        ({}, {"containers": ("web",), "options": '{"live-restore": true}'}, ""),
    ],
)
def test_containers_that_a_restart_would_end_are_asked_about(keys, facts, refused):
    one, there = (
        container_rig(**keys),
        container_facts(toolkit_group(), packages=IN_DEBIAN, docker_runs=True, in_force="", **facts),
    )
    if refused:
        (reason,) = refusal_reasons(one, there)
        assert refused in reason
        assert "declare containers.restart" in reason
    else:
        assert plan_for_host(one, there).restarting


def test_another_version_of_docker_restarts_it_too() -> None:
    box_rig = container_rig()
    there = container_facts(
        toolkit_group(),
        docker_group("28.5.1"),
        docker_runs=True,
        in_force=json.dumps(daemon_json.required_options(box_rig.cards, box_rig.containers)),
        containers=("web",),
    )
    # its package's script starts it again before anything of ours can
    live = container_rig(toolkit_group(), docker_group(), daemon={"live-restore": True})
    (reason,) = refusal_reasons(live, there)
    assert "(docker-debian-13 28.5.2 is installed)" in reason
    kept = replace(
        there, live_restore=True, options=json.dumps(daemon_json.required_options(live.cards, live.containers))
    )
    assert plan_for_host(live, kept).restarting


@pytest.mark.parametrize(
    ("file", "text", "left"),
    [
        ("nvidia-docker.list", "deb https://nvidia.github.io/nvidia-docker/debian11/$(ARCH) /\n", True),
        (
            "nvidia-container-toolkit.list",
            "deb [signed-by=/k] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /",
            True,
        ),
        (
            "x.sources",
            "Types: deb\nURIs: https://NVIDIA.github.io/libnvidia-container/stable/deb/amd64\nSuites: /\n",
            True,
        ),
        (
            "x.sources",
            "Enabled: no\nTypes: deb\nURIs: https://nvidia.github.io/libnvidia-container/\nSuites: /\n",
            False,
        ),
        ("x.list", "# deb https://nvidia.github.io/nvidia-docker/debian11/amd64 /\n", False),
        ("docker.list", "deb https://download.docker.com/linux/debian trixie stable\n", False),
        (
            "rigwright-container-toolkit.sources",
            "Types: deb\nURIs: https://nvidia.github.io/libnvidia-container/x\nSuites: /\n",
            False,
        ),
    ],
)
def test_sources_of_older_repositories_are_set_aside(file: str, text: str, left: bool) -> None:
    path = f"/etc/apt/sources.list.d/{file}"
    plan = plan_for_host(container_rig(), container_facts(sources=(SourceFile(path, text),)))
    assert plan.leftovers == ((path,) if left else ())


def test_a_file_that_names_other_archives_too_is_left_to_its_owner() -> None:
    text = "deb http://archive.lan/debian trixie main\ndeb https://nvidia.github.io/nvidia-docker/debian11/amd64 /\n"
    (reason,) = refusal_reasons(container_rig(), container_facts(sources=(SourceFile("/etc/apt/sources.list", text),)))
    assert reason.startswith("/etc/apt/sources.list names https://nvidia.github.io/ and other archives")


def test_packages_that_cannot_stay_go() -> None:
    there = container_facts(
        packages={"docker.io": "20.10.24-1", "runc": "1.1.5", "nvidia-docker2": "2.13.0-1", "curl": "8"}
    )
    plan = plan_for_host(container_rig(toolkit_group(), docker_group()), there)
    assert plan.removed == ("nvidia-docker2", "docker.io", "runc")


def test_missing_parts_of_a_host_are_reported_in_words() -> None:
    one, mixed = (
        container_rig(toolkit_group(), docker_group()),
        container_facts(toolkit_group("1.19.1"), docker_group(), half=("docker-ce",), held=frozenset(FOUR)),
    )
    plan = plan_for_host(one, mixed)
    assert find_missing_packages(plan, mixed) == [f"{name} is 1.19.1, not 1.20.0" for name in FOUR] + [
        "the installation of docker-ce was not completed"
    ]
    assert find_unheld_packages(plan, mixed) == [f"{name} is not held" for name in FIVE]
    whole = container_facts(toolkit_group(), docker_group(), held=frozenset((*FOUR, *FIVE)))
    assert find_missing_packages(plan_for_host(one, whole), whole) == []
    assert [what for what, _ in describe_container_changes(whole, plan_for_host(one, whole))] == [
        "merge options into /etc/docker/daemon.json"
    ]


def package_bundle(
    tmp_path: Path, *groups: PackageGroup, packages: dict[str, str] = IN_DEBIAN, system: str = "debian-13"
) -> Bundle:
    """A bundle with packages of a system, and locked ones."""
    paths = {f"packages/{system}/0/pool/{name}_{version}_amd64.deb": "a" * 64 for name, version in packages.items()}
    paths |= {f"debs/{one.name}/{row.file}": row.sha256 for one in groups for row in one.packages.values()}
    rows = tuple(BundleRow(path=path, sha256=digest, size=1) for path, digest in paths.items())
    return Bundle(tmp_path, (system,), rows)


def with_bundle(found: Bundle, *groups: PackageGroup, **keys: Any) -> Rig:
    return replace(container_rig(*groups, **keys), bundle=found, bundle_folder=str(found.folder))


def test_with_a_bundle_its_packages_count_and_no_archive_is_asked(tmp_path: Path) -> None:
    one = with_bundle(package_bundle(tmp_path, toolkit_group()), engines=("docker", "podman"))
    # a host without lists, and with a source of another author
    there = container_facts(
        candidates=MappingProxyType({}), sources=(SourceFile("/etc/apt/a.list", "deb https://nvidia.github.io/x /\n"),)
    )
    plan = plan_for_host(one, there)
    assert plan.distribution == ("docker.io", "docker-cli", "podman")
    assert plan.leftovers == ()
    assert not [
        file.path
        for file in render_settings(one.roots, one.container_supply, one.network, one.bundle_folder, plan, "debian-13")
        if file.path.endswith(".sources")
    ]
    box_rig = container_rig()
    assert [
        file.path
        for file in render_settings(
            box_rig.roots,
            box_rig.container_supply,
            box_rig.network,
            box_rig.bundle_folder,
            plan_for_host(container_rig(), container_facts()),
            "debian-13",
        )
        if ".sources" in file.path
    ]


@pytest.mark.parametrize(
    ("has", "there", "keys", "said"),
    [
        ({"packages": {}}, {}, {"engines": ("docker",)}, ["no docker.io for debian-13: recreate it with `rigwright"]),
        ({"packages": {}}, {}, {"engines": ("podman",)}, ["no podman for debian-13: recreate it"]),
        ({"packages": OLDER}, {}, {"engines": ("podman",)}, ["podman 4.3.1+ds1 is too old"]),
        (
            {"system": "debian-12"},
            {"packages": IN_DEBIAN},
            {},
            ["no container-toolkit 1.20.0 for debian-13: recreate it"],
        ),
        ({"groups": ()}, {}, {}, ["no container-toolkit 1.20.0 for debian-13: recreate it"]),
    ],
)
def test_missing_parts_of_a_bundle_are_refused_with_a_remedy(tmp_path, has, there, keys, said):
    found = package_bundle(tmp_path, *has.pop("groups", (toolkit_group(),)), **has)
    lines = refusal_reasons(with_bundle(found, **keys), container_facts(**there))
    assert len(lines) == len(said)
    assert all(one in line for one, line in zip(said, lines, strict=True))


def test_a_bundle_need_not_have_what_is_there(tmp_path: Path) -> None:
    found = package_bundle(tmp_path, packages={}, system="debian-12")
    assert plan_for_host(with_bundle(found), container_facts(toolkit_group(), packages=IN_DEBIAN)).groups == (
        toolkit_group(),
    )
