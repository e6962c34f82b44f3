"""Weights for other boxes, as one of them and as an outsider finds them."""

import pytest

from checks import DEPLOY, ItemText, check, digest_text, expect
from checks.remedy import STOP_LISTENER, restart_units, show_log
from checks.service_processes import expect_started_from
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import GATES
from checks.survey.requests import REQUESTS, UNGIVEN, compared_pieces, disallowed_address, find_answer
from checks.survey.service_exposure import REACH
from rigwright.model.instance import Instance
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.roots import Roots
from rigwright.weights.weight_server import SHARE_UNIT, config_path, render_share_config, share_digest, share_endpoint

EXPOSURE = 2.0  # budget of the unit, `systemd-analyze security`: 0 is nothing exposed, 10 everything
LATER = 30  # seconds: workers that began so long after their settings were noted were not begun by us
LOG = show_log(SHARE_UNIT)
RESTART = restart_units(SHARE_UNIT)


@check(
    "H01",
    "the weights share is running, and starts at boot",
    severity="high",
    why="other boxes download from outside again",
)
def test_active_and_enabled(survey: SurveyAnswers, share: ShareEntry) -> None:
    one = survey.read(GATES).unit_state(SHARE_UNIT)
    expect(f"{SHARE_UNIT} {one.active}, {one.enabled}", f"{SHARE_UNIT} active, enabled", DEPLOY + LOG)


@check(
    "H02",
    "the weights share was started from the declared settings",
    severity="high",
    why="settings changed by hand or by an interrupted deploy give other files to other boxes",
)
def test_process_is_current(survey: SurveyAnswers, roots: Roots, share: ShareEntry) -> None:
    one, wanted = survey.read(GATES).unit_state(SHARE_UNIT), share_digest(roots, share)
    expect_started_from(SHARE_UNIT, one.started_from if one.active == "active" else "", wanted)
    # the file holds from its next start on
    lying, path = survey.read(GATES).files.get(config_path(roots)), config_path(roots)
    settings = ItemText(f"another {path}", f"another {path}: {digest_text(lying or 'none')}")
    expect(settings, "its settings as declared", DEPLOY, holds=lying == render_share_config(roots, share))
    expect(ItemText.without_value("another program") if one.replaced else "the same", "the same", RESTART)
    found = f"workers started {one.later}s later" if one.later > LATER else "no later ones"
    expect(found, "no later ones", RESTART)


@check(
    "H03",
    "the weights share's exposure level is within budget",
    severity="high",
    why="a flaw in the server exposes the box",
)
def test_exposure(survey: SurveyAnswers, share: ShareEntry) -> None:
    level = survey.read(GATES).unit_state(SHARE_UNIT).exposure or "10"
    expect(level, f"at most {EXPOSURE}", DEPLOY, holds=float(level) <= EXPOSURE)


@check(
    "H04",
    "the weights share listens only on the declared address and port",
    severity="critical",
    why="on another network, the weights are open to everyone",
)
def test_listens_where_it_is_declared(survey: SurveyAnswers, share: ShareEntry) -> None:
    listeners = survey.read(REACH).listeners
    own = {one.at for one in listeners if any(name.endswith(f" of {SHARE_UNIT}") for name in one.holders)}
    expect(", ".join(sorted(own)) or "nothing", share_endpoint(share), RESTART + DEPLOY)
    others = [
        name
        for one in listeners
        if one.port == share.port
        for name in one.holders
        if not name.endswith(f" of {SHARE_UNIT}")
    ]
    expect(", ".join(sorted(set(others))) or "no other", "no other", STOP_LISTENER + DEPLOY)


@check(
    "H05",
    "the weights share serves the locked bytes",
    severity="high",
    why="a peer that serves other bytes costs a download",
)
def test_a_weight_is_given(survey: SurveyAnswers, declared_instances: tuple[Instance, ...], share: ShareEntry) -> None:
    requests = survey.read(REQUESTS)
    for weight, number, start, length in compared_pieces(declared_instances):
        found = find_answer(requests, f"share: {weight.weight_path} {number}")
        wanted = f"bytes {start}-{start + length - 1}/{weight.size}"
        told = f"{found.describe} {found.headers.get('content-range', '')}".strip()
        expect(f"{weight.file}: {told}", f"{weight.file}: 206 {wanted}", DEPLOY + LOG)
        same = found.sha256 == requests.parts.get(f"{weight.weight_path} {number}", "")
        shown = f"{weight.file}: bytes {'as on disk' if same else 'others'}"
        expect(
            ItemText(shown, f"{shown}: {found.sha256}"),
            f"{weight.file}: bytes as on disk",
            RESTART + DEPLOY,
            holds=same,
        )


@check(
    "H06",
    "the weights share serves only complete files, and accepts none",
    severity="critical",
    why="other boxes would download partial files, and a link can lead to any file",
)
def test_nothing_else_is_given(survey: SurveyAnswers, share: ShareEntry) -> None:
    requests = survey.read(REQUESTS)
    for what in UNGIVEN:
        found = find_answer(requests, f"share: {what}").describe
        # of what is not there, too: for what it is called
        expect(f"{what}: {found}", f"{what}: refused", DEPLOY + LOG, holds=found in ("403", "400"))
    found = find_answer(requests, "share: written").describe
    expect(f"writing: {found}", "writing: 405", DEPLOY + LOG)


@check(
    "H07",
    "the weights share refuses networks that are not declared",
    severity="critical",
    why="licensed and gated models must not be public",
)
def test_strangers_are_refused(survey: SurveyAnswers, share: ShareEntry) -> None:
    if not disallowed_address(share):
        pytest.skip("the share refuses none of this host's addresses")
    # an allowed client gets the answer that there is no such file
    found = find_answer(survey.read(REQUESTS), "share: stranger")
    expect(found.describe, "403 or no answer", DEPLOY, holds=found.status in (0, 403))


@check(
    "H08",
    "the weights share cannot write to its files",
    severity="critical",
    why="a flaw in the server could change weights",
)
def test_it_cannot_write(survey: SurveyAnswers, share: ShareEntry) -> None:
    gates = survey.read(GATES)
    expect("a process" if gates.unit_state(SHARE_UNIT).pid else "none", "a process", DEPLOY + LOG)
    expect(", ".join(gates.sharing.writes) or "nothing", "nothing", RESTART + DEPLOY)
    root = gates.sharing.user == 0 or gates.sharing.able
    expect(
        "root" if root else "an unprivileged user",
        "an unprivileged user",
        RESTART + DEPLOY,
    )


@check("H09", "weights are shared only where declared", severity="high", why="an undeclared share is not maintained")
def test_nothing_undeclared(survey: SurveyAnswers, share_entry: ShareEntry | None) -> None:
    if share_entry:
        pytest.skip("the rig declares one")
    one = survey.read(GATES).unit_state(SHARE_UNIT)
    there = one.enabled not in ("", "not there") or one.active not in ("inactive", "not there", "")
    expect(f"{one.active}, {one.enabled}" if there else "nothing", "nothing", DEPLOY)
