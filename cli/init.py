"""`rigwright init`: look at a box and write a commented inventory for it."""

from __future__ import annotations

import ipaddress
import re
import runpy
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from cli.exit_codes import HostUnreached, InvalidRequest, NotAsDeclared
from cli.init_prompts import VariantRequest, choose_variant
from cli.inventory_loading import SuggestingChoice
from cli.option_types import WholeNumber, describe_write_fault
from cli.prog_name import prog_name
from cli.tables import print_paragraph, print_prose
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.declaration.connection import describe_unusable_key, describe_wrong_value
from rigwright.declaration.variant_selection import select_addressed_variants
from rigwright.host.supported_systems import system_refusals
from rigwright.inventory import connection_data, layer_folders, load_for
from rigwright.model.catalog_schema import Catalog
from rigwright.model.engine_schema import NEEDS, WORKLOADS, Need, Workload
from rigwright.patches import patch
from rigwright.problems import Invalid, describe_unknown, describe_violated_rule, format_value
from rigwright.supply.lock import Lock
from rigwright.survey.box_survey import BoxSurvey
from rigwright.survey.inventory_draft import (
    GIB,
    describe_card,
    describe_process,
    flatten_text,
    render_inventory,
    render_missing_cards,
)
from rigwright.survey.suggestions import (
    OperatorAnswers,
    VariantOffer,
    instance_port,
    offer_variant,
    suggest_models_root,
    suggest_port,
    taken_ports,
)
from rigwright.validated_types import Name, VariantName
from roles.progress import progress

SSH_TARGET = re.compile(r"(?P<user>[^@]*)@(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:@\[\]]*))(?::(?P<port>.*))?", re.DOTALL)
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
# The operator's next commands, in order. Looking a verb up would load it, and gevent with it, after SSH was used.
NEXT_STEPS = (
    ("lock {}", "find and hash its files"),
    ("validate {}", "report every mistake in it"),
    ("plan {}", "preview the changes"),
    ("deploy {}", "apply the changes"),
    ("check {}", "compare the box with the file"),
)


