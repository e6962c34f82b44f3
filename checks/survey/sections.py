"""All sections of the survey."""

from __future__ import annotations

from typing import Any

from checks.survey.about import ABOUT
from checks.survey.accounts import ACCOUNTS
from checks.survey.base_system import GROUND
from checks.survey.cards import CARDS
from checks.survey.compiled import COMPILED
from checks.survey.containers import CONTAINER_ARCHIVES, CONTAINERS
from checks.survey.escapes import ESCAPES
from checks.survey.firewall import FIREWALL
from checks.survey.gates import GATES
from checks.survey.generations import GENERATIONS
from checks.survey.images import IMAGES
from checks.survey.kernel import KERNEL
from checks.survey.loader import LOADER
from checks.survey.managed_files import OURS
from checks.survey.next_boot import BOOT
from checks.survey.packages import ARCHIVE, FILES, PACKAGES
from checks.survey.patched import PATCHED
from checks.survey.path_permissions import WAYS
from checks.survey.processes import PROCESSES
from checks.survey.programs import PROGRAMS
from checks.survey.python import PYTHON
from checks.survey.request_plan import REQUESTS
from checks.survey.rights import RIGHTS
from checks.survey.section import Section
from checks.survey.service_exposure import REACH
from checks.survey.serving import SERVING
from checks.survey.settings import SETTINGS
from checks.survey.trees import TREES
from checks.survey.units import UNITS
from checks.survey.weights import WEIGHTS

# Each those first that take longest: they start in this order
EARLY: tuple[Section[Any], ...] = (
    CARDS,
    ARCHIVE,
    CONTAINER_ARCHIVES,
    RIGHTS,
    SETTINGS,
    GATES,
    PACKAGES,
    FILES,
    REACH,
    KERNEL,
    WEIGHTS,
    PYTHON,
    CONTAINERS,
    LOADER,
    ACCOUNTS,
    OURS,
    BOOT,
    FIREWALL,
    GENERATIONS,
    WAYS,
    ABOUT,
)
"""Those that are asked the same whatever a probe finds: they look while it does."""
PROBED: tuple[Section[Any], ...] = (
    REQUESTS,
    ESCAPES,
    PROGRAMS,
    PROCESSES,
    UNITS,
    IMAGES,
    TREES,
    GROUND,
    SERVING,
    COMPILED,
    PATCHED,
)
"""Those that are asked by what a probe has found."""
SECTIONS = (*PROBED, *EARLY)
