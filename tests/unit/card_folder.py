"""A folder that stands in for a host with NVIDIA's cards: the kernel's view of the bus, and an nvidia-smi."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rigwright.model.rig import Rig
from rigwright.nvidia.cards import topology
from rigwright.nvidia.cards.card_setting_files import render_power_program
from rigwright.nvidia.cards.topology import Topology
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in

# Answers a test's text, fails where `hangs`, `refuses` or `warns` has the beginning of a question, and remembers its
# settings.
SMI = """
cd "$(dirname "$0")/../says" || exit
for way in hangs refuses warns; do
  while read -r words; do
    case "$*" in "$words"*) ;; *) continue ;; esac
    case $way in
      hangs) exec sleep 60 ;;
      refuses) echo 'The current user does not have permission'; exit 4 ;;
      warns)
        echo "Setting locked GPU clocks is not supported for GPU $2."
        echo 'Treating as warning and moving on.'
        exit 0
        ;;
    esac
  done < $way
done
case "$*" in
  --query-gpu=index,*) what=cards ;;
  '-q -d MEMORY') what=memory ;;
  'topo -m') what=topo ;;
  'topo -p2p r') what=p2p ;;
  -i*) echo "$*" >> told; echo 'All done.'; exit 0 ;;
esac
cat "$what"
exit "$(cat status)"
"""


@dataclass
class CardFolder:
    """One host."""

    root: Path

    def __post_init__(self) -> None:
        write_stand_in(self.root / "bin", "nvidia-smi", SMI)
        self.devices.mkdir(parents=True)
        (self.root / "says").mkdir()
        self.set_smi_answers(hangs="", refuses="", warns="", told="", status="0", cards="", memory="", topo="", p2p="")

    @property
    def devices(self) -> Path:
        return self.root / "devices"

    def set_smi_answers(self, **texts: str) -> None:
        """The output of nvidia-smi for a question, and its end."""
        for name, text in texts.items():
            (self.root / "says" / name).write_text(text)

    def add_device(self, address: str, vendor: str = "0x10de", kind: str = "0x030000", **more: str) -> None:
        """A device on the bus."""
        (self.devices / address).mkdir()
        for name, text in {"vendor": vendor, "class": kind, "device": "0x2335", **more}.items():
            (self.devices / address / name).write_text(f"{text}\n")

    @property
    def smi_settings(self) -> list[str]:
        """The settings that nvidia-smi got."""
        return (self.root / "says" / "told").read_text().splitlines()

    def run_power(self, rig: Rig, word: str, timeout: int = 20) -> tuple[int, list[str]]:
        """Run a rig's script: how it ends, and what it prints."""
        places = (self.devices, self.root / "applied", self.root / "driver.json")
        folder = self.root / "program"
        for name, text in render_power_program(rig.roots, rig.cards, rig.driver, timeout, *map(str, places)).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        done = self._run("/usr/bin/python3", "-I", "-B", str(folder), word)
        return done.returncode, done.stdout.splitlines()

    def read_topology(self, timeout: int = 20) -> Topology:
        """Where the cards are."""
        script = self.root / "script"
        script.write_text(topology.render_topology_query(timeout, str(self.devices)))
        return topology.parse(self._run("sh", str(script)).stdout.splitlines())

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        done = short_programs.run_program(command, env={"PATH": path})
        assert done.stderr == ""
        return done
