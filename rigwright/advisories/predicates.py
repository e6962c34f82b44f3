"""Predicates of advisories, over the rig, its lock and the fields that its gateway passes on.

The set is closed: data name these functions and nothing else. A predicate answers True only from what the rig declares
and the lock proves; where that is missing it answers None, and the advisory is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from packaging.utils import canonicalize_name

from rigwright.advisories.advisory_catalog import PredicateKeys
from rigwright.advisories.components import is_locked
from rigwright.advisories.versions import parse_version
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.instance_request import ONE_TOKEN
from rigwright.gateway.nginx_conf import PATHS
from rigwright.gateway.request_rules import load_request_rules
from rigwright.gateway.served_models import offers_of
from rigwright.model.catalog_schema import MissingModelFile
from rigwright.model.fleet_schema import FleetListener
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.supply.lock import Lock
from rigwright.weights.checkpoint import Checkpoint, parse_checkpoint

PROMPT_LISTS = "prompt_list"
"""The name by which advisories ask about the bound on lists of prompts."""


def is_refused_field(gateway: Gateway, field: str) -> bool:
    """Whether a gateway refuses every request that has a field, on every path that it opens.

    Args:
        gateway: As the inventory declares it: its `allow_fields`, and those of its models, open a rule deliberately.
        field: The field's name, such as `chat_template` or `mm_processor_kwargs`, or `prompt_list`. A rule that only
            bounds a field's size does not close it.
    """
    allowed = {*gateway.allow_fields, *(name for one in gateway.models.values() for name in one.allow_fields or ())}
    closing = (rule for rule in load_request_rules() if rule.name not in allowed)
    if field == PROMPT_LISTS:
        return any(rule.name == "prompts" for rule in closing)
    return any(field in rule.location and rule.kind in ("absent", "scalars") and not rule.paths for rule in closing)


# Paths that every gateway answers itself (templates/gateway/paths.lua, GOTTEN).
GATEWAY_OWN = ("/", "/v1/models", "/health", "/metrics")
# Part of a model that is the checkpoint itself (rigwright/engines/vllm/model_files.py).
MODEL = "model"
# Keys of config.json by which models accept video and images (transformers' composite configs).
VIDEO_KEYS = re.compile(r"video.*(token|config)|(token|config).*video")
IMAGE_KEYS = ("vision_config", "vision_tower_config", "image_token_id", "image_token_index")
# Architectures that vLLM serves from text alone. Closed: any other may accept images or video, whatever its
# config.json names the parts for that. Left out: names that vLLM uses for models with images too (QWenLMHeadModel).
TEXT_ONLY = frozenset(
    (
        *("ApertusForCausalLM", "ArceeForCausalLM", "CohereForCausalLM", "Cohere2ForCausalLM", "DbrxForCausalLM"),
        *("DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"),
        *("Exaone4ForCausalLM", "ExaoneForCausalLM", "FalconForCausalLM", "FalconH1ForCausalLM", "GPT2LMHeadModel"),
        *("GPTBigCodeForCausalLM", "GPTJForCausalLM", "GPTNeoXForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM"),
        *("Gemma3ForCausalLM", "Glm4ForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmForCausalLM"),
        *("GptOssForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM"),
        *("InternLM2ForCausalLM", "InternLM3ForCausalLM", "JambaForCausalLM", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"),
        *("LlamaForCausalLM", "MambaForCausalLM", "Mamba2ForCausalLM", "MiniMaxM2ForCausalLM", "MistralForCausalLM"),
        *("MixtralForCausalLM", "NemotronForCausalLM", "NemotronHForCausalLM", "OPTForCausalLM", "OlmoForCausalLM"),
        *("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM", "PhiForCausalLM", "Phi3ForCausalLM"),
        *("PhiMoEForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
        *("Qwen3NextForCausalLM", "SeedOssForCausalLM", "StableLmForCausalLM", "Starcoder2ForCausalLM"),
    )
)
# Options by which vLLM serves another architecture than config.json names.
OTHER_CONFIG = ("hf-overrides", "config-format", "hf-config-path", "model-impl")
# Options by which vLLM leaves out what sees.
BLIND = ("language-model-only",)
_OPTION = re.compile(r"--([A-Za-z0-9][A-Za-z0-9_-]*)(?:[=.].*)?", re.DOTALL)


@dataclass(frozen=True)
class PredicateAnswer:
    """The answer of a predicate: True, False or None for unknown, and why."""

    holds: bool | None
    reason: str


@dataclass(frozen=True)
class AccessPath:
    """One way by which requests reach an instance: a listener of the gateway, the port for gateways of other boxes, or
    its own port."""

    instance: Instance
    name: str = ""
    """The gateway's listener; empty for the other ports."""
    listener: ListenerEntry | None = None
    version: str = ""
    """The engine's; empty where it is not locked."""
    fleet: FleetListener | None = None
    """The port for gateways of other boxes."""

    def __str__(self) -> str:
        if self.fleet:
            users = ", ".join(self.fleet.users[self.instance.name])
            return f"fleet on {self.fleet.endpoint}, with a certificate, for gateways of {users}"
        if self.listener is None:
            return f"{self.instance.name} on 127.0.0.1:{self.instance.port}, with its key"
        key = "with a key" if self.listener.keys else "without a key"
        return f"gateway {self.name} on {', '.join(self.listener.addresses)}, {key}"


