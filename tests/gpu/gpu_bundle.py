"""The bundle of `./rig test gpu --bundle`, made where there is a network for a machine with a card that has none.

`.venv/bin/python -m tests.gpu.gpu_bundle FOLDER` writes it. The fetched files depend on no card, so that one stands in
for those of the machine; the model is made there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import base_images
from tests.gpu.container_layer import BASE, PLACE
from tests.gpu.gpu_machine import GATEWAY, RECORD, make_bundle, model_paths

CARD = {"name": "any", "pci_ids": ["10de:2330"], "capability": "9.0", "vram_mib": 81559}
MACHINE = {"ssh_hostname": "192.0.2.1", "cards": [CARD], "gateway": GATEWAY}


def main() -> int:
    """Make it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.gpu_bundle", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write it; must not exist")
    parser.add_argument(
        "--release", default="debian-12", choices=sorted(base_images.RELEASES), help="the throwaway host's"
    )
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder}: exists")
    kept = RECORD.read_bytes() if RECORD.exists() else None
    RECORD.write_text(json.dumps(MACHINE))
    try:
        with tempfile.TemporaryDirectory(dir=options.folder.absolute().parent) as folder:
            made = make_bundle(options.release, Path(folder))
            for path in model_paths(made):
                path.unlink()
            made.rename(options.folder)
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if kept is None:
            RECORD.unlink()
        else:
            RECORD.write_bytes(kept)
    base = base_images.tree_path(base_images.RELEASES[options.release])
    print("to bring, each to the same place but for the bundle:")
    print("\n".join(map(str, (options.folder, base, f"{base}.complete", BASE, f"{BASE}.complete", PLACE))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
