"""`rigwright sign --publish`: signed generations in a folder from which boxes pull."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import click

from checks.connections import ConnectedHost, connect_inventory, map_hosts
from cli.published_statements import LastSerials, PublishedFiles, last_serials_path, load_last_serials
from cli.tables import print_prose
from rigwright.fetch_job_spec import fetch_credentials, fetch_unit_name
from rigwright.local_files import write_atomically
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig
from rigwright.plan.generation_publication import (
    base_of_observed,
    build_payload,
    digest_declaration,
)
from rigwright.problems import Invalid
from rigwright.pull.publication import (
    GENERATION,
    MOST_PAYLOAD,
    PAYLOAD,
    SERIAL_FORM,
    TIMESTAMP_FILE,
    PublishedEntry,
    RootJob,
    metadata_file,
    payload_file,
    render_generation_details,
    render_timestamp_details,
)
from rigwright.signing.ssh_signatures import sign_statement, verify_envelope
from rigwright.signing.statements import MOST_SUBJECTS, SignedKind, Statement
from rigwright.signing.timestamps import current_time, render_time
from rigwright.signing.trusted_signers import TrustedSigners
from rigwright.supply.supply_signatures import INVENTORY, name_inventory
from roles.artefact_fetch import render_artefacts_test, render_fetch_script
from roles.trees import render_record_job

TIMESTAMP_DAYS = 7
"""Days for which a timestamp is valid: after that, each box reports that it gets no newer one."""
KEPT_BASES = 3  # earlier generations of a box from which it can pull: it may have missed some


class PublishedBoxes:
    """The folder that a web server gives out."""

    def __init__(self, inventory: Path, folder: Path, signers: TrustedSigners, key: Path) -> None:
        self.inventory = name_inventory(inventory, signers)[INVENTORY]
        signers = replace(signers, signed_as=self.inventory)
        self.folder, self.signers, self.key = folder, signers, key
        self.now = current_time()
        self.files = PublishedFiles(folder, signers, self.now)
        self.last_path = last_serials_path(inventory)
        self.last = load_last_serials(self.last_path, self.now)
        rows, self.serial = self.files.read_timestamp()
        self.rows: dict[str, int] = {
            box: max(rows[box].serial if box in rows else 0, self.last.boxes.get(box, 0))
            for box in {*rows, *self.last.boxes}
        }
        """Box -> the serial of its statement that was published last."""
        self.entries: dict[str, PublishedEntry] = {}

    @cached_property
    def next_serial(self) -> int:
        """The serial of all that this run signs: the clock's, above all that were published."""
        used = max((self.serial, self.last.timestamp, *self.rows.values()))
        return max(int(self.now.strftime(SERIAL_FORM)), used + 1)

    def keep_box(self, box: str) -> None:
        """Publish a box as before: its newest statement, which must not be older than the one that was published last.

        Raises:
            click.ClickException: that is not in the folder.
        """
        newest = next(self.files.list_statements(box), None)
        least = self.rows.get(box, 0)
        if newest is None or newest.statement.serial < least:
            text = f"{self.folder}: the statement {least} of {box} is missing, or of no present signer"
            raise click.ClickException(f"{text}: restore the folder, or publish the box again")
        self.entries[box] = newest.entry

    def keep_all(self) -> None:
        """Publish all boxes as before.

        Raises:
            click.ClickException: a file in the folder is older than the one that was published last.
        """
        if self.serial < self.last.timestamp:
            text = f"{self.folder}: its timestamp {self.serial} is older than the last one, {self.last.timestamp}"
            raise click.ClickException(f"{text}: restore the folder, or publish the boxes again")
        for box in self.rows:
            self.keep_box(box)

    def add_box(self, box: ConnectedHost, days: int) -> str:
        """Publish the generation of a box; returns a sentence."""
        desired, served = box.resolve_desired(), box.read_serving_state()
        if desired.facts.pull is None:
            raise click.ClickException(f"{box.name}: its machine id is not readable")
        kept = [one for one in served.generations if one.is_intact and one.proven and one.number == served.current]
        earlier = self.files.load_bases(box.name, KEPT_BASES)
        bases = {one.digest: one for one in (*earlier, *map(base_of_observed, kept))}
        record = RootJob(*render_record_job(box.rig, desired.generation.digest))
        payload = build_payload(desired, bases.values(), _fetch_job(box.rig), record).render()
        if len(payload) > MOST_PAYLOAD:
            raise click.ClickException(f"{box.name}: its generation has {len(payload)} bytes; at most {MOST_PAYLOAD}")
        digest, declaration = hashlib.sha256(payload).hexdigest(), digest_declaration(desired)
        details = render_generation_details(
            self.inventory, box.name, desired.facts.pull.machine, declaration, box.rig.digest, len(payload)
        )
        serial = self.next_serial
        subjects = ((GENERATION, desired.generation.digest), (PAYLOAD, digest))
        content = self._sign("generation", subjects, serial, days, details)
        self._write(payload_file(digest), payload)
        self._write(metadata_file(box.name, serial), content)
        self.entries[box.name] = PublishedEntry(serial, len(content), hashlib.sha256(content).hexdigest())
        return f"{box.name}: generation {desired.generation.digest[:12]}, serial {serial}"

    def write_timestamp(self, days: int) -> str:
        """Sign the timestamp, which comes last: until then boxes see the earlier state; returns a sentence."""
        if not self.entries:
            raise click.ClickException(f"{self.folder}: no box is published")
        if len(self.entries) > MOST_SUBJECTS:
            raise click.ClickException(f"{len(self.entries)} boxes: a folder has at most {MOST_SUBJECTS}")
        subjects = tuple((box, one.sha256) for box, one in sorted(self.entries.items()))
        serial = self.next_serial
        content = self._sign(
            "timestamp", subjects, serial, days, render_timestamp_details(self.inventory, self.entries)
        )
        self._write(TIMESTAMP_FILE, content)
        # last: after a kill in between, the folder has the later serial
        LastSerials(serial, {box: one.serial for box, one in self.entries.items()}).write(self.last_path)
        return f"timestamp {serial}, valid until {render_time(self.now + timedelta(days=days))}"

    def _sign(
        self,
        kind: SignedKind,
        subjects: tuple[tuple[str, str], ...],
        serial: int,
        days: int,
        details: Mapping[str, object],
    ) -> bytes:
        statement = Statement(kind, subjects, serial, self.now, self.now + timedelta(days=days), details)
        content = sign_statement(statement, self.key).render()
        verify_envelope(content, kind, self.signers)
        return content

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content.decode())
            path.chmod(0o644)
        except OSError as error:
            raise click.ClickException(f"{path}: {error.strerror}") from None


