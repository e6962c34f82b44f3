"""Which files of a model llama-server reads: GGUF, in one file or in parts, and what goes with it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rigwright.model.catalog_schema import FileCandidates, MissingModelFile, ModelKeys, ModelSelection
from rigwright.model.instance import ModelPart
from rigwright.supply.lock import Artefact

# Key of a model -> the option of llama-server that takes its file (llama-server --help).
OPTIONS = {"file": "model", "mmproj": "mmproj", "draft": "spec-draft-model", "chat_template": "chat-template-file"}
# How llama.cpp names the parts of a model that was split, and finds the rest by the first (src/llama.cpp,
# llama_split_path).
SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
GGUF = ".gguf"
# The names of vision projectors where GGUF files are published.
PROJECTOR = "mmproj"


def find_gguf_parts(model: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
    """The files of a model, its own weights first.

    Raises:
        MissingModelFile: with every key that stands for nothing, a line each.
    """
    if model.folder is not None:
        raise MissingModelFile(
            f"llama.cpp loads GGUF files: select one of {model.folder} with file instead of the folder"
        )
    found, wrong = [], []
    for key, option in OPTIONS.items():
        if reference := getattr(model, key):
            try:
                chosen = find_files(key, selection.candidates(reference))
            except MissingModelFile as error:
                wrong.append(str(error))
                continue
            # a locked file of such a name was compared with its header
            if key != "chat_template" and not selection.lenient and not chosen[0].path.endswith(GGUF):
                wrong.append(f"{key}: {chosen[0].path} has no GGUF file name, and llama.cpp loads only GGUF files")
            found.append(ModelPart(option, chosen))
    if wrong:
        raise MissingModelFile("\n".join(wrong))
    return tuple(found)


def find_files(key: str, among: FileCandidates) -> tuple[Artefact, ...]:
    """The files that one key of a model stands for, beginning with the one on the engine's command line.

    Raises:
        MissingModelFile: it stands for nothing, or not for one thing.
    """
    path = among.path or _find_only_path(key, among.name, among.by_path)
    chosen = among.find(path)
    split = SPLIT.fullmatch(path)
    if not split:
        return (chosen,)
    stem, count = split["stem"], int(split["count"])
    names = [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    if missing := [one for one in names if one not in among.by_path]:
        raise MissingModelFile(
            f"{among.name}: {path} is one of {count} parts, but {', '.join(missing)} is not locked: include it"
        )
    return tuple(among.by_path[one] for one in names)


def _find_only_path(key: str, name: str, by_path: Mapping[str, Artefact]) -> str:
    """The path that a key without one means."""
    if len(by_path) == 1:
        return next(iter(by_path))
    choices = [path for path in by_path if path.endswith(".jinja" if key == "chat_template" else GGUF)]
    if key != "chat_template":
        projecting = key == PROJECTOR
        choices = [path for path in choices if path.rpartition("/")[2].startswith(PROJECTOR) == projecting]
    # the parts of one model are one choice
    whole = sorted({SPLIT.sub(r"\g<stem>-00001-of-\g<count>.gguf", path) for path in choices})
    if len(whole) == 1:
        return whole[0]
    listed = ", ".join(whole or sorted(by_path))
    raise MissingModelFile(f"{name} has {len(whole) or 'no'} files for {key}: select one as {name}:PATH, of {listed}")
