"""Which files of a model vLLM reads: a checkpoint's folder, and what goes with it."""

from __future__ import annotations

from rigwright.model.catalog_schema import MissingModelFile, ModelKeys, ModelSelection
from rigwright.model.instance import ModelPart
from rigwright.supply.artefact import CONFIG, Artefact
from rigwright.weights.checkpoint import Checkpoint, parse_checkpoint

# How a reader tells parts apart; only the last is an option of its own.
MODEL, DRAFT, TEMPLATE = "model", "draft", "chat-template"


def find_checkpoint_parts(model: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
    """The files of a model, its own weights first.

    Raises:
        MissingModelFile: with every key that stands for nothing, a line each.
    """
    if model.folder is None:
        raise MissingModelFile(
            f"vLLM loads safetensors folders: select an input with folder instead of the file {model.file}"
        )
    found: list[ModelPart] = []
    wrong: list[str] = []
    for option, reference in ((MODEL, model.folder), (DRAFT, model.draft)):
        if reference:
            try:
                found.append(_find_folder(option, reference, selection))
            except MissingModelFile as error:
                wrong.append(str(error))
    if model.chat_template:
        try:
            found.append(ModelPart(TEMPLATE, (_find_template(model.folder, model.chat_template, selection),)))
        except MissingModelFile as error:
            wrong.append(str(error))
    if wrong:
        raise MissingModelFile("\n".join(wrong))
    return tuple(found)


def _find_folder(option: str, name: str, selection: ModelSelection) -> ModelPart:
    rows = selection.folder(name)
    if not selection.lenient:
        parse_checkpoint(rows, tokenizer=option == MODEL)
    return ModelPart(option, rows)


def _find_template(own: str, reference: str, selection: ModelSelection) -> Artefact:
    among = selection.candidates(reference)
    if among.name != own and CONFIG in among.by_path:
        raise MissingModelFile(f"{reference} is another model's template: select one of {own}, or your own file")
    if among.path:
        return among.find(among.path)
    choices = [path for path in among.by_path if path.endswith(".jinja")] or list(among.by_path)
    if len(choices) != 1:
        raise MissingModelFile(
            f"{among.name} has {len(choices)} files for chat_template: select one as {among.name}:PATH"
        )
    return among.find(choices[0])


def find_checkpoint(parts_: tuple[ModelPart, ...], option: str = MODEL) -> Checkpoint | None:
    """One of a model's checkpoints, as it was found whole.

    Args:
        parts_: The files of the model.
        option: Which.
    """
    found = next((part for part in parts_ if part.option == option), None)
    return parse_checkpoint(found.files, tokenizer=option == MODEL) if found else None
