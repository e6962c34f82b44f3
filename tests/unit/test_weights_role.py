"""The role weights: what its jobs are given."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import roles.weights
from rigwright.delivery.fetching import spec
from rigwright.model.entry import Roots
from rigwright.weights.records import recorded
from roles import fetching
from tests.unit import programs
from tests.unit.samples import artefact, facts, instance, rig, wheel


@pytest.mark.parametrize("verified", [False, True])
def test_a_host_that_has_all_its_files_needs_no_client_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    monkeypatch.setattr(fetching, "host", SimpleNamespace(get_fact=lambda kind, test: verified))
    found = roles.weights._client(rig(instance(), hub_client=(wheel(),)), facts())
    assert (found is None) == verified


@pytest.mark.parametrize(("size", "mark", "present"), [(7, False, True), (6, False, False), (7, True, False)])
def test_a_file_of_the_right_size_is_sent_again_once_it_is_known_to_be_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, mark: bool, present: bool
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(fetching, "job", lambda **settings: given.update(settings))
    roots = Roots.model_construct(models=str(tmp_path), state=str(tmp_path), config="", software="")
    made, row = rig(roots=roots), artefact(size=7)
    place = Path(made.weight_path(row))
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(size))
    if mark:
        (tmp_path / "weights/wrong").mkdir(parents=True)
        (tmp_path / "weights/wrong" / recorded(made, row).record).touch()
    roles.weights._take(made, row)
    assert (programs.run(["sh", "-c", given["present"]]).returncode == 0) == present


def test_the_hub_s_client_runs_as_a_user_that_the_rig_has() -> None:
    made = rig(instance(), hub_client=(wheel(group="hub-client"),))
    asked = json.loads(spec(made, made.weights, client="/opt/x/bin/python"))
    assert asked["hub_user"] == made.hub_user
    assert made.hub_user in made.users
    assert made.hub_user not in rig(instance()).users
