"""The projector beside the tiny model: the same bytes everywhere, and of that model's width."""

from pathlib import Path

from gguf import GGUFReader

from lab.tiny_model import TINY
from lab.tiny_projector import IMAGE, PATCH, WIDTH, write_projector


def test_it_makes_what_the_model_reads(tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    write_projector(path)
    reader = GGUFReader(path)
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
    assert reader.fields["clip.vision.projection_dim"].contents() == TINY.width
    assert shapes["mm.0.weight"] == (WIDTH, TINY.width)
    assert shapes["mm.2.weight"] == (TINY.width, TINY.width)
    # one place more than there are pieces of an image, for all of it
    assert shapes["v.position_embd.weight"] == (WIDTH, (IMAGE // PATCH) ** 2 + 1)


def test_it_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in "ab":
        write_projector(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
