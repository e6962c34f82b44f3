"""Images whose files are changed: taken out of the layers as a container would see them, and mounted over."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.engines.container_spec import BindMount
from rigwright.engines.image import KIND, originals
from rigwright.engines.image.catalog_keys import ImageEngine
from rigwright.engines.image.container_command import build_container
from rigwright.patches.new_files import shadow_pattern
from tests.unit.image_samples import ENGINE, SITE, image_instance, image_rig, unpacked_image
from tests.unit.patch_samples import AFTER, sample_patch, text_sha256
from tests.unit.samples import sample_facts

IMAGE = "1" * 64
# a folder that hides what layers below have at its place
OPAQUE = "an opaque folder"
PATH = "vllm/words.py"


class LayeredStore:
    """A store of containers/storage with one image of some layers, the lowest first."""

    def __init__(self, folder: Path, *layers: dict[str, str | None]) -> None:
        self.folder = folder
        ids = [f"{number:064x}" for number in range(len(layers))]
        for name, files in zip(ids, layers, strict=True):
            for path, text in files.items():
                place = folder / "overlay" / name / "diff" / SITE[1:] / path
                place.parent.mkdir(parents=True, exist_ok=True)
                if text == OPAQUE:
                    place.mkdir()
                    os.setxattr(place, originals.OPAQUE, b"y")
                    continue
                if text is None:
                    os.mknod(place, 0o20000)  # how an overlay says that a file is gone
                elif text.startswith("-> "):
                    place.symlink_to(text[3:])
                else:
                    place.write_text(text)
        said = [{"id": name, "parent": parent} for name, parent in zip(ids, ["", *ids], strict=False)]
        self.write("overlay-layers/layers.json", [{k: v for k, v in one.items() if v} for one in said])
        self.write("overlay-images/images.json", [{"id": "0" * 64, "layer": ids[0]}, {"id": IMAGE, "layer": ids[-1]}])

    def write(self, name: str, said: object) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said))

    def run(self, into: Path, *paths: str) -> subprocess.CompletedProcess[str]:
        """The message about its output."""
        plan = self.folder / "plan.json"
        plan.write_text(json.dumps({"shadows": {path: shadow_pattern(path) for path in paths}}))
        command = [sys.executable, "-I", originals.__file__, str(self.folder), IMAGE, SITE, str(plan)]
        hiding = self.folder / "opaque.json"
        hiding.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
        command += [str(into), str(hiding)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def extracted_files(self, into: Path, *paths: str) -> dict[str, str]:
        """The files of its output."""
        done = self.run(into, *paths)
        assert done.returncode == 0, done.stdout + done.stderr
        assert bool(done.stdout) == ("is not a regular file of the image" in done.stdout)
        return {str(one.relative_to(into)): one.read_text() for one in into.rglob("*") if one.is_file()}


def _hides_nothing() -> str:
    """Why no folder here can be made opaque; empty where one can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.setxattr(folder, originals.OPAQUE, b"y")
        except OSError as error:
            return f"{originals.OPAQUE}: {error.strerror}"
    return ""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
needs_opaque = pytest.mark.skipif(bool(_hides_nothing()), reason=_hides_nothing() or "none")


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([{PATH: "one"}], "one"),
        ([{PATH: "one"}, {"vllm/other.py": "x"}], "one"),
        ([{PATH: "one"}, {PATH: "two"}], "two"),
        ([{PATH: "one"}, {PATH: "-> /etc/passwd"}], ""),
        ([{PATH: "one"}, {"vllm": "no folder any more"}], ""),
        ([{"vllm": "-> /etc"}], ""),
        ([{"other": "x"}], ""),
        pytest.param([{PATH: "one"}, {PATH: None}], "", marks=needs_root),
        pytest.param([{PATH: "one"}, {"vllm": None}], "", marks=needs_root),
        pytest.param([{PATH: "one"}, {PATH: None}, {PATH: "three"}], "three", marks=needs_root),
        pytest.param([{PATH: "one"}, {"vllm": OPAQUE}], "", marks=needs_opaque),
        pytest.param([{PATH: "one"}, {"vllm": OPAQUE, PATH: "two"}], "two", marks=needs_opaque),
        pytest.param([{"vllm": OPAQUE, PATH: "one"}, {"vllm/other.py": "x"}], "one", marks=needs_opaque),
    ],
)
def test_a_file_is_the_one_that_a_container_would_see(tmp_path, layers, found):
    taken = LayeredStore(tmp_path / "store", *layers).extracted_files(tmp_path / "into", PATH)
    assert taken == ({PATH: found} if found else {})


