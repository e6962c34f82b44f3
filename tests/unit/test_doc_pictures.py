"""Pictures of the documentation are what their source texts describe."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.doc_pictures import RENDERERS, list_pictures


@pytest.mark.parametrize("path", list_pictures(), ids=lambda path: path.name)
def test_a_picture_is_rendered_from_its_source(path: Path) -> None:
    text = RENDERERS[path.suffix](path.read_text())
    assert path.with_suffix(".svg").read_text() == text, "run `.venv/bin/python -m tests.doc_pictures`"
    picture = ElementTree.fromstring(text)
    assert picture.get("aria-label")
    assert "prefers-color-scheme:dark" in text
