"""Options of `rollout` that do not go together, and texts that are no times of the week."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.rollout import rollout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--to", "3"], "--to needs --rollback"),
        (["--rollback", "--reboot"], "--reboot needs --driver: another generation needs no reboot"),
        (["--rollback", "--upgrade-driver", "--reboot"], "--rollback conflicts with --upgrade-driver"),
        (["--rollback", "--share-builds"], "--rollback conflicts with --share-builds"),
        (["--driver", "--reboot"], "--driver needs --rollback"),
        (["--rollback", "--driver"], "--driver needs --reboot"),
        (["--rollback", "--driver", "--reboot", "--to", "3"], "--to takes a generation's number and conflicts"),
        (["--upgrade-driver"], "--upgrade-driver needs --reboot"),
        (["--replace-controller", "a@b:/c"], "--replace-controller needs --resume or --abort"),
        (["--pause", "--replace-controller", "a@b:/c"], "--replace-controller needs --resume or --abort"),
        (["--resume", "--batch", "3"], "--resume goes with INVENTORY alone"),
        (["--abort", "--replace-controller", "a@b:/c", "--reboot"], "--abort goes with INVENTORY alone"),
        (["--window", "Sat 2:00-3:00"], "Invalid value for '--window': 'Sat 2:00-3:00' is refused"),
        (["--window", "Sat", "--window", "Sun"], "'Sun' is refused"),
        (["--batch", "0%"], "'0%' is refused: must be a number of boxes"),
        (["--resume", "--replace-controller", "a@b:/c"], "no rollout to resume"),
        (["--abort"], "no rollout to abort"),
        (["--pause"], "no rollout is running"),
    ],
)
def test_conflicting_options_are_refused_before_a_host_is_reached(
    tmp_path: Path, options: list[str], reason: str
) -> None:
    inventory = tmp_path / "fleet.py"
    inventory.write_text("raise AssertionError('no command needs the inventory')\n")
    done = CliRunner().invoke(rollout, [str(inventory), *options])
    assert done.exit_code == 2, done.output
    assert reason in done.output
