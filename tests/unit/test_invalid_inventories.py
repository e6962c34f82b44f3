"""Bad rigs, given to the commands that would connect: none gets as far as a connection."""

import copy
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cli import main
from rigwright.inventory import load_rig
from rigwright.problems import Invalid
from tests.unit.example_counts import example_count
from tests.unit.samples import OperatorFolder
from tests.unit.test_entry_fuzzing import changes, mutated


class KnockedPort:
    """A port where a host's sshd would be; it knows whether anybody has knocked."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]

    @property
    def knocked(self) -> bool:
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def door() -> Iterator[KnockedPort]:
    made = KnockedPort()
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> OperatorFolder:
    return OperatorFolder(tmp_path_factory.mktemp("box"))


def is_bad(place: OperatorFolder, declared: dict[str, Any]) -> bool:
    try:
        load_rig({"name": "box", "inventory": str(place.inventory), "entry": declared})
    except Invalid:
        return True
    return False


@settings(
    max_examples=example_count(60),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(changes=changes, verb=st.sampled_from(["deploy", "check", "plan", "rollback", "show models", "validate"]))
def test_no_bad_rig_reaches_a_host(place, door, changes, verb):
    declared = mutated(copy.deepcopy(changes))
    connection = {"ssh_hostname": "127.0.0.1", "ssh_port": door.port}
    own = {key: value for key, value in declared.items() if not str(key).startswith(("ssh_", "_"))}
    assume(is_bad(place, own))
    head = "from rigwright.inventory import hosts\n\nnan = inf = float('inf')\n"
    place.inventory.write_text(f"{head}rigs = hosts({{'box': {own | connection!r}}})\n")
    assert CliRunner().invoke(main, [*verb.split(), str(place.inventory)]).exit_code != 0
    assert not door.knocked
