"""The small types: which text they take, and that none of it needs quoting where it is printed."""

import datetime as dt
import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from rigwright import address_types, validated_types

VALID = {
    "Name": ["a", "chat", "rig3090", "2080ti-left", "a" * 48],
    "CatalogName": ["rtx-3090", "Qwen3.6-27B", "llama.cpp", "q4_k_m", "A" * 96],
    "VariantName": ["llamacpp/65k", "vllm/dual", "llama.cpp/Qwen3.6_27B"],
    "FileName": ["model.gguf", "a", "torch-2.9.0+cu130.whl", "model-00001-of-00003.gguf"],
    "AbsolutePath": ["/srv", "/srv/models", "/usr/local/cuda-13.0", "/data/a+b@c", "/srv/.hidden", "/a..b"],
    "Root": ["/data", "/srv/models", "/opt/rigwright", "/homes/a", "/usrlocal", "/etc/rigwright", "/mnt/disk/x"],
    "Source": ["index:project", "store:a.gguf", "store:a/b-1.0+x@y~z", "http://127.0.0.1:80/a", "https://h/a?b=c%20"],
    "UserName": ["rigwright", "_apt", "svc-1"],
    "Sha256": ["0123456789abcdef" * 4],
    "PciId": ["10de:2204"],
    "Capability": ["8.6", "12.0"],
    "CmakeOption": ["GGML_CUDA", "CMAKE_CUDA_ARCHITECTURES"],
    "CmakeValue": ["", "ON", "86-real;120a-real", "/usr/local/cuda"],
    "Flag": ["threads", "cache-reuse"],
    "FlagValue": [
        "2",
        "0.7,0.3",
        "-1",
        "key=value",
        "/srv/x.json",
        "-.5",
        "1e-05",
        "mmap+mlock",
        "info",
        "nano",
        "é ~",
        '{"a": "$b %n"}',
        "a; b",
    ],
    "HttpUrl": ["http://127.0.0.1:8000", "https://hub.example/a/b", "http://h/~a/%20"],
    "Text": ["NVIDIA GeForce RTX 3090", "é", "a" * 200],
    "Commit": ["0123456789" * 4],
    "Subtree": ["", "vendor/llama.cpp", "vendor"],
    "DebVersion": ["1", "1:580.95.05-1~deb13u1+b1", "20220217+3"],
    "System": ["debian-12", "debian-13", "ubuntu-24.04"],
    "Fingerprint": ["0123456789ABCDEF0123456789ABCDEF01234567"],
    "ModuleOption": ["NVreg_EnableResizableBar", "NVreg_DeviceFileMode", "NVreg_a1"],
    "MemorySize": ["64M", "48G", "1T", "64T", "1%", "90%", "100%"],
    "SysctlName": ["vm.swappiness", "kernel.numa_balancing", "net.ipv4.tcp_fin_timeout", "fs.file-max"],
}

