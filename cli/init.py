"""`rigwright init`: look at a box and write a commented inventory for it."""

from __future__ import annotations

import ipaddress
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from cli.ending import Failed, Unreached
from rigwright.declaration.catalog import Catalog
from rigwright.inventory import CONNECTION, connecting, layers
from rigwright.problems import Invalid, unknown
from rigwright.supply.lock import Lock
from rigwright.survey.draft import GIB, card_line, catalogue_lines, inventory_text, plain, process_line
from rigwright.survey.findings import Survey
from rigwright.survey.suggest import Answers, Offer, free_port, models_root, offer, taken_ports
from rigwright.types import Name, VariantName

TARGET = re.compile(r"(?P<user>[^@]*)@(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:@\[\]]*))(?::(?P<port>.*))?", re.DOTALL)
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
NOTHING = "nothing yet"
# What an operator runs next, in order. Looking a verb up would load it, and gevent with it, after SSH was used.
NEXT = (
    ("validate {}", "is the file right?"),
    ("plan {}", "what would change on the box?"),
    ("deploy {}", "change it; --dry only shows what would"),
    ("check {}", "is the box what the file says?"),
)


@click.command()
@click.argument("target", metavar="USER@HOST[:PORT]")
@click.option("--output", metavar="FILE", help="The inventory to write; NAME.py in this folder without it.")
@click.option("--name", help="The rig's name; the host's without it.")
@click.option("--variant", metavar="ENGINE/NAME", help="What the box serves, by the catalogue's name.")
@click.option("--port", type=int, help="The API's TCP port; the first free one from 8020 without it.")
@click.option("--sudo/--no-sudo", default=None, help="Become root through sudo; without either, unless USER is root.")
@click.option("--key", metavar="FILE", help="The SSH key; without it your agent's and your own.")
@click.option(
    "--host-key", "fingerprint", metavar="SHA256:...", help="The only host key to accept, by its fingerprint."
)
def init(
    target: str,
    output: str | None,
    name: str | None,
    variant: str | None,
    port: int | None,
    sudo: bool | None,
    key: str | None,
    fingerprint: str | None,
) -> None:
    """Look at a box and write a commented inventory for it.

    Changes nothing there. The file holds the box's SSH host key: every later connection accepts that key alone. Beside
    FILE, catalog/ and locks/ are used as a deploy uses them.
    Example: rigwright init ops@192.0.2.7 --output ~/boxes/rig.py
    """
    connection = _connection(target, key, sudo)
    if fingerprint is not None and not FINGERPRINT.fullmatch(fingerprint):
        raise click.ClickException(f"--host-key {fingerprint!r} is refused: must be as `ssh-keygen -lf` prints it")
    if name is not None:
        _obey(Name, "--name", name)
    if port is not None and not 1024 <= port <= 65535:
        raise click.ClickException(f"--port {port} is refused: must be from 1024 to 65535")
    name = name or _host_label(str(connection["ssh_hostname"]))
    file = _new_file(output or f"{name}.py") if output or name else None
    catalog, lock = _data(file or Path("rig.py"))
    if variant is not None:
        _obey(VariantName, "--variant", variant)
        if variant not in catalog.variants:
            raise click.ClickException(f"--variant: {unknown('variant', variant, catalog.variants)}")

    connection["ssh_host_key"] = _host_key(target, connection, fingerprint)
    survey = _look(target, connection)
    name = name or _host_label(survey.hostname) or "rig"
    file = file or _new_file(f"{name}.py")
    if port is not None and port in taken_ports(survey):
        raise click.ClickException(f"--port {port} is taken on {name}; {free_port(survey)} is free")
    _show(name, survey, catalog)
    answers = Answers(name, connection, None, port)
    answers = replace(answers, variant=_purpose(variant, survey, answers, catalog, lock, str(file.resolve())))
    _write(file, inventory_text(survey, answers, catalog))

    click.echo(f"\nWrote {file}, and it is valid. Read it; then")
    shown = {words.format(shlex.quote(str(file))): why for words, why in NEXT}
    for words, why in shown.items():
        click.echo(f"  ./rig {words.ljust(max(map(len, shown)))}   # {why}")


