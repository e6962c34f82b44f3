"""`rigwright sbom`: bills of materials of an inventory's boxes, from inventory and lock alone."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import click

from cli.exit_codes import InvalidRequest
from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rigs, load_hosts
from cli.option_types import describe_write_fault
from cli.output_file import make_output_folder, write_output
from cli.shell_completion import LIMIT_OPTION
from rigwright.problems import Invalid, format_value

SUFFIX = ".cdx.json"
"""Of the files in a folder: scanners know CycloneDX by it."""


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option(
    "--output",
    metavar="FILE|FOLDER",
    type=click.Path(),
    help="Output file of one host, or folder with HOST.cdx.json for each; default: standard output for one host.",
)
def sbom(inventory: str, limit: str | None, output: str | None) -> None:
    """List parts and licences.

    Writes a CycloneDX 1.6 bill of materials (JSON) of each host: packages, engines with compile options and patches,
    driver, images, models, and advisories as VEX. It is the declared state, by inventory and lock: no host is
    contacted. `rigwright check` compares a host with it. Equal inventories and locks give equal bytes.
    Example: rigwright sbom rig.py --output sbom/
    """
    rigs = load_host_rigs(load_hosts(inventory, limit))
    if faults := [fault for rig in rigs.values() for fault in rig.supply_faults]:
        raise click.ClickException("\n".join(map(str, faults)))
    folder = _parse_folder(output, len(rigs))
    # they and the library behind them take longer to import than a refusal to print
    from rigwright.advisories.audit import UnreadableData, audit
    from rigwright.sbom.bill_of_materials import render_bom

    try:
        assessments = {one.rig: one for one in audit(rigs)}
    except (Invalid, UnreadableData) as error:
        raise click.ClickException(str(error)) from None
    if folder:
        make_output_folder(folder)
    for name, rig in rigs.items():
        text = render_bom(rig, assessments[rig.name], metadata.version("rigwright"))
        if folder or output:
            write_output(folder / f"{name}{SUFFIX}" if folder else Path(str(output)), text)
        else:
            click.echo(text, nl=False)


def _parse_folder(output: str | None, hosts: int) -> Path | None:
    """The folder that `--output` names; None for a file or standard output.

    Raises:
        InvalidRequest: it is no place for that many hosts, or cannot be written.
    """
    if output is None:
        if hosts > 1:
            raise InvalidRequest(f"{hosts} hosts: name a folder with --output, or one host with --limit")
        return None
    place = Path(output)
    if hosts > 1 and place.is_file():
        raise InvalidRequest(f"--output: {format_value(output)} is a file, and {hosts} hosts need a folder")
    is_folder = hosts > 1 or output.endswith("/") or place.is_dir()
    if fault := describe_write_fault(place / "file" if is_folder else place, creates_folder=is_folder):
        raise InvalidRequest(f"--output: {format_value(output)} cannot be written: {fault}")
    return place if is_folder else None
