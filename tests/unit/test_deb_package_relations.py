"""Relations of locked packages: a bundle says of a package what it needs, and the lock says everything else."""

import pytest

from rigwright.model.deb_package_groups import parse_relations, render_apt_list, render_relations
from tests.unit.samples import sample_deb

ROW = sample_deb("libcuda1", "595.91.07-1")
CONTROL = (
    "Package: libcuda1\nVersion: 595.91.07-1\nArchitecture: amd64\n"
    "Depends: libc6 (>= 2.36),\n libnvidia-x (= 1:5~rc1) | y\n"
)


def test_an_apt_list_has_relations_and_the_locks_file_and_hash() -> None:
    text = render_relations([CONTROL, CONTROL.replace("libcuda1", "other")])
    found = parse_relations(text)
    assert found["libcuda1"]["Depends"] == "libc6 (>= 2.36), libnvidia-x (= 1:5~rc1) | y"
    lines = render_apt_list([ROW], found).splitlines()
    assert lines[-3:] == [f"Filename: {ROW.file}", f"Size: {ROW.size}", f"SHA256: {ROW.sha256}"]
    assert "Depends: libc6 (>= 2.36), libnvidia-x (= 1:5~rc1) | y" in lines
    assert "other" not in " ".join(lines)


@pytest.mark.parametrize(
    "line",
    [
        "Filename: ../0/pool/evil.deb",
        "SHA256: 00",
        "filename: evil.deb",
        "Depends: a\rFilename: b",
        "Depends: $(id)",
        "Depends: é",
        "Version: 2",
        " continued",
        "Essential: yes",
        "no field",
    ],
)
def test_other_fields_and_characters_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="has a line that is no field of a package"):
        parse_relations(render_relations([CONTROL]) + f"{line}\n")


@pytest.mark.parametrize("text", ["Package: a\nVersion: 1\n", 2 * (render_relations([CONTROL]) + "\n")])
def test_a_package_without_an_architecture_or_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has a package without a version, or twice"):
        parse_relations(text)


@pytest.mark.parametrize("changed", [("libcuda1", "libcuda2"), ("595.91.07-1", "595.91.08-1"), ("amd64", "arm64")])
def test_a_package_that_is_not_the_locked_one_is_refused(changed: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="does not have libcuda1 595"):
        render_apt_list([ROW], parse_relations(render_relations([CONTROL.replace(*changed)])))
