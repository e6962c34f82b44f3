"""The checks of containers: green on a host that is as declared, and red by what is not."""

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from checks import test_container_toolkit, test_containers, test_docker
from checks.survey.answers import SurveyAnswers
from rigwright.containers import daemon_json
from rigwright.containers.container_facts import CDI_SPEC, source_path
from rigwright.containers.container_files import render_settings, spec_program_path
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.rig import Rig
from tests.unit.check_runner import red_checks
from tests.unit.container_samples import FOUR, IN_DEBIAN, container_facts, container_rig, plan_for_host, toolkit_group

UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.595.58.03"
GPU = f"0, 00000000:01:00.0, {UUID}, NVIDIA GeForce RTX 3090, 595.58.03"
RIG = container_rig(engines=("docker", "podman"), daemon={"log-driver": "journald"})
SOCKET = {"kind": "a socket", "mode": 0o660, "owner": "root", "group": "docker", "listed": False}
Change = Callable[[dict[str, Any]], object]


def kept_files(group: PackageGroup) -> dict[str, Any]:
    """The files of a locked set, as they were fetched."""
    rows = sorted(group.packages.values(), key=lambda row: row.name)
    return {
        "version": group.store_name,
        "listed": "".join(f"{row.sha256}  {row.file}\n" for row in rows),
        "files": [{"name": "SHA256SUMS", "size": 1, "sha256": ""}]
        + [{"name": row.file, "size": row.size, "sha256": ""} for row in rows],
    }


def package_row(name: str, version: str, state: str = "installed") -> dict[str, str]:
    """A package of an answer."""
    return {"name": name, "state": state, "version": version, "depends": ""}


def host_answers(one: Rig = RIG) -> dict[str, Any]:
    """The output of a host in its declared state."""
    files = render_settings(
        one.roots,
        one.container_supply,
        one.network,
        one.bundle_folder,
        plan_for_host(one, container_facts()),
        "debian-13",
    )
    unit = {"UnitFileState": "enabled", "ActiveState": "inactive", "Result": "success", "NeedDaemonReload": "no"}
    runs = f"{{ path=/bin/sh ; argv[]=/bin/sh {spec_program_path(one.roots)} ; ignore_errors=no }}"
    return {
        "os_id": "debian",
        "os_version": "13",
        "packages": {
            "rows": [package_row(name, "1.20.0-1") for name in FOUR] + [package_row(*row) for row in IN_DEBIAN.items()],
            "held": list(FOUR),
        },
        "candidates": [list(row) for row in IN_DEBIAN.items()],
        "recorded": [],
        "kept": {"container-toolkit": [kept_files(toolkit_group())]},
        "sources": [["/etc/apt/sources.list", "deb http://archive.lan/debian trixie main\n"]],
        "options": daemon_json.render_daemon_json(daemon_json.required_options(one.cards, one.containers)),
        "record": "",
        "daemon": {
            "arguments": ["/usr/sbin/dockerd", "-H", "fd://"],
            "listens": [],
            "sockets": {"/run/docker.sock": SOCKET},
            "swarm": False,
            "info": {
                "ServerVersion": '"26.1.5"',
                "LoggingDriver": '"journald"',
                "Runtimes": json.dumps({"nvidia": {"path": "nvidia-container-runtime"}, "runc": {}}),
                "CDISpecDirs": '["/etc/cdi", "/var/run/cdi"]',
            },
            "carded": [["own", "cdi"]],
        },
        "files": [
            {
                "path": file.path,
                "kind": "file",
                "mode": file.mode,
                "uid": 0,
                "gid": 0,
                "sha256": hashlib.sha256(file.text.encode()).hexdigest(),
            }
            for file in files
        ],
        "specs": [
            {"path": CDI_SPEC, "kind": "nvidia.com/gpu", "names": ["0", UUID, "all"], "paths": [LIBRARY], "missing": []}
        ],
        "loaded": "595.58.03",
        "units": {
            "nvidia-cdi-refresh.service": {**unit, "Id": "nvidia-cdi-refresh.service", "ExecStart": runs},
            "nvidia-cdi-refresh.path": {**unit, "Id": "nvidia-cdi-refresh.path", "ActiveState": "active"},
        },
    }


