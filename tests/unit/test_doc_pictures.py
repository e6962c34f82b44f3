"""Pictures of the documentation are what their source texts describe."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import doc_pictures
from tests.doc_pictures import RENDERERS, PictureSyntaxError, list_pictures, render_diagram


@pytest.mark.parametrize("path", list_pictures(), ids=lambda path: path.name)
def test_a_picture_is_rendered_from_its_source(path: Path) -> None:
    text = RENDERERS[path.suffix](path.read_text())
    assert path.with_suffix(".svg").read_text() == text, "run `.venv/bin/python -m tests.doc_pictures`"
    picture = ElementTree.fromstring(text)
    assert picture.get("aria-label")
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("line", ["circle 1 2", "size 1", "arrow a.left b.right", "box a 0 0 9 9 A\narrow a.up a.left"])
def test_an_invalid_line_is_named(line: str) -> None:
    with pytest.raises(PictureSyntaxError, match=line.splitlines()[-1]):
        render_diagram(line)


def test_main_writes_pictures_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_pictures, "FOLDER", tmp_path)
    monkeypatch.setattr(doc_pictures, "ROOT", tmp_path)
    (tmp_path / "a.session").write_text("#title A terminal\n$ ls\n<x>\n")
    doc_pictures.main()
    assert "&lt;x&gt;" in (tmp_path / "a.svg").read_text()
