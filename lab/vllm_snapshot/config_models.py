"""Configurations that vLLM takes as JSON, as its own pydantic models take them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

Json = dict[str, Any]
# Trial values of a field, and their types: pydantic makes none of them another one.
_SAMPLES: tuple[tuple[Any, str], ...] = (
    (None, "null"),
    ("x", "string"),
    (["x"], "array"),
    ([1], "array"),
    ([], "array"),
    ({}, "object"),
    ({"x": 1}, "object"),
)
# ... and what shows that it is one at all
_MORE: tuple[tuple[Any, str], ...] = ((True, "boolean"), (3, "integer"), (1.5, "number"))
_BOUNDS = {"minimum": "least", "exclusiveMinimum": "above", "maximum": "most", "exclusiveMaximum": "below"}
# fields that the engine sets itself, whatever a command line says
_INSIDE = {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}


class ConfigModels:
    """Configurations that are given as JSON, as pydantic takes them, and what the engine takes of any option."""

    def __init__(self) -> None:
        self.found: Json = {}
        config = import_module("vllm.config")
        names = ("Model", "Load", "Attention", "Parallel", "Cache", "Scheduler", "LoRA", "MultiModal", "Compilation")
        self._fields = [_json_schema(getattr(config, f"{name}Config"))[0]["properties"] for name in names]

    def number_bounds(self, dest: str) -> Json:
        """The least and the most that the engine's configuration takes of a number that the parser takes any of."""
        for fields in self._fields:
            if dest in fields:
                return _schema_bounds(fields[dest])
        return {}

    def add_model(self, cls: type) -> str:
        """Have a configuration among those found; returns its name."""
        if cls.__name__ not in self.found:
            schema, classes = _json_schema(cls)
            models = {**schema.get("$defs", {}), cls.__name__: schema}
            for name in _reachable_models(cls.__name__, models):
                self.found[name] = _describe_model(classes[name], models[name], models)
        return cls.__name__


def _json_schema(cls: type) -> tuple[Json, dict[str, Any]]:
    """A JSON schema, with the names of enumerations' members, and the classes that it names."""
    pydantic, classes = import_module("pydantic"), dict[str, Any]()

    class Generator(pydantic.json_schema.GenerateJsonSchema):  # type: ignore[name-defined]
        def enum_schema(self, schema: Any) -> Json:
            members = schema["cls"].__members__
            return {"enum": [member.value for member in members.values()], "members": [*members]}

        def dataclass_schema(self, schema: Any) -> Json:
            classes[schema["cls"].__name__] = schema["cls"]
            return dict(super().dataclass_schema(schema))

    return pydantic.TypeAdapter(cls).json_schema(schema_generator=Generator), classes


def _reachable_models(name: str, models: Json) -> list[str]:
    """The models that a model's fields are, itself first, those left out that the engine sets."""
    found, todo = list[str](), [name]
    while todo:
        one = todo.pop(0)
        if one in found or "properties" not in models[one] or "members" in models[one]:
            continue
        found.append(one)
        text = json.dumps([field for key, field in models[one]["properties"].items() if key not in _INSIDE])
        todo += [other for other in models if f'"#/$defs/{other}"' in text]
    return found


def _describe_model(cls: Any, schema: Json, models: Json) -> Json:
    adapter = import_module("pydantic").TypeAdapter(cls)
    made: Json = {}
    for name, field in schema["properties"].items():
        if name in _INSIDE or name.startswith("_"):
            continue

        def takes(value: Any, name: str = name) -> bool:
            return _accepts_value(adapter, cls, name, value)

        found = _describe_field(field, models, takes)
        if "values" in found or any(takes(value) for value, kind in (*_SAMPLES, *_MORE) if kind in found["types"]):
            made[name] = found
    return made


def _accepts_value(adapter: Any, cls: type, name: str, value: Any) -> bool:
    """Whether a field takes a value, whatever the model as a whole would lack then."""
    try:
        adapter.validate_json(json.dumps({name: value}))
    except import_module("pydantic").ValidationError as error:
        return not any(detail["loc"][:1] == (name,) for detail in error.errors())
    except Exception as error:  # of a field's own function, or of what the model does once its fields are right
        frames = traceback.walk_tb(error.__traceback__)
        return any(isinstance(frame.f_locals.get("self"), cls) for frame, _ in frames)
    return True


def _describe_field(schema: Json, models: Json, takes: Callable[[Any], bool]) -> Json:
    """The values of a field: by its schema, and by trials with values that functions of the model may let through."""
    types, values, made = set[str](), list[Any](), _schema_bounds(schema)
    for one in _schema_alternatives(schema, models):
        if "properties" in one and "members" not in one:
            types.add("object")
            made["model"] = one["title"]
        elif "enum" in one or "const" in one:
            values += [*one.get("enum", ()), *one.get("members", ()), *map(str.lower, one.get("members", ())), "auto"]
            values += [one["const"]] if "const" in one else []
        elif "type" in one:
            types.add(one["type"])
            if one["type"] == "array" and (inner := [part.get("type") for part in _item_schemas(one, models)]):
                made["items"] = sorted(str(kind) for kind in inner)
        else:
            types |= {"array", "boolean", "integer", "null", "number", "object", "string"}
    types |= {kind for value, kind in _SAMPLES if takes(value)}
    if "string" not in types:
        taken = [value for value in dict.fromkeys(v for v in values if isinstance(v, str | int)) if takes(value)]
        made |= {"values": taken} if taken else {}
    return {"types": sorted(types), **made}


def _item_schemas(schema: Json, models: Json) -> list[Json]:
    found = _schema_alternatives(schema.get("items", {}), models)
    return found if all(isinstance(one.get("type"), str) for one in found) else []


def _schema_alternatives(schema: Json, models: Json) -> list[Json]:
    if reference := schema.get("$ref"):
        return _schema_alternatives(models[reference.rpartition("/")[2]], models)
    if "anyOf" in schema:
        return [found for one in schema["anyOf"] for found in _schema_alternatives(one, models)]
    return [schema]


def _schema_bounds(schema: Json) -> Json:
    found: Json = {}
    for one in (schema, *schema.get("anyOf", ())):
        found |= {name: one[key] for key, name in _BOUNDS.items() if key in one}
    return found