@dataclass(frozen=True)
class PredicateScene:
    """The facts that predicates read."""

    rig: Rig
    lock: Lock
    """The inventory's lock, without stand-ins."""
    services: Mapping[str, ServiceSpec] = field(default_factory=dict)
    """Instance -> how it is run; none for an instance that cannot be rendered."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Instance -> the text of its unit, likewise."""

    @cached_property
    def open_paths(self) -> frozenset[str]:
        """Paths that the gateway passes on, whatever the model."""
        return frozenset(
            f"/v1/{path}" for offer in offers_of(self.rig.instances, self.rig.gateway) for path in offer.paths
        )

    def command_words(self, instance: Instance) -> tuple[str, ...] | None:
        """The engine's command line; None where it is not known."""
        service = self.services.get(instance.name)
        if service is None:
            return None
        return service.container.command if service.container else service.command

    def options(self, instance: Instance) -> frozenset[str] | None:
        """Names of the options on it; None where a plugin's launcher may add others."""
        words = self.command_words(instance)
        if words is None or any(plugin.keys.launcher for plugin in instance.plugins):
            return None
        # an engine may be given its flags in another form than options
        declared = getattr(instance.variant, "flags", {})
        named = (found[1].replace("_", "-") for word in words if (found := _OPTION.fullmatch(str(word))))
        return frozenset((*named, *declared))

    def checkpoint(self, instance: Instance) -> Checkpoint | None:
        """The model's folder as it is locked; None for a model in another form, or one that is not locked."""
        part = next((one for one in instance.parts if one.option == MODEL), None)
        if part is None or not all(is_locked(row, self.lock) for row in part.files):
            return None
        try:
            return parse_checkpoint(part.files)
        except MissingModelFile:
            return None


def access_paths(
    instances: tuple[Instance, ...], gateway: Gateway | None, instance: Instance, version: str = ""
) -> list[AccessPath]:
    """Every way by which requests reach an instance whose engine has a version."""
    names = {offer.name for offer in offers_of(instances, gateway) if instance in offer.instances}
    doors = [
        AccessPath(instance, name, listener, version)
        for name, listener in (gateway.listeners.items() if gateway else ())
        if gateway and any(gateway.has_model(listener, model) for model in names)
    ]
    lent = gateway.fleet.listener if gateway else None
    if lent and instance.name in lent.users:
        doors.append(AccessPath(instance, version=version, fleet=lent))
    return [*doors, AccessPath(instance, version=version)]


def _flag_absent(scene: PredicateScene, path: AccessPath, name: str) -> PredicateAnswer:
    options = scene.options(path.instance)
    if options is None:
        return PredicateAnswer(None, "the engine's options are not known")
    return PredicateAnswer(name not in options, f"--{name} is {'set' if name in options else 'not set'}")


def _flag_set(scene: PredicateScene, path: AccessPath, name: str) -> PredicateAnswer:
    absent = _flag_absent(scene, path, name)
    return PredicateAnswer(None if absent.holds is None else not absent.holds, absent.reason)


def _flag_is(scene: PredicateScene, path: AccessPath, wanted: tuple[str, str]) -> PredicateAnswer:
    options, words = scene.options(path.instance), scene.command_words(path.instance)
    if options is None or words is None:
        return PredicateAnswer(None, "the engine's options are not known")
    name, value = wanted
    pairs = [(str(one), str(other)) for one, other in pairwise(words)]
    values = {other for one, other in pairs if one.replace("_", "-") == f"--{name}"}
    values |= {str(one).partition("=")[2] for one in words if str(one).replace("_", "-").startswith(f"--{name}=")}
    return PredicateAnswer(values == {value}, f"--{name} is {', '.join(sorted(values)) or 'not set'}")


