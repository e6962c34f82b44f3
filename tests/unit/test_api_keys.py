"""API keys: read from a file of the operator, refused when invalid, and never repeated in a text."""

import os
from pathlib import Path

import pytest

from rigwright.inventory import load_rig
from rigwright.model import api_keys
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

KEY = "sk-0123456789.abcdef_~+/="


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_key_is_the_only_line_of_its_file(tmp_path: Path, end: str) -> None:
    path = tmp_path / "key"
    path.write_bytes((KEY + end).encode())
    assert api_keys.load_api_key(str(path)) == KEY


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"short",
        KEY.encode() + b"\nsecond-line-of-it\n",
        b" " + KEY.encode(),
        KEY.encode() + b'"',
        KEY.encode() + b"\0",
        KEY.encode() + b"$(id)",
        KEY.encode() + "é".encode(),
        KEY.encode() + b"\xff",
    ],
)
def test_text_unfit_for_a_header_is_no_key_and_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"contains no key|cannot be read") as caught:
        api_keys.load_api_key(str(path))
    assert "0123456789" not in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(ValueError, match=r"does not exist|is not a file"):
            api_keys.load_api_key(str(path))


def test_an_endless_source_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        with pytest.raises(ValueError, match="is not a file"):
            api_keys.load_api_key(path)


def test_no_more_of_a_file_is_read_than_a_key_has(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, of which nothing is on the disk
    with pytest.raises(ValueError, match="has more than 4097 bytes"):
        api_keys.load_api_key(str(path))


def test_the_longest_key_is_taken_and_a_longer_one_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("a" * (api_keys.MAXIMUM - 1) + "\n")
    assert len(api_keys.load_api_key(str(path))) == api_keys.MAXIMUM - 1
    path.write_text("a" * (api_keys.MAXIMUM + 1))
    with pytest.raises(ValueError, match="contains no key"):
        api_keys.load_api_key(str(path))


def test_a_token_is_called_one(box: OperatorFolder) -> None:
    (box.folder / "token").write_text("hf_short\n")
    (line,) = box.refusal_lines(hub_token_file="token")
    assert line.startswith(
        f"{box.inventory}: box.hub_token_file: {box.folder}/token contains no token: must be one line of at least"
    )


def test_a_key_in_the_home_of_an_unknown_user_is_refused_in_words(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(instances=chat_instances(api_key_file="~nobody-at-all/key"))
    place = f"{box.inventory}: box.instances.chat.api_key_file"
    assert line == f"{place}: ~nobody-at-all/key does not exist; no folder ~nobody-at-all"


def test_a_key_file_is_found_from_the_inventorys_folder(box: OperatorFolder) -> None:
    path = box.write("secrets/chat.key", KEY + "\n")
    ((_, data),) = box.load_group({"box": sample_entry(instances=chat_instances(api_key_file="secrets/chat.key"))})
    assert load_rig(data["rig"]).instances[0].api_key_file == str(path)
    assert KEY not in repr(data)


@pytest.mark.parametrize(
    "name",
    ["gone.key", "../gone", "/gone/key", "a b", "$(id)", "x\0y", "-x", "é", pytest.param("a" * 300, id="long")],
    ids=ascii,
)
def test_a_key_file_that_cannot_be_read_is_refused_while_the_inventory_loads(box: OperatorFolder, name: str) -> None:
    (line,) = box.refusal_lines(instances=chat_instances(api_key_file=name))
    assert line.startswith(f"{box.inventory}: box.instances.chat.api_key_file: ")


@pytest.mark.parametrize("value", ["", 5, [], True], ids=repr)
def test_a_key_file_is_named_by_text(box: OperatorFolder, value: object) -> None:
    (line,) = box.refusal_lines(instances=chat_instances(api_key_file=value))
    assert line.startswith(f"{box.inventory}: box.instances.chat.api_key_file: ")
