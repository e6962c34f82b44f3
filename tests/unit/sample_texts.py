"""A small catalogue and its lock, as text, that samples begin from."""

from tests.lock_files import render_sealed_lock

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CATALOG = """
[cards.turing]
name = "NVIDIA GeForce RTX 2080 Ti"
pci_ids = ["10de:1e04", "10de:1e07"]
capability = "7.5"
vram_mib = 11264

[cards.ampere]
name = "NVIDIA GeForce RTX 3090"
pci_ids = ["10de:2204"]
capability = "8.6"
vram_mib = 24576

[models.small]
file = "small"

[engines.plain]
kind = "llama.cpp"
source = "engine-source"
commit = "0123456789abcdef0123456789abcdef01234567"

[variants."llamacpp/cpu"]
engine = "plain"
model = "small"
context = 4096

[variants."llamacpp/one"]
engine = "plain"
model = "small"
cards = 1
context = 4096

[variants."llamacpp/two"]
engine = "plain"
model = "small"
cards = 2
context = 8192
parallel = 2
cache_type_k = "q8_0"
flash_attention = "on"

[variants."llamacpp/two".flags]
threads = "8"
metrics = true
"""

SOURCE_ROW = f"""
[[artefact]]
kind = "source"
name = "engine-source"
version = "1.0"
file = "engine-1.0.tar.gz"
sha256 = "{"a" * 64}"
size = 1000
sources = ["index:some-project", "store:engine-1.0.tar.gz"]
"""

WEIGHT_ROW = f"""
[[artefact]]
kind = "weight"
name = "small"
version = "{COMMIT}"
file = "small-q4.gguf"
sha256 = "{"b" * 64}"
size = 2097152
sources = ["store:small-q4.gguf"]
"""


LOCK = render_sealed_lock(SOURCE_ROW, WEIGHT_ROW)