@click.command()
@click.argument("target", metavar="USER@HOST[:PORT]")
@click.option("--output", metavar="FILE", help="The inventory to write; default: NAME.py in this folder.")
@click.option("--name", help="The rig's name; default: the host's.")
@click.option("--variant", metavar="ENGINE/NAME", help="The variant to serve, by the catalogue's name.")
@click.option("--need", type=SuggestingChoice(tuple(NEEDS)), help="Priority, as in `rigwright show variants`.")
@click.option("--workload", type=SuggestingChoice(WORKLOADS), help="Workload to optimise for.")
@click.option("--cards", type=WholeNumber(0, 16), help="Number of its cards to use; default: all free ones.")
@click.option("--serve", is_flag=True, help="Then lock, validate and deploy it, and print its address.")
@click.option("--reboot", is_flag=True, help="With --serve: reboot the box if its driver needs it.")
@click.option(
    "--port", type=WholeNumber(1024, 65535), help="The API's TCP port; default: the first free one from 8020."
)
@click.option(
    "--listen",
    type=WholeNumber(1, 65535),
    help="Also open a gateway at this TCP port, without keys or TLS.",
)
@click.option("--sudo/--no-sudo", default=None, help="Use sudo; default: unless USER is root.")
@click.option("--key", metavar="FILE", help="The SSH key; default: your agent's and your own.")
@click.option(
    "--host-key", "fingerprint", metavar="SHA256:...", help="The only host key to accept, by its fingerprint."
)
def init(
    target: str,
    output: str | None,
    name: str | None,
    variant: str | None,
    need: Need | None,
    workload: Workload | None,
    cards: int | None,
    serve: bool,
    reboot: bool,
    port: int | None,
    listen: int | None,
    sudo: bool | None,
    key: str | None,
    fingerprint: str | None,
) -> None:
    """Write a box's inventory.

    Reads the box and changes nothing there without --serve. The inventory pins the box's SSH host key; without a
    terminal a key that known_hosts lacks needs --host-key. --need, --workload and --cards choose the variant; without
    them a terminal is asked.
    Example: rigwright init ops@192.0.2.7 --output rig.py
    """
    wish = VariantRequest(variant, need, workload, cards)
    if variant is not None and (need or workload or cards is not None):
        raise click.UsageError("--variant conflicts with --need, --workload and --cards")
    if serve and not (wish.is_complete or _is_interactive()):
        raise click.UsageError("--serve: no terminal to ask on: pass --need, --workload or --variant")
    if reboot and not serve:
        raise click.UsageError("--reboot needs --serve: nothing else changes the box")
    connection = _connection_keys(target, key, sudo)
    if fingerprint is not None and not FINGERPRINT.fullmatch(fingerprint):
        raise click.ClickException(
            f"--host-key {format_value(fingerprint)} is refused: must be as `ssh-keygen -lf` prints it"
        )
    if name is not None:
        _validate_option(Name, "--name", name)
    if listen is not None and listen == port:
        raise click.ClickException(f"--listen {listen} is refused: must not be the port of --port")
    name = name or _host_label(str(connection["ssh_hostname"]))
    file = _require_new_file(output or f"{name}.py") if output or name else None
    catalog, lock = _load_catalog(file or Path("rig.py"))
    if variant is not None:
        _validate_option(VariantName, "--variant", variant)
        if variant not in catalog.variants:
            raise click.ClickException(f"--variant: {describe_unknown('variant', variant, catalog.variants)}")

    connection["ssh_host_key"] = _confirm_host_key(target, connection, fingerprint)
    survey = _survey_box(target, connection)
    name = name or _host_label(survey.hostname) or "rig"
    file = file or _require_new_file(f"{name}.py")
    if port is not None and port in taken_ports(survey):
        raise click.ClickException(f"--port {port} is taken on {name}; {suggest_port(survey)} is free")
    if listen is not None and listen in taken_ports(survey):
        raise click.ClickException(f"--listen {listen} is taken on {name}")
    _print_survey(name, survey, catalog)
    if reasons := system_refusals(survey.os_id, survey.os_version, survey.kernel):
        raise InvalidRequest(f"{name} cannot become a rig, and no file was written: {'; '.join(reasons)}")
    if survey.record is not None:
        print_prose(
            f"This box is a rig already{f', called {flatten_text(survey.record)}' if survey.record else ''}: "
            f"go on with the "
            "inventory that it was deployed from. A deploy of the one written here takes its place."
        )
    answers = OperatorAnswers(name, connection, None, port, listen)
    found = _choose_offer(wish, survey, answers, catalog, lock, str(file.resolve()))
    answers = replace(answers, variant=found.variant if found else None)
    if listen is not None and found is None:
        raise click.ClickException(
            "--listen: a gateway needs a variant to offer, and none was chosen; no file was written"
        )
    unlocked = found is not None and found.unlocked
    _write_inventory(file, render_inventory(survey, answers, catalog), unlocked)

    if serve:
        if found is None:
            raise NotAsDeclared(f"{file} is written without a variant to serve")
        # here, for no other use of this verb has to wait for it
        from cli.init_prompts import ServeRequest, serve_box

        model = catalog.variants[found.variant].model
        box = ServeRequest(
            file, connection, model, instance_port(survey, answers), listen, lock=unlocked, reboot=reboot
        )
        serve_box(box)
        return
    lacking = ", except for unlocked files" if unlocked else ""
    print_prose(f"\nWrote {file}, and it is valid{lacking}. Read it; then")
    steps = NEXT_STEPS if unlocked or found is None else NEXT_STEPS[1:]
    if found is None:
        steps = (("show variants {}", "list the variants that fit"), *steps)
    shown = {words.format(shlex.quote(str(file))): why for words, why in steps}
    for words, why in shown.items():
        lead = f"  {prog_name()} {words.ljust(max(map(len, shown)))}   "
        print_paragraph(f"# {why}", lead)