REFUSED = {
    "Name": ["", "-a", "A", "a_b", "a.b", "a/b", "a" * 49, "é", "٣"],
    "CatalogName": ["", "-a", ".a", "..", "a/b", "../a", "A" * 97, "é", "٣"],
    "VariantName": ["", "65k", "/65k", "llamacpp/", "a/b/c", "llamacpp/..", "../65k", "LLAMA/x", "-a/b", "a/-b"],
    "FileName": ["", "..", ".hidden", "-rf", "a/b", "../a", "/etc/passwd", "a" * 202, "é"],
    "AbsolutePath": [
        "",
        "/",
        "srv",
        "./srv",
        "~/x",
        "/srv/..",
        "/srv/../x",
        "/../srv",
        "/srv/./x",
        "//srv",
        "/a//b",
        "/é",
    ],
    "Root": [
        path
        for folder in (*validated_types.HIDDEN, "/usr", "/bin", "/lib64")
        for path in (folder, f"{folder}/", f"{folder}/x")
    ]
    + [*validated_types.SYSTEM, "/opt/", "srv", "/"],
    "Source": [
        "",
        "a",
        "store:",
        ":a",
        "store:/a",
        "store:../a",
        "store:a/..",
        "store:-a",
        "http://h",
        "ftp://h/a",
        "S:a",
    ],
    "UserName": ["", "-a", "1a", "Root", "a.b", "a:b", "a" * 32],
    "Sha256": ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64],
    "PciId": ["", "10de2204", "10DE:2204", "10de:220", "0x10de:0x2204"],
    "Capability": ["", "8", "8.", "8.60", "sm_86", "8,6"],
    "CmakeOption": ["", "ggml", "-DGGML", "1A", "A-B"],
    "CmakeValue": ["é", "a,b"],
    "Flag": ["", "--threads", "-t", "Threads", "1", "a=b", "a_b"],
    "FlagValue": ["", "a" * 4097, "--host", "-m", "-", "--", "nan", "NaN", "inf", "-inf", "+Infinity"],
    "HttpUrl": [
        *("", "ftp://host/", "file:///etc/passwd", "host/x", "http://", "http:///x", "http://user@host/"),
        *(
            "http://[::1]:8000/",
            "http://-h/",
            "http://h:/",
            "http://h?x",
            "http://h /",
            "http://h/#a",
            "http://h/$(id)",
        ),
    ],
    "Text": ["", "a" * 201],
    "Commit": ["", "main", "a" * 39, "A" * 40],
    "Subtree": ["/vendor", "..", "../a", "a/..", "a//b", "a/", "."],
    "DebVersion": ["", "-1", "~1", ":1", "1/2", "a" * 97],
    "System": ["", "debian", "debian-", "debian-12.", "debian-trixie", "fedora-42", "ubuntu-24.4", "Debian-12"],
    "Fingerprint": ["", "A" * 39, "A" * 41, "a" * 40, "G" * 40, "0x" + "A" * 38],
    "ModuleOption": ["", "NVreg_", "nvreg_X", "EnableMSI", "NVreg_A=1", "NVreg_A_B", "NVreg_" + "a" * 61],
    "MemorySize": [
        "",
        "0G",
        "0%",
        "48",
        "48g",
        "48K",
        "1.5G",
        "48 G",
        "-1G",
        "101%",
        "1000%",
        "%",
        "infinity",
        "1000000G",
    ],
    "SysctlName": ["", "vm", "vm.", ".vm.x", "dev.cdrom", "vm/swappiness", "vm..x", "vm.Swap", "vm" + ".x" * 7],
}

# Characters that a shell, systemd, a terminal or a file system reads as more than a letter
HOSTILE = [*"\n\r\0\t '\"\\&|<>*?#!;`$%~{}()", "$(id)", "$HOME", "%n", "{{ x }}", "\x1b[31m", "\x7f"]
HOSTILE += ["\u2028", "\x85", "\u202e", "\ud800", "\U0001f4a3", "é", "\uff0f"]
# types whose text is printed bare into units and paths, and the characters that mean nothing there
BARE = ["Name", "CatalogName", "VariantName", "FileName", "AbsolutePath", "UserName", "Flag"]
BARE += ["ModuleOption", "SysctlName"]
HARMLESS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@/:,=")


@cache
def _type_named(name: str) -> Any:
    """A type of either module."""
    return getattr(validated_types, name, None) or getattr(address_types, name)


def adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_type_named(name))


def takes(name: str, value: Any) -> bool:
    try:
        adapter(name).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALID.items() for value in values])
def test_valid_names_and_paths_are_taken_as_they_are(name: str, value: str) -> None:
    assert adapter(name).validate_python(value) == value


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_an_invalid_name_of_its_kind_is_refused(name: str, value: str) -> None:
    assert not takes(name, value)


@pytest.mark.parametrize(
    "name", sorted(set(VALID) - {"Text", "HttpUrl", "Source", "CmakeValue", "DebVersion", "FlagValue"})
)
def test_hostile_text_is_refused_at_the_beginning_in_the_middle_and_at_the_end(name: str) -> None:
    valid = max(VALID[name], key=len)[:12] if name not in ("Sha256", "Commit", "Fingerprint") else VALID[name][0]
    half = len(valid) // 2
    taken = [
        text
        for bad in HOSTILE
        for text in (bad + valid, valid[:half] + bad + valid[half:], valid + bad)
        if takes(name, text)
    ]
    assert taken == []


@pytest.mark.parametrize("name", ["HttpUrl", "Source", "CmakeValue", "Text", "DebVersion", "FlagValue"])
def test_types_that_are_printed_quoted_still_take_one_line_only(name: str) -> None:
    valid = max(VALID[name], key=len)[:100]
    assert [bad for bad in "\n\r\0\t\x1b\x7f" if takes(name, valid + bad)] == []


