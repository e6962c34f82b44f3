"""A folder that stands in for a host's root, for what the survey's modules look at."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from checks.survey.host import apt, boot, boot_settings, cards, dpkg, kernel, packages, rollback_packages
from tests.unit.rendered_scripts import write_stand_in

WriteFile = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path.resolve()
    for name in ("apt-cache", "apt-config", "modinfo", "systemctl", "journalctl"):
        write_stand_in(root / "bin", name, "exit 0")
    with patch.dict(os.environ, {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}):
        patches = [
            patch.object(module, "ROOT", str(root))
            for module in (apt, boot, cards, dpkg, rollback_packages, kernel, packages, boot_settings)
        ]
        for one in patches:
            one.start()
        yield root
        for one in patches:
            one.stop()


@pytest.fixture
def write(root: Path) -> WriteFile:
    def made(name: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return path

    return made