def _fetch_job(rig: Rig) -> RootJob | None:
    """The job that fetches a box's weights; None where a secret, a bundle or the hub's client is needed."""
    weights = loaded_weights(rig.instances)
    if not weights or rig.bundle or rig.hub_client or fetch_credentials(rig.network, rig.bundle, weights):
        return None
    return RootJob(fetch_unit_name(weights), render_fetch_script(rig, weights), render_artefacts_test(rig, weights))


def publish_inventory(
    inventory: str, folder: Path, signers: TrustedSigners, key: Path, days: int, *, only_timestamp: bool
) -> None:
    """Publish the generations of an inventory's boxes.

    Args:
        inventory: The file.
        folder: The folder that a web server gives out.
        signers: The signers of the inventory.
        key: The key to sign with.
        days: Days for which the statement of a box is valid.
        only_timestamp: Whether only the timestamp is renewed; then no box is read.

    Raises:
        click.ClickException: a box is not read, or a file is not written.
    """
    published = PublishedBoxes(Path(inventory), folder, signers, key)
    if only_timestamp:
        published.keep_all()
    else:
        boxes, gone = connect_inventory(inventory, None, _require_supply)
        pulling = [one for one in boxes if one.rig.pull]
        # a box that is not declared any more, or does not pull, is taken out
        for name in gone:
            if name in published.rows:
                published.keep_box(name)
        for sentence in map_hosts(pulling, lambda box: published.add_box(box, days)):
            print_prose(sentence)
        for name, why in gone.items():
            print_prose(f"{name}: not reached, and published as before: {json.dumps(why)}", err=True)
        if not pulling and not gone:
            raise click.ClickException(f'{inventory}: no rig pulls: add "pull": {{"url": "https://..."}}')
    print_prose(f"{folder}: {published.write_timestamp(min(days, TIMESTAMP_DAYS))}")
    if not only_timestamp:
        published.files.prune(published.entries, KEPT_BASES + 1)


def _require_supply(rigs: Mapping[str, Rig]) -> None:
    """Publish only what a deploy would accept."""
    if faults := [fault for rig in rigs.values() for fault in rig.supply_faults]:
        raise Invalid(sorted({*faults}))
