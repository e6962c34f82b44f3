"""Packages and folders of the ledger: those that the rig needs are explained, others are entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from checks.survey.host import dpkg, ledger_entries

STATUS = """\
Package: nginx
Status: install ok installed
Depends: nginx-common (= 1), libc6 (>= 2) | libc6-other, httpd-lua

Package: nginx-common
Status: hold ok installed

Package: libnginx-mod-lua
Status: install ok installed
Provides: httpd-lua (= 1)

Package: openssh-server
Status: install ok installed
Depends: libc6

Package: libnvidia-compute
Status: install ok installed

Package: gone
Status: deinstall ok config-files
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    for folder in ("etc/ssh", "srv/models/tiny", "var/www/html"):
        (tmp_path / folder).mkdir(parents=True)
    with patch.object(dpkg, "ROOT", str(tmp_path)):
        yield tmp_path


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ("package nginx", "rigwright"),
        ("package nginx-common", "rigwright"),
        ("package libnginx-mod-lua", "rigwright"),
        ("package openssh-server", ""),
        ("package libnvidia-compute", "rigwright"),
        ("package gone", None),
        ("dir /srv/models/tiny", "rigwright"),
        ("dir /srv", "rigwright"),
        ("dir /var/www", "rigwright"),
        ("dir /etc/ssh", ""),
        ("dir /srv/models/../../etc/ssh", ""),
        ("dir /nowhere", None),
        ("file /etc/passwd", None),
    ],
)
def test_lines_of_the_ledger(host: Path, line: str, origin: str | None) -> None:
    (host / "owned").write_text(f"{line}\n{line}\n")
    spec = {
        "path": "/owned",
        "packages": ["nginx", "curl"],
        "patterns": ["libnvidia-.*"],
        "folders": ["/srv/models", "/var/www/html/index.html"],
    }
    found = [*ledger_entries.ledger_lines("ledger", {"ledger": spec})]
    assert [entry.origin for entry in found] == ([] if origin is None else [origin])
