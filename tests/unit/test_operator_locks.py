"""A lock next to an inventory: root's programs of it are refused unless the rig allows the group by name."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.inventory import load_for, load_rig
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock, render_lock
from rigwright.supply.root_programs import LOCKED_GROUPS
from tests.unit.sample_texts import CATALOG, LOCK
from tests.unit.samples import OperatorFolder, sample_entry, sample_wheel

EXTRA = "helpful-extra"


@pytest.fixture
def box(tmp_path: Path) -> OperatorFolder:
    """A box whose engine and weights are locked."""
    made = OperatorFolder(tmp_path)
    made.write("catalog/box.toml", CATALOG)
    made.write("locks/box.lock.toml", LOCK)
    return made


def write_own_lock(box: OperatorFolder, group: str) -> tuple[Artefact, ...]:
    """The shipped rows of a group with one more, in a lock beside the inventory."""
    rows = (*Lock.load([ROOT / "locks"]).groups[group], sample_wheel(EXTRA, group=group, sources=[f"index:{EXTRA}"]))
    box.write(f"locks/{group}.lock.toml", render_lock(rows, "catalog/mine.toml"))
    return rows


@pytest.mark.parametrize("group", sorted(LOCKED_GROUPS))
def test_rows_that_root_would_run_are_refused_with_the_key_that_allows_them(box: OperatorFolder, group: str) -> None:
    rows = write_own_lock(box, group)
    (line,) = box.refusal_lines(allow=[])
    assert line.startswith(f"{box.inventory}: box.allow: {group} has rows in locks/ next to the inventory")
    assert f'add "allow": ["locks.{group}"]; or remove those rows' in line
    ((_, data),) = box.load_group({"box": sample_entry(allow=[f"locks.{group}"])})
    assert load_rig(data["rig"]).lock.groups[group] == tuple(sorted(rows, key=lambda row: row.order))
    with load_for("lock"):  # the writer of these rows anew is no deploy
        box.load_group({"box": sample_entry(allow=[])})


def test_a_row_too_many_is_refused_by_validate(box: OperatorFolder) -> None:
    write_own_lock(box, "hub-client")
    box.write(
        "rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {sample_entry(allow=[])!r}}})\n"
    )
    done = CliRunner().invoke(main, ["validate", str(box.inventory)])
    assert done.exit_code != 0
    assert 'add "allow": ["locks.hub-client"]' in done.output


def test_each_rig_of_an_inventory_says_so_or_all_at_once(box: OperatorFolder) -> None:
    write_own_lock(box, "tools")
    rigs = {name: sample_entry(ssh_hostname=f"192.0.2.{number}") for number, name in enumerate(("one", "two"), 1)}
    plain = {name: {key: value for key, value in one.items() if key != "allow"} for name, one in rigs.items()}
    with pytest.raises(SystemExit) as ended:
        box.load_group({"one": rigs["one"], "two": plain["two"]})
    (line,) = str(ended.value.code).splitlines()
    assert line.startswith(f"{box.inventory}: two.allow: tools has rows")
    assert len(box.load_group(plain, allow=["locks.tools"])) == 2


def test_rows_that_no_root_runs_need_no_permission(box: OperatorFolder) -> None:
    box.write(
        "locks/env.lock.toml",
        render_lock([sample_wheel(EXTRA, group="vllm-0.21.0", python="3.10.20")], "catalog/mine.toml"),
    )
    box.load_group({"box": sample_entry(allow=[])})


def test_a_group_that_root_runs_nothing_of_cannot_be_allowed(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(allow=["locks.hub-cleint"])
    assert line.startswith(
        f'{box.inventory}: box.allow[0]: "locks.hub-cleint" is not a group with programs that root runs'
    )
    assert 'did you mean "locks.hub-client"?' in line
