"""The lower folders of an overlay, found by the inode numbers in it."""

import os
import shutil
from pathlib import Path

import pytest

from checks.survey.host import overlayfs_layers


class OverlayFolder:
    """Layers, and hard links in place of what shows them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.top = folder, folder / "top"
        self.layers = [str(folder / name) for name in ("upper", "middle", "lower")]
        for path in ("upper/a", "upper/etc/one", "middle/etc/one", "middle/etc/two", "lower/etc/two", "lower/usr/b"):
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(path)
        (folder / "upper/gone").symlink_to("/nowhere")
        (folder / "lower/gone").mkdir()
        (folder / "lower/gone/file").touch()
        for layer in reversed(self.layers):
            shutil.copytree(
                layer, self.top, copy_function=self._show, symlinks=True, dirs_exist_ok=True, ignore=_vanished_entries
            )

    def _show(self, source: str, target: str) -> None:
        Path(target).unlink(missing_ok=True)
        os.link(source, target)

    def shown_path(self, *covered: str) -> list[str]:
        return overlayfs_layers.shown(str(self.top), self.layers, {*covered})


def _vanished_entries(folder: str, names: list[str]) -> list[str]:
    return ["gone"] if folder.endswith("lower") else []


@pytest.fixture
def overlay(tmp_path: Path) -> OverlayFolder:
    return OverlayFolder(tmp_path)


def test_layers_that_are_shown_are_reported_in_their_order(overlay: OverlayFolder) -> None:
    assert overlay.shown_path() == overlay.layers


@pytest.mark.parametrize("number", [0, 1, 2])
def test_another_layer_in_the_place_of_one_is_seen(overlay: OverlayFolder, number: int) -> None:
    layer = Path(overlay.layers[number])
    shutil.copytree(layer, overlay.folder / "copy", symlinks=True)
    shutil.rmtree(layer)
    (overlay.folder / "copy").rename(layer)
    found = overlay.shown_path()
    assert found[number] == f"something else than {layer}"
    assert [*found[:number], *found[number + 1 :]] == [*overlay.layers[:number], *overlay.layers[number + 1 :]]


def test_a_layer_that_is_gone_from_it_is_seen(overlay: OverlayFolder) -> None:
    (overlay.top / "usr/b").unlink()
    assert overlay.shown_path()[2].startswith("something else than ")


def test_files_below_another_mount_decide_nothing(overlay: OverlayFolder) -> None:
    (overlay.top / "usr/b").unlink()
    assert overlay.shown_path("/usr") == overlay.layers
    assert overlay.shown_path("/usr/b") == overlay.layers
    assert overlay.shown_path("/us") != overlay.layers


@pytest.mark.skipif(os.geteuid() != 0, reason="such an attribute is root's to set")
def test_files_hidden_by_an_upper_folder_decide_nothing(overlay: OverlayFolder) -> None:
    (overlay.folder / "upper/usr").mkdir()
    os.setxattr(overlay.folder / "upper/usr", "trusted.overlay.opaque", b"y")
    (overlay.top / "usr/b").unlink()
    assert overlay.shown_path() == overlay.layers