# letters, digits and spaces of other scripts begin below the first; the last of its spaces are below the second
@pytest.mark.parametrize("codes", [range(0x500), pytest.param(range(0x500, 0x3001), marks=pytest.mark.all_only)])
@pytest.mark.parametrize("name", BARE)
def test_no_character_that_is_taken_means_anything_to_a_shell_or_to_systemd(name: str, codes: range) -> None:
    valid = VALID[name][1][:8]
    taken = {chr(code) for code in codes if takes(name, valid[0:1] + chr(code) + valid[1:])}
    taken |= {chr(code) for code in codes if takes(name, valid + chr(code))}
    assert taken or codes.start
    assert taken <= HARMLESS


@pytest.mark.parametrize("name", sorted(VALID))
@pytest.mark.parametrize("value", [None, 5, 1.5, True, [], {}, ["a"], object()], ids=repr)
def test_other_values_than_text_are_refused(name: str, value: object) -> None:
    assert not takes(name, value) or (name == "FlagValue" and value in (5, 1.5, True, [], {}, ["a"]))


@pytest.mark.parametrize(("value", "taken"), [(True, True), (5, "5"), (-1, "-1"), (0.7, "0.7"), ("5", "5")])
def test_an_options_value_is_a_number_as_text_or_true(value: object, taken: object) -> None:
    made = adapter("FlagValue").validate_python(value)
    assert (made, type(made)) == (taken, type(taken))


def test_an_options_value_is_a_table_as_json() -> None:
    given = {"rope": {"type": "yarn", "factor": 4.0}, "a b": ["é", '"%$\\']}
    made = adapter("FlagValue").validate_python(given)
    assert json.loads(made) == given
    assert made == adapter("FlagValue").validate_python(dict(reversed(given.items())))


def test_an_options_value_is_one_line_that_says_what_it_is() -> None:
    """Characters that turn writing around, or end a line for some readers, are invisible in a diff."""
    unseen = ["\u2028", "\x85", "\u202e", "\ud800", "\u200b", "\xa0", "\x9b"]
    assert [text for bad in unseen for text in (bad, f"a{bad}b") if takes("FlagValue", text)] == []
    assert not takes("FlagValue", {"a": dt.date(2026, 11, 22)})
    assert not takes("FlagValue", {"a": [float("nan")]})


@pytest.mark.parametrize("value", [False, float("nan"), float("inf"), float("-inf")], ids=repr)
def test_values_that_no_option_takes_are_refused(value: object) -> None:
    assert not takes("FlagValue", value)


LONG = """
from pydantic import TypeAdapter, ValidationError
from rigwright import address_types, validated_types
for name in NAMES:
    for begin in ("/" + "a" * 200, "/a" * 100, "a" * 200, "s:" + "a" * 200, "s:" + "a/" * 100, "http://" + "a." * 100):
        text = begin + " "
        try:
            TypeAdapter(getattr(validated_types, name, None) or getattr(address_types, name)).validate_python(text)
        except ValidationError:
            continue
        raise SystemExit(f"{name} takes {text!r}")
"""


def test_a_long_text_that_is_refused_is_refused_at_once() -> None:
    program = LONG.replace("NAMES", repr(sorted(set(VALID) - {"Text", "FlagValue"})))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("value", [1, 2, 4, 8, 16])
def test_a_link_has_lanes_by_powers_of_two(value: int) -> None:
    assert adapter("Lanes").validate_python(value) == value


@pytest.mark.parametrize("value", [0, 3, 12, 32, -8, "8", 8.0, True, None], ids=repr)
def test_an_invalid_link_is_refused(value: object) -> None:
    assert not takes("Lanes", value)


@pytest.mark.parametrize(
    ("value", "taken"), [(1023, False), (1024, True), (65535, True), (65536, False), ("8020", False), (True, False)]
)
def test_a_port_is_a_number_that_a_service_without_capabilities_may_listen_on(value: object, taken: bool) -> None:
    assert takes("Port", value) == taken


def test_a_slash_at_the_end_of_a_path_is_dropped() -> None:
    assert adapter("AbsolutePath").validate_python("/srv/models/") == "/srv/models"
