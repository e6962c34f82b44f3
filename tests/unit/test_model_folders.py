"""Models that are folders: how a catalogue says it, which files that stands for, and their config.json in a lock."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_cpp.model_files import find_gguf_parts
from rigwright.model.catalog_schema import MissingModelFile, ModelKeys, ModelSelection
from rigwright.problems import Invalid
from rigwright.supply.lock import Artefact, Lock, render_lock
from rigwright.supply.lock_inputs import Input
from rigwright.weights.checkpoint import parse_checkpoint
from tests.lock_files import reseal_text
from tests.unit.checkpoints import CHECKPOINT_PATHS, INPUT, QWEN3, checkpoint_row, checkpoint_rows

SINGLE = Input(kind="weight", version="1", sources=("office:a.gguf",))


def selection(paths: tuple[str, ...] = CHECKPOINT_PATHS, lenient: bool = False) -> ModelSelection:
    single = SINGLE.provisional("single")
    return ModelSelection(
        {"big": INPUT, "single": SINGLE},
        Lock({"single": single}, {"big": tuple(checkpoint_rows(paths))}),
        "rig.py",
        lenient,
    )


REFUSED: dict[str, tuple[str, str]] = {
    "neither": ('draft = "x"', "models.m: {'draft': 'x'} is refused: must be given file or folder"),
    "both": (
        'file = "x"\nfolder = "y"',
        "models.m.folder: 'y' is refused: must be omitted: a model has either file or",
    ),
    "a path": ('folder = "x:y"', "models.m.folder: 'x:y' is refused: must be letters, digits, dots and dashes"),
    "a projector": (
        'folder = "x"\nmmproj = "x"',
        "models.m.mmproj: 'x' is refused: must be omitted: a folder contains",
    ),
    "a file to guess": ('folder = "x"\ndraft = "x:y"', "models.m.draft: 'x:y' is refused: must be an input without a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_is_a_file_or_a_folder(tmp_path: Path, case: str) -> None:
    keys, said = REFUSED[case]
    (tmp_path / "a.toml").write_text(f"[models.m]\n{keys}\n")
    with pytest.raises(Invalid) as error:
        load_catalog([tmp_path])
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{tmp_path / 'a.toml'}: {said}")


def test_a_folder_with_a_draft_and_a_template_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[models.m]\nfolder = "big"\ndraft = "small"\nchat_template = "big:chat.jinja"\n')
    model = load_catalog([tmp_path]).models["m"]
    assert (model.file, model.folder, model.draft, model.chat_template) == (None, "big", "small", "big:chat.jinja")


def test_a_folder_stands_for_all_files_of_an_input() -> None:
    found = selection(("a.json", "sub/x.json", "model.safetensors", "config.json")).folder("big")
    assert [one.path for one in found] == ["config.json", "a.json", "model.safetensors", "sub/x.json"]


def test_other_objects_than_folders_are_refused() -> None:
    with pytest.raises(MissingModelFile, match="single is a single file, not a folder"):
        selection().folder("single")
    with pytest.raises(MissingModelFile, match=r'there is no locked weight "bog".*did you mean "big"'):
        selection().folder("bog")


def test_any_row_stands_for_a_folder_while_the_lock_is_being_made() -> None:
    made = ModelSelection({}, Lock({}, {"big": (INPUT.provisional("big"),)}), "rig.py", lenient=True)
    assert [one.file for one in made.folder("big")] == ["big"]


@pytest.mark.parametrize("lenient", [False, True])
def test_llama_cpp_takes_no_folder(lenient: bool) -> None:
    with pytest.raises(MissingModelFile) as error:
        find_gguf_parts(ModelKeys(folder="big"), selection(lenient=lenient))
    assert str(error.value) == "llama.cpp loads GGUF files: select one of big with file instead of the folder"


CONTENTS = [
    '{"architectures": ["Qwen3ForCausalLM"]}\n',
    '{\r\n\t"a": "\\n \\u00e9 \\ud83d\\ude00 \\\\ud83d"\r\n}',
    '{"é": "\U0001f600", "\u2028": "\u00a0"}',
    "\x00\x01\x1f\x7f\x80\x9f\u200e\ufeff\ufffe\U0010ffff",
    "'''\"\"\"\\\\ # [[artefact]]\n= 1",
    '"' + "\\" * 7,
    "x" * (64 << 10),
]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_config_comes_back_from_a_lock_as_it_was(tmp_path: Path, content: str) -> None:
    one = checkpoint_row("config.json", content)
    (tmp_path / "a.lock.toml").write_text(render_lock([one], "catalog/a.toml"), encoding="utf-8")
    assert Lock.load([tmp_path]).groups["big"] == (one,)


def test_other_texts_are_written_as_before() -> None:
    one = checkpoint_row("model.safetensors", licence="Lizenz für Modelle")
    assert 'licence = "Lizenz f\\u00fcr Modelle"' in render_lock([one], "catalog/a.toml").splitlines()


def test_facts_of_a_lock_reach_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a.lock.toml").write_text(render_lock(checkpoint_rows(), "catalog/a.toml"), encoding="utf-8")
    assert parse_checkpoint(Lock.load([tmp_path]).groups["big"]).config == QWEN3


def test_a_config_that_was_changed_by_hand_is_refused_though_the_lock_was_sealed_anew(tmp_path: Path) -> None:
    written = render_lock([checkpoint_row("config.json", '{"a": 1}')], "catalog/a.toml")
    (tmp_path / "a.lock.toml").write_text(reseal_text(written.replace('{\\"a\\": 1}', '{\\"a\\": 2}')))
    with pytest.raises(Invalid) as error:
        Lock.load([tmp_path])
    (line,) = str(error.value).splitlines()
    said = "'{\"a\": 2}' is refused: must be the file with the row's sha256 and size: one of them was changed"
    assert line.endswith(f"artefact[0].text: {said}")


OTHERS: dict[str, dict[str, object]] = {
    "another file": {"file": "generation_config.json"},
    "deeper": {"folder": "sub"},
    "no folder's": {"group": None},
    "another size": {"size": 9},
    "too long": {"text": "x" * ((64 << 10) + 1)},
    "of another kind": {"kind": "source", "repository": None, "folder": None, "selection": None},
}


@pytest.mark.parametrize("case", OTHERS)
def test_no_other_row_has_a_text(case: str) -> None:
    with pytest.raises(ValidationError, match="text"):
        Artefact.model_validate(checkpoint_row("config.json", "{}").model_dump() | OTHERS[case])
