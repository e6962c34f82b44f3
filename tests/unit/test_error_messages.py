"""Refusals that led astray: each says what is wrong, in words of its own."""

from pathlib import Path

import pytest

from rigwright import local_files
from tests.unit.samples import OperatorFolder

CARD = {"pci_ids": ["10de:1111"], "capability": "8.6", "name": "A card", "vram_mib": 8192}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cards": ["ampere"] * 100}, "must be a list of at most 16"),
        ({"keep_generations": 10**6000}, "a number of too many digits is refused"),
        ({"ca_file": "gone.pem"}, "gone.pem does not exist"),
        ({"ssh_hostname": "0x7f.1"}, "'0x7f.1' is refused: must be a host name or an IP address: four numbers"),
        ({"ssh_hostname": "0x7f000001"}, "four numbers up to 255 make an IPv4 address"),
        ({"ssh_hostname": "017700000001"}, "four numbers up to 255 make an IPv4 address"),
        ({"ssh_hostname": "_"}, "'_' is refused: must be a host name or an IP address"),
        ({"proxy": "http://u:p@p:3128"}, "must be an http(s) URL (port up to 65535), without user and password"),
        ({"cards": [CARD | {"name": "NVIDIA", "power_w": [100, 200]}], "driver": {"power_w": 300}}, ": NVIDIA accepts"),
    ],
)
def test_a_key_of_an_inventory(box: OperatorFolder, changes: dict[str, object], said: str) -> None:
    told = box.refusal_lines(**changes)
    assert any(said in line for line in told), told
    assert not any("unknown key" in line for line in told)


def test_a_long_key_is_cut(box: OperatorFolder) -> None:
    (line, *_) = [one for one in box.refusal_lines(**{"x" * 100_000: 1}) if "unknown key" in one]
    assert len(line) < 2000


def test_files_of_the_catalogue(box: OperatorFolder) -> None:
    (box.folder / "catalog/mine.toml").symlink_to("nowhere")
    (box.folder / "catalog/odd.toml").mkdir()
    told = box.refusal_lines()
    assert f"{box.folder}/catalog/mine.toml: is a link to nowhere, which does not exist" in told
    assert f"{box.folder}/catalog/odd.toml: is not a file: a folder" in told


def test_missing_paths_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "boxes.py").touch()
    with pytest.raises(ValueError, match=r'^does not exist; did you mean ".*/boxes.py"\?$'):
        local_files.refuse_special_file(tmp_path / "boxs.py")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ('[inputs.q]\nkind = "wight"\n', "inputs.q.kind: 'wight' is refused"),
        ('[modls.x]\nfile = "a"\n', "modls: unknown key"),
        ("[cards.x]\nname = 1\n", "cards.x.name: 1 is refused"),
    ],
)
def test_a_mistake_in_a_file_of_the_catalogue_hides_no_other(box: OperatorFolder, other: str, said: str) -> None:
    variant = '[variants."llamacpp/my"]\nengine = "plain"\nmodel = "small"\ncontext = -1\n'
    box.write("catalog/own.toml", variant + other)
    told = "\n".join(box.refusal_lines())
    assert said in told
    assert "variants.llamacpp/my.context: -1 is refused" in told
