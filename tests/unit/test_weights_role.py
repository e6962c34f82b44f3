"""The role weights: the inputs of its jobs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import roles.weights
from rigwright.fetch_job_spec import render_fetch_spec
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import account_names
from rigwright.model.roots import Roots
from rigwright.weights.verification import recorded_file
from roles import artefact_fetch
from tests.unit import short_programs
from tests.unit.samples import sample_artefact, sample_facts, sample_instance, sample_rig, sample_wheel


@pytest.mark.parametrize("verified", [False, True])
def test_a_host_that_has_all_its_files_needs_no_client_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    monkeypatch.setattr(artefact_fetch, "host", SimpleNamespace(get_fact=lambda kind, test: verified))
    found = roles.weights._needed_hub_client(
        sample_rig(sample_instance(), hub_client=(sample_wheel(),)), sample_facts()
    )
    assert (found is None) == verified


@pytest.mark.parametrize(("size", "mark", "present"), [(7, False, True), (6, False, False), (7, True, False)])
def test_a_file_of_the_right_size_is_sent_again_once_it_is_known_to_be_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, mark: bool, present: bool
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(artefact_fetch, "ensure_job", lambda **settings: given.update(settings))
    roots = Roots.model_construct(models=str(tmp_path), state=str(tmp_path), config="", software="")
    made, row = sample_rig(roots=roots), sample_artefact(size=7)
    place = Path(made.roots.weight_path(row))
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(size))
    if mark:
        (tmp_path / "weights/wrong").mkdir(parents=True)
        (tmp_path / "weights/wrong" / recorded_file(made.roots, row).record).touch()
    roles.weights._fetch_from_bundle(made, row)
    assert (short_programs.run_program(["sh", "-c", given["present"]]).returncode == 0) == present


def test_the_hub_s_client_runs_as_a_user_that_the_rig_has() -> None:
    made = sample_rig(sample_instance(), hub_client=(sample_wheel(group="hub-client"),))
    asked = json.loads(
        render_fetch_spec(
            made.roots,
            made.accounts,
            made.network,
            made.fs_verity,
            loaded_weights(made.instances),
            client="/opt/x/bin/python",
        )
    )
    assert asked["hub_user"] == made.accounts.hub
    assert made.accounts.hub in account_names(made)
    assert made.accounts.hub not in account_names(sample_rig(sample_instance()))