def red(change: Change = lambda said: None, one: Rig = RIG, archives: object = None, **others: Any) -> dict[str, str]:
    """The checks that are red, of a host that is as declared but for a change."""
    said = deepcopy(host_answers(one))
    change(said)
    read = [{"source": source_path(toolkit_group()), "status": 0, "said": "Hit:1 x"}] if archives is None else archives
    answers = {
        "containers": {"told": said},
        "container_apt_sources": {"told": {"read": read}},
        "cards": {
            "told": {
                "answers": {"gpus": {"status": 0, "out": gpus(), "err": ""}},
                "processes": [],
                "log": {"blind": "", "messages": []},
            }
        },
    }
    survey = SurveyAnswers({**answers, **others})
    found: dict[str, str] = {}
    for module in (test_container_toolkit, test_containers, test_docker):
        found |= red_checks(module, survey, rig=one, containers=None)
    return found


def gpus() -> str:
    """The output of nvidia-smi about one card."""
    from rigwright.nvidia.cards.smi import GPUS

    fields = next(word for word in GPUS if word.startswith("--query-gpu=")).partition("=")[2].split(",")
    known = {"index": "0", "pci.bus_id": "00000000:01:00.0", "uuid": UUID, "name": "NVIDIA GeForce RTX 3090"}
    return ", ".join(known.get(field, "[N/A]") for field in fields) + "\n"


def test_a_host_that_is_as_declared_is_green() -> None:
    assert red() == {}


def test_a_rig_with_a_bundle_has_no_source_and_needs_none() -> None:
    assert red(one=replace(RIG, bundle_folder="/home/ops/bundle"), archives=[]) == {}
    assert "K05" in red(archives=[])


def set_(*path: Any) -> Change:
    """A change: the last of these is put at the place that the others name."""

    def change(said: dict[str, Any]) -> None:
        at: Any = said
        for name in path[:-2]:
            at = at[name]
        at[path[-2]] = path[-1]

    return change