def _validate_option(rule: Any, option: str, value: str) -> None:
    try:
        TypeAdapter(rule).validate_python(value)
    except ValidationError as error:
        raise click.ClickException(
            f"{option} {format_value(value)} is refused: must be {describe_violated_rule(error)}"
        ) from None


def _connection_keys(target: str, key: str | None, sudo: bool | None) -> dict[str, object]:
    """The inventory's keys for a connection, by the inventory's own rules."""
    found = SSH_TARGET.fullmatch(target)
    if not found:
        raise click.ClickException(f"{format_value(target)} is refused: must be user@host or user@host:port")
    connection: dict[str, object] = {"ssh_hostname": found["host"] or found["six"] or "", "ssh_user": found["user"]}
    if (port := found["port"]) is not None:
        connection["ssh_port"] = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else port
    if key is not None:
        connection["ssh_key"] = key
    if sudo or (sudo is None and found["user"] != "root"):
        connection["_sudo"] = True
    for word, value in connection.items():
        if rule := describe_wrong_value(word, value):
            raise click.ClickException(f"{word} {format_value(value)} is refused: must be {rule}")
    if key is not None:
        path = Path(key).expanduser()
        if fault := describe_unusable_key(str(path)):
            raise click.ClickException(f"--key: {path} {fault}")
        connection["ssh_key"] = str(path.absolute())
    return connection


def _host_label(host: str) -> str | None:
    """A rig's name from a host's; None for an address, and for what no name can be made of."""
    try:
        ipaddress.ip_address(host)
        return None
    except ValueError:
        return re.sub(r"[^a-z0-9-]+", "-", host.lower().partition(".")[0]).strip("-")[:48] or None


def _require_new_file(path: str) -> Path:
    file = Path(path).expanduser()
    if not path or not path.isprintable():
        raise click.ClickException(f"--output {format_value(path)} is refused: must be a file's name")
    if file.is_symlink() or file.exists():
        raise click.ClickException(f"{file} already exists: choose another with --output, or move it away")
    if fault := describe_write_fault(file):
        raise click.ClickException(f"{file} cannot be written: {fault}")
    return file


def _load_catalog(file: Path) -> tuple[Catalog, Lock]:
    try:
        catalog = load_catalog(layer_folders(file, "catalog"))
        patches = patch.load_patches(layer_folders(file, "patches"))
        return catalog.model_copy(update={"patches": patches}), Lock.load(layer_folders(file, "locks"))
    except Invalid as error:
        raise click.ClickException(str(error)) from None


def _confirm_host_key(target: str, connection: dict[str, object], fingerprint: str | None) -> str:
    """The box's host key, once it is known to be that, or as good as it can be known."""
    from roles.first_contact import (  # pyinfra's world, which no other verb has to wait for
        HostKeyUnavailable,
        probe_host_key,
    )

    keys = {key: value for key, value in connection.items() if key.startswith("ssh_")}
    try:
        with progress.task(target, "connecting", quiet=True):
            contact = probe_host_key(target, connection_data("", target, keys))
    except HostKeyUnavailable as error:
        raise HostUnreached(f"cannot survey {target}: {flatten_text(str(error))}") from None
    found, expected = contact.found, contact.expected
    wanted = fingerprint or (expected.fingerprint if expected else None)
    if wanted not in (None, found.fingerprint):
        source = "--host-key" if fingerprint else "known_hosts"
        raise NotAsDeclared(
            f"{target} has another host key than {source} says: expected {wanted}, found {found.fingerprint} "
            f"({found.kind}). Nothing was sent there. If the box was installed anew, "
            f"`{found.comparison_command}` on its own "
            "console prints what to give as --host-key"
        )
    print_prose(f"Host key of {target}: {found.fingerprint} ({found.kind})")
    if wanted is None:
        print_prose(
            f"The host key is unverified. On the box's own console, this has to print the same: "
            f"{found.comparison_command}"
        )
        if contact.skipped:
            lines = ", ".join(contact.skipped[:3]) + (" and more" if len(contact.skipped) > 3 else "")
            print_prose(f"known_hosts has lines that cannot be read, one of which may be this box's: {lines}")
        if not _is_interactive():
            raise NotAsDeclared(
                f"{target}: without a terminal an unverified host key is refused: pass the fingerprint that the box's "
                f"console prints as --host-key; if it is this one: --host-key {found.fingerprint}"
            )
        click.confirm("Is it the same?", abort=True)
    return str(found)


