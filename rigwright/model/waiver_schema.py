"""A waiver of an inventory: a failing check that its operator accepts for one observed value, until a day."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from rigwright.problems import InventoryModel
from rigwright.validated_types import Day, Text

LONGEST = 4000  # characters of an observed value


def _check_observed(value: str) -> str:
    if not 0 < len(value) <= LONGEST or not value.isprintable():
        raise ValueError(f"1 to {LONGEST} printable characters, as `rigwright check -v` prints them after `observed`")
    return value


Observed = Annotated[str, AfterValidator(_check_observed)]


class WaiverEntry(InventoryModel):
    """A waiver: the check fails again for any other value, and after its last day."""

    EXAMPLE: ClassVar[str] = (
        '{"check": "B01", "observed": "...", "owner": "ana", "reason": "...", "until": "2027-01-31"}'
    )
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("id", "rule", "checkid"), "check"),
        **dict.fromkeys(("value", "found", "finding"), "observed"),
        **dict.fromkeys(("author", "by", "approver", "approvedby"), "owner"),
        **dict.fromkeys(("why", "comment", "justification", "description"), "reason"),
        **dict.fromkeys(("expires", "expiry", "end", "enddate", "expirationdate", "validuntil"), "until"),
        **dict.fromkeys(("instance", "subject", "unit"), "part"),
    }

    check: Text = Field(description="Id of the failing check.")
    part: Text | None = Field(
        default=None, description="Its instance, engine, weight file or the like, where the check has one."
    )
    observed: Observed = Field(
        description="The observed value that is waived, as `rigwright check -v` prints it: one waiver per value."
    )
    owner: Text = Field(description="The person responsible.")
    reason: Text = Field(description="The reason.")
    until: Day = Field(description="The last day of the waiver, in UTC.")

    @property
    def label(self) -> str:
        """Its check, and the part where it has one."""
        return f"{self.check} {self.part or ''}".rstrip()
