"""Predicates over a rig, each turned by one change, and what they come to for advisories."""

from collections import Counter
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.advisories.advisory_catalog import (
    AdvisoryKeys,
    BulletinKeys,
    MaintainedData,
    PredicateKeys,
    load_maintained,
)
from rigwright.advisories.assessment import Assessment, assess
from rigwright.advisories.audit import render_scene
from rigwright.advisories.components import Component, collect_components
from rigwright.advisories.osv_records import EXPORT_FROM, AdvisoryExport, AffectedPackage, OsvRecord
from rigwright.advisories.predicates import AccessPath, PredicateScene, access_paths, evaluate
from rigwright.advisories.versions import Event, VersionRange
from rigwright.engines import kind_of
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.unit import shipped_inventories
from tests.unit.advisory_changes import (
    with_flags,
    with_instance,
    with_model,
    with_network,
    with_options,
    with_variant,
    with_words,
    without_lock,
    without_units,
)
from tests.unit.checkpoints import QWEN3, QWEN3_6
from tests.unit.samples import changed_rig, sample_artefact

DATA = load_maintained(ROOT / "catalog")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PredicateScene]:
    """The shipped fleet, locked whole."""
    rigs = shipped_inventories.load_rigs("fleet", tmp_path_factory.mktemp("fleet"))
    return {name: render_scene(rig, rig.lock) for name, rig in rigs.items()}


@pytest.fixture
def scene(fleet: dict[str, PredicateScene]) -> PredicateScene:
    """vLLM with a model of text alone, behind a gateway with keys."""
    return fleet["rig5090two"]


def same(scene: PredicateScene) -> PredicateScene:
    return scene


def predicate_result(
    scene: PredicateScene, predicate: dict[str, Any], *, own_port: bool = False, version: str = "0.21.0"
) -> bool | None:
    """The answer of a predicate for the first instance, through the gateway or at its own port."""
    *doors, port = access_paths(scene.rig.instances, scene.rig.gateway, scene.rig.instances[0], version)
    return evaluate(scene, port if own_port or not doors else doors[0], PredicateKeys.model_validate(predicate)).holds


