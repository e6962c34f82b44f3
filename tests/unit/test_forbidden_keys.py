"""Keys that a catalogue may not set by itself: programs, files, folders, servers and listeners are the inventory's."""

import pytest

from rigwright.engines.llama_cpp.catalog_keys import MANAGED_FLAGS
from rigwright.engines.llama_cpp.command import RESERVED, TEXTS, forbidden_cmake_options, forbidden_flags
from rigwright.engines.llama_cpp.option_table import LlamaSnapshot, parse_help
from rigwright.project_root import ROOT
from rigwright.toml import tomllib
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import HELP, OperatorFolder, chat_instances

MIRRORS = {"store": ["http://h/"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f"CMAKE_{language}_COMPILER_LAUNCHER", "/tmp/own") for language in ("C", "CXX", "CUDA")),
        *((f"CMAKE_{language}_COMPILER", "/tmp/cc") for language in ("C", "CXX", "ASM")),
        *((f"CMAKE_PROJECT_{when}INCLUDE", "/tmp/own.cmake") for when in ("", "TOP_LEVEL_", "ggml_")),
        ("CMAKE_TOOLCHAIN_FILE", "/tmp/own.cmake"),
        ("CMAKE_PREFIX_PATH", "/tmp"),
        ("CMAKE_MODULE_PATH", "/tmp"),
        ("CMAKE_MAKE_PROGRAM", "/tmp/ninja"),
        ("CMAKE_LINKER", "/tmp/ld"),
        ("CMAKE_CXX_LINKER_LAUNCHER", "/tmp/ld"),
        ("CMAKE_CXX_FLAGS", "-fplugin=/tmp/own.so"),
        ("CMAKE_CUDA_FLAGS", "--compiler-options=-B/tmp"),
        ("CMAKE_EXE_LINKER_FLAGS", "-specs=/tmp/own"),
        ("CMAKE_CUDA_HOST_COMPILER", "/tmp/cc"),
        ("CMAKE_RUNTIME_OUTPUT_DIRECTORY", "/etc"),
        ("CMAKE_BUILD_TYPE", "/tmp"),
        ("FETCHCONTENT_SOURCE_DIR_OWN", "/tmp"),
        ("CURL_DIR", "/tmp"),
        ("GGML_BACKEND_DIR", "/tmp"),
        ("GGML_VULKAN_SHADERS_GEN_TOOLCHAIN", "/tmp/own.cmake"),
        ("GGML_CPU_ARM_ARCH", "native;-fplugin=/tmp/own.so"),
        ("GGML_BLAS_VENDOR", "/tmp"),
        ("GGML_BACKEND_DIR", "beside"),
    ],
)
def test_programs_and_files_for_cmake_are_refused(name: str, value: str) -> None:
    assert list(forbidden_cmake_options({name: value, "GGML_NATIVE": "OFF"})) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("GGML_NATIVE", "OFF"), ("LLAMA_BUILD_TESTS", "ON"), ("GGML_SCHED_MAX_COPIES", "4"), ("GGML_RPC", "TRUE")),
        *(("CMAKE_BUILD_TYPE", "RelWithDebInfo"), ("GGML_CUDA_COMPRESSION_MODE", "none"), ("BUILD_SHARED_LIBS", "1")),
        ("GGML_BLAS_VENDOR", "OpenBLAS"),
    ],
)
def test_a_switch_a_number_and_one_of_a_few_words_are_let_through(name: str, value: str) -> None:
    assert forbidden_cmake_options({name: value}) == {}


def test_the_engines_that_ship_say_nothing_that_is_reserved() -> None:
    for path in (ROOT / "catalog").glob("*.toml"):
        for engine in tomllib.loads(path.read_text()).get("engines", {}).values():
            assert forbidden_cmake_options(engine.get("options", {})) == {}


HARMLESS = {
    *("<0...100>", "INDEX", "L", "LEVEL", "M", "MiB0,MiB1,MiB2,...", "N", "N0,N1,N2,...", "P", "P0,P1,...", "SECONDS"),
    *("SEED", "SIMILARITY", "lo-hi", "KEY=TYPE:VALUE,...", "SAMPLERS", "SEQUENCE", "STRING", "TOKEN_ID(+/-)BIAS"),
    *("GRAMMAR", "SCHEMA", "PROMPT", "DEVICE", "MESSAGE", "JINJA_TEMPLATE", "ORIGINS", "METHODS", "HEADERS", "JSON"),
    *("<dev1,dev2,..>", "<tensor name pattern>=<buffer type>,...", "START END"),
}
"""The placeholder of a value, in the help of the version that ships, where that can name nothing of the host."""


def test_every_option_of_the_pinned_server_that_can_name_something_of_the_host_is_reserved_or_the_rigs_own() -> None:
    own = {HELP.find(name) for name in MANAGED_FLAGS}
    opening = [o for o in HELP.options if o.hint and not o.allowed and o.hint not in HARMLESS and o not in own]
    assert {o.hint for o in opening} == {
        "FNAME",
        "FNAME:SCALE,...",
        "FILE",
        "PATH",
        "DIR",
        "SERVERS",
        "JINJA_TEMPLATE_FILE",
    }
    for option in opening:
        long = [spelling[2:] for spelling in option.spellings if spelling.startswith("--")]
        assert set(long) & RESERVED, long
        for name in long:
            assert list(forbidden_flags(HELP, {name: "/srv/x"})) == [name]
            # a number is as good a name for a file
            assert list(forbidden_flags(HELP, {name: "1"})) == [name]