def _survey_box(target: str, connection: dict[str, object]) -> BoxSurvey:
    from roles.first_contact import HostKeyUnavailable, survey_host

    keys = {key: value for key, value in connection.items() if key.startswith("ssh_")}
    try:
        with progress.task(target, "surveying", quiet=True):
            return survey_host(target, keys, sudo=bool(connection.get("_sudo")))
    except HostKeyUnavailable as error:
        raise HostUnreached(f"cannot survey {target}: {flatten_text(str(error))}") from None


def _print_survey(name: str, survey: BoxSurvey, catalog: Catalog) -> None:
    print_prose(f"{name}: hardware and system")
    table = Table(box=None, show_header=False)
    nodes = f" in {survey.numa_nodes} NUMA nodes" if survey.numa_nodes > 1 else ""
    memory = f"{survey.memory_kib / GIB:.0f} GiB of memory"
    rows = [("system", f"{survey.os_id} {survey.os_version}, {survey.cpus} CPUs{nodes}, {memory}")]
    rows += [("card", describe_card(number, card)) for number, card in enumerate(survey.cards)]
    rows += (
        [("", "a card is not in the catalogue: the file says what to add")]
        if render_missing_cards(survey, catalog)
        else []
    )
    driver = survey.driver or ("none is loaded" if survey.cards else "")
    rows += (
        [("driver", f"{driver}{f'; nvidia-smi: {survey.smi_failure}' if survey.smi_failure else ''}")] if driver else []
    )
    rows += [("in use", describe_process(one)) for one in survey.processes if one.is_foreign]
    rows += [("unit", f"{unit.name} ({unit.state})") for unit in survey.units]
    rows += [("disk", f"{disk.mount}: {disk.free_kib / GIB:.0f} GiB free") for disk in survey.disks]
    rows += [("models", root)] if (root := suggest_models_root(survey)) else []
    rows += [("ports taken", ", ".join(str(one.port) for one in survey.listeners))]
    rows += (
        [("record", f"the rig {survey.record or 'of a record that cannot be read'}")]
        if survey.record is not None
        else []
    )
    for label, text in rows:
        table.add_row(label, flatten_text(text))
    # a process or a folder may be called [red]
    Console(markup=False, highlight=False).print(table)


def _is_interactive() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty()


def _choose_offer(
    wish: VariantRequest, survey: BoxSurvey, answers: OperatorAnswers, catalog: Catalog, lock: Lock, file: str
) -> VariantOffer | None:
    """The purpose of the box: the options, or an answer, or nothing yet."""

    def offered(one: str) -> VariantOffer:
        return offer_variant(one, survey, answers, catalog, lock, file)

    # the inventory that is about to be written declares no mirrors
    return choose_variant(wish, survey, select_addressed_variants(catalog, ()), offered, asks=_is_interactive())


def _write_inventory(file: Path, text: str, unlocked: bool) -> None:
    """Write the inventory and load it as a deploy does, or `lock` where something of it is not locked yet."""
    try:
        with file.open("x") as opened:
            opened.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None
    try:
        with load_for("lock" if unlocked else ""):
            runpy.run_path(str(file))
    except (SystemExit, Exception) as error:
        raise click.ClickException(f"{file} is written, but it does not load: {error}") from None
