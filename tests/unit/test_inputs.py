"""Inputs: a catalogue's requests, and the rig that is refused while the lock does not have it."""

import pytest
from pydantic import ValidationError

from rigwright.inventory import load_for, load_rig
from rigwright.model.instance import loaded_weights
from rigwright.model.lock_coverage import describe_mismatch
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from tests.lock_files import render_sealed_lock
from tests.unit.sample_texts import CATALOG, LOCK, SOURCE_ROW
from tests.unit.samples import (
    OperatorFolder,
    archive_key,
    chat_instances,
    sample_artefact,
    sample_deb,
    sample_entry,
    sample_wheel,
)

WEIGHT = {"kind": "weight", "version": "1", "sources": ["store:a/small.gguf"]}
SOURCE = {"kind": "source", "version": "0.3.36", "sources": ["index:project"]}
TOOLS = {"kind": "wheel", "requirements": ["tool>=1"]}
DRIVER = {"kind": "deb", "version": "595.91.07", "sources": ["nvidia:debian13/x86_64"]}

DRIVER_ROWS = [sample_deb(), sample_deb("nvidia-driver-pinning-595", "595-1"), archive_key()]


def parse_input(data: dict[str, object], **changes: object) -> Input:
    return Input.model_validate({key: value for key, value in (data | changes).items() if value is not None})