@pytest.mark.parametrize(
    ("change", "checks", "said"),
    [
        (
            lambda said: said["packages"]["rows"].__setitem__(0, package_row(FOUR[0], "1.19.1-1")),
            {"K03"},
            f"{FOUR[0]} is 1.19.1, not 1.20.0",
        ),
        (lambda said: said["packages"]["rows"].pop(0), {"K03"}, f"{FOUR[0]} is not installed"),
        (lambda said: said["packages"]["held"].pop(), {"K04"}, "is not held"),
        (
            lambda said: said["sources"].append(["/etc/apt/sources.list.d/x.list", "deb https://nvidia.github.io/x /"]),
            {"K06"},
            "/etc/apt/sources.list.d/x.list",
        ),
        (lambda said: said["files"].pop(0), {"K07"}, "is not there"),
        (set_("files", 0, "sha256", "0" * 64), {"K07"}, "has different contents"),
        (set_("files", 0, "mode", "666"), {"K07"}, "has mode 666 of 0:0"),
        (lambda said: said["files"][0].update(kind="link"), {"K07"}, "is link"),
        (set_("kept", "container-toolkit", 0, "listed", None), {"K09"}, "has no list of files"),
        (lambda said: said["kept"]["container-toolkit"][0]["files"].pop(), {"K09"}, "is missing"),
        (set_("kept", "container-toolkit", 0, "files", 1, "size", 5), {"K09"}, "has different contents"),
        (set_("kept", "container-toolkit", 0, "files", 1, "sha256", "0" * 64), {"K09"}, "has different contents"),
        (
            lambda said: said["packages"]["rows"].append(package_row("nvidia-docker2", "2.13.0-1")),
            {"K08"},
            "nvidia-docker2",
        ),
        (
            lambda said: said["packages"]["rows"].append(package_row("docker.io", "1", "half-installed")),
            {"K08"},
            "the installation of docker.io was not completed",
        ),
        (set_("options", "{}"), {"C02"}, "log-driver is null"),
        (set_("options", None), {"C02"}, "runtimes.nvidia.path is null"),
        (set_("daemon", None), {"C03", "C04"}, "a running Docker daemon"),
        (set_("daemon", "info", {}), {"C03", "C04"}, "an answer from the Docker daemon"),
        (set_("daemon", "info", "LoggingDriver", '"local"'), {"C03"}, 'log-driver is "local"'),
        (set_("daemon", "info", "Runtimes", "{}"), {"C03"}, "it has no nvidia runtime"),
        (set_("daemon", "info", "CDISpecDirs", "null"), {"C03"}, "it does not read CDI specs"),
        (
            set_("daemon", "info", "Runtimes", '{"nvidia": {"path": "/srv/x"}}'),
            {"C03"},
            'its nvidia runtime is "/srv/x"',
        ),
        (set_("daemon", "info", "ServerVersion", '"20.10.24"'), {"C01"}, "the running daemon is Docker 20.10.24"),
        # in every spelling, also opened by another process for the daemon
        (set_("daemon", "listens", ["0.0.0.0:2375"]), {"C04"}, "it listens on 0.0.0.0:2375"),
        (set_("daemon", "listens", ["[::]:2377"]), {"C04"}, "it listens on [::]:2377"),
        (
            lambda said: said.update(
                options=json.dumps(
                    {**daemon_json.required_options(RIG.cards, RIG.containers), "hosts": ["tcp://:1", "fd://"]}
                )
            ),
            {"C04"},
            "it is configured to listen on tcp://:1",
        ),
        (set_("options", "{"), {"C02"}, "is not JSON"),
        (set_("record", "{"), {"C02"}, "found an unreadable one"),
        (set_("daemon", "sockets", "/run/docker.sock", "mode", 0o666), {"C04"}, "/run/docker.sock has mode 666"),
        (set_("daemon", "sockets", "/run/docker.sock", "owner", "me"), {"C04"}, "of me:docker"),
        (set_("daemon", "sockets", "/run/docker.sock", "group", "users"), {"C04"}, "of root:users"),
        (set_("daemon", "sockets", "/run/docker.sock", "listed", True), {"C04"}, "has an access list"),
        (set_("daemon", "sockets", "/srv/x.sock", {**SOCKET, "mode": 0o777}), {"C04"}, "/srv/x.sock has mode 777"),
        (set_("daemon", "sockets", {}), {"C04"}, "found none"),
        (set_("daemon", "carded", None), {"C08"}, "Docker's list of running containers"),
        (set_("specs", []), {"C05"}, "found none"),
        (set_("specs", 0, "missing", [LIBRARY]), {"C05"}, f"{LIBRARY} is not there"),
        (set_("loaded", "595.71.05"), {"C05"}, f"{LIBRARY} has version 595.58.03, the loaded driver 595.71.05"),
        (set_("specs", 0, "names", ["0", "all"]), {"C05"}, f"it has no card {UUID}"),
        (set_("specs", 0, "names", [UUID]), {"C05"}, "it has no device 'all'"),
        (set_("specs", 0, "paths", ["/dev/nvidia0"]), {"C05"}, "it names no driver files"),
        (
            lambda said: said["specs"].append({**said["specs"][0], "path": "/etc/cdi/nvidia.yaml"}),
            {"C06"},
            "/etc/cdi/nvidia.yaml",
        ),
        (set_("units", "nvidia-cdi-refresh.service", "UnitFileState", "masked"), {"C07"}, "is masked"),
        (set_("units", "nvidia-cdi-refresh.service", "ActiveState", "failed"), {"C07"}, "has failed"),
        (set_("units", "nvidia-cdi-refresh.service", "NeedDaemonReload", "yes"), {"C07"}, "has not reloaded"),
        (
            set_("units", "nvidia-cdi-refresh.service", "ExecStart", "{ argv[]=/bin/true ; }"),
            {"C07"},
            "runs another program",
        ),
        (set_("units", "nvidia-cdi-refresh.service", "ExecCondition", "{ x }"), {"C07"}, "has an added condition"),
        (set_("units", "nvidia-cdi-refresh.path", "ActiveState", "inactive"), {"C07"}, "is not watching"),
        (lambda said: said["units"].clear(), {"C07"}, "is not there"),
        (
            set_("daemon", "carded", [["web", "the runtime nvidia"]]),
            {"C08"},
            "found web gets them from the runtime nvidia",
        ),
    ],
)
def test_a_deviation_is_red_and_reported(change: Change, checks: set[str], said: str) -> None:
    found = red(change)
    assert set(found) == checks
    assert any(said in text for text in found.values()), found