def test_every_name_that_is_known_is_one_of_the_pinned_servers_and_of_one_sort() -> None:
    assert [name for name in sorted(RESERVED | TEXTS) if not HELP.find(name)] == []
    sorts = [{HELP.find(name) for name in names} for names in (RESERVED, TEXTS, MANAGED_FLAGS)]
    assert sum(map(len, sorts)) == len(set.union(*sorts))


def test_every_long_name_of_an_option_that_takes_mere_text_is_known() -> None:
    options = [option for name in TEXTS if (option := HELP.find(name))]
    assert {spelling[2:] for option in options for spelling in option.spellings if spelling[:2] == "--"} == TEXTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threads", "8"), ("temp", "0.7"), ("metrics", True), ("tensor-split", "3,5"), ("load-mode", "mmap+mlock")),
        *(("spec-type", "draft-mtp,ngram-mod"), ("cpu-mask", "ff"), ("cpu-range", "0-7"), ("spec-draft-ngl", "all")),
        *(("chat-template-kwargs", '{"path": "/etc"}'), ("override-tensor", "blk\\..*=CPU"), ("seed", "42")),
        *(("grammar", "root ::= [a-z]/"), ("reasoning-effort", "high"), ("device", "CUDA0,CUDA1"), ("poll", "50")),
    ],
)
def test_a_switch_a_number_a_word_of_the_help_and_mere_text_are_let_through(name: str, value: str | bool) -> None:
    assert forbidden_flags(HELP, {name: value}) == {}


SNAPSHOT = """
--model FNAME                           path
--log-file                              a switch, it says
--rpc N                                 a number, it says
--new-cache PLACE                       what nobody has seen yet
--tags, --new-file FNAME                the same, it says
--new-mode MODE                         how, one of:
                                        - fast: soon
                                        - /etc/passwd: late
"""


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("log-file", True, False),
        ("rpc", "1", False),
        ("new-cache", "/srv/x", False),
        ("new-cache", "beside", False),
        ("new-file", "/srv/x", False),
        ("new-cache", "10.0.0.1:50052", False),
        ("new-cache", "8", True),
        ("new-mode", "fast", True),
        ("new-mode", "/etc/passwd", False),
    ],
)
def test_a_snapshot_is_not_believed_where_it_would_open_a_file(name, value, right):
    made: LlamaSnapshot = parse_help(SNAPSHOT)
    assert (forbidden_flags(made, {name: value}) == {}) == right


def write_catalogue(box: OperatorFolder, old: str, new: str) -> None:
    box.write("catalog/box.toml", CATALOG.replace(old, new, 1))


OPTIONS = ('commit = "0123', 'options.CMAKE_CXX_COMPILER_LAUNCHER = "/tmp/own"\ncommit = "0123')
CACHE = 'context = 4096\nflags.slot-save-path = "/srv/slots"\n'


def test_a_launcher_in_a_catalogue_is_refused_with_where_it_stands_and_what_is_allowed(box: OperatorFolder) -> None:
    write_catalogue(box, *OPTIONS)
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.startswith(
        f"{box.inventory}: box.instances.chat.variant: llamacpp/cpu: "
        "options.CMAKE_CXX_COMPILER_LAUNCHER = '/tmp/own' may name a program or a file to CMake"
    )
    assert line.endswith('an inventory can allow it: "allow": ["options.CMAKE_CXX_COMPILER_LAUNCHER"]')


def test_a_flag_that_names_a_folder_is_refused_and_the_inventory_can_allow_it(box: OperatorFolder) -> None:
    write_catalogue(box, "context = 4096\n", CACHE)
    (line,) = box.refusal_lines(instances=chat_instances())
    assert "llamacpp/cpu: flags.slot-save-path = '/srv/slots' makes llama-server open" in line
    assert line.endswith('"allow": ["flags.slot-save-path"]')
    rig = {"mirrors": MIRRORS, "instances": chat_instances(), "allow": ["flags.slot-save-path"]}
    assert len(box.load_group({"box": rig})) == 1


def test_an_unused_permission_is_refused_with_the_nearest_name(box: OperatorFolder) -> None:
    write_catalogue(box, "context = 4096\n", CACHE)
    first, second = sorted(box.refusal_lines(instances=chat_instances(), allow=["flags.slot-save-pth"]))
    assert 'allow[0]: "flags.slot-save-pth" is not used by any variant' in first
    assert 'did you mean "flags.slot-save-path"?' in first
    assert "instances.chat.variant" in second


def test_options_of_the_rigs_own_keys_cannot_be_allowed(box: OperatorFolder) -> None:
    write_catalogue(box, "context = 4096\n", 'context = 4096\nflags.ssl-key-file = "/x"\n')
    assert "is not allowed in flags: other keys set ssl-key-file" in "\n".join(
        box.refusal_lines(instances=chat_instances(), allow=["flags.ssl-key-file"])
    )


@pytest.mark.parametrize("key", ["slot-save-path", "flags.", "flags.a b", "../x", 5])
def test_a_key_that_is_invalid_is_refused(box: OperatorFolder, key: object) -> None:
    assert any("allow[0]" in line for line in box.refusal_lines(instances=chat_instances(), allow=[key]))
