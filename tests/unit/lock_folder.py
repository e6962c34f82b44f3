"""`rigwright lock` over a box's folder."""

from pathlib import Path

from click.testing import CliRunner, Result

from cli import main
from rigwright.supply.lock import Lock


class LockFolder:
    """A folder with rig.py, and what its locks have."""

    folder: Path

    def run_lock(self, *options: str) -> Result:
        """Lock its inputs."""
        return CliRunner().invoke(main, ["lock", str(self.folder / "rig.py"), *options])

    def lock_lines(self, *options: str) -> list[str]:
        """The output of a lock that succeeds."""
        done = self.run_lock(*options)
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    @property
    def lock_path(self) -> Path:
        return self.folder / "locks" / "mine.lock.toml"

    @property
    def lock_text(self) -> str:
        return self.lock_path.read_text() if self.lock_path.exists() else ""

    @property
    def read_lock(self) -> Lock:
        return Lock.load([self.folder / "locks"])