def test_an_engine_that_is_too_old_is_red_wherever_it_counts() -> None:
    def older(said: dict[str, Any]) -> None:
        for row in said["packages"]["rows"]:
            row["version"] = "5.0.9" if row["name"] == "podman" else row["version"]

    found = red(older)
    assert "podman 5.0.9, but 5.1 or newer is required" in found["C01"]


@pytest.mark.parametrize(
    ("read", "said"),
    [
        ([], "the source /etc/apt/sources.list.d/rigwright-container-toolkit.sources"),
        (
            [{"source": source_path(toolkit_group()), "status": 100, "said": "E: The repository 'x' is not signed."}],
            "is not signed",
        ),
    ],
)
def test_an_archive_that_apt_cannot_verify_is_red(read: list[object], said: str) -> None:
    assert said in red(archives=read)["K05"]


def test_a_host_that_tells_nothing_of_containers_is_red_in_all_of_it() -> None:
    found = red(containers={"failed": "it did not answer in 60 s"})
    assert set(found) == {*(f"K0{number}" for number in range(3, 10)), *(f"C0{number}" for number in range(1, 9))}


def test_facts_of_cards_or_docker_are_not_asked_of_others() -> None:
    assert red(set_("daemon", None), container_rig(engines=("podman",))) == {}
    assert red(set_("kept", {})) == {}
    bare = container_rig(cards=False, engines=("podman",))
    nothing: dict[str, Any] = {"specs": [], "units": {}, "files": [], "kept": {}}
    nothing["packages"] = {**host_answers()["packages"], "held": []}
    assert red(lambda said: said.update(nothing), bare, archives=[]) == {}


def test_a_daemons_figures_and_its_swarm_are_no_way_to_its_root() -> None:
    def listens(said: dict[str, Any]) -> None:
        said["daemon"].update(listens=["0.0.0.0:9323", "[::]:2377", "[::]:7946"], swarm=True)
        said["options"] = json.dumps(
            {**daemon_json.required_options(RIG.cards, RIG.containers), "metrics-addr": "0.0.0.0:9323"}
        )

    assert red(listens) == {}
    flag = ["dockerd", "--metrics-addr=:9323"]
    assert red(lambda said: said["daemon"].update(listens=["[::]:9323"], arguments=flag)) == {}


def test_data_of_other_users_lies_below_what_is_declared() -> None:
    one = container_rig(daemon={"data-root": "/srv/docker/"})

    def lies(path: str) -> Change:
        return set_("daemon", "info", "DockerRootDir", json.dumps(path))

    for path in ("/srv/docker", "/srv/docker/100000.100000"):
        assert red(lies(path), one) == {}
    assert set(red(lies("/srv/docker-2"), one)) == {"C03"}


def test_differences_are_shown_without_a_proxys_password() -> None:
    one = container_rig(daemon={"http-proxy": "http://me:new@proxy"})
    old = set_(
        "options",
        json.dumps({**daemon_json.required_options(one.cards, one.containers), "http-proxy": "http://me:old@proxy"}),
    )
    assert 'http-proxy is "http://...@proxy"' in red(old, one)["C02"]
