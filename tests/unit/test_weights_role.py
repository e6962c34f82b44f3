"""The role weights: what its jobs are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import roles.weights
from rigwright.bundle import Bundle
from tests.unit.samples import artefact, facts, instance, rig, wheel


@pytest.mark.parametrize("bundled", [False, True])
def test_a_host_that_fetches_nothing_is_given_no_token(monkeypatch: pytest.MonkeyPatch, bundled: bool) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(roles.weights, "job", lambda **settings: given.update(settings))
    bundle = Bundle(Path("/bundle"), (), ()) if bundled else None
    roles.weights._fetch(rig(hub_token_file="/home/ops/token", bundle=bundle), [artefact()], None)
    assert given["secrets"] == ({} if bundled else {"hub-token": "/home/ops/token"})


@pytest.mark.parametrize("verified", [False, True])
def test_a_host_that_has_all_its_files_needs_no_client_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    monkeypatch.setattr(roles.weights, "host", SimpleNamespace(get_fact=lambda kind, test: verified))
    found = roles.weights._client(rig(instance(), hub_client=(wheel(),)), facts())
    assert (found is None) == verified