def _answers_completions(scene: PredicateScene, path: AccessPath, _: object) -> PredicateAnswer:
    service = scene.services.get(path.instance.name)
    if service is None:
        return PredicateAnswer(None, "the instance's unit is not known")
    answers = service.ready.path == ONE_TOKEN.path
    return PredicateAnswer(answers, f"it is ready once it {'answers a completion' if answers else 'runs'}")


def _build_option_off(scene: PredicateScene, path: AccessPath, name: str) -> PredicateAnswer:
    options = getattr(path.instance.engine, "options", None)
    if not isinstance(options, Mapping):
        return PredicateAnswer(None, "the engine's build options are not known")
    value = str(options.get(name, "OFF"))
    return PredicateAnswer(value.upper() in ("OFF", "0", "FALSE", "NO", "N"), f"it is compiled with {name}={value}")


def _gateway_closes_path(scene: PredicateScene, path: AccessPath, api_path: str) -> PredicateAnswer:
    if path.fleet:
        is_lent = api_path in {f"/v1/{one}" for one in PATHS}
        return PredicateAnswer(
            not is_lent, f"the port for other boxes {'opens' if is_lent else 'has no path'} {api_path}"
        )
    if path.listener is None:
        return PredicateAnswer(False, "its own port has every path of the engine")
    is_open = api_path in scene.open_paths or api_path in GATEWAY_OWN
    return PredicateAnswer(not is_open, f"the gateway {'opens' if is_open else 'has no path'} {api_path}")


def _gateway_refuses_field(scene: PredicateScene, path: AccessPath, name: str) -> PredicateAnswer:
    if path.fleet:
        return PredicateAnswer(False, "the port for other boxes takes every field: their gateways judge it")
    if path.listener is None or scene.rig.gateway is None:
        return PredicateAnswer(False, "its own port takes every field")
    refused = is_refused_field(scene.rig.gateway, name)
    if refused is None:
        return PredicateAnswer(None, f"the gateway's table of fields does not know {name}")
    return PredicateAnswer(refused, f"the gateway {'refuses' if refused else 'accepts'} {name}")


def _no_network(scene: PredicateScene, path: AccessPath, _: object) -> PredicateAnswer:
    unit, service = scene.units.get(path.instance.name), scene.services.get(path.instance.name)
    if unit is None or service is None:
        return PredicateAnswer(None, "the instance's unit is not known")
    if service.container is None:
        cut = "PrivateNetwork=yes" in unit.splitlines()
        return PredicateAnswer(cut, f"its unit has {'PrivateNetwork=yes' if cut else 'a network'}")
    if service.container.by == "podman":
        cut = "--network=none" in service.command
        return PredicateAnswer(cut, f"its container has {'no network' if cut else 'a network'}")
    return PredicateAnswer(None, "of a container by crun the network is decided on the host")


def _locked_folder(scene: PredicateScene, path: AccessPath, _: object) -> PredicateAnswer:
    files = path.instance.weights
    if not files or not all(is_locked(row, scene.lock) for row in files):
        return PredicateAnswer(None, "the model is not locked")
    words = scene.command_words(path.instance)
    if words is None:
        return PredicateAnswer(None, "the engine's options are not known")
    folder = f"{scene.rig.roots.models}/{files[0].weight_folder}"
    local = any(str(word) == folder or str(word).startswith(f"{folder}/") for word in words)
    return PredicateAnswer(
        local, "the lock has every file of the model" if local else "the model is not a local folder"
    )


def _accepts(
    scene: PredicateScene, path: AccessPath, what: str, has: Callable[[Mapping[str, Any]], bool]
) -> PredicateAnswer:
    options = scene.options(path.instance)
    if options is not None and any(name in options for name in BLIND):
        return PredicateAnswer(True, f"--{BLIND[0]}: the model accepts no {what}")
    model = scene.checkpoint(path.instance)
    if model is None:
        return PredicateAnswer(None, f"the lock does not say whether the model accepts {what}")
    if has(model.config):
        return PredicateAnswer(False, f"the model accepts {what}")
    if options is None or any(name in options for name in OTHER_CONFIG):
        return PredicateAnswer(None, "the engine may get another architecture than config.json names")
    names = ", ".join(model.architectures) or "none"
    if not model.architectures or not {*model.architectures} <= TEXT_ONLY:
        return PredicateAnswer(None, f"the model's architecture, {names}, may accept more than text")
    return PredicateAnswer(True, f"the model's architecture, {names}, accepts no {what}")


def _no_video_model(scene: PredicateScene, path: AccessPath, _: object) -> PredicateAnswer:
    # a model that sees without a word about video may still take frames: only one without any sight takes none
    return _accepts(
        scene,
        path,
        "video",
        lambda config: any(VIDEO_KEYS.search(str(key)) for key in config) or any(key in config for key in IMAGE_KEYS),
    )