@pytest.mark.parametrize(
    ("data", "changes", "text"),
    [
        (WEIGHT, {"version": None}, "a weight: version and sources"),
        (WEIGHT, {"sources": None}, "a weight: version and sources"),
        (WEIGHT, {"sources": []}, "a weight: version and sources"),
        (WEIGHT, {"requirements": ["a"]}, "a weight: version and sources, no requirements"),
        (WEIGHT, {"sources": ["index:project"]}, "the index has sources and wheels, no weight"),
        (WEIGHT, {"sources": ["https://h/a/"]}, "the source's path does not end in a file name"),
        (WEIGHT, {"sources": ["https://h/?file=a.gguf"]}, "the source's path does not end in a file name"),
        (WEIGHT, {"sources": ["../a"]}, "index:PROJECT, MIRROR:PATH or"),
        (WEIGHT, {"file": "../a"}, "a file name"),
        (WEIGHT, {"version": "a b"}, "letters, digits"),
        (WEIGHT, {"kind": "weights"}, "'source', 'wheel'"),
        (WEIGHT, {"sha256": "a" * 64}, "Extra inputs"),
        (SOURCE, {"version": "latest"}, "an exact version of the index, such as 0.3.36, not latest"),
        (SOURCE, {"version": ">=0.3"}, "letters, digits"),
        (TOOLS, {"requirements": None}, "an environment: requirements, and at most python"),
        (TOOLS, {"requirements": []}, "an environment"),
        (TOOLS, {"version": "1"}, "an environment"),
        (TOOLS, {"file": "a.whl"}, "an environment"),
        (TOOLS, {"sources": ["index:tool"]}, "an environment"),
        *((TOOLS, {"requirements": [text]}, "Python requirement") for text in ("-r x", "a @ http://h/a", "a b")),
        (TOOLS, {"requirements": ["--index-url=http://h"]}, "Python requirement"),
        (TOOLS, {"requirements": ["a\n--pre"]}, "on one line"),
        (DRIVER, {"version": None}, "packages of an archive: only version and sources"),
        (DRIVER, {"sources": None}, "packages of an archive: only version and sources"),
        (DRIVER, {"file": "a.deb"}, "packages of an archive: only version and sources"),
        (DRIVER, {"requirements": ["a"]}, "packages of an archive: only version and sources"),
        (DRIVER, {"version": "595"}, "with a driver's own version, such as 595.91.07, not 595"),
        (DRIVER, {"version": "595.91.07-1"}, "with a driver's own version, such as 595.91.07, not 595.91.07-1"),
        (
            DRIVER,
            {"sources": ["https://h/a/"]},
            "from one archive, nvidia:FOLDER, apt:COMPONENT, container-toolkit:FOLDER or docker:FOLDER, not "
            "https://h/a/",
        ),
        (DRIVER, {"sources": ["nvidia:a", "nvidia:b"]}, "from one archive, nvidia:FOLDER, apt:COMPONENT"),
        (DRIVER, {"sources": ["apt:a/b"]}, "from one archive, nvidia:FOLDER, apt:COMPONENT"),
        (DRIVER, {"version": "1", "sources": ["store:a"]}, "such as 595.91.07, not 1; from one archive"),
    ],
)
def test_an_invalid_input_is_refused(data: dict[str, object], changes: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_input(data, **changes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("sources", "file"),
    [
        (["store:small.gguf"], "small.gguf"),
        (["store:a/b/small.gguf"], "small.gguf"),
        (["https://h/a/small.gguf?download=true"], "small.gguf"),
        (["https://h/first.gguf", "store:second.gguf"], "first.gguf"),
    ],
)
def test_a_file_is_called_what_its_first_source_calls_it(sources: list[str], file: str) -> None:
    assert parse_input(WEIGHT, sources=sources).file_name == file
    assert parse_input(WEIGHT, sources=sources, file="other.gguf").file_name == "other.gguf"


def test_only_the_index_knows_what_its_file_is_called() -> None:
    assert parse_input(SOURCE).file_name is None


@pytest.mark.parametrize(
    ("data", "rows", "text"),
    [
        (WEIGHT, [], "is not locked"),
        (WEIGHT, [{}], ""),
        (WEIGHT, [{"version": "2"}], "is locked with version 2, not 1"),
        (WEIGHT, [{"kind": "source"}], "is locked with kind source, not weight"),
        (WEIGHT, [{"file": "x.gguf"}], "is locked with file x.gguf, not small.gguf"),
        (WEIGHT, [{"sources": ["store:a", "store:b"]}], "is locked with sources store:a, store:b, not store:a/small.g"),
        (SOURCE, [{"kind": "source", "version": "0.3.36", "sources": ["index:project"], "file": "any.tar.gz"}], ""),
        (TOOLS, [], "is not locked"),
        (TOOLS, [sample_wheel()], ""),
        (TOOLS, [sample_wheel("other")], "is locked without tool>=1"),
        (TOOLS, [sample_wheel(version="0.9")], "is locked without tool>=1"),
        (
            TOOLS | {"requirements": ["Tool", "a_b", "c ; sys_platform == 'win32'"]},
            [sample_wheel()],
            "is locked without a_b",
        ),
        (TOOLS | {"requirements": ["a_B[x]==1.0"]}, [sample_wheel("a-b")], ""),
        (DRIVER, [], "is not locked"),
        (DRIVER, DRIVER_ROWS, ""),
        (DRIVER, DRIVER_ROWS[:2], "is locked without its archive's key"),
        (DRIVER | {"version": "595.99"}, DRIVER_ROWS, "is locked with version 595.91.07, not 595.99"),
        (DRIVER, [*DRIVER_ROWS, sample_deb("libcuda1", "595.99-1")], "is locked with no version, not 595.91.07"),
        (DRIVER | {"sources": ["apt:main"]}, DRIVER_ROWS, "is locked with sources nvidia:debian13/x86_64/libcuda1"),
        (DRIVER | {"sources": ["nvidia:debian13"]}, DRIVER_ROWS, ""),
        (DRIVER | {"sources": ["nvidia:debian"]}, DRIVER_ROWS, "is locked with sources nvidia:debian13/x86_64/libcu"),
        (DRIVER | {"sources": ["apt:main"]}, [sample_deb(sources=["apt:pool/main/libcuda1.deb"])], ""),
    ],
)
def test_a_lock_is_compared_with_what_is_asked_for(data: dict[str, object], rows: list[object], text: str) -> None:
    held = [
        row
        if isinstance(row, Artefact)
        else sample_artefact(**{"version": "1", "file": "small.gguf", "sources": ["store:a/small.gguf"], **row})  # type: ignore[dict-item]
        for row in rows
    ]
    said = describe_mismatch(parse_input(data), held)
    assert said.startswith(text) and bool(said) == bool(text)


INPUT = f"""
[inputs.small]
kind = "weight"
version = "{"0123456789abcdef01234567" + "89abcdef01234567"}"
sources = ["store:small-q4.gguf"]
"""


def test_a_rig_is_what_its_catalogue_asks_for_and_its_lock_has(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG + INPUT)
    assert len(box.load_group({"box": sample_entry()})) == 1


@pytest.mark.parametrize(
    ("catalog", "lock", "text"),
    [
        (INPUT.replace("89abcdef01234567", "f" * 16), LOCK, "small is locked with version 0123456789abcdef0123456789"),
        (INPUT, render_sealed_lock(SOURCE_ROW), "small is not locked"),
        (INPUT.replace("store:small", "other:small"), LOCK, "small is locked with sources store:small-q4.gguf"),
        (INPUT + 'file = "b.gguf"\n', LOCK, "small is locked with file small-q4.gguf, not b.gguf"),
    ],
)
def test_a_rig_whose_inputs_are_not_locked_is_refused(box: OperatorFolder, catalog: str, lock: str, text: str) -> None:
    box.write("catalog/box.toml", CATALOG + catalog)
    box.write("locks/box.lock.toml", lock)
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.startswith(f"{box.inventory}: box.instances.chat.variant: llamacpp/cpu: {text}")
    assert line.endswith(f": run `rigwright lock {box.inventory}`")


def test_an_input_of_another_kind_is_refused(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG + '[inputs.small]\nkind = "wheel"\nrequirements = ["a"]\n')
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.endswith("llamacpp/cpu: the catalogue's input small is a wheel, not a weight")


def test_other_files_are_not_offered_as_weights(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG.replace('[models.small]\nfile = "small"', '[models.small]\nfile = "smal"'))
    (line,) = box.refusal_lines(instances=chat_instances())
    assert 'there is no locked weight "smal"; did you mean "small"?; allowed: ' in line
    assert "engine-source" not in line


def test_an_input_that_no_instance_uses_may_wait(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG + INPUT.replace("inputs.small", "inputs.later"))
    assert len(box.load_group({"box": sample_entry()})) == 1


def test_tools_of_the_boxs_own_are_locked_too(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG + '[inputs.tools]\nkind = "wheel"\nrequirements = ["no-such-tool"]\n')
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.startswith(f"{box.inventory}: box.tools: tools is locked without no-such-tool: run `rigwright lock ")


def test_for_locking_a_rig_is_refused_all_but_the_lock(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG + INPUT.replace("0123", "ffff"))
    box.write("locks/box.lock.toml", render_sealed_lock(SOURCE_ROW))
    with load_for("lock"):
        ((_, data),) = box.load_group({"box": sample_entry()})
        assert loaded_weights(load_rig(data["rig"]).instances)[0].file == "small-q4.gguf"
        with pytest.raises(SystemExit) as ended:
            box.load_group({"box": sample_entry(mirrors={}, cards=["turin", "ampere"])})
    assert 'there is no card "turin"' in str(ended.value.code)
    assert "has no address" in str(ended.value.code)
    assert len(box.refusal_lines(instances=chat_instances())) == 1


def test_for_locking_a_lock_that_cannot_be_read_is_as_none(box: OperatorFolder) -> None:
    asked = INPUT + '[inputs.engine-source]\nkind = "source"\nversion = "1.0"\nsources = ["index:engine"]\n'
    box.write("catalog/box.toml", CATALOG + asked)
    box.write("locks/box.lock.toml", "half a lo")
    with load_for("lock"):
        assert len(box.load_group({"box": sample_entry()})) == 1
    assert any("cannot be read" in line for line in box.refusal_lines())
