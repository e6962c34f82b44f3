"""The marker of a rollout on a box: its types, the script that replaces it, and a controller that is refused."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigwright.host.script_output import parse_output
from rigwright.rollout import box_marker
from rigwright.rollout.box_marker import (
    MARKER_SCHEMA,
    BoxMarker,
    controller_name,
    describe_marker_refusal,
    parse_left,
    parse_mark,
    parse_marker,
    render_drain_script,
    render_mark_script,
    render_marker_query,
    render_return_script,
)
from rigwright.rollout.state_file import BoxRecord
from tests.unit.rollout_samples import ADA, BOB, make_marker


class LocalRoots:
    """Directories of a host, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.rollout, self.ledger = f"{folder}/state/rollout", f"{folder}/state/owned"


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(box_marker, "LOCKS", str(tmp_path / "locks/inner"))
    return LocalRoots(tmp_path)


def run_script(script: str) -> list[str]:
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_marker_replaces_the_one_that_was_read_and_no_other(roots: Any) -> None:
    assert parse_marker(run_script(render_marker_query(roots))) == (None, "")
    first = make_marker(record=BoxRecord(state="draining", is_out=True, reason="it's $(date) `date`"))
    is_written, digest = parse_mark(run_script(render_mark_script(roots, first, "")))
    assert is_written
    assert parse_marker(run_script(render_marker_query(roots))) == (first, digest)
    out = Path(roots.rollout) / box_marker.BOX_OUT
    assert out.exists()
    assert (Path(roots.rollout) / "marker.json").stat().st_mode & 0o777 == 0o600
    # a folder before the first deploy is recorded as a deploy records it
    assert f"dir {roots.rollout}" in Path(roots.ledger).read_text().splitlines()
    second = make_marker(controller=ADA)
    for expected in ("", "0" * 64):
        assert parse_mark(run_script(render_mark_script(roots, second, expected))) == (False, digest)
    assert parse_marker(run_script(render_marker_query(roots))) == (first, digest)
    assert parse_mark(run_script(render_mark_script(roots, second, digest)))[0]
    assert not out.exists()
    assert len(Path(roots.ledger).read_text().splitlines()) == 2


def test_a_drain_ends_at_once_without_a_gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(box_marker, "ADMIN", str(tmp_path / "none.sock"))
    assert parse_left(run_script(render_drain_script(60))) == 0


def test_a_box_has_returned_once_no_gateway_leaves_its_instances_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(box_marker, "ROUTER_RUNTIME", str(tmp_path))
    monkeypatch.setattr(box_marker, "RETURN_SECONDS", 1)
    script = render_return_script(["one/chat", "two/chat"])
    (tmp_path / "out").mkdir()
    for name in ("one_chat", "three_chat"):
        (tmp_path / "out" / name).touch()
    assert parse_left(run_script(script)) == 1
    (tmp_path / "out/one_chat").unlink()
    assert parse_left(run_script(script)) == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "content: Invalid JSON"),
        ("{}", "rollout: Field required"),
        (make_marker().content[:-9], "content: Invalid JSON"),
        (make_marker().content.replace("0123456789ab", "../../etc"), "rollout: "),
        (json.dumps(json.loads(make_marker().content) | {"extra": 1}), "extra: Extra inputs are not permitted"),
        (make_marker().content.replace("bob", "\x1b[2J"), "content: Invalid JSON"),
    ],
)
def test_a_marker_of_another_form_is_refused(roots: Any, content: str, reason: str) -> None:
    Path(roots.rollout).mkdir(parents=True)
    (Path(roots.rollout) / "marker.json").write_text(content)
    output = run_script(render_marker_query(roots))
    assert parse_output(output, MARKER_SCHEMA).many("marker")
    with pytest.raises(ValueError, match="is no rollout's marker") as refused:
        parse_marker(output)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("marker", "replaced", "reason"),
    [
        (None, "", ""),
        (make_marker(), BOB, ""),
        (make_marker(), "", "is another controller's"),
        (make_marker(), "carol@desk:/z", "is another controller's"),
        (make_marker(controller=ADA), "", ""),
        (make_marker(is_released=True), "", ""),
        (make_marker(is_closed=True, record=BoxRecord(state="done")), "", ""),
        (make_marker(is_closed=True), BOB, "was aborted"),
        (make_marker(rollout="ffffffffffff"), BOB, "is not finished"),
        (make_marker(rollout="ffffffffffff", is_released=True), "", "is not finished"),
        (make_marker(rollout="ffffffffffff", is_closed=True), "", ""),
    ],
)
def test_a_controller_continues_its_own_rollout_or_one_that_was_released(
    marker: BoxMarker | None, replaced: str, reason: str
) -> None:
    found = describe_marker_refusal(marker, "0123456789ab", ADA, replaced)
    assert found.endswith(reason)
    assert bool(found) == bool(reason)
    assert not reason or f"the rollout of 2026-11-29T07:00:00Z by {BOB} (waiting since 2026-11-29T07:00:00Z)" in found


def test_a_controller_is_named_by_user_machine_and_inventory(tmp_path: Path) -> None:
    name = controller_name(str(tmp_path / "fleet.py"))
    assert name.endswith(f":{tmp_path}/fleet.py")
    assert "@" in name
    assert make_marker(controller=name).controller == name
