"""Environments that the tests of vLLM share: each takes half a minute to put together."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.stand_ins import conda_python
from tests.vllm.environment import environments_folder, make_environment


@pytest.fixture(scope="session")
def installed() -> Iterator[Callable[[str], Path]]:
    """Version -> the Python of an environment that has it, as it is locked."""
    interpreter = conda_python.find_interpreter()
    if not interpreter.wanted:
        pytest.skip(f"{interpreter} is here alone, and vLLM is locked for CPython {conda_python.DEFAULT_SERIES}")
    with environments_folder() as folder:
        yield cache(lambda version: make_environment(folder, f"vllm-{version}", interpreter))
