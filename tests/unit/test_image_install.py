"""The job that unpacks an image: the remains of a hostile one on the host, and one that does not fit."""

import json
import os
import stat
import struct
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from rigwright.model.installation import MARKER
from rigwright.model.roots import Roots
from rigwright.supply import image_manifest
from roles.engines import render_install_script
from tests.unit import short_programs
from tests.unit.image_samples import image_instance, image_rig, unpacked_image
from tests.unit.rendered_scripts import TOOLS, write_stand_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device files and capabilities are root's to make")
# cap_setuid, permitted and effective (linux/capability.h, vfs_cap_data of version 2)
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0)
FREE = 1 << 20  # KiB, which preflight leaves


class ImageInstallHost:
    """Folders in place of a host's, and what skopeo unpacks there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        places = {name: str(root / name) for name in ("software", "models", "state", "config")}
        self.rig = image_rig(image_instance(cards=()), roots=Roots().model_copy(update=places))
        self.made = unpacked_image(self.rig)
        self.target = Path(self.rig.roots.installation_path(self.made.folder))
        self.layer = self.target / "store/overlay/a/diff"
        (root / "state/build").mkdir(parents=True)
        (root / "state/owned").touch()
        self.bin = root / "bin"
        write_stand_in(self.bin, "systemctl", 'case "$*" in *--property=Id*) echo rw-job-x.service ;; esac')
        self.unpacks("")

    def unpacks(self, *lines: str) -> None:
        """Have skopeo do this beside what it does of a good image; it is in the layer's folder."""
        digest = image_manifest.manifest_row(self.made.artefacts).sha256
        image = image_manifest.configuration_row(self.made.artefacts).sha256
        usual = (
            f"if [ $2 = inspect ]; then echo sha256:{digest}; exit; fi",
            f"mkdir -p {self.layer} {self.target}/store/overlay-images/{image}",
            f"grep -o '[^ ]*:' /proc/net/dev > {self.root}/interfaces",
            f"cd {self.layer}",
            "echo content > file",
        )
        write_stand_in(self.bin, "skopeo", "\n".join([*usual, *lines]))

    def run(self) -> CompletedProcess[str]:
        """Run the job."""
        log = Path(f"{self.rig.roots.jobs}/rw-job-x/log")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        text = render_install_script(self.rig, self.made, TOOLS, "rw-job-x")
        return short_programs.run_program(
            ["sh", "-c", text], env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        )


@pytest.fixture
def host(tmp_path: Path) -> ImageInstallHost:
    return ImageInstallHost(tmp_path)


def test_a_good_image_is_whole_with_its_marker(host: ImageInstallHost) -> None:
    done = host.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((host.target / MARKER).read_text())["inputs"] == host.made.record
    assert (host.layer / "file").read_text() == "content\n"


def test_no_user_can_open_device_files_of_an_image_on_the_host(host: ImageInstallHost) -> None:
    host.unpacks("mknod -m 666 disk b 8 0", "mknod mem c 1 1", "mkfifo pipe", "mkdir d", "mknod d/null c 1 3")
    assert host.run().returncode == 0
    assert {path.relative_to(host.layer).as_posix() for path in host.layer.rglob("*")} == {"file", "d"}


def test_files_removed_by_an_upper_layer_stay_away(host: ImageInstallHost) -> None:
    # told by a device of number 0 (Documentation/filesystems/overlayfs.rst)
    host.unpacks("mknod gone c 0 0")
    assert (host.run().returncode, (host.layer / "gone").lstat().st_rdev) == (0, 0)


def test_nothing_of_an_image_gives_anybody_on_the_host_a_privilege(host: ImageInstallHost) -> None:
    put = f"import os; os.setxattr('capable', 'security.capability', {CAPABILITY!r})"
    host.unpacks(
        f'echo x > capable; python3 -c "{put}"',
        "echo x > suid; chmod 6755 suid",
        "echo x > open; chmod 0666 open",
        "mkdir all; chmod 1777 all",
    )
    assert (host.run().returncode, os.listxattr(host.layer / "capable")) == (0, [])
    for path in host.layer.rglob("*"):
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID | 0o022), path


def test_later_commands_have_no_missing_folder(host: ImageInstallHost) -> None:
    # the job goes on with what removes layers that are unpacked
    write_stand_in(host.bin, "sync", f'echo "temporary ${{TMPDIR-none}}" > {host.root}/seen')
    assert host.run().returncode == 0
    assert (host.root / "seen").read_text() == f"temporary {os.environ.get('TMPDIR', 'none')}\n"


def test_no_network_is_there_while_it_is_unpacked(host: ImageInstallHost) -> None:
    assert (host.run().returncode, (host.root / "interfaces").read_text().split()) == (0, ["lo:"])


def test_an_image_that_grows_past_the_room_there_is_ends_and_gives_it_back(host: ImageInstallHost) -> None:
    pid = host.root / "pid"
    write_stand_in(host.bin, "df", f"echo Avail; [ -s {pid} ] && echo {FREE - 1} || echo {FREE}")
    host.unpacks(f"echo $$ > {pid}", "exec sleep 60")
    done = host.run()
    assert done.returncode != 0
    assert "unpacks to more than there is room for" in done.stdout
    assert not host.target.exists()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


@pytest.mark.parametrize("wrong", ["exit 1", "touch 'a\nb'", "rm -rf ../../../overlay-images"])
def test_one_that_cannot_be_unpacked_leaves_nothing(host: ImageInstallHost, wrong: str) -> None:
    host.unpacks(wrong)
    assert host.run().returncode != 0
    assert not host.target.exists()