@pytest.mark.parametrize(
    ("predicate", "change", "expected"),
    [
        ({"flag_absent": "enable-prompt-embeds"}, same, True),
        ({"flag_absent": "enable-prompt-embeds"}, with_flags(enable_prompt_embeds=True), False),
        ({"flag_absent": "enable-prompt-embeds"}, without_units, None),
        ({"flag_absent": "trust-request-chat-template"}, with_flags(trust_request_chat_template=True), False),
        ({"flag_absent": "trust-remote-code"}, with_variant(trust_remote_code=True), False),
        ({"flag_set": "enable-prompt-embeds"}, same, False),
        ({"flag_set": "enable-prompt-embeds"}, with_flags(enable_prompt_embeds=True), True),
        ({"flag_set": "enable-prompt-embeds"}, without_units, None),
        ({"flag_is": ("pipeline-parallel-size", "1")}, same, True),
        ({"flag_is": ("pipeline-parallel-size", "1")}, with_variant(pipeline_parallel_size=2), False),
        ({"flag_is": ("pipeline-parallel-size", "1")}, without_units, None),
        ({"no_network": True}, same, True),
        ({"no_network": True}, with_network, False),
        ({"no_network": True}, without_units, None),
        ({"locked_folder": True}, same, True),
        ({"locked_folder": True}, with_words(lambda word: word.replace("/srv/models/", "")), False),
        ({"locked_folder": True}, without_lock, None),
        ({"no_video_model": True}, same, True),
        ({"no_video_model": True}, with_model(QWEN3_6), False),
        ({"no_video_model": True}, without_lock, None),
        ({"no_image_model": True}, same, True),
        ({"no_image_model": True}, with_model(QWEN3_6), False),
        ({"no_image_model": True}, without_lock, None),
        ({"no_image_model": True}, with_model(QWEN3), True),
        ({"no_image_model": True}, with_options("--hf-overrides"), None),
        *(
            ({name: True}, with_model(QWEN3 | {"architectures": [one]}), None)
            for name in ("no_image_model", "no_video_model")
            for one in (
                "QWenLMHeadModel",
                "Phi3VForCausalLM",
                "Phi4MMForCausalLM",
                "Ovis2_5",
                "Molmo2ForConditionalGeneration",
            )
        ),
        ({"flag_absent": "kv-offloading-size"}, with_options("--kv-offloading-size=8"), False),
        ({"model_architecture_not": ("Qwen2_5_VLForConditionalGeneration",)}, same, True),
        ({"model_architecture_not": ("Qwen3ForCausalLM",)}, same, False),
        ({"model_architecture_not": ("Qwen3ForCausalLM",)}, without_lock, None),
        ({"python_keeps_asserts": True}, same, True),
        ({"python_keeps_asserts": True}, with_variant(environment={"PYTHONOPTIMIZE": "1"}), False),
        ({"python_keeps_asserts": True}, with_words(lambda word: "-IO" if word == "-I" else word), False),
        ({"python_keeps_asserts": True}, without_units, None),
        ({"package_absent": "no-such-package"}, same, True),
        ({"package_absent": "vllm"}, same, False),
        ({"package_absent": "no-such-package"}, without_lock, None),
        ({"unused_by_vllm": ("0.21.0",)}, same, True),
        ({"unused_by_vllm": ("0.20.2", "0.21.1")}, same, None),
        ({"unused_by_vllm": ("0.21.0",)}, without_lock, None),
        ({"unused_by_vllm": ("0.21.0",)}, lambda scene: with_instance(scene, plugins=(SimpleNamespace(),)), None),
        ({"code_absent": ("0.21.0",)}, same, True),
        ({"code_absent": ("0.20.2",)}, same, None),
        ({"answers_completions": True}, same, True),
        ({"answers_completions": True}, without_units, None),
        ({"gateway_closes_path": "/inference/v1/generate"}, same, True),
        ({"gateway_closes_path": "/v1/responses"}, same, False),
        ({"gateway_closes_path": "/metrics"}, same, False),
    ],
)
def test_one_change_turns_a_predicate(scene, predicate, change, expected):
    assert predicate_result(change(scene), predicate) is expected


def test_the_gateway_closes_nothing_at_an_instances_own_port(scene: PredicateScene) -> None:
    for predicate in ({"gateway_closes_path": "/inference/v1/generate"}, {"gateway_refuses_field": "bad_words"}):
        assert predicate_result(scene, predicate, own_port=True) is False


def test_a_path_is_open_where_the_gateway_passes_it_on(scene: PredicateScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kind_of(scene.rig.instances[0])), "paths", lambda self, instance: ("rerank",))
    assert predicate_result(replace(scene), {"gateway_closes_path": "/v1/rerank"}) is False


def test_options_are_unknown_where_a_plugin_starts_the_engine(scene: PredicateScene) -> None:
    class Keys:
        launcher = "plugin.start"

    class Launching:
        keys = Keys

    changed = replace(scene.rig.instances[0], plugins=(Launching,))  # type: ignore[arg-type]
    path = AccessPath(changed)
    assert evaluate(scene, path, PredicateKeys(flag_absent="enable-prompt-embeds")).holds is None


@pytest.mark.parametrize(
    ("options", "expected"), [({}, True), ({"GGML_RPC": "ON"}, False), ({"GGML_RPC": "OFF"}, True)]
)
def test_a_build_option(fleet: dict[str, PredicateScene], options: dict[str, str], expected: bool) -> None:
    scene = fleet["rig5090solo"]
    engine: Any = scene.rig.instances[0].engine
    changed = replace(scene.rig.instances[0], engine=engine.model_copy(update={"options": engine.options | options}))
    assert evaluate(scene, AccessPath(changed), PredicateKeys(build_option_off="GGML_RPC")).holds is expected
    other = fleet["rig3090"]
    assert evaluate(other, AccessPath(other.rig.instances[0]), PredicateKeys(build_option_off="X")).holds is None


