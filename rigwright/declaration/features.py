"""All features that have a part in an inventory's entry, each after those whose fields it reads."""

from __future__ import annotations

from rigwright.check_waivers import WAIVERS
from rigwright.containers.container_packages import CONTAINERS
from rigwright.declaration.signature_resolution import SIGNATURES
from rigwright.engines.instance_resolution import ENGINE_KEYS, INSTANCES
from rigwright.envs.env_resolution import ENV_PACKAGES, ENVS, INSTALLER_WHEELS
from rigwright.fetch_job_spec import BUNDLE, DOWNLOADS
from rigwright.gateway.served_models import GATEWAY
from rigwright.monitoring.validation import MONITORING
from rigwright.nvidia.cards.card_resolution import CARDS
from rigwright.nvidia.cuda_toolkit import CUDA_TOOLKIT
from rigwright.nvidia.driver.driver_resolution import NVIDIA_DRIVER
from rigwright.pull.pull_facts import PULL_MODE

FEATURES = (
    CARDS,
    INSTANCES,
    GATEWAY,
    ENVS,
    CUDA_TOOLKIT,
    DOWNLOADS,
    INSTALLER_WHEELS,
    MONITORING,
    ENV_PACKAGES,
    NVIDIA_DRIVER,
    CONTAINERS,
    ENGINE_KEYS,
    BUNDLE,
    SIGNATURES,
    PULL_MODE,
    WAIVERS,
)
