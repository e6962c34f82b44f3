"""A small patch as it lies in a folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

from rigwright.patches.patch import Patch, PatchKeys, load_patch
from rigwright.toml import tomllib

BEFORE = 'WORDS = "hello"\n'
AFTER = 'WORDS = "HELLO"\n'
DIFF = """\
--- a/demo/words.py
+++ b/demo/words.py
@@ -1 +1 @@
-WORDS = "hello"
+WORDS = "HELLO"
"""


def text_sha256(text: str) -> str:
    """Of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def patch_header(**changes: Any) -> str:
    """The text of a patch.toml; None leaves a key out."""
    keys: dict[str, Any] = {
        "target_distribution": "demo",
        "versions": ["1.0"],
        "purpose": "to be heard",
        "source": "written here",
        "licence": "Apache-2.0",
        "obsolete_when": "demo 2.0",
        "diff": "change.diff",
        "targets": [{"path": "demo/words.py", "before": text_sha256(BEFORE), "after": text_sha256(AFTER)}],
    }
    keys |= changes
    targets = keys.pop("targets")
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None]
    for target in targets:
        lines += [
            "[[targets]]",
            *(f"{key} = {json.dumps(value)}" for key, value in target.items() if value is not None),
        ]
    return "\n".join(lines) + "\n"


def write_patch(folder: Path, files: dict[str, str] | None = None, **changes: Any) -> Path:
    """Write a patch.

    Args:
        folder: Its own, whose name is its name.
        files: Beside its head and its diff.
        **changes: Keys of the head.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "patch.toml").write_text(patch_header(**changes))
    for name, text in ({"change.diff": DIFF} | (files or {})).items():
        (folder / name).write_bytes(text.encode())
    return folder


def sample_patch(of: str = "demo") -> Patch:
    """One that lies in no folder."""
    return Patch(
        "louder",
        PatchKeys.model_validate(tomllib.loads(patch_header(target_distribution=of))),
        "/patches/louder/patch.toml",
        DIFF,
    )


def read_patch(folder: Path, name: str = "louder", **changes: Any) -> Patch:
    """A patch as it is read.

    Args:
        folder: Where it is written first.
        name: Its name.
        **changes: Keys of the head, and `files` of `write`.
    """
    return load_patch(write_patch(folder / name, **changes))
