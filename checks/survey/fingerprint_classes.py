"""Classes of the fingerprint: everything that controls access to a host, execution as root and the view of services.

The first class that takes a path has it; the last class takes the rest of /etc.
"""

from __future__ import annotations

from checks.survey.fingerprint_access_classes import ACCESS, STARTED
from checks.survey.fingerprint_class import EntryClass
from checks.survey.fingerprint_system_classes import ORDINARY, SYSTEM

ENTRY_CLASSES: tuple[EntryClass, ...] = (*ACCESS, *STARTED, *SYSTEM, *ORDINARY)
CLASS_NAMES = frozenset(one.name for one in ENTRY_CLASSES)
