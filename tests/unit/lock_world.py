"""A box's folder with inputs to lock, a mirror and an index on the loopback interface, and `rigwright lock`."""

from pathlib import Path

from tests.unit.file_server import LoopbackFileServer, complete_file
from tests.unit.gguf_files import gguf_file
from tests.unit.index_server import LoopbackPackageIndex
from tests.unit.lock_folder import LockFolder

WEIGHTS = gguf_file(bytes(range(256)) * 20_000)
TAGGED = ("ETag", '"one"')

CATALOG = """
[inputs.engine]
kind = "source"
version = "1.0"
sources = ["index:engine"]

[inputs.small]
kind = "weight"
version = "2026-11"
sources = ["store:small.gguf"]

[inputs.env]
kind = "wheel"
requirements = ["tool"]
"""

INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "mirrors": {{"store": ["{url}/gone", "{url}/store"]}}}}}})
"""


class LockFixture(LockFolder):
    """A box's folder, its mirror and the index, and `rigwright lock` over them."""

    def __init__(self, folder: Path, files: LoopbackFileServer, form: str) -> None:
        self.folder = folder
        self.files = files
        self.index = LoopbackPackageIndex(files, form)
        self.index.publish_source("engine", "1.0", sized=form == "json")
        self.index.publish_wheel(
            "tool", "1.0", "part>=1", "old ; python_full_version < '3.11'", "win ; os_name == 'nt'"
        )
        self.index.publish_wheel("part", "1.0")
        self.index.publish_wheel("old", "1.0")
        self.index.publish_wheel("win", "1.0")
        files.serve("store/small.gguf", complete_file(WEIGHTS, TAGGED))
        (folder / "catalog").mkdir()
        self.write_catalog(CATALOG)
        (folder / "rig.py").write_text(INVENTORY.format(url=files.url))

    def write_catalog(self, text: str, name: str = "mine") -> None:
        (self.folder / "catalog" / f"{name}.toml").write_text(text)

    def check_lines(self, code: int) -> list[str]:
        before = self.lock_text
        done = self.run_lock("--check")
        assert (done.exit_code, self.lock_text) == (code, before), done.output
        return done.output.splitlines()

    @property
    def fetched_paths(self) -> list[str]:
        return [one.path for one in self.files.asked if one.method == "GET" and one.path.startswith("store/")]