def _obey(rule: Any, option: str, value: str) -> None:
    try:
        TypeAdapter(rule).validate_python(value)
    except ValidationError as error:
        words = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.ClickException(f"{option} {value!r} is refused: must be {words}") from None


def _connection(target: str, key: str | None, sudo: bool | None) -> dict[str, object]:
    """The inventory's keys for a connection, by the inventory's own rules."""
    found = TARGET.fullmatch(target)
    if not found:
        raise click.ClickException(f"{target!r} is refused: must be user@host or user@host:port")
    connection: dict[str, object] = {"ssh_hostname": found["host"] or found["six"] or "", "ssh_user": found["user"]}
    if (port := found["port"]) is not None:
        connection["ssh_port"] = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else port
    if key is not None:
        connection["ssh_key"] = key
    if sudo or (sudo is None and found["user"] != "root"):
        connection["_sudo"] = True
    for word, value in connection.items():
        allowed, rule = CONNECTION[word]
        if not allowed(value):
            raise click.ClickException(f"{word} {value!r} is refused: must be {rule}")
    if key is not None:
        path = Path(key).expanduser()
        if not path.is_file():
            raise click.ClickException(f"--key: no file {path}")
        connection["ssh_key"] = str(path.absolute())
    return connection


def _host_label(host: str) -> str | None:
    """A rig's name from a host's; None for an address, and for what no name can be made of."""
    try:
        ipaddress.ip_address(host)
        return None
    except ValueError:
        return re.sub(r"[^a-z0-9-]+", "-", host.lower().partition(".")[0]).strip("-")[:48] or None


def _new_file(path: str) -> Path:
    file = Path(path).expanduser()
    if not path or not path.isprintable():
        raise click.ClickException(f"--output {path!r} is refused: must be a file's name")
    if file.is_symlink() or file.exists():
        raise click.ClickException(f"{file} is there already: choose another with --output, or move it away")
    if not file.parent.is_dir():
        raise click.ClickException(f"there is no folder {file.parent}")
    return file


def _data(file: Path) -> tuple[Catalog, Lock]:
    try:
        return Catalog.load(layers(file, "catalog")), Lock.load(layers(file, "locks"))
    except Invalid as error:
        raise click.ClickException(str(error)) from None


def _host_key(target: str, connection: dict[str, object], fingerprint: str | None) -> str:
    """The box's host key, once it is known to be that, or as good as it can be known."""
    from roles.contact import Unreachable, meet  # pyinfra's world, which no other verb has to wait for

    keys = {key: value for key, value in connection.items() if key.startswith("ssh_")}
    try:
        contact = meet(target, connecting("", target, keys))
    except Unreachable as error:
        raise Unreached(f"cannot look at {target}: {plain(str(error))}") from None
    found, expected = contact.found, contact.expected
    wanted = fingerprint or (expected.fingerprint if expected else None)
    if wanted not in (None, found.fingerprint):
        source = "--host-key" if fingerprint else "known_hosts"
        raise Failed(
            f"{target} has another host key than {source} says: expected {wanted}, found {found.fingerprint} "
            f"({found.kind}). Nothing was sent there. If the box was installed anew, `{found.comparison}` on its own "
            "console prints what to give as --host-key"
        )
    click.echo(f"Host key of {target}: {found.fingerprint} ({found.kind})")
    if wanted is None:
        click.echo(
            f"Nobody has vouched for it. On the box's own console, this has to print the same: {found.comparison}"
        )
        if _asks():
            click.confirm("Is it the same?", abort=True)
    return str(found)


