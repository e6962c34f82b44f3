"""The demo's lock with the header of its model, which `lock` writes for a model that it can read."""

from pathlib import Path

from rigwright.project_root import ROOT
from rigwright.supply.artefact import GgufMetadata, KvCacheSize, WorkSize
from rigwright.supply.lock import load_lock_file, render_lock

HEADER = GgufMetadata(
    architecture="llama",
    off_card=86016,
    cache=KvCacheSize(keys=128, values=128),
    work=WorkSize(width=128, feed_forward=256, heads=4),
)


def write_lock_with_header(folder: Path) -> None:
    """Write it next to an inventory in the folder."""
    rows = load_lock_file(ROOT / "locks/demo.lock.toml")
    made = [row.model_copy(update={"header": HEADER}) if row.kind == "weight" else row for row in rows]
    (folder / "locks").mkdir()
    (folder / "locks/demo.lock.toml").write_text(render_lock(made, "catalog/demo.toml"))
