"""The gateway's checks of what its host says about itself."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from checks import DEPLOY, Drift, test_gateway
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import Gates, GateUnit, ShareProcess
from checks.survey.host import managed_files
from checks.survey.managed_files import LedgerFile, ManagedEntry, ManagedFiles
from checks.survey.requests import RequestAnswers, SurveyAnswer
from rigwright.gateway import keyring
from rigwright.gateway.gateway_units import ROTATION, ROUTER_KEYS, render_logrotate
from rigwright.gateway.keyring import ClientKey, ClientKeyring
from rigwright.gateway.secrets_distribution import keys_path
from rigwright.model.gateway_schema import Gateway
from rigwright.model.rig import Rig
from rigwright.serving.instance_units import OWNED_HEADER
from tests.unit.samples import sample_instance, sample_rig

TIMER = GateUnit("active", "enabled")


@pytest.fixture
def box() -> Rig:
    """A rig with a gateway."""
    listeners = {"listeners": {"office": {"address": "192.0.2.7", "port": 443}}}
    return replace(sample_rig(sample_instance()), gateway=Gateway.model_validate(listeners))


def rotated_log_answers(box: Rig, rotated: int) -> SurveyAnswers:
    """The output of a host with a log that was rotated then."""
    files = {ROTATION: render_logrotate(box.accounts, OWNED_HEADER)}
    gates = Gates({"logrotate.timer": TIMER}, files, rotated, {}, [], [], ShareProcess(0, False, []))
    answers: dict[str, Any] = {"frontend_services": {"told": asdict(gates)}}
    return SurveyAnswers(answers)


@pytest.mark.parametrize("rotated", [0, 1_800_000_000 - 10**9, -(10**18)])
def test_a_log_that_was_rotated_on_a_day_that_has_been_is_green(box: Rig, rotated: int) -> None:
    assert box.gateway
    test_gateway.test_log_is_rotated(
        rotated_log_answers(box, rotated), box.accounts, ("rigwright-gateway", box.gateway)
    )


@pytest.mark.parametrize(
    ("rotated", "said"),
    [
        (4_000_000_000, "2096-10-02"),
        (10**12, "an invalid date"),
        (10**18, "an invalid date"),
        (10**40, "an invalid date"),
    ],
)
def test_a_day_that_is_still_to_come_is_red_however_far_away_it_is(box: Rig, rotated: int, said: str) -> None:
    assert box.gateway
    with pytest.raises(Drift, match=said):
        test_gateway.test_log_is_rotated(
            rotated_log_answers(box, rotated), box.accounts, ("rigwright-gateway", box.gateway)
        )


def keys_at_rest(box: Rig, lying: Path, path: str = "") -> SurveyAnswers:
    """The output of a host with keys in a file, root's unless it is another path's."""
    entry = ManagedEntry(box.roots.ledger, "file", 0o644, 0, 0, 0.0)
    told_files = {path or keys_path(box.roots): managed_files._sha256(lying)}
    version = managed_files._keys_version(lying)
    own = ManagedFiles([], [], [], LedgerFile(entry, [], True), [], [], [], [], [], told_files, version, {})
    return SurveyAnswers({"managed_files": {"told": asdict(own)}})


def test_keys_of_another_version_are_red_with_both_serials_and_what_helps(box: Rig, tmp_path: Path) -> None:
    box = replace(box, inventory=str(tmp_path / "rig.py"))
    assert box.gateway
    declared, part = box.gateway, ("rigwright-gateway", box.gateway)
    file, lying = tmp_path / declared.keys_file, tmp_path / "host.json"
    first = ClientKeyring(keys={"alice": ClientKey(sha256="a" * 64, made="2026-11-22")})
    keyring.dump(file, first)
    lying.write_text(keyring.keys_json(keyring.load_keyring(file)))
    test_gateway.test_keys_at_rest(keys_at_rest(box, lying), box.inventory, box.roots, part)
    # the file has changed since: a deploy brings it
    keyring.dump(file, keyring.load_keyring(file).with_key("bob", ClientKey(sha256="b" * 64, made="2026-11-22")))
    with pytest.raises(Drift) as drift:
        test_gateway.test_keys_at_rest(keys_at_rest(box, lying), box.inventory, box.roots, part)
    assert ("serial 1" in drift.value.found, "serial 2, of gateway-keys.toml" in drift.value.expected) == (True, True)
    assert drift.value.remedy == DEPLOY
    # the host has what this file was not made into
    lying.write_text(keyring.keys_json(keyring.load_keyring(file)))
    keyring.dump(file, first)
    with pytest.raises(Drift) as drift:
        test_gateway.test_keys_at_rest(keys_at_rest(box, lying), box.inventory, box.roots, part)
    assert ("serial 2" in drift.value.found, drift.value.cure.startswith("take the newer file")) == (True, True)
    lying.write_text('{"keys":[]}')
    with pytest.raises(Drift, match="serial none"):
        test_gateway.test_keys_at_rest(keys_at_rest(box, lying), box.inventory, box.roots, part)


def test_a_key_in_the_routers_copy_alone_is_red(box: Rig, tmp_path: Path) -> None:
    box = replace(box, inventory=str(tmp_path / "rig.py"))
    assert box.gateway
    ring = ClientKeyring(keys={"alice": ClientKey(sha256="a" * 64, made="2026-11-22")})
    keyring.dump(tmp_path / box.gateway.keys_file, ring)
    text = keyring.keys_json(keyring.load_keyring(tmp_path / box.gateway.keys_file))
    copy = tmp_path / "copy.json"
    copy.write_text(text)
    _check_keys_in_force(box, box.gateway, copy)
    copy.write_text(text.replace('{"keys":[', '{"keys":[{"name":"health","sha256":"' + "b" * 64 + '"},'))
    with pytest.raises(Drift) as drift:
        _check_keys_in_force(box, box.gateway, copy)
    assert drift.value.found.startswith(f"{ROUTER_KEYS} with keys {managed_files._sha256(copy)[:12]}")
    assert "alice" not in str(drift.value) and "health" not in str(drift.value)
    copy.unlink()
    with pytest.raises(Drift, match="with keys of no file"):
        _check_keys_in_force(box, box.gateway, copy)


def _check_keys_in_force(box: Rig, declared: Gateway, copy: Path) -> None:
    """Check a host whose router's process has the declared keys, with another copy of them next to it."""
    ring = keyring.load_keyring(Path(box.inventory).parent / declared.keys_file)
    state = json.dumps({"digest": "", "keys": keyring.keys_digest(keyring.keys_json(ring))})
    answer = SurveyAnswer(200, state, "", {}, "", "")
    requests: dict[str, Any] = {"told": asdict(RequestAnswers({"router: state": answer}, {}))}
    survey = SurveyAnswers({**keys_at_rest(box, copy, ROUTER_KEYS).answers, "requests": requests})
    test_gateway.test_keys_in_force(survey, box.inventory, ("rigwright-gateway", declared))
