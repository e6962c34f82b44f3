"""Models of many files: which locked files their keys stand for, and the message about a lock with other files."""

from typing import Any

import pytest
from pydantic import ValidationError

from rigwright.engines.llama_cpp.model_files import find_gguf_parts
from rigwright.model.catalog_schema import MissingModelFile, ModelKeys, ModelSelection
from rigwright.model.lock_coverage import describe_mismatch, describe_uncovered
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.lock_inputs import Input
from tests.unit.samples import COMMIT

INPUT = Input(kind="weight", repository="owner/qwen", include=("*",), sources=("office:qwen",))
SPLIT = [f"big/qwen-q8-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


def row(path: str, **changes: Any) -> Artefact:
    folder, _, file = path.rpartition("/")
    value = {
        "kind": "weight",
        "name": "qwen",
        "group": "qwen",
        "version": COMMIT,
        "repository": "owner/qwen",
        "folder": folder or None,
        "selection": INPUT.selection,
        "file": file,
        "sha256": "a" * 64,
        "size": 1,
        "sources": INPUT.sources_of(path),
    }
    return Artefact.model_validate(value | changes)


def find_parts(paths: list[str], lenient: bool = False, **model: str) -> dict[str, list[str]]:
    lock = Lock({}, {"qwen": tuple(row(path) for path in paths)})
    selection = ModelSelection({"qwen": INPUT}, lock, "rig.py", lenient)
    made = find_gguf_parts(ModelKeys.model_validate({"file": "qwen"} | model), selection)
    return {part.option: [file.path for file in part.files] for part in made}


MEANT = {
    "the only file": (["q4.gguf"], {}, {"model": ["q4.gguf"]}),
    "the only one that is no projector": (
        ["mmproj-f16.gguf", "q4.gguf", "config.json"],
        {"mmproj": "qwen"},
        {"model": ["q4.gguf"], "mmproj": ["mmproj-f16.gguf"]},
    ),
    "a file by its path": (["q4.gguf", "q8.gguf"], {"file": "qwen:q8.gguf"}, {"model": ["q8.gguf"]}),
    "a model in parts": ([*SPLIT, "mmproj.gguf"], {}, {"model": SPLIT}),
    "a model in parts by the path of one": ([*SPLIT, "q4.gguf"], {"file": f"qwen:{SPLIT[1]}"}, {"model": SPLIT}),
    "a draft and a template": (
        ["q4.gguf", "small/draft.gguf", "chat.jinja"],
        {"file": "qwen:q4.gguf", "draft": "qwen:small/draft.gguf", "chat_template": "qwen"},
        {"model": ["q4.gguf"], "spec-draft-model": ["small/draft.gguf"], "chat-template-file": ["chat.jinja"]},
    ),
}


@pytest.mark.parametrize(("paths", "model", "expected"), MEANT.values(), ids=MEANT)
def test_files_of_a_models_keys(paths: list[str], model: dict[str, str], expected: dict[str, list[str]]) -> None:
    assert find_parts(paths, **model) == expected


REFUSED = {
    "two that could be": (["q4.gguf", "q8.gguf"], {}, ["2 files for file", "qwen:PATH, of q4.gguf, q8.gguf"]),
    "none that could be": (["config.json", "x.txt"], {}, ["no files for file", "config.json"]),
    "no projector": (["q4.gguf", "x.json"], {"mmproj": "qwen"}, ["no files for mmproj"]),
    "a path with a mistake": (["q4.gguf"], {"file": "qwen:q5.gguf"}, ['"q5.gguf"', 'did you mean "q4.gguf"']),
    "a part that is missing": ([SPLIT[0], SPLIT[2]], {}, [SPLIT[1], "is not locked", "one of 3 parts"]),
    "an input with a mistake": (["q4.gguf"], {"file": "qwem"}, ['"qwem"', 'did you mean "qwen"']),
    "what is no GGUF": (["q4.bin", "x.jinja"], {"file": "qwen:q4.bin"}, ["q4.bin has no GGUF file name"]),
    "two at once": (["q4.gguf"], {"file": "qwem", "draft": "qwen:x.gguf"}, ['"qwem"', '"x.gguf"']),
}


@pytest.mark.parametrize(("paths", "model", "said"), REFUSED.values(), ids=REFUSED)
def test_a_key_that_stands_for_nothing_is_refused(paths: list[str], model: dict[str, str], said: list[str]) -> None:
    with pytest.raises(MissingModelFile) as error:
        find_parts(paths, **model)
    assert [text for text in said if text not in str(error.value)] == []


def test_any_file_will_do_while_the_lock_is_being_made() -> None:
    assert find_parts(["qwen"], lenient=True, file="qwen:q8.gguf", mmproj="qwen:eye.gguf") == {
        "model": ["qwen"],
        "mmproj": ["qwen"],
    }


def test_where_a_file_lies() -> None:
    assert row("a/b/q4.gguf").weight_path == f"owner/qwen/{COMMIT}/a/b/q4.gguf"
    own = row("q4.gguf", repository=None, version="2026-11")
    assert own.weight_path == "qwen/2026-11/q4.gguf"


OTHERWISE: dict[str, tuple[dict[str, Any], str]] = {
    "another repository": ({"repository": "owner/other"}, "from owner/other, not owner/qwen"),
    "other sources": ({"sources": ("hub:owner/qwen",)}, "with sources hub:owner/qwen, not"),
    "other patterns": ({"selection": "0" * 12}, "different include and exclude patterns"),
}


@pytest.mark.parametrize(("change", "said"), OTHERWISE.values(), ids=OTHERWISE)
def test_rows_that_differ_are_reported(change: dict[str, Any], said: str) -> None:
    assert describe_mismatch(INPUT, [row("q4.gguf")]) == ""
    assert said in describe_mismatch(INPUT, [row("a.gguf"), row("q4.gguf", **change)])


def test_another_revision_is_another_wish_and_a_commit_is_held_to() -> None:
    exact = INPUT.model_copy(update={"version": COMMIT})
    assert "with a different version" in describe_mismatch(exact, [row("q4.gguf")])
    assert describe_mismatch(exact, [row("q4.gguf", selection=exact.selection)]) == ""
    said = describe_mismatch(exact, [row("q4.gguf", selection=exact.selection, version="b" * 40)])
    assert said == f"is locked with version {'b' * 40}, not {COMMIT}"


def test_a_repository_is_no_single_file_and_the_other_way_round() -> None:
    single = Input(kind="weight", version=COMMIT, sources=("office:q4.gguf",))
    assert "as 2 files, not one" in describe_mismatch(single, [row("a.gguf"), row("b.gguf")])
    assert describe_uncovered("qwen", "weight", {"qwen": INPUT}, Lock({}), "rig.py") == (
        "qwen is not locked: run `rigwright lock rig.py`"
    )


PATTERNS = [
    ((), (), "any/thing.bin", True),
    (("*.gguf",), (), "deep/q4.gguf", True),
    (("*.gguf",), ("*q8*",), "q8.gguf", False),
    (("UD-Q4/",), (), "UD-Q4/x.gguf", True),
    (("UD-Q4/",), (), "UD-Q5/x.gguf", False),
    (("*.GGUF",), (), "q4.gguf", False),
]


@pytest.mark.parametrize(("include", "exclude", "path", "wanted"), PATTERNS)
def test_patterns_mean_what_they_mean_to_the_hubs_client(
    include: tuple[str, ...], exclude: tuple[str, ...], path: str, wanted: bool
) -> None:
    from huggingface_hub.utils import filter_repo_objects

    made = Input(kind="weight", repository="a/b", include=include, exclude=exclude)
    assert made.selects(path) is wanted
    theirs = filter_repo_objects([path], allow_patterns=list(include) or None, ignore_patterns=list(exclude) or None)
    assert (list(theirs) == [path]) is wanted


BAD: dict[str, dict[str, Any]] = {
    "no owner": {"repository": "qwen"},
    "a way out": {"repository": "a/.."},
    "two owners": {"repository": "a/b/c"},
    "an index": {"repository": "a/b", "sources": ("index:x",)},
    "a file": {"repository": "a/b", "file": "x"},
    "another kind": {"kind": "source", "repository": "a/b"},
    "no source of one's own": {"version": "1", "include": ("*",)},
    "no version of one's own": {"include": ("*",), "sources": ("office:x",)},
    "a version with a folder": {"include": ("*",), "version": "a/b", "sources": ("office:x",)},
    "a pattern with a space": {"repository": "a/b", "include": ("a b",)},
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_an_invalid_input_of_many_files_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Input.model_validate({"kind": "weight"} | value)


@pytest.mark.parametrize("key", ["repository", "folder", "selection", "licence"])
def test_only_weights_have_what_weights_have(key: str) -> None:
    value = row("a/q4.gguf", licence="apache-2.0").model_dump()
    others = {"repository": None, "folder": None, "selection": None, "licence": None, key: value[key]}
    with pytest.raises(ValidationError, match="only kind weight"):
        Artefact.model_validate(value | {"kind": "source"} | others)