COMPILED = "vllm/__pycache__/words.cpython-312.pyc"
NATIVE = "vllm/words.cpython-312-x86_64-linux-gnu.so"
UNCHECKED, CHECKED = "\0\0\0\0\x01\0\0\0", "\0\0\0\0\x03\0\0\0"


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([{PATH: "one"}, {NATIVE: "x"}], f"{PATH} is never imported: {NATIVE[5:]} takes precedence\n"),
        (
            [{PATH: "one", "vllm/words/__init__.py": "x"}],
            f"{PATH} is never imported: words/__init__.py takes precedence\n",
        ),
        (
            [{PATH: "one", COMPILED: UNCHECKED}],
            f"{PATH} is never read: {COMPILED[5:]} is used regardless of its source\n",
        ),
        ([{PATH: "one", COMPILED: UNCHECKED}, {COMPILED: CHECKED}], ""),
        ([{PATH: "one", COMPILED: "-> /dev/zero"}], ""),
        ([{PATH: "one", "vllm/words/x.py": "x", "vllm/swords.so": "x"}], ""),
        ([{"vllm/words.so": "x"}, {"vllm": "no folder any more"}], f"{SITE}/{PATH} is not a regular file of the image"),
        pytest.param([{PATH: "one", NATIVE: "x"}, {NATIVE: None}], "", marks=needs_root),
        pytest.param([{PATH: "one", COMPILED: UNCHECKED}, {COMPILED: None}], "", marks=needs_root),
        pytest.param([{PATH: "one", NATIVE: "x"}, {"vllm": OPAQUE, PATH: "two"}], "", marks=needs_opaque),
        pytest.param([{PATH: "one", "vllm/words/__init__.py": "x"}, {"vllm/words": OPAQUE}], "", marks=needs_opaque),
        pytest.param([{PATH: "one", COMPILED: UNCHECKED}, {"vllm/__pycache__": OPAQUE}], "", marks=needs_opaque),
        pytest.param(
            [{PATH: "one", NATIVE: "x"}, {"vllm": None}], f"{SITE}/{PATH} is not a regular file", marks=needs_root
        ),
    ],
)
def test_shadowing_modules_are_refused(tmp_path, layers, said):
    done = LayeredStore(tmp_path / "store", *layers).run(tmp_path / "into", PATH)
    assert (done.returncode, done.stderr) == (int("is never" in said), "")
    assert done.stdout.startswith(said) if said else done.stdout == ""


def test_a_program_stays_one(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path / "store", {PATH: "one"})
    (file,) = store.folder.rglob("words.py")
    file.chmod(0o755)
    store.extracted_files(tmp_path / "into", PATH)
    assert (tmp_path / "into" / PATH).stat().st_mode & 0o777 == 0o755


def test_a_patched_image_is_another_installation_with_mounts_over_its_files() -> None:
    plain, patched = image_rig(image_instance()), image_rig(image_instance(patches=(sample_patch("vllm"),)))
    assert unpacked_image(plain).folder != unpacked_image(patched).folder
    assert unpacked_image(patched).record["patches"] == {"demo/words.py": text_sha256(AFTER)}
    assert unpacked_image(patched).what == f"{unpacked_image(plain).what}, patched by louder"
    before, after = (
        build_container(one.roots, one.cards, one.driver, one.network, one.instances[0], unpacked_image(one)).mounts
        for one in (plain, patched)
    )
    assert len(after) == len(before) + 1
    folder = f"/opt/rigwright/engines/{unpacked_image(patched).folder}"
    assert BindMount(f"{folder}/changed/demo/words.py", f"{SITE}/demo/words.py") in after


def test_where_its_packages_are_is_an_input_of_what_is_patched_alone() -> None:
    one = image_rig(image_instance(patches=(sample_patch("vllm"),)))
    elsewhere = ENGINE.model_copy(update={"site": "/elsewhere"})
    assert KIND.installation(one, "vllm-image", elsewhere, sample_facts()).folder != unpacked_image(one).folder
    assert (
        KIND.installation(image_rig(image_instance()), "vllm-image", elsewhere, sample_facts()).folder
        == unpacked_image(image_rig(image_instance())).folder
    )


def test_a_patched_one_says_where_its_packages_are() -> None:
    with pytest.raises(ValueError, match="given site: the folder of the packages"):
        ImageEngine(kind="image", image="served", serves="vllm", version="0.21.0", patches=("louder",))


def test_a_file_that_is_not_in_it_is_not_brought() -> None:
    one = sample_patch("vllm")
    (target,) = one.keys.targets
    keys = one.keys.model_copy(update={"targets": (target.model_copy(update={"before": None}),)})
    (box,) = image_rig(image_instance(patches=(replace(one, keys=keys),))).instances
    found = KIND.refusals(box, image_rig().roots, Path("/"))
    assert found[0] == "patch louder adds demo/words.py: in an image, patches can only change existing files"
