"""Kinds of engines: their declarations, and the addition of one from outside."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from rigwright import engines
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines import kinds, register
from rigwright.engines.engine_interface import InstallingKind, Kind
from rigwright.engines.instance_request import InstanceRequest
from rigwright.engines.llama_cpp import LlamaCpp
from rigwright.model.catalog_schema import Catalog
from rigwright.model.engine_schema import EngineKeys, VariantKeys
from rigwright.problems import Invalid
from rigwright.project_root import ROOT
from rigwright.supply import lock
from tests.unit.sample_texts import CATALOG


class OtherEngine(EngineKeys):
    """An engine of another kind."""

    kind: Literal["other"]
    colour: str = Field(description="Its colour.")


class OtherVariant(VariantKeys):
    """A variant for it."""

    depth: int = Field(default=1, description="How deep.")


class OtherKind(LlamaCpp):
    """A kind from outside: the rest is llama.cpp's."""

    name = "other"
    engine_keys = OtherEngine
    variant_keys = OtherVariant

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.ArtefactKind]:
        """Nothing."""
        return {}


OWN = (
    '\n[engines.theirs]\nkind = "other"\ncolour = "red"\n[variants."theirs/deep"]\nengine = "theirs"\nmodel = "small"\n'
)


@pytest.fixture(autouse=True)
def isolated_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations here are gone afterwards."""
    monkeypatch.setattr(engines, "_registered", dict(kinds()))


def load(folder: Path, text: str) -> Catalog:
    (folder / "a.toml").write_text(CATALOG + text)
    return load_catalog([folder])


def test_every_folder_is_a_kind_of_its_own_name() -> None:
    folders = {path.parent.name for path in (ROOT / "rigwright/engines").glob("*/__init__.py")}
    assert len(kinds()) == len(folders)
    assert {kind.name for kind in kinds().values()} == set(kinds())
    assert "llama.cpp" in kinds()


@pytest.mark.parametrize("kind", kinds().values(), ids=kinds())
def test_every_kind_is_whole_and_its_keys_are_documented(kind: Kind) -> None:
    assert issubclass(kind.engine_keys, EngineKeys)
    assert issubclass(kind.variant_keys, VariantKeys)
    # a catalogue's name for it is the only value that its own key takes
    assert kind.engine_keys.model_fields["kind"].annotation == Literal[kind.name]  # type: ignore[valid-type]
    assert not isinstance(kind, InstallingKind) or isinstance(kind.program, str)


def test_a_foreign_kind_has_keys_of_its_own_in_the_catalogue(tmp_path: Path) -> None:
    register(OtherKind())
    catalog = load(tmp_path, OWN)
    assert catalog.engines["theirs"] == OtherEngine(kind="other", colour="red")
    assert catalog.variants["theirs/deep"] == OtherVariant(engine="theirs", model="small")
    assert catalog.engines["plain"].kind == "llama.cpp"


def test_its_mistakes_are_reported_like_any_others(tmp_path: Path) -> None:
    register(OtherKind())
    with pytest.raises(Invalid) as caught:
        load(tmp_path, OWN.replace("colour", "color") + "dept = 2\n")
    path = tmp_path / "a.toml"
    lines = str(caught.value).splitlines()
    assert f"{path}: engines.theirs.colour: missing" not in lines
    assert any(line.startswith(f'{path}: engines.theirs.color: unknown key; did you mean "colour"?') for line in lines)
    assert any(
        line.startswith(f'{path}: variants.theirs/deep.dept: unknown key; did you mean "depth"?') for line in lines
    )


def test_the_same_kind_may_be_registered_again_and_another_one_of_its_name_not() -> None:
    other = OtherKind()
    register(other)
    register(other)
    for kind in (OtherKind(), LlamaCpp()):
        with pytest.raises(ValueError, match=f"a kind of engine named {kind.name}"):
            register(kind)
    assert kinds()["other"] is other


def test_a_foreign_kind_that_comes_first_does_not_replace_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be registered before anybody has asked for any kind."""
    shipped = set(kinds())
    monkeypatch.setattr(engines, "_registered", {})
    register(OtherKind())
    assert set(kinds()) == {*shipped, "other"}


@pytest.mark.parametrize("kind", ['"lama.cpp"', '"Llama.cpp"', '"other"', '"../llama_cpp"', '""', "7", "true", "[]"])
def test_an_unknown_kind_is_refused_with_the_known_ones(tmp_path: Path, kind: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(tmp_path, f"\n[engines.x]\nkind = {kind}\n")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path / 'a.toml'}: engines.x.kind: ")
    assert line.endswith(f"; allowed: {', '.join(sorted(kinds()))}")
    assert ('did you mean "llama.cpp"?' in line) == ("lama" in kind.lower())
    register(OtherKind())
    if kind != '"other"':
        with pytest.raises(Invalid, match=re.escape(f"allowed: {', '.join(sorted(kinds()))}")):
            load(tmp_path, f"\n[engines.x]\nkind = {kind}\n")


BODY = {"input": 'a "quoted" \\ word', "é": "line\nnext\ttab \x1b", "nested": {"a": [1, None, True]}}


def test_a_request_without_a_body_is_a_get() -> None:
    assert InstanceRequest("/health").render_curl_config("127.0.0.1:8020") == 'url = "http://127.0.0.1:8020/health"\n'


def test_a_request_to_a_socket_names_its_path_and_no_address() -> None:
    lines = InstanceRequest("/health").render_curl_config("/run/x/api.sock").splitlines()
    assert lines == ['unix-socket = "/run/x/api.sock"', 'url = "http://localhost/health"']


def test_a_request_is_a_line_a_setting_whatever_its_body_holds() -> None:
    lines = InstanceRequest("/v1/embeddings", BODY).render_curl_config("127.0.0.1:8020").splitlines()
    assert [line.partition(" = ")[0] for line in lines] == ["url", "header", "data"]