def test_every_way_to_an_instance_is_named_with_its_key(fleet: dict[str, PredicateScene]) -> None:
    def ways(name: str) -> list[str]:
        rig = fleet[name].rig
        return [str(one) for one in access_paths(rig.instances, rig.gateway, rig.instances[0])]

    assert ways("rig3090") == ["gateway lan on 0.0.0.0:8020, without a key", "chat on 127.0.0.1:18020, with its key"]
    assert ways("rig5090two") == ["gateway lan on 0.0.0.0:80, with a key", "left on 127.0.0.1:18000, with its key"]
    assert ways("rig2080ti") == ["gateway lan on 0.0.0.0:8000, without a key", "chat on 127.0.0.1:18000, with its key"]


def test_a_listener_that_does_not_offer_the_model_is_no_way_to_it(fleet: dict[str, PredicateScene]) -> None:
    rig = fleet["rig3090"].rig
    assert rig.gateway
    listener = rig.gateway.listeners["lan"].model_copy(update={"models": ("another",)})
    closed = replace(rig, gateway=rig.gateway.model_copy(update={"listeners": {"lan": listener}}))
    assert [one.listener for one in access_paths(closed.instances, closed.gateway, closed.instances[0])] == [None]


def keys(**changes: Any) -> AdvisoryKeys:
    values = {"component": "PyPI:vllm", "summary": "s", "source": "s", "affected": [{"fixed": "0.30.0"}]}
    return AdvisoryKeys.model_validate(values | changes)


def assessed(
    scene: PredicateScene, *exports: AdvisoryExport, data: MaintainedData | None = None, **advisories: AdvisoryKeys
) -> Assessment:
    known = data or MaintainedData({name.replace("_", "-"): one for name, one in advisories.items()})
    found, gaps = collect_components(scene.rig, scene.lock, known)
    return assess(scene, found, gaps, known, exports)


@pytest.mark.parametrize(
    ("changes", "state", "ways"),
    [
        # nothing closes it
        ({}, "open", ["open"] * 4),
        ({"closed_by": [[{"flag_absent": "trust-remote-code"}]]}, "closed", ["closed"] * 4),
        # one way is closed, the other is not
        ({"closed_by": [[{"gateway_closes_path": "/score"}]]}, "open", ["closed", "open"] * 2),
        # of a list all must hold, and of several lists one
        ({"closed_by": [[{"gateway_closes_path": "/score"}, {"flag_set": "a"}]]}, "open", ["open"] * 4),
        ({"closed_by": [[{"flag_set": "a"}], [{"flag_absent": "a"}]]}, "closed", ["closed"] * 4),
        # a predicate without an answer closes nothing
        ({"closed_by": [[{"code_absent": ["0.1"]}]]}, "unknown", ["unknown"] * 4),
        ({"closed_by": [[{"code_absent": ["0.1"]}, {"flag_set": "a"}]]}, "open", ["open"] * 4),
        ({"assessed": False}, "unknown", ["unknown"]),
        ({"affected": []}, "unknown", ["unknown"] * 4),
        ({"affected": [], "closed_by": [[{"flag_absent": "a"}]]}, "closed", ["closed"] * 4),
        ({"reached_by": "weights", "closed_by": [[{"locked_folder": True}]]}, "closed", ["closed"] * 2),
        ({"reached_by": "process"}, "open", ["open"]),
    ],
)
def test_the_state_of_an_advisory(scene: PredicateScene, changes: dict[str, Any], state: str, ways: list[str]) -> None:
    (found,) = assessed(scene, A_1=keys(**changes)).findings
    assert (found.state, [one.state for one in found.paths]) == (state, ways)
    assert all(one.reason for one in found.paths)


def test_a_version_that_is_not_affected_is_not_listed(scene: PredicateScene) -> None:
    assert assessed(scene, A_1=keys(affected=[{"fixed": "0.21.0"}])).findings == ()


