"""Environments: a catalogue's requests for wheels and conda packages, and whether the lock answers them."""

from datetime import date
from pathlib import Path

import pytest
from pydantic import ValidationError

from rigwright.model.lock_coverage import describe_mismatch, describe_uncovered
from rigwright.problems import Invalid
from rigwright.supply.lock import Artefact, Lock, load_lock_file, render_lock
from rigwright.supply.lock_inputs import Input
from tests.unit.samples import sample_artefact, sample_wheel

WHEELS = {"kind": "wheel", "requirements": ["tool>=1"], "python": "3.10.20", "as_of": "2026-06-10"}
CONDA = {"kind": "conda", "requirements": ["python ==3.10.20"], "channels": ["conda-forge"], "as_of": "2026-06-10"}


def parse_input(data: dict[str, object], **changes: object) -> Input:
    return Input.model_validate({key: value for key, value in (data | changes).items() if value is not None})


def conda(name: str = "python", **changes: object) -> Artefact:
    version, build = changes.get("version", "3.10.20"), changes.get("build", "h3c07f61_0_cpython")
    own = {
        "kind": "conda",
        "name": name,
        "version": version,
        "build": build,
        "group": "py",
        "as_of": "2026-06-10",
        "selection": parse_input(CONDA).selection,
        "file": f"{name}-{version}-{build}.conda",
        "sources": [f"conda-forge:linux-64/{name}-{version}-{build}.conda"],
    }
    return sample_artefact(**own | changes)


@pytest.mark.parametrize(
    ("data", "changes", "text"),
    [
        (WHEELS, {"python": "3.10"}, "a release of CPython, such as 3.10.20"),
        (WHEELS, {"python": "3.10.20\n"}, "a release of CPython"),
        (WHEELS, {"as_of": "2026-13-01"}, "a day, such as 2026-06-10"),
        (WHEELS, {"as_of": "2026-06-10T00:00:00Z"}, "a day, such as"),
        (WHEELS, {"as_of": 20260610}, "text|valid string"),
        (WHEELS, {"channels": ["conda-forge"]}, "omitted: only kind conda has it"),
        (WHEELS, {"requirements": ["python 3.10.*"]}, "of Python requirements, not 'python 3.10.*'"),
        (WHEELS, {"version": "1"}, "at most python, as_of and for_other_cards, nothing else"),
        (WHEELS, {"for_other_cards": ["*.so"], "python": None}, "given a python for its for_other_cards"),
        (WHEELS, {"for_other_cards": ["a b"]}, "a pattern of letters"),
        (CONDA, {"requirements": None}, "conda packages: requirements and channels, and at most as_of, nothing else"),
        (CONDA, {"channels": None}, "given its channels"),
        (CONDA, {"channels": ["conda-forge", "conda-forge"]}, "distinct channels"),
        (CONDA, {"channels": ["https://h/c"]}, "at most 48 lowercase letters, digits and dashes"),
        *((CONDA, {"channels": [name]}, f"other than '{name}'") for name in ("index", "hub", "apt", "nvidia", "https")),
        (CONDA, {"python": "3.10.20"}, "omitted: only kind wheel has it"),
        (CONDA, {"for_other_cards": ["a"]}, "omitted: only kind wheel or plugin has it"),
        (CONDA, {"requirements": ["python[extra]>=3"]}, "such as python ==3.10.20, not 'python.extra.>=3'"),
        *(
            (CONDA, {"requirements": [text]}, "of kind conda, python ==3.10.20")
            for text in ("other::python", "python[url=x]", "https://h/a.conda", "--x", "/etc/x.conda", "a @ http://h/a")
        ),
    ],
)
def test_an_environment_that_says_too_much_or_too_little_is_refused(data, changes, text):
    with pytest.raises(ValidationError, match=text):
        parse_input(data, **changes)


@pytest.mark.parametrize("kind", ["source", "weight", "deb"])
@pytest.mark.parametrize("key", [{"python": "3.10.20"}, {"as_of": "2026-06-10"}, {"channels": ["a"]}])
def test_other_inputs_have_no_key_of_an_environment(kind: str, key: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="omitted: only kind"):
        parse_input({"kind": kind, "version": "1", "sources": ["index:a"]}, **key)


def test_a_day_is_a_date_of_toml_too() -> None:
    assert parse_input(WHEELS, as_of=date(2026, 6, 10)).as_of == "2026-06-10"


