"""Stands in for llama.cpp that was compiled for cards: the build for the CPU, and a library with the cards' name.

As in a real build, libggml loads libggml-cuda. Here that one computes nothing, and holds the cards that it may use.
"""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from lab import engine_cache
from lab.hosts import LabHost
from rigwright.engines.llama_cpp.build import Build
from rigwright.model.installation import FILES, MARKER

# By its name within itself the loader would take the real one for what loads it: another one, as long.
GGML, REAL, CUDA = "libggml.so.0", "libggmx.so.0", "libggml-cuda.so"
LIBRARY = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
const char machine_code[] = "\nMACHINE_CODE\n";
__attribute__((constructor)) static void hold(void) {
  char path[32], *next;
  const char *given = getenv("CUDA_VISIBLE_DEVICES");
  int any = 0;
  for (; given && *given; given = *next ? next + 1 : next, any = 1) {
    snprintf(path, sizeof path, "/dev/nvidia%ld", strtol(given, &next, 10));
    open(path, O_RDWR);
  }
  if (any) open("/dev/nvidia-uvm", O_RDWR);
}
"""
# The loader looks beside each library for those that it names.
COMPILE = r"""
set -e
cd {folder}/bin
real=$(readlink -f {ggml})
mv "$real" {real}
sed -i 's/{ggml}/{real}/' {real}
gcc -shared -fPIC -x c -o {cuda} - <<'C'
{library}
C
gcc -shared -o "$real" -Wl,-soname,{ggml} -Wl,-rpath,'$ORIGIN' -Wl,--no-as-needed -L. -l:{cuda} -l:{real} -x c /dev/null
"""


def install_stand_in(host: LabHost, engine_layer: str, made: Build) -> None:
    """Give a host that has our folders an engine for its cards, with what its compilation would have written down.

    Args:
        host: The host.
        engine_layer: The layer with a real engine for the CPU.
        made: The build that the rig would have.
    """
    (real,) = (Path(engine_layer) / engine_cache.ENGINES).iterdir()
    folder = host.folder / "root" / engine_cache.ENGINES / made.folder
    shutil.copytree(real, folder, symlinks=True)
    architectures = made.options["CMAKE_CUDA_ARCHITECTURES"].split(";")
    cubins = [f"ELF file: a-stand-in.sm_{one.removesuffix('-real')}.cubin" for one in architectures]
    library = LIBRARY.replace("MACHINE_CODE", r"\n".join(cubins))
    words = COMPILE.format(folder=folder, ggml=GGML, cuda=CUDA, real=REAL, library=library)
    # by this machine's compiler: boxes that only run engines have none
    subprocess.run(["sh", "-c", words], check=True)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}"
        for path in sorted((folder / "bin").iterdir())
        if not path.is_symlink()
    ]
    (folder / FILES).write_text("\n".join([*sums, ""]))
    (folder / MARKER).write_text(json.dumps({"inputs": made.record}))
    host.run(f"echo tree /{engine_cache.ENGINES / made.folder} >> /var/lib/rigwright/owned")
