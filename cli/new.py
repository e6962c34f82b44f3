"""`rigwright new`: a commented catalogue entry, as a file to fill in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.lazy_commands import LazyGroup
from cli.option_types import WholeNumber
from cli.prog_name import prog_name
from cli.shell_completion import complete_variants
from cli.tables import print_prose
from rigwright import toml
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines import kinds
from rigwright.inventory import layer_folders
from rigwright.model.catalog_schema import Catalog, MissingModelFile, ModelSelection
from rigwright.model.engine_schema import DerivedEvidence, Purpose, VariantKeys
from rigwright.problems import Invalid, describe_unknown, format_value
from rigwright.project_root import require_own_place
from rigwright.supply.lock import Lock
from rigwright.supply.lock_inputs import provisional_lock
from rigwright.validated_types import CatalogName, VariantName

# Below this mirror of the inventory's hosts find what no hub publishes.
MIRROR = "own"


def render_model(name: str, repository: str | None, include: Sequence[str]) -> str:
    """A model and the input that it is, as TOML.

    Args:
        name: Of both.
        repository: The hub's; None for files of the operator's own.
        include: Patterns of the files that are wanted; of GGUF files it is a `file`, else a `folder`.
    """
    source: dict[str, Any] = {"kind": "weight"}
    if repository:
        source |= {"repository": repository}
    else:
        source |= {"version": "1", "sources": [f"{MIRROR}:{name}"]}
    if include or not repository:
        source["include"] = list(include) or ["*"]
    key = "file" if any(pattern.endswith(".gguf") for pattern in include) else "folder"
    return _render_tables({f'inputs."{name}"': source, f'models."{name}"': {key: name}})


def render_variant(name: str, like: str, keys: VariantKeys, served: str, cards: int, why: str | None) -> str:
    """A variant, as TOML: another one's keys with a model of its own.

    Args:
        name: Its own, `engine/name`.
        like: The other one's.
        keys: Its declaration.
        served: An entry of the table `models`.
        cards: How many it takes.
        why: Its purpose; None if unknown.
    """
    given = {"model": served, "cards": cards}
    changed = [f"the model {served}"] if served != keys.model else []
    changed += [f"cards: {cards} instead of {keys.cards}"] if cards != keys.cards else []
    evidence = DerivedEvidence(kind="derived", origin=like, change=", ".join(changed) or "nothing yet")
    told: dict[str, Any] = {"evidence": evidence.model_dump()}
    if why:
        old = keys.purpose.model_dump(exclude_unset=True) if keys.purpose else {}
        told["purpose"] = Purpose(**(old | {"why": why})).model_dump(exclude_unset=True)
    declared = keys.model_dump(exclude_unset=True, exclude={"evidence", "purpose"})
    return _render_tables({f'variants."{name}"': declared | given | told})


def _render_tables(entries: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join("\n".join(_render_table(place, entry)) + "\n" for place, entry in entries.items())


def _render_table(place: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """A table and those in it, a line a key."""
    yield f"[{place}]"
    yield from (
        f"{toml.render_key(key)} = {toml.render_value(value)}"
        for key, value in entry.items()
        if not isinstance(value, dict)
    )
    for key, value in entry.items():
        if isinstance(value, dict) and value:
            yield ""
            yield from _render_table(f"{place}.{toml.render_key(key)}", value)


@click.group(cls=LazyGroup, places={name: ("new", name) for name in ("model", "variant")})
def new() -> None:
    """Add a model or a variant."""


@click.command()
@INVENTORY_ARGUMENT
@click.argument("name")
@click.option("--repository", metavar="OWNER/NAME", help="Hub repository; without it, your own files.")
@click.option("--include", metavar="PATTERN", multiple=True, help="Which files; default: all. GGUF: for llama.cpp.")
def model(inventory: str, name: str, repository: str | None, include: tuple[str, ...]) -> None:
    """Add a model to the catalogue next to INVENTORY.

    Also writes its input, which `rigwright lock` resolves and hashes. A repository of GGUF files needs --include.
    Example: rigwright new model rig.py my-model --repository owner/name-GGUF --include '*Q4_K_M*.gguf'
    """
    _load_catalog_without(CatalogName, inventory, name, ("models", "inputs"))
    if repository and "gguf" in repository.lower() and not include:
        raise click.ClickException(
            f"--repository {repository}: has a GGUF file for each quantisation: choose one, such as "
            "--include '*Q4_K_M*.gguf'"
        )
    written = _write_catalog_file(inventory, name, render_model(name, repository, include))
    print_prose(f"{written}: model {name}")
    if repository:
        click.echo(f"  {prog_name()} lock {shlex.quote(inventory)}   # resolve and hash it")
    else:
        print_prose(f"Add to the box's entry in {inventory} where hosts find the folder {name}; then hash it:")
        click.echo(f'  "mirrors": {{"{MIRROR}": ["http://..."]}},')
        click.echo(f"  {prog_name()} lock {shlex.quote(inventory)} --from-dir FOLDER   # FOLDER contains {name}")


@click.command()
@INVENTORY_ARGUMENT
@click.argument("name", metavar="ENGINE/NAME")
@click.option(
    "--like",
    required=True,
    metavar="ENGINE/NAME",
    help="The variant to copy keys from.",
    shell_complete=complete_variants,
)
@click.option("--model", "served", metavar="NAME", help="The model to serve; default: the copied variant's.")
@click.option("--cards", type=WholeNumber(0, 16), help="Number of cards; default: the copied variant's.")
@click.option("--why", help="Its purpose, as shown by `rigwright show variants`.")
def variant(inventory: str, name: str, like: str, served: str | None, cards: int | None, why: str | None) -> None:
    """Add a variant, copied from another one.

    The catalogue next to INVENTORY gets it.
    Example: rigwright new variant rig.py llamacpp/mine --like llamacpp/default --model my-model
    """
    catalog = _load_catalog_without(VariantName, inventory, name, ("variants", "blocked"))
    if like not in catalog.variants:
        raise click.ClickException(f"--like: {describe_unknown('variant', like, catalog.variants)}")
    if served is not None and served not in catalog.models:
        raise click.ClickException(f"--model: {describe_unknown('model', served, catalog.models)}")
    other = catalog.variants[like]
    _refuse_unloadable(inventory, catalog, other, served or other.model)
    count = other.cards if cards is None else cards
    try:
        text = render_variant(name, like, other, served or other.model, count, why)
    except ValidationError as error:
        words = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.ClickException(f"--why {format_value(why)} is refused: must be {words}") from None
    written = _write_catalog_file(inventory, name, text)
    print_prose(f"{written}: variant {name}, with the keys of {like}: edit them there")
    cards_key = f'"cards": {list(range(count))}, ' if count else ""
    click.echo(f'  "instances": {{"chat": {{"variant": "{name}", {cards_key}"port": 8020}}}}')


def _refuse_unloadable(inventory: str, catalog: Catalog, variant: VariantKeys, served: str) -> None:
    """Refuse a model that the variant's engine cannot load, with the command that adds one that it can.

    Raises:
        click.ClickException: the model is a folder, and the engine loads files, or the other way round.
    """
    engine, model = catalog.engines.get(variant.engine), catalog.models.get(served)
    if engine is None or model is None:
        return
    try:
        locked, made = Lock.load(layer_folders(Path(inventory), "locks")), provisional_lock(catalog.inputs)
    except Invalid as error:
        raise click.ClickException(str(error)) from None
    lock = Lock(locked.artefacts | made.artefacts, locked.groups | made.groups)
    try:
        kinds()[engine.kind].parts(model, ModelSelection({}, lock, inventory, lenient=True))
    except MissingModelFile as error:
        name = (model.folder or model.file or served).partition(":")[0]
        source = catalog.inputs.get(name)
        words = ["new", "model", inventory, f"{served}-{'file' if model.folder else 'folder'}"]
        words += ["--repository", source.repository] if source and source.repository else []
        words += ["--include", "*Q4_K_M*.gguf"] if model.folder else []
        raise click.ClickException(
            f"--model {served}: {error}. This adds such a model: `{prog_name()} {shlex.join(words)}`"
        ) from None


def _load_catalog_without(rule: Any, inventory: str, name: str, tables: tuple[str, ...]) -> Catalog:
    """The catalogue, in which nothing has a name that is to be new."""
    try:
        TypeAdapter(rule).validate_python(name)
    except ValidationError as error:
        words = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.ClickException(f"{format_value(name)} is refused: must be {words}") from None
    try:
        catalog = load_catalog(layer_folders(Path(inventory), "catalog"))
    except Invalid as error:
        raise click.ClickException(str(error)) from None
    for table in tables:
        if name in getattr(catalog, table):
            raise click.ClickException(f"{table}.{name} already exists: choose another name")
    return catalog


def _write_catalog_file(inventory: str, name: str, text: str) -> Path:
    """Write a file of the catalogue beside the inventory, unless the catalogue would be refused with it."""
    path = Path(inventory).parent / "catalog" / f"{name.replace('/', '-')}.toml"
    try:
        require_own_place(path)
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    try:
        load_catalog(layer_folders(Path(inventory), "catalog"))
    except Invalid as error:
        path.unlink()
        raise click.ClickException(str(error)) from None
    return path