@pytest.mark.parametrize(
    ("data", "changes", "row", "text"),
    [
        (WHEELS, {}, {}, ""),
        (WHEELS, {"python": "3.10.21"}, {}, "is locked for Python 3.10.20, not 3.10.21"),
        (WHEELS, {"python": None}, {}, "is locked for Python 3.10.20, not of every host"),
        (WHEELS, {}, {"python": None}, "is locked for Python of every host, not 3.10.20"),
        (WHEELS, {"as_of": "2026-06-11"}, {}, "is locked as of 2026-06-10, not 2026-06-11"),
        (WHEELS, {"as_of": None}, {}, "is locked as of 2026-06-10, not no day"),
        (WHEELS, {"requirements": ["tool>=2"]}, {}, "is locked without tool>=2"),
        (WHEELS, {"for_other_cards": ["*_fa3_*"]}, {}, ""),
        (CONDA, {}, {}, ""),
        (CONDA, {"as_of": None}, {}, "is locked as of 2026-06-10, not no day"),
        (CONDA, {"requirements": ["python ==3.10.21"]}, {}, "is locked with python 3.10.20, not python ==3.10.21"),
        (CONDA, {"requirements": ["tzdata"]}, {}, "is locked with no tzdata, not tzdata"),
        (CONDA, {"requirements": ["python >=3.10"]}, {}, "is locked with different requirements or channels"),
        (CONDA, {"channels": ["other"]}, {}, "is locked from channel conda-forge, not other"),
        (CONDA, {"channels": ["conda-forge", "other"]}, {}, "is locked with different requirements or channels"),
    ],
)
def test_differences_between_the_lock_and_an_environment(data, changes, row, text):
    made = conda() if data is CONDA else sample_wheel(**{"python": "3.10.20", "as_of": "2026-06-10"} | row)
    assert describe_mismatch(parse_input(data, **changes), [made]) == text


def test_wheels_are_no_conda_packages() -> None:
    assert describe_mismatch(parse_input(CONDA), [sample_wheel()]) == "is locked with kind wheel, not conda"


@pytest.mark.parametrize("data", [WHEELS, CONDA])
def test_the_row_that_it_will_have_answers_all_but_what_is_found(data: dict[str, object]) -> None:
    row = parse_input(data).provisional("one-1.0")
    assert (row.group, row.python, row.as_of) == ("one-1.0", data.get("python"), "2026-06-10")
    assert describe_mismatch(parse_input(data), [row]).startswith("is locked with")


def test_unlocked_conda_packages_are_named_with_the_nearest() -> None:
    lock = Lock({}, {"python-3.10.20": (conda(),)})
    said = describe_uncovered("python-3.10.2", "conda", {}, lock, "rig.py")
    assert said.startswith('there is no locked environment of conda packages "python-3.10.2"')
    assert "python-3.10.20" in said
    assert describe_uncovered("python-3.10.20", "conda", {}, lock, "rig.py") == ""
    assert "is a conda, not a wheel" in describe_uncovered("python-3.10.20", "wheel", {}, lock, "rig.py")


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    code = ("a/b.so sm_75 sm_90a compute_80", "c.so.1 sm_100f")
    rows = (
        conda(name="_libgcc_mutex", version="0.1", build="conda_forge"),
        sample_wheel(python="3.10.20", as_of="2026-06-10", machine_code=code),
        sample_wheel("bare", machine_code=()),
        sample_wheel("unread"),
    )
    path = tmp_path / "a.lock.toml"
    path.write_text(render_lock(rows, "catalog/a.toml"))
    assert set(load_lock_file(path)) == set(rows)
    assert path.read_text().count("machine_code") == 2
    assert "\npython" not in render_lock([sample_wheel()], "a")


@pytest.mark.parametrize(
    ("row", "key", "value"),
    [
        (sample_wheel(), "build", "0"),
        (sample_wheel(), "selection", "0" * 12),
        (sample_wheel(), "name", "_tool"),
        (sample_wheel(), "file", "_tool-1.0-py3-none-any.whl"),
        (sample_wheel(), "python", "3.10"),
        (sample_wheel(), "as_of", "10.6.2026"),
        (sample_wheel(), "machine_code", ["a.so"]),
        (sample_wheel(), "machine_code", ["../a.so sm_75"]),
        (sample_wheel(), "machine_code", ["/a.so sm_75"]),
        (sample_wheel(), "machine_code", ["a.so sm_75 $(id)"]),
        (sample_wheel(), "machine_code", ["a.so sm_75\n"]),
        (conda(), "machine_code", []),
        (conda(), "python", "3.10.20"),
        (conda(), "marker", "python_version < '3'"),
        (conda(), "build", None),
        (conda(), "build", "a/b"),
        (conda(), "build", "a-b"),
        (conda(), "selection", None),
        (conda(), "version", "1!2"),
        (conda(), "file", "../python.conda"),
        (sample_artefact(), "as_of", "2026-06-10"),
        (sample_artefact(), "python", "3.10.20"),
        (sample_artefact(), "build", "0"),
    ],
)
def test_a_row_has_what_is_of_its_kind_alone(tmp_path: Path, row: Artefact, key: str, value: object) -> None:
    path = tmp_path / "a.lock.toml"
    path.write_text(render_lock([row.model_copy(update={key: value})], "catalog/a.toml"))
    with pytest.raises(Invalid, match=rf"artefact\[0\]\.{key}"):
        load_lock_file(path)


def test_where_hosts_keep_a_package() -> None:
    assert conda().package_path == f"_packages/{'b' * 16}/python-3.10.20-h3c07f61_0_cpython.conda"
