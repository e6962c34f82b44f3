"""Every small type of a text keeps out what ends a line or writes on a terminal, wherever it stands in a text."""

import pkgutil
import random
import re
from functools import cache
from importlib import import_module
from typing import Annotated, Any, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError

import rigwright
from rigwright.validated_types import PLAIN
from tests.unit.example_counts import example_count
from tests.unit.test_text_types import VALID

# Texts of a type, in addition to those of test_types: each takes one of these.
SEEDS = (
    *("10.0.0.5", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "10.0.0.0/24", "fe80::/64", "fe80::%eth0/64", "0.0.0.0"),
    *("box.lan", ".lan", "user@box:22", "http://h", "https://chat.example.org", "chrome-extension://abc"),
    *("header:x-user", "conversation", "2026-01-31", "2026-01-31T10:00:00Z", "3.10.20", "3.12", "linux-64"),
    *("flags.slot-save-path", "environment.LD_PRELOAD", "vllm.engine", "LD_PRELOAD", "*.safetensors", "main"),
    *("owner/name", "a/b.gguf", "sm_86", "py310h06a4308_0", "python >=3.10", "numpy==1.26.4", "requests>=2"),
    *("python_version < '3.11'", "libfoo 1.2.*", "nvidia-driver-{branch}", "a-tool", "A.py", "1.0", "x86_64"),
    *("0123456789ab", "a" * 64, "a sentence.", "https://h/{name}/a.deb", "b8_0", "h1234567_0", "vllm/model.py"),
    *("W01", "Sat 02:00-05:00 UTC", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICcL3/Qas0yYW/K9CsYQrt3Z60/NtBA9OnVrGaxJXGoW"),
    *(
        "0123456789abcdef",
        "GPU-01234567-89ab-cdef-0123-456789abcdef",
        "2204",
        "lib/a.so sm_86 compute_90a",
        "2026-01-31T10:00:00+00:00",
    ),
)
POOL = tuple(dict.fromkeys((*SEEDS, *(one for values in VALID.values() for one in values))))
HOSTILE = "\n\r\t\v\f\0\x1b\x7f\x85\x9b\u2028\u2029\u200e\u200f\u061c\u202a\u202e\u2066\u2069\ud800"
# Made of a table, and of a time, not of a text.
NO_TEXTS = {"rigwright.engines.vllm.catalog_keys.Table", "rigwright.gateway.keyring.Moment"}


@cache
def texts() -> dict[str, TypeAdapter[Any]]:
    """Every one that a module of ours names and that takes a text, by where it was found first."""
    found: dict[int, tuple[str, TypeAdapter[Any]]] = {}
    for module in pkgutil.walk_packages(rigwright.__path__, "rigwright."):
        # run on hosts, by vLLM's own Python
        if module.name.endswith("launcher"):
            continue
        for name, value in sorted(vars(import_module(module.name)).items()):
            if get_origin(value) is Annotated and id(value) not in found:
                found[id(value)] = (f"{module.name}.{name}", TypeAdapter(value))
    return {name: one for name, one in found.values() if _of_texts(one) and name not in NO_TEXTS}


def _of_texts(one: TypeAdapter[Any]) -> bool:
    schema = one.core_schema
    kind: Any = schema
    while kind["type"] in ("function-after", "function-before", "function-wrap"):
        kind = kind["schema"]
    return kind["type"] in ("str", "nullable", "function-plain")


def validate_or_none(one: TypeAdapter[Any], value: str) -> object:
    try:
        return one.validate_python(value)
    except ValidationError:
        return None


def seeds(name: str) -> list[str]:
    return [value for value in POOL if validate_or_none(texts()[name], value) is not None]


@pytest.mark.parametrize("name", sorted(texts()))
def test_each_takes_something_of_the_pool_that_is_changed(name: str) -> None:
    assert seeds(name)


@pytest.mark.parametrize("name", sorted(texts()))
def test_none_takes_what_ends_a_line_or_writes_on_a_terminal(name: str) -> None:
    chance = random.Random(name)  # the same ones each time
    one, known = texts()[name], seeds(name)
    for _ in range(example_count(5000)):
        text = chance.choice(known)
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice(HOSTILE) + text[at + chance.randint(0, 1) :]
        found = validate_or_none(one, text)
        assert not isinstance(found, str) or re.fullmatch(f"(?:{PLAIN})*", found), (text, found)
