"""Classes of the fingerprint: everything that controls access to a host, execution as root and the view of services.

The first class that takes a path has it; the last class takes the rest of /etc.
"""

from __future__ import annotations

from checks.survey.access_classes import ACCESS, STARTED
from checks.survey.entry_class import EntryClass
from checks.survey.system_classes import ORDINARY, SYSTEM

ENTRY_CLASSES: tuple[EntryClass, ...] = (*ACCESS, *STARTED, *SYSTEM, *ORDINARY)