def _no_image_model(scene: PredicateScene, path: AccessPath, _: object) -> PredicateAnswer:
    return _accepts(scene, path, "images", lambda config: any(key in config for key in IMAGE_KEYS))


def _model_architecture_not(scene: PredicateScene, path: AccessPath, names: tuple[str, ...]) -> PredicateAnswer:
    model = scene.checkpoint(path.instance)
    if model is None or not model.architectures:
        return PredicateAnswer(None, "the lock does not say the model's architecture")
    mine = ", ".join(model.architectures)
    return PredicateAnswer(not {*names} & {*model.architectures}, f"the model's architecture is {mine}")


def _python_keeps_asserts(scene: PredicateScene, path: AccessPath, _: object) -> PredicateAnswer:
    words, service = scene.command_words(path.instance), scene.services.get(path.instance.name)
    if words is None or service is None:
        return PredicateAnswer(None, "the engine's command line is not known")
    launcher = next((at for at, word in enumerate(words) if str(word).endswith(".py")), len(words))
    variables = {
        **service.environment,
        **service.private,
        **(service.container.environment if service.container else {}),
    }
    bare = any(re.fullmatch(r"-[A-Za-z]*O+[A-Za-z]*", str(word)) for word in words[:launcher])
    optimised = bare or "PYTHONOPTIMIZE" in variables
    if service.container and not optimised:
        return PredicateAnswer(None, "the image may set PYTHONOPTIMIZE itself")
    return PredicateAnswer(not optimised, f"Python runs {'with' if optimised else 'without'} -O")


def _package_absent(scene: PredicateScene, path: AccessPath, name: str) -> PredicateAnswer:
    env = next((one for one in scene.rig.envs if one.name == path.instance.env), None)
    if env is None or not env.packages or not all(is_locked(row, scene.lock) for row in env.packages):
        return PredicateAnswer(None, "the environment's packages are not locked")
    there = canonicalize_name(name) in {canonicalize_name(row.name) for row in env.packages}
    return PredicateAnswer(not there, f"the environment has {'the' if there else 'no'} package {name}")


def _unused_by_vllm(scene: PredicateScene, path: AccessPath, versions: tuple[str, ...]) -> PredicateAnswer:
    env = next((one for one in scene.rig.envs if one.name == path.instance.env), None)
    row = next((row for row in env.packages if canonicalize_name(row.name) == "vllm"), None) if env else None
    if row is None or not is_locked(row, scene.lock):
        return PredicateAnswer(None, "vLLM's version is not known")
    if path.instance.plugins:
        return PredicateAnswer(None, "whether a plugin uses the code in question is not known")
    own = parse_version("pep440", row.version)
    if own is None or all(parse_version("pep440", one) != own for one in versions):
        return PredicateAnswer(None, f"whether vLLM {row.version} uses the code in question was not read")
    return PredicateAnswer(True, f"no package of vLLM {row.version} uses the code in question")


def _code_absent(scene: PredicateScene, path: AccessPath, versions: tuple[str, ...]) -> PredicateAnswer:
    if not path.version:
        return PredicateAnswer(None, "the engine's version is not known")
    own = parse_version("pep440", path.version)
    if own is None or all(parse_version("pep440", one) != own for one in versions):
        return PredicateAnswer(None, f"whether version {path.version} has the code in question was not read")
    return PredicateAnswer(True, f"version {path.version} lacks the code in question")


PREDICATES: Mapping[str, Callable[[PredicateScene, AccessPath, Any], PredicateAnswer]] = {
    "flag_absent": _flag_absent,
    "flag_set": _flag_set,
    "gateway_closes_path": _gateway_closes_path,
    "gateway_refuses_field": _gateway_refuses_field,
    "no_network": _no_network,
    "locked_folder": _locked_folder,
    "no_video_model": _no_video_model,
    "no_image_model": _no_image_model,
    "model_architecture_not": _model_architecture_not,
    "python_keeps_asserts": _python_keeps_asserts,
    "package_absent": _package_absent,
    "code_absent": _code_absent,
    "unused_by_vllm": _unused_by_vllm,
    "flag_is": _flag_is,
    "answers_completions": _answers_completions,
    "build_option_off": _build_option_off,
}


def evaluate(scene: PredicateScene, path: AccessPath, predicate: PredicateKeys) -> PredicateAnswer:
    """The answer of one predicate for one way to an instance."""
    return PREDICATES[predicate.name](scene, path, predicate.argument)