def test_an_advisory_of_a_component_that_no_instance_runs_is_unknown(scene: PredicateScene) -> None:
    component = Component("PyPI", "vllm", "0.21.0", "host tools")
    (found,) = assess(
        scene, [component], [], MaintainedData({"A-1": keys(closed_by=[[{"flag_absent": "a"}]])})
    ).findings
    assert found.state == "unknown"


def exported(package: AffectedPackage, identifier: str = "X-1", aliases: tuple[str, ...] = ()) -> AdvisoryExport:
    found = OsvRecord(identifier, aliases, "s", "https://example.org", (package,))
    return AdvisoryExport("db.zip", date(2026, 11, 1), [found], Counter({package.ecosystem: EXPORT_FROM}), EXPORT_FROM)


BEFORE_9 = (VersionRange((Event("introduced", "0"), Event("fixed", "9"))),)


def test_an_advisory_without_predicates_is_unknown_and_one_of_a_known_id_has_them(scene: PredicateScene) -> None:
    (found,) = assessed(scene, exported(AffectedPackage("PyPI", "torch", BEFORE_9))).findings
    assert (found.advisory, found.state, found.component) == ("X-1", "unknown", "PyPI:torch")
    # an export that widens a known range brings the advisory in, by any of its ids
    data = MaintainedData(
        {"A-1": keys(affected=[{"fixed": "0.1"}], aliases=["CVE-1-1"], closed_by=[[{"flag_absent": "a"}]])}
    )
    wide = exported(AffectedPackage("PyPI", "vllm", BEFORE_9), aliases=("CVE-1-1",))
    (found,) = assessed(scene, wide, data=data).findings
    assert (found.advisory, found.state) == ("A-1", "closed")


def test_without_an_export_packages_are_a_gap_never_none(scene: PredicateScene) -> None:
    of_pypi = [one.what for one in assessed(scene, data=DATA).gaps if "no export of PyPI" in one.why]
    assert any("environment vllm" in what for what in of_pypi)
    assert any("host tools (tools)" in what for what in of_pypi)
    covered = assessed(scene, exported(AffectedPackage("PyPI", "nothing-of-ours")), data=DATA)
    assert not [one for one in covered.gaps if "no export of PyPI" in one.why]
    debian = exported(AffectedPackage("Debian:12", "openssl"))
    assert [one for one in assessed(scene, debian, data=DATA).gaps if "no export of PyPI" in one.why]
    # a collection of records is no export
    few = exported(AffectedPackage("PyPI", "nothing-of-ours"))
    few.ecosystems["PyPI"] = EXPORT_FROM - 1
    assert [one for one in assessed(scene, few, data=DATA).gaps if "no export of PyPI" in one.why]


def test_an_unreadable_record_is_a_gap(scene: PredicateScene) -> None:
    export = exported(AffectedPackage("PyPI", "nothing-of-ours"))
    export.unreadable += ["X-2 is no JSON", "X-3 is no JSON"]
    assert [one.why for one in assessed(scene, export, data=DATA).gaps if one.what == "2 unreadable records"] == [
        "in db.zip"
    ]


def test_the_shipped_data_on_the_shipped_fleet(fleet: dict[str, PredicateScene]) -> None:
    def states(name: str) -> dict[str, str]:
        return {one.advisory: one.state for one in assessed(fleet[name], data=DATA).findings}

    text = states("rig5090two")
    assert (text["PYSEC-2026-4344"], text["PYSEC-2026-2301"]) == ("closed", "closed")
    assert (text["CVE-2026-114053"], text["PYSEC-2026-4353"]) == ("closed", "closed")
    assert (text["PYSEC-2026-4199"], text["GHSA-5r3c-5x4v-8gjh"]) == ("open", "unknown")
    assert "GHSA-v97p-wpxp-px84" not in text
    # wheels whose faulty part nothing calls, or no client of a model without images reaches
    for closed in ("PYSEC-2026-248", "PYSEC-2026-4369", "PYSEC-2026-4371", "CVE-2026-59200", "CVE-2026-55798"):
        assert text[closed] == "closed", closed
    assert (text["CVE-2026-59199"], text["CVE-2026-105922"], text["CVE-2026-105775"]) == ("closed",) * 3
    assert "CVE-2026-44223" not in text
    # two cards with a model that sees images
    assert states("rig3090-two")["CVE-2026-116179"] == "open"
    solo = states("rig5090solo")
    assert (solo["CVE-2026-107183"], solo["CVE-2026-118375"], solo["CVE-2026-134540"]) == ("open", "closed", "unknown")