def _look(target: str, connection: dict[str, object]) -> Survey:
    from roles.contact import Unreachable
    from roles.survey import look

    keys = {key: value for key, value in connection.items() if key.startswith("ssh_")}
    try:
        return look(target, keys, sudo=bool(connection.get("_sudo")))
    except Unreachable as error:
        raise Unreached(f"cannot look at {target}: {plain(str(error))}") from None


def _show(name: str, survey: Survey, catalog: Catalog) -> None:
    table = Table(box=None, show_header=False, title=f"{name}: what is there", title_justify="left")
    nodes = f" in {survey.numa_nodes} NUMA nodes" if survey.numa_nodes > 1 else ""
    memory = f"{survey.memory_kib / GIB:.0f} GiB of memory"
    rows = [("system", f"{survey.os_id} {survey.os_version}, {survey.cpus} CPUs{nodes}, {memory}")]
    rows += [("card", card_line(number, card)) for number, card in enumerate(survey.cards)]
    rows += (
        [("", "a card is not in the catalogue: the file says what to add")] if catalogue_lines(survey, catalog) else []
    )
    driver = survey.driver or ("none is loaded" if survey.cards else "")
    rows += (
        [("driver", f"{driver}{f'; nvidia-smi: {survey.smi_failure}' if survey.smi_failure else ''}")] if driver else []
    )
    rows += [("in use", process_line(one)) for one in survey.processes if one.foreign]
    rows += [("unit", f"{unit.name} ({unit.state})") for unit in survey.units]
    rows += [("disk", f"{disk.mount}: {disk.free_kib / GIB:.0f} GiB free") for disk in survey.disks]
    rows += [("models", root)] if (root := models_root(survey)) else []
    rows += [("ports taken", ", ".join(str(one.port) for one in survey.listeners))]
    rows += (
        [("record", f"the rig {survey.record or 'of a record that cannot be read'}")]
        if survey.record is not None
        else []
    )
    for label, text in rows:
        table.add_row(label, plain(text))
    # a process or a folder may be called [red]
    Console(markup=False, highlight=False).print(table)


def _asks() -> bool:
    """Whether somebody is there who can answer."""
    return sys.stdin.isatty()


def _purpose(
    variant: str | None, survey: Survey, answers: Answers, catalog: Catalog, lock: Lock, file: str
) -> str | None:
    """What the box is for: the option, or an answer, or nothing yet."""

    def offered(one: str) -> Offer:
        return offer(one, survey, answers, catalog, lock, file)

    if variant is not None:
        if refusal := offered(variant).refusal:
            raise click.ClickException(f"--variant {variant} does not fit this box: {refusal}")
        return variant
    return _ask(catalog, offered) if _asks() else None


def _ask(catalog: Catalog, offered: Callable[[str], Offer]) -> str | None:
    offers = [offered(name) for name in sorted(catalog.variants)]
    fitting = [one for one in offers if not one.refusal]
    for one in offers:
        if one.refusal:
            click.echo(f"does not fit: {one.variant}: {one.refusal}")
    if not fitting:
        click.echo("No variant of the catalogue fits this box; nothing is served yet.")
        return None
    click.echo("\nWhat is the box for?")
    click.echo(f"  0  {NOTHING}")
    for number, one in enumerate(fitting, start=1):
        variant = catalog.variants[one.variant]
        cards = f"cards {', '.join(map(str, one.cards))}" if one.cards else "CPU"
        requests, tokens = variant.capacity or (0, 0)
        sized = f", {requests} at once with {tokens} tokens each" if requests else ""
        click.echo(f"  {number}  {one.variant}: {cards}{sized}")
    answer = click.prompt("Number", type=click.IntRange(0, len(fitting)), default=0)
    return fitting[answer - 1].variant if answer else None


def _write(file: Path, text: str) -> None:
    """Write the inventory and load it as a deploy does."""
    try:
        with file.open("x") as opened:
            opened.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None
    try:
        runpy.run_path(str(file))
    except (SystemExit, Exception) as error:
        raise click.ClickException(f"{file} is written, but it does not load: {error}") from None
