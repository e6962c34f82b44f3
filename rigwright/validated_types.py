"""The small types that names, hashes and places are made of, each with its rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeVar

from packaging.markers import InvalidMarker
from packaging.markers import Marker as PythonMarker
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PythonRequirement
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from rigwright.safe_text import has_secret_form

NEAR_LENGTH = 200
"""Characters of a refused text for which the nearest valid one is looked up."""


def refuse_violations(*rules: tuple[bool, str]) -> None:
    """Refuse a table that breaks rules between its keys, with all of them.

    Args:
        *rules: Whether the table breaks it, and what the rule allows.

    Raises:
        ValueError: the table breaks one; the text has what each of them allows.
    """
    if broken := [allowed for is_broken, allowed in rules if is_broken]:
        raise ValueError("; and ".join(broken))


def matching(pattern: str, description: str, correct: Callable[[str], str] | None = None) -> AfterValidator:
    """The rule that a text is of a pattern, whole.

    Args:
        pattern: The regular expression.
        description: The allowed texts, for people.
        correct: Returns the valid text that is nearest to a refused one; one that is not valid either is left out.
    """

    def check(value: str) -> str:
        # \Z, not $: a trailing newline would reach unit files and command lines
        if not re.fullmatch(pattern, value):
            near = correct(value) if correct and len(value) <= NEAR_LENGTH else ""
            raise ValueError(
                description + (f'; did you mean "{near}"?' if near and re.fullmatch(pattern, near) else "")
            )
        return value

    return AfterValidator(check)


# Host and unit names: the characters that systemd, DNS and ssh all take without quoting, never starting with an
# option's dash.
Name = Annotated[
    str,
    matching(
        r"[a-z0-9][a-z0-9-]{0,47}",
        "at most 48 lowercase letters, digits and dashes",
        lambda value: re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-"),
    ),
]
# Names of catalogue entries: also dots and capitals, as in model names, and one slash (engine/name) in variants.
CATALOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
CatalogName = Annotated[str, matching(CATALOG_NAME.pattern, "letters, digits, dots and dashes")]
# Of artefacts: also a plus, as in 2.9.0+cu130.
Version = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,95}", "letters, digits, dots, dashes and +")]
# Of a distribution's packages: an epoch's colon, and the tilde of what is older than without it.
DebVersion = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+:~-]{0,95}", "letters, digits and ._+:~-")]
# Of artefacts: conda's own can begin with an underscore, as _libgcc_mutex does.
ArtefactName = Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", "letters, digits, dots and dashes")]
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}/[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VariantName = Annotated[str, matching(VARIANT_NAME.pattern, "engine/name, such as llamacpp/65k")]
# Of another form, too: the catalogue refuses an unknown name with the nearest one.
CARD_REFERENCE = VARIANT_REFERENCE = re.compile(r"[\x20-\x7e]{1,200}")
VariantReference = Annotated[str, matching(VARIANT_REFERENCE.pattern, "engine/name, such as llamacpp/65k")]
CardReference = Annotated[str, matching(CARD_REFERENCE.pattern, "letters, digits, dots and dashes")]
FileName = Annotated[
    str,
    matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}", "a file name without a folder: letters, digits, dots and dashes"),
]
ARTEFACT_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~-]{0,200}")
ArtefactFile = Annotated[
    str, matching(ARTEFACT_FILE.pattern, "a file name without a folder: letters, digits and ._+~-")
]
# systemd would expand % and the shell everything else
AbsolutePath = Annotated[
    str,
    matching(r"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._+@-]+)+/?", "an absolute path of letters, digits and ._+@-"),
    AfterValidator(lambda path: path.rstrip("/")),
]
# Services see none of these, whatever their unit's mode: ProtectHome=, PrivateTmp= and the kernel's own trees.
HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/run", "/proc", "/sys", "/dev", "/boot")  # noqa: S108


# The distribution's own: nothing of ours lies directly there, and nothing at all below the first four.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/srv", "/var", "/var/lib", "/mnt", "/media")


def _refuse_system_path(path: str) -> str:
    for hidden in HIDDEN:
        if path == hidden or path.startswith(f"{hidden}/"):
            raise ValueError(f"outside {', '.join(HIDDEN)}: services cannot access those")
    if path in SYSTEM or path.startswith(("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")):
        raise ValueError(f"a dedicated folder: {path} belongs to the system")
    return path


Root = Annotated[AbsolutePath, AfterValidator(_refuse_system_path)]
UserName = Annotated[str, matching(r"[a-z_][a-z0-9_-]{0,30}", "a system user name")]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 lowercase hexadecimal digits")]
DRIVER_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){1,5}")
DriverVersion = Annotated[str, matching(DRIVER_VERSION.pattern, "a driver's version, such as 580.178.04")]
Digits = Annotated[str, matching(r"[0-9a-f]{12}", "12 lowercase hexadecimal digits")]
PciId = Annotated[
    str, matching(r"[0-9a-f]{4}:[0-9a-f]{4}", 'vendor:device in lowercase hexadecimal digits, such as "10de:2204"')
]
Capability = Annotated[str, matching(r"[0-9]{1,2}\.[0-9]", 'a CUDA compute capability, such as "8.6"')]
Module = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", "a Python module, such as vllm.engine")
]
CmakeOption = Annotated[str, matching(r"[A-Z][A-Z0-9_]*", "a CMake option name, such as GGML_NATIVE")]
CmakeValue = Annotated[str, matching(r"[A-Za-z0-9_.;/=-]*", "letters, digits and _.;/=-")]
Flag = Annotated[
    str,
    matching(
        r"[a-z][a-z0-9-]*",
        "a long option's name without its dashes",
        lambda value: value.lower().lstrip("-").replace("_", "-"),
    ),
]
# A dash only before a number: an option in the place of a value would be read as the value. No number is nan or inf.
FLAG_VALUE = re.compile(r"(?!-(?![0-9.]))(?!\+?(?i:nan|inf|infinity)\Z).{1,4096}")


def _json(value: object, *kinds: type) -> Any:
    """A value of these kinds in JSON; None for another one, and for values that only TOML has."""
    text = ""
    if isinstance(value, kinds) and not isinstance(value, bool):
        with suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(value, sort_keys=True, allow_nan=False)
    return json.loads(text) if 0 < len(text) <= 4096 else None


def _flag_value(value: object) -> str | bool:
    if value is True:
        return True
    _refuse_broken_json(value)
    text = ""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError):  # a number of more digits than Python prints
            text = str(value)
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            text = ""
    if (table := _json(value, dict, list)) is not None:
        text = json.dumps(table, sort_keys=True)
    if not FLAG_VALUE.fullmatch(text) or not text.isprintable():
        raise ValueError("true, a finite number, a table, or text on one line (a dash first: only a number)")
    return text


def _refuse_broken_json(value: object) -> None:
    """Refuse a text that begins as a JSON object and is invalid."""
    if isinstance(value, str) and re.match(r"\s*\{(?![{%#])", value):  # Jinja begins so
        try:
            json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"valid JSON, or a table: {error}") from None


def _option_value(value: object) -> Any:
    _refuse_broken_json(value)
    if value is True or (isinstance(value, str) and FLAG_VALUE.fullmatch(value) and value.isprintable()):
        return value
    if (found := _json(value, int, float, list, dict)) is None:
        raise ValueError("true, a finite number, a list, a table, or text on one line (a dash first: only a number)")
    return found


OptionValue = Annotated[Any, PlainValidator(_option_value)]


def _table(value: object) -> dict[str, Any]:
    if not isinstance(found := _json(value, dict), dict):
        raise ValueError("a table of strings, finite numbers, booleans, lists and tables")
    return found


Table = Annotated[dict[str, Any], PlainValidator(_table)]
Variable = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,99}", "the name of an environment variable")]
ReservedKey = Annotated[
    str, matching(r"[a-z]+\.[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "a table and its key, such as flags.slot-save-path")
]
FlagValue = Annotated[str | bool, PlainValidator(_flag_value)]
T = TypeVar("T", int, str)


def _require_rising(value: tuple[T, T]) -> tuple[T, T]:
    if value[0] > value[1]:
        raise ValueError(f"from the lower to the higher: did you mean {value[1]}, {value[0]}?")
    return value


# The rule of every pair that says from where to where.
RISING = AfterValidator(_require_rising)
CardIndex = Annotated[int, Field(ge=0, le=15, strict=True)]
# 256 TiB, what x86-64 addresses with four levels of page tables (kernel.org, x86_64/mm): nothing here has more.
LARGEST_NUMBER = 1 << 48
Positive = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, strict=True)]
# Nothing that is waited for takes longer than a day.
Seconds = Annotated[int, Field(ge=1, le=86_400, strict=True)]
# Ten times the longest context that a published model has: 10 million tokens (Llama 4 Scout's model card).
Tokens = Annotated[int, Field(ge=1, le=100_000_000, strict=True)]
# Requests at once, of any engine; the smaller number that llama.cpp takes is its keys' own.
Requests = Annotated[int, Field(ge=1, le=65_536, strict=True)]
# Linux has no more of them (PID_MAX_LIMIT in include/linux/threads.h).
Tasks = Annotated[int, Field(ge=1, le=4_194_304, strict=True)]
# A kernel's number: an unsigned long's.
KernelNumber = Annotated[int, Field(ge=0, le=2**64 - 1, strict=True)]
_UNITS = {"M": 1, "G": 1 << 10, "T": 1 << 20}  # MiB


def _memory(value: str) -> str:
    if re.fullmatch(r"[1-9][0-9]{0,5}[MGT]", value) and 64 <= int(value[:-1]) * _UNITS[value[-1]] <= 64 << 20:
        return value
    if re.fullmatch(r"[1-9][0-9]?%|100%", value):
        return value
    meant = re.fullmatch(r"([1-9][0-9]{0,5}) *([MGTmgt])(?:i?[Bb])?", value)
    near = f'; did you mean "{right}"?' if meant and (right := f"{meant[1]}{meant[2].upper()}") != value else ""
    raise ValueError(f'an amount of memory from 64M to 64T, such as "48G" or "80%"{near}')


def memory_bytes(declared: str, host_kib: int) -> int:
    """An amount of memory as systemd reads it, in bytes.

    Args:
        declared: A `MemorySize`.
        host_kib: The host's, KiB.
    """
    if declared.endswith("%"):
        return host_kib * 1024 * int(declared[:-1]) // 100
    return int(declared[:-1]) << {"M": 20, "G": 30, "T": 40}[declared[-1]]


# As systemd reads it (systemd.resource-control(5), MemoryMax=): powers of 1024, or a part of the host's. Below
# 64 MiB no engine starts, and with four levels of page tables x86-64 has no more than 64 TiB (kernel.org, x86_64/mm).
MemorySize = Annotated[str, AfterValidator(_memory)]
Count = Annotated[int, Field(ge=0, le=LARGEST_NUMBER, strict=True)]
# One that neither ends a line nor writes on the terminal: no controls, none of Unicode's for lines and directions.
PLAIN = r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
Text = Annotated[str, matching(PLAIN + "{1,200}", "1 to 200 characters on one line")]


def _local_path(value: str) -> str:
    # a secret has no folder; a file with a name like that can be addressed as ./NAME
    if "/" not in value and has_secret_form(value):
        raise ValueError("the path of a file with the secret, never the secret itself")
    return value


LOCAL_PATH = "a path of 1 to 4096 characters on one line"
# Of the operator's machine, where Linux takes at most PATH_MAX (4096) bytes (include/uapi/linux/limits.h). A surrogate
# is half a character: no file has a name with one.
LocalPath = Annotated[
    str, matching(rf"(?:(?![\ud800-\udfff]){PLAIN}){{1,4096}}", LOCAL_PATH), AfterValidator(_local_path)
]
RelativePath = Annotated[
    str,
    matching(
        r"(?!.*(?:\A|/)\.\.?(?:/|\Z))[A-Za-z0-9._+~-]+(?:/[A-Za-z0-9._+~-]+)*",
        "a path inside the folder: letters, digits and ._+~-",
    ),
]
# Of the hub: owner and name. Two dots in a row, or a dash or dot at either end, are refused there too
# (huggingface_hub.utils.validate_repo_id).
Repository = Annotated[
    str,
    matching(
        r"(?!.*(?:\.\.|--))[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "owner/name, as on the hub"
    ),
]
Pattern = Annotated[
    str,
    matching(r"[A-Za-z0-9._+~*?\[\]!/-]{1,200}", "a pattern of letters, digits and ._+~-/*?[]!, such as *.safetensors"),
]
# A branch, a tag or a commit of a repository.
Revision = Annotated[
    str,
    matching(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,95}", "a version or branch: letters, digits, dots, dashes and +"),
]
# An input, or one file of an input that has many.
ModelFile = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?::(?!.*(?:/|:)\.\.?(?:/|\Z))[A-Za-z0-9._+~-]+(?:/[A-Za-z0-9._+~-]+)*)?",
        "an input, or INPUT:PATH/IN/IT for one of its files",
    ),
]


System = Annotated[str, matching(r"(?:debian|ubuntu)-[0-9]{1,2}(?:\.[0-9]{2})?", "a system, such as debian-12")]


def _lanes(value: int) -> int:
    if value not in (1, 2, 4, 8, 16):
        raise ValueError("1, 2, 4, 8 or 16")
    return value


Lanes = Annotated[int, Field(ge=1, le=16, strict=True), AfterValidator(_lanes)]
# The names of NVIDIA's two kernel modules, and the archives of a driver.
Flavour = Literal["open", "proprietary"]
Archive = Literal["distribution", "nvidia"]
Fingerprint = Annotated[str, matching(r"[0-9A-F]{40}", "an OpenPGP fingerprint: 40 uppercase hexadecimal digits")]
ModuleOption = Annotated[str, matching(r"NVreg_[A-Za-z0-9]{1,60}", "NVreg_ and letters or digits")]
SysctlName = Annotated[
    str, matching(r"(?:vm|kernel|net|fs)(?:\.[a-z0-9_-]+){1,6}", "a kernel setting, such as vm.swappiness")
]
Commit = Annotated[str, matching(r"[0-9a-f]{40}", "40 lowercase hexadecimal digits")]
Subtree = Annotated[
    str,
    matching(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?", "a folder inside the archive"),
]


def _marker(value: str) -> str:
    try:
        PythonMarker(value)
    except InvalidMarker:
        raise ValueError("an environment marker, such as python_version < '3.11'") from None
    return value


def _requirement(value: str) -> str:
    try:
        addressed = PythonRequirement(value).url
    except InvalidRequirement:
        addressed = None if re.fullmatch(_SPEC, value) else value
    if addressed:
        raise ValueError(
            "a Python requirement, such as scikit-build-core>=1, without an address; of kind conda, python ==3.10.20"
        )
    return value


def _day(value: object) -> object:
    # TOML has dates of its own
    return value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else value


def _calendar(value: str) -> str:
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            return date.fromisoformat(value).isoformat()
    except ValueError:
        pass
    raise ValueError("a day, such as 2026-06-10")


Day = Annotated[str, BeforeValidator(_day), AfterValidator(_calendar)]
PythonRelease = Annotated[str, matching(r"3\.[0-9]{1,2}\.[0-9]{1,3}", "a release of CPython, such as 3.10.20")]
# A match spec (https://conda.org/learn/ceps/cep-0029) without what could name another channel, an address or a file.
_SPEC = r"[a-z0-9_][a-z0-9._-]{0,63}(?: +[A-Za-z0-9._*+!=<>~|,]{1,100}(?: +[A-Za-z0-9._*]{1,100})?)?"
MatchSpec = Annotated[str, matching(_SPEC, "a conda package with its version and build, such as python ==3.10.20")]
BuildString = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+]{0,95}", "letters, digits, dots, _ and +")]
# A file of a wheel and what nvcc made it for: architectures (sm_) and PTX (compute_).
MachineCode = Annotated[
    str,
    matching(
        r"(?!.*(?:\A|/)\.\.?[/ ])[A-Za-z0-9._+~-]+(?:/[A-Za-z0-9._+~-]+)*(?: (?:sm|compute)_[1-9][0-9]{1,3}[af]?)+",
        "PATH/IN/WHEEL.so and its targets, such as sm_86 or compute_80",
    ),
]
_LINE = matching(r"[ -~]+", "letters, digits and punctuation on one line")
Marker = Annotated[str, _LINE, AfterValidator(_marker)]
Requirement = Annotated[str, _LINE, AfterValidator(_requirement)]