def test_an_instance_that_is_not_locked_is_unknown_never_closed(scene: PredicateScene) -> None:
    bare = assessed(replace(without_units(scene), lock=scene.lock), data=DATA)
    states = {one.advisory: one.state for one in bare.findings}
    assert (states["PYSEC-2026-2303"], states["PYSEC-2026-4344"]) == ("unknown", "unknown")
    unlocked, gaps = collect_components(scene.rig, Lock({}), DATA)
    assert not [one for one in unlocked if one.ecosystem == "PyPI"]
    assert [one for one in gaps if one.why == "it is not locked"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.95.05", {"NVIDIA-5747": "open", "NVIDIA-5821": "open", "NVIDIA-5861": "open"}),
        ("580.159.03", {"NVIDIA-5861": "open"}),
        ("580.178.04", {}),
        ("616.1.1", {}),
        # a branch without a fixed version is not one that is fixed
        ("590.48.01", {"NVIDIA-5821": "unknown", "NVIDIA-5861": "unknown"}),
        ("", {name: "unknown" for name, one in DATA.bulletins.items() if one.component == "nvidia-driver"}),
    ],
)
def test_bulletins_by_branch(scene: PredicateScene, version: str, expected: dict[str, str]) -> None:
    found = assess(scene, [Component("", "nvidia-driver", version, "driver")], [], DATA).findings
    assert {one.advisory: one.state for one in found} == expected


def test_a_bulletin_of_a_component_without_branches(scene: PredicateScene) -> None:
    common = {"cves": ["CVE-1-1"], "summary": "s", "source": "s", "date": "2026-01-01", "fixed": {"all": "1.19.1"}}
    keys_ = BulletinKeys.model_validate({"component": "nvidia-container-toolkit"} | common)
    data = MaintainedData(bulletins={"B-1": keys_})
    for version, states in (("1.19.0", ["open"]), ("1.19.1", []), ("odd", ["unknown"])):
        component = Component("", "nvidia-container-toolkit", version, "packages")
        assert [one.state for one in assess(scene, [component], [], data).findings] == states


def test_a_driver_that_is_not_locked_has_no_version(fleet: dict[str, PredicateScene]) -> None:
    row = sample_artefact(kind="deb", name="nvidia-utils", version="580.95.05-1", group="driver-debian-12")
    rig = changed_rig(fleet["rig3090"].rig, driver_packages={"debian-12": (row,)})
    locked, gaps = collect_components(rig, Lock({}, {"driver-debian-12": (row,)}), DATA)
    assert "580.95.05" in [one.version for one in locked if one.name == "nvidia-driver"]
    assert not [one for one in gaps if one.what == "NVIDIA driver"]
    # a row that stands for one that is not locked
    unlocked, gaps = collect_components(rig, Lock({}), DATA)
    assert not [one for one in unlocked if one.name == "nvidia-driver"]
    assert [one for one in gaps if one.what == "NVIDIA driver"]


def test_an_images_own_settings_are_unknown(fleet: dict[str, PredicateScene], scene: PredicateScene) -> None:
    name = scene.rig.instances[0].name
    container: Any = SimpleNamespace(command=scene.services[name].command, environment={}, by="podman")
    contained = replace(scene, services={name: replace(scene.services[name], container=container)})
    assert predicate_result(contained, {"python_keeps_asserts": True}) is None
    # podman starts it without a network only where its command has that
    assert predicate_result(contained, {"no_network": True}) is False
    cut = replace(scene.services[name], container=container, command=("podman", "--network=none"))
    assert predicate_result(replace(scene, services={name: cut}), {"no_network": True}) is True
