"""Tables of keys in the documentation: made from the models, and never older than they are."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from checks import check_catalogue
from cli import reference
from rigwright.project_root import ROOT


@pytest.mark.parametrize(("path", "made"), reference.render_pages(), ids=lambda one: getattr(one, "name", "made"))
def test_a_page_says_what_the_models_say(path: Path, made: str) -> None:
    assert path.read_text() == made, "run `.venv/bin/python -m cli.reference`"


def test_every_table_that_can_be_made_is_in_a_page() -> None:
    asked = [
        found["name"] for path in (ROOT / "docs").rglob("*.md") for found in reference.BLOCK.finditer(path.read_text())
    ]
    assert sorted(asked) == sorted([*reference.TABLES, *reference.TABLE_RENDERERS])


class Boat(BaseModel):
    """Floats.

    On water.
    """

    kind: Literal["boat"] = Field(description="What it is.")
    masts: int = Field(default=1, ge=0, le=5, description="Upright | tall.")


class Sledge(BaseModel):
    """Glides."""

    kind: Literal["sledge"] = Field(description="What it is.")
    dogs: tuple[str, ...] = Field(min_length=1, description="In front.")


class Trip(BaseModel):
    """Goes somewhere."""

    by: Annotated[Boat | Sledge, Field(discriminator="kind")] = Field(description="The vehicle.")
    others: dict[str, Annotated[Boat | Sledge, Field(discriminator="kind")]] = Field(default={}, description="More.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(
        reference.TABLES, "vehicle", reference.KeyTable(Annotated[Boat | Sledge, Field(discriminator="kind")])
    )
    monkeypatch.setitem(reference.TABLES, "trip", reference.KeyTable(Trip, prefix="trip."))
    return tmp_path


def test_a_distinguishing_key_has_a_table_for_each_value(folder: Path) -> None:
    (folder / "a.md").write_text("One.\n<!-- keys of vehicle -->\nold\n<!-- end of vehicle -->\nTwo.\n")
    (folder / "b.md").write_text("nothing here\n")
    assert dict(reference.render_pages(folder)) == {
        folder / "a.md": """One.
<!-- keys of vehicle -->

**`kind = boat`** Floats.

| Key | Allowed | Default | Meaning |
|---|---|---|---|
| `kind` | `boat` | required | What it is. |
| `masts` | 0 to 5 | `1` | Upright \\| tall. |

**`kind = sledge`** Glides.

| Key | Allowed | Default | Meaning |
|---|---|---|---|
| `kind` | `sledge` | required | What it is. |
| `dogs` | list of at least one, each text | required | In front. |

<!-- end of vehicle -->
Two.
"""
    }


def test_a_key_that_takes_one_of_several_says_which(folder: Path) -> None:
    rows = reference.render_table("trip").splitlines()[2:]
    one = "a table, one of `kind = boat`, `kind = sledge`"
    assert rows == [
        f"| `trip.by` | {one} | required | The vehicle. |",
        f"| `trip.others` | table: text \u2192 {one} | none | More. |",
    ]


def test_a_key_without_a_description_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet(BaseModel):
        key: int

    monkeypatch.setitem(reference.TABLES, "quiet", reference.KeyTable(Quiet))
    with pytest.raises(reference.MissingDescription, match=r"Quiet\.key has no description"):
        reference.render_table("quiet")


def test_the_limits_of_each_check_are_in_its_page() -> None:
    page = (ROOT / "docs" / "reference" / "check-list.md").read_text()
    limits = {one.id: one.blind for one in check_catalogue.list_checks() if one.blind}
    assert limits
    assert all(f"| {name} | {text.replace('|', reference.BAR)} |" in page for name, text in limits.items())
