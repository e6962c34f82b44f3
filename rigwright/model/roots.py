"""Directories of a rig on its host: the declared ones, and the files and folders below them."""

from __future__ import annotations

from itertools import permutations

from pydantic import Field, model_validator

from rigwright.problems import InventoryModel
from rigwright.supply.lock import Artefact
from rigwright.validated_types import Root, refuse_violations


class Roots(InventoryModel):
    """Where things go on the host; a box with a data disk moves them there. No two are the same or one in another."""

    software: Root = Field(default="/opt/rigwright", description="Compiled engines and tools.")
    models: Root = Field(
        default="/srv/models",
        description="Weights, as `OWNER/NAME/COMMIT/FILE`, or `NAME/VERSION/FILE` where they are your own. An existing "
        "file is used if it has the locked bytes.",
    )
    state: Root = Field(
        default="/var/lib/rigwright",
        description="Records, jobs and their logs; `owned`, the list of everything created on the host.",
    )
    config: Root = Field(
        default="/etc/rigwright",
        description="Configuration and secrets: `generations/`, `current`, `credentials/`. Always below `/etc`.",
    )

    @model_validator(mode="after")
    def _refuse_overlap(self) -> Roots:
        paths = [self.software, self.models, self.state, self.config]
        pairs = [(one, other) for one, other in permutations(paths, 2) if f"{other}/".startswith(f"{one}/")]
        nested = dict.fromkeys(f"{other} is in {one}" for one, other in pairs)
        refuse_violations(
            (bool(nested), f"separate roots: {', '.join(nested)}"),
            (
                not self.config.startswith("/etc/"),
                "a config below /etc: systemd loads units before other disks are mounted",
            ),
        )
        return self

    def weight_path(self, artefact: Artefact) -> str:
        """Where an artefact of kind `weight` lies on the host."""
        return f"{self.models}/{artefact.weight_path}"

    @property
    def jobs(self) -> str:
        """Scripts and logs of long work."""
        return f"{self.state}/jobs"

    @property
    def builds(self) -> str:
        """Sources and objects of engines during their compilation."""
        return f"{self.state}/build"

    @property
    def residency(self) -> str:
        """The folder of the ledger of instances on demand."""
        return f"{self.state}/residency"

    @property
    def startup_records(self) -> str:
        """Records of each instance's first start in its present form."""
        return f"{self.state}/starts"

    @property
    def memory_records(self) -> str:
        """Records of the memory that each instance's starts have taken."""
        return f"{self.state}/memory"

    @property
    def rollout(self) -> str:
        """The marker of a rollout that changes the host."""
        return f"{self.state}/rollout"

    @property
    def ledger(self) -> str:
        """The file that lists what we put on the host: `dir PATH`, `file PATH`, `user NAME`, `package NAME`."""
        return f"{self.state}/owned"

    @property
    def accepted_serials(self) -> str:
        """The file with the serials of signed locks and bundles that the host has accepted."""
        return f"{self.state}/accepted-serials"

    @property
    def installations(self) -> str:
        """One folder per installed engine."""
        return f"{self.software}/engines"

    def installation_path(self, folder: str) -> str:
        """The absolute path of an installation's folder."""
        return f"{self.installations}/{folder}"

    @property
    def generations(self) -> str:
        """One folder per generation."""
        return f"{self.config}/generations"

    def program_path(self, name: str) -> str:
        """The absolute path of a program of the current generation: one of `ServiceSpec.programs`."""
        return f"{self.config}/current/programs/{name}"

    @property
    def credentials(self) -> str:
        """Files that only root may read."""
        return f"{self.config}/credentials"
