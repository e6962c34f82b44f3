"""What of a lock is for the Python that the lab packs, and what is written beside an inventory."""

from pathlib import Path

import pytest

from rigwright.declaration.catalog import load_catalog
from rigwright.supply.lock import Lock
from tests.stand_ins.conda_python import Interpreter
from tests.stand_ins.environment_source import (
    INTERPRETER,
    PACKAGES,
    LabEnvironment,
    is_for_interpreter,
    write_declaration,
)
from tests.unit.samples import sample_wheel

OLD = Interpreter(Path("/usr/bin/python3.10"), "3.10.13", Path("/usr"))


@pytest.mark.parametrize(
    ("file", "marker", "found"),
    [
        ("demo-1.0-py3-none-any.whl", None, True),
        ("demo-1.0-cp310-cp310-manylinux_2_28_x86_64.whl", None, True),
        ("demo-1.0-cp38-abi3-manylinux2014_x86_64.whl", None, True),
        ("demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", None, False),
        ("demo-1.0-cp311-abi3-manylinux_2_28_x86_64.whl", None, False),
        ("demo-1.0-cp310-cp310-manylinux_2_28_aarch64.whl", None, False),
        ("demo-1.0-py3-none-any.whl", "python_full_version < '3.11'", True),
        ("demo-1.0-py3-none-any.whl", "python_full_version >= '3.11'", False),
    ],
)
def test_a_wheel_is_for_a_python_by_its_tags_and_its_marker(file: str, marker: str | None, found: bool) -> None:
    assert is_for_interpreter(sample_wheel("demo", file=file, marker=marker), OLD) is found


def test_what_is_declared_is_read(tmp_path: Path) -> None:
    conda = {"kind": "conda", "build": "lab_0", "selection": "0" * 12, "file": "python-1.0-lab_0.conda"}
    python = sample_wheel("python", group=INTERPRETER, sources=["lab:linux-64/python-1.0-lab_0.conda"], **conda)
    row = sample_wheel("demo", group=PACKAGES)
    write_declaration(tmp_path, LabEnvironment("small", "demo", ("demo", "demo.more")), [python, row])
    found = load_catalog([tmp_path / "catalog"]).envs["small"]
    assert (found.python, found.packages, found.imports) == (INTERPRETER, PACKAGES, ("demo", "demo.more"))
    groups = Lock.load([tmp_path / "locks"]).groups
    assert [groups[INTERPRETER][0].file, groups[PACKAGES][0].file] == [python.file, row.file]
