"""A host that serves an image, for the tests of a module; a module that imports these has them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.image import ImageBox, serve_image


@pytest.fixture(scope="module")
def box(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBox]:
    """A host that serves an image from a registry."""
    with serve_image(lab, HostSpec("image", "debian-13", disks=("/opt",)), tmp_path_factory.mktemp("image")) as made:
        yield made


@pytest.fixture(scope="module")
def inventory(box: ImageBox) -> Path:
    """Deployed once, and declared anew by each test."""
    return box.deploy_first()
