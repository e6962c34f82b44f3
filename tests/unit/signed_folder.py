"""An operator's folder with signers."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from cli import main
from cli.inventory_loading import load_host_rigs, load_hosts
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from rigwright.supply.supply_signatures import verify_supply
from tests.unit import test_entry_bundle
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.signing_keys import public_key, trust


class SignedFolder:
    """An operator's folder with a bundle and a signer."""

    def __init__(self, box: OperatorFolder, key: Path) -> None:
        self.box, self.key, self.changes = box, key, dict[str, object]()
        self.bundle = test_entry_bundle.write_bundle(box)
        self.signers = trust(key)
        self.declare()

    def declare(self, **changes: object) -> None:
        """Write the inventory; a key with None is left out."""
        declared = {"signers": {"alice": {"key": str(public_key(self.key))}}} | changes
        self.changes = {key: value for key, value in declared.items() if value is not None}
        entry = sample_entry(bundle="the bundle", instances=chat_instances(), **self.changes)
        self.box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {entry!r}}})\n")

    def sign(self, *arguments: str, target: str = "", code: int = 0) -> str:
        """Run `rigwright sign`."""
        words = ["sign", target or str(self.box.inventory), "--key", str(self.key), *arguments]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == code, done.output
        return done.output

    def rig(self) -> Rig:
        """The rig, as each verb loads it."""
        (rig,) = load_host_rigs(load_hosts(str(self.box.inventory), None)).values()
        return rig

    def faults(self) -> list[str]:
        """The problems of its signatures."""
        return [str(one) for one in self.rig().signature_faults]

    @property
    def lock_signature(self) -> Path:
        """The signature of its lock."""
        return self.box.folder / "locks/rig.lock.sig"

    @property
    def bundle_signature(self) -> Path:
        """The signature of its bundle."""
        return self.bundle / "bundle.json.sig"

    def lock_problems(self) -> list[str]:
        """The problems of the lock's signature, whatever the catalogue needs."""
        lock = Lock.load([ROOT / "locks", self.box.folder / "locks"])
        _, problems = verify_supply(self.box.inventory, lock, None, self.signers)
        return [*map(str, problems)]

    def deploy(self, *arguments: str) -> str:
        """The refusal of a deploy."""
        done = CliRunner().invoke(main, ["deploy", str(self.box.inventory), *arguments])
        assert done.exit_code == 2, done.output
        return done.output
