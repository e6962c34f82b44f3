"""The checks of what a deploy has made."""

from __future__ import annotations

import hashlib

OWNED = frozenset(
    [
        *(
            "A02",
            "A03",
            "A12",
            "B01",
            "B02",
            "B04",
            "C02",
            "C03",
            "C05",
            "C07",
            "D01",
            "D02",
            "D03",
            "D10",
            "D11",
            "D12",
        ),
        *(
            "D13",
            "D14",
            "F07",
            "F08",
            "F09",
            "F11",
            "G01",
            "G02",
            "G03",
            "G04",
            "H01",
            "H02",
            "H03",
            "H04",
            "H08",
            "K01",
        ),
        *(
            "K03",
            "K04",
            "K07",
            "K09",
            "L01",
            "L02",
            "N05",
            "N12",
            "N15",
            "N21",
            "N22",
            "N28",
            "N29",
            "N37",
            "N44",
            "N46",
        ),
        *(
            "N47",
            "N48",
            "O01",
            "O02",
            "O04",
            "O06",
            "Q01",
            "Q02",
            "Q03",
            "Q04",
            "Q05",
            "Q07",
            "R05",
            "R06",
            "S01",
            "S02",
        ),
        *(
            "S03",
            "S10",
            "S11",
            "S12",
            "S16",
            "S17",
            "S18",
            "S19",
            "S20",
            "S21",
            "S22",
            "S25",
            "T02",
            "U01",
            "U02",
            "U03",
        ),
        *("U04", "U07", "U09", "V01", "V04", "W02", "W04", "W05", "W06"),
    ]
)
"""None of them may fail after a deploy. The others are about what surrounds it."""


def declared_digest(lock: str, generation: str) -> str:
    """SHA-256 of what is declared for a host, and of which checks pass.

    Args:
        lock: The digest of the rig's lock and bundle.
        generation: That of its generation.
    """
    return hashlib.sha256("\n".join([lock, generation, *sorted(OWNED)]).encode()).hexdigest()
