"""`rigwright sign --publish`: signed generations in a folder from which boxes pull."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import click

from checks.connections import ConnectedHost, connect_inventory, map_hosts
from cli.tables import print_prose
from rigwright import local_files
from rigwright.fetch_job_spec import fetch_credentials, fetch_unit_name
from rigwright.local_files import write_atomically
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig
from rigwright.plan.generation_publication import (
    BaseGeneration,
    base_of_observed,
    base_of_payload,
    build_payload,
    digest_declaration,
    parse_published,
)
from rigwright.problems import Invalid
from rigwright.pull.publication import (
    GENERATION,
    MOST_METADATA,
    MOST_PAYLOAD,
    MOST_TIMESTAMP,
    PAYLOAD,
    TIMESTAMP_FILE,
    PublishedEntry,
    RootJob,
    metadata_file,
    parse_entries,
    payload_file,
    render_generation_details,
    render_timestamp_details,
)
from rigwright.signing.dsse import parse_envelope
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_statement, verify_envelope
from rigwright.signing.statements import MOST_SUBJECTS, SignedKind, Statement, parse_statement
from rigwright.signing.timestamps import current_time, render_time
from rigwright.signing.trusted_signers import TrustedSigners
from roles.artefact_fetch import render_artefacts_test, render_fetch_script
from roles.trees import render_record_job

TIMESTAMP_DAYS = 7
"""Days for which a timestamp is valid: after that, each box reports that it gets no newer one."""
KEPT_BASES = 3  # earlier generations of a box from which it can pull: it may have missed some


class PublishedBoxes:
    """The folder that a web server gives out."""

    def __init__(self, folder: Path, signers: TrustedSigners, key: Path) -> None:
        self.folder, self.signers, self.key = folder, signers, key
        self.entries: dict[str, PublishedEntry] = {}
        self.serial = 0
        with suppress(FileNotFoundError):
            self.entries, self.serial = self._read_timestamp()
        self.now = current_time()

    def _read_timestamp(self) -> tuple[dict[str, PublishedEntry], int]:
        path = self.folder / TIMESTAMP_FILE
        if not path.exists():
            return {}, 0
        try:
            envelope = parse_envelope(local_files.read_content(path, MOST_TIMESTAMP))
            statement = parse_statement(envelope, "timestamp")
            return parse_entries(statement), statement.serial
        except (SignatureRefused, ValueError) as error:
            raise click.ClickException(f"{path} is not a timestamp: {error}; remove it to publish anew") from None

    @cached_property
    def next_serial(self) -> int:
        """The serial of all that this run signs: the clock's, above all that were published."""
        used = max((self.serial, *(one.serial for one in self.entries.values())))
        return max(int(self.now.strftime("%Y%m%d%H%M%S")), used + 1)

    def load_bases(self, box: str) -> list[BaseGeneration]:
        """The generations that were published for a box, the newest first."""
        found = []
        for path in self._list_statements(box)[:KEPT_BASES]:
            # one that was removed or replaced is no base
            with suppress(SignatureRefused, ValueError, KeyError):
                content = local_files.read_content(self._find_payload(path), MOST_PAYLOAD)
                found.append(base_of_payload(parse_published(content)))
        return found

    def _list_statements(self, box: str) -> list[Path]:
        """The statements of a box, the newest first."""
        form = re.compile(rf"{re.escape(box)}\.([0-9]{{1,17}})\.json")
        folder = (self.folder / metadata_file(box, 0)).parent
        found = {int(match[1]): path for path in folder.glob("*.json") if (match := form.fullmatch(path.name))}
        return [path for _, path in sorted(found.items(), reverse=True)]

    def _find_payload(self, statement: Path) -> Path:
        parsed = parse_statement(parse_envelope(local_files.read_content(statement, MOST_METADATA)), "generation")
        return self.folder / payload_file(dict(parsed.subjects)[PAYLOAD])

    def prune(self) -> None:
        """Remove statements that no box needs any more, and payloads that no statement has."""
        needed = set()
        for box in self.entries:
            statements = self._list_statements(box)
            for path in statements[: KEPT_BASES + 1]:
                with suppress(SignatureRefused, ValueError, KeyError):
                    needed.add(self._find_payload(path))
            for path in statements[KEPT_BASES + 1 :]:
                path.unlink(missing_ok=True)
        for path in (self.folder / payload_file("x")).parent.glob("*.json"):
            if path not in needed:
                path.unlink(missing_ok=True)

    def keep(self, boxes: Collection[str]) -> None:
        """Publish no other boxes any more."""
        self.entries = {box: one for box, one in self.entries.items() if box in boxes}

    def add_box(self, box: ConnectedHost, days: int) -> str:
        """Publish the generation of a box; returns a sentence."""
        desired, served = box.resolve_desired(), box.read_serving_state()
        if desired.facts.pull is None:
            raise click.ClickException(f"{box.name}: its machine id is not readable")
        kept = [one for one in served.generations if one.is_intact and one.proven and one.number == served.current]
        bases = {one.digest: one for one in (*self.load_bases(box.name), *map(base_of_observed, kept))}
        record = RootJob(*render_record_job(box.rig, desired.generation.digest))
        payload = build_payload(desired, bases.values(), _fetch_job(box.rig), record).render()
        if len(payload) > MOST_PAYLOAD:
            raise click.ClickException(f"{box.name}: its generation has {len(payload)} bytes; at most {MOST_PAYLOAD}")
        digest, declaration = hashlib.sha256(payload).hexdigest(), digest_declaration(desired)
        details = render_generation_details(
            box.name, desired.facts.pull.machine, declaration, box.rig.digest, len(payload)
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
        content = self._sign("timestamp", subjects, serial, days, render_timestamp_details(self.entries))
        self._write(TIMESTAMP_FILE, content)
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
    published = PublishedBoxes(folder, signers, key)
    if not only_timestamp:
        boxes, gone = connect_inventory(inventory, None, _require_supply)
        pulling = [one for one in boxes if one.rig.pull]
        # a box that is not declared any more, or does not pull, is taken out
        published.keep({*(one.name for one in pulling), *gone})
        for sentence in map_hosts(pulling, lambda box: published.add_box(box, days)):
            print_prose(sentence)
        for name, why in gone.items():
            print_prose(f"{name}: not reached, and published as before: {json.dumps(why)}", err=True)
        if not pulling and not gone:
            raise click.ClickException(f'{inventory}: no rig pulls: add "pull": {{"url": "https://..."}}')
    print_prose(f"{folder}: {published.write_timestamp(min(days, TIMESTAMP_DAYS))}")
    published.prune()


def _require_supply(rigs: Mapping[str, Rig]) -> None:
    """Publish only what a deploy would accept."""
    if faults := [fault for rig in rigs.values() for fault in rig.supply_faults]:
        raise Invalid(sorted({*faults}))
