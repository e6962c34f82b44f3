"""The file on a host with the serials of signed locks and bundles that it has accepted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rigwright.host.script_output import HostOutput, number, one_of, sha256
from rigwright.model.inventory_feature import FactSource
from rigwright.supply.supply_signatures import AcceptedSerial


def _read_facts(output: HostOutput) -> Mapping[str, object]:
    rows = {kind: AcceptedSerial(serial, digest) for kind, serial, digest in output.many("accepted_serial")}
    return {"accepted_serials": MappingProxyType(rows)}


SIGNATURE_FACTS = FactSource(
    "signatures",
    "signatures/state.sh.j2",
    lambda rig: {"accepted_serials": rig.roots.accepted_serials},
    {"accepted_serial": (one_of("lock", "bundle"), number, sha256)},
    _read_facts,
)
