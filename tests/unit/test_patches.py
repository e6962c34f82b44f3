"""Declared patches: problems of one are reported while an inventory loads, all of them."""

import os
from pathlib import Path
from typing import Any

import pytest

from rigwright.patches.apply import LARGEST
from rigwright.patches.patch import MOST, Patch, collect_digests, load_patches, select_patches
from rigwright.problems import Invalid
from rigwright.project_root import ROOT
from tests.unit.patch_samples import AFTER, BEFORE, DIFF, text_sha256, write_patch

VERSIONS = {"demo": "1.0", "other": "2.0"}


def patch_problems(folder: Path) -> str:
    with pytest.raises(Invalid) as error:
        load_patches([folder])
    return str(error.value)


def test_one_is_a_head_and_a_diff(tmp_path: Path) -> None:
    write_patch(tmp_path / "louder")
    (tmp_path / "README.md").write_text("about them")
    found = load_patches([tmp_path / "absent", tmp_path])
    assert list(found) == ["louder"]
    assert found["louder"].patched_digests == {"demo/words.py": text_sha256(AFTER)}
    assert found["louder"].plan["targets"] == [
        {"path": "demo/words.py", "before": text_sha256(BEFORE), "after": text_sha256(AFTER)}
    ]


def test_a_later_folder_wins(tmp_path: Path) -> None:
    write_patch(tmp_path / "ours/louder")
    write_patch(tmp_path / "ours/other")
    write_patch(tmp_path / "beside/louder", purpose="of the operator's own")
    found = load_patches([tmp_path / "ours", tmp_path / "beside"])
    assert (sorted(found), found["louder"].keys.purpose) == (["louder", "other"], "of the operator's own")


def test_a_head_may_be_from_another_system(tmp_path: Path) -> None:
    head = write_patch(tmp_path / "louder") / "patch.toml"
    head.write_bytes(head.read_bytes().replace(b"\n", b"\r\n"))
    assert load_patches([tmp_path])["louder"].patched_digests == {"demo/words.py": text_sha256(AFTER)}


WHOLE = {"path": "demo/new.py", "after": text_sha256("x = 1\n"), "file": "new.py"}


def test_a_file_may_be_given_whole(tmp_path: Path) -> None:
    write_patch(tmp_path / "more", files={"new.py": "x = 1\n"}, diff=None, targets=[WHOLE])
    assert load_patches([tmp_path])["more"].plan["targets"][0]["text"] == "x = 1\n"


TARGET = {"path": "demo/words.py", "before": text_sha256(BEFORE), "after": text_sha256(AFTER)}


@pytest.mark.parametrize(
    ("changes", "files", "said"),
    [
        ({"purpose": None}, {}, "purpose: missing"),
        (
            {"purpose": "red \x9b31m"},
            {},
            "purpose: 'red \\x9b31m' is refused: must be 1 to 2000 characters on one line",
        ),
        ({"purpose": "turned \u202e round"}, {}, "must be 1 to 2000 characters on one line"),
        ({"obsolete_when": "one\u2028two"}, {}, "must be 1 to 200 characters on one line"),
        ({"versoins": ["1"]}, {}, 'versoins: unknown key; did you mean "versions"?'),
        ({"verdict": "maybe"}, {}, "verdict: 'maybe' is refused"),
        ({"versions": []}, {}, "versions"),
        ({"targets": []}, {}, "patch.toml: targets: missing: it changes no files"),
        ({"diff": None}, {}, "patch.toml: targets.demo/words.py: must be given a file, or the patch a diff"),
        ({"verdict": "included"}, {}, "patch.toml: diff: must be left out: its verdict is included"),
        ({"verdict": "yours"}, {}, "patch.toml: targets: must be left out: its verdict is yours"),
        ({"targets": [WHOLE]}, {"new.py": "x = 1\n"}, "diff: must be left out: every target has a file of its own"),
        (
            {"targets": [TARGET | {"after": text_sha256(BEFORE)}]},
            {},
            "targets.demo/words.py: after is the same as before",
        ),
        ({"targets": [TARGET, TARGET]}, {}, "targets.demo/words.py: is listed twice"),
        ({"targets": [TARGET, WHOLE | {"path": "demo/words.py/x"}]}, {}, "targets.demo/words.py/x: is below another"),
        ({"targets": [TARGET | {"path": ""}]}, {}, "targets[0].path: '' is refused: must be a relative path inside"),
        ({"targets": [TARGET | {"path": ""}]}, {}, "it is empty, ends with a slash or has two in a row"),
        ({"targets": [TARGET | {"path": "demo/"}]}, {}, "it is empty, ends with a slash or has two in a row"),
        ({"targets": [TARGET | {"path": "demo//x"}]}, {}, "it is empty, ends with a slash or has two in a row"),
        ({"targets": [TARGET | {"path": "d" * 201}]}, {}, "is too long"),
        ({"targets": [TARGET | {"path": "d/" * 500 + "x"}]}, {}, "is too long"),
        ({"targets": [TARGET | {"path": "/etc/passwd"}]}, {}, "is absolute"),
        ({"targets": [TARGET | {"path": "demo/../../x"}]}, {}, "with .."),
        ({"targets": [TARGET | {"path": "demo/a b"}]}, {}, "characters other than"),
        ({"targets": [TARGET | {"path": "demo/others.py"}]}, {}, "the diff changes demo/words.py: it needs a table"),
        ({"targets": [TARGET | {"path": "demo/others.py"}]}, {}, "does not change it; it changes demo/words.py"),
        ({"targets": [TARGET, WHOLE]}, {"new.py": "x = 2\n"}, f"has SHA-256 {text_sha256('x = 2' + chr(10))}"),
        ({"targets": [TARGET, WHOLE]}, {}, "new.py is not there"),
        ({"targets": [TARGET | {"file": "new.py"}, {**WHOLE, "file": None}]}, {"new.py": AFTER}, "replacement file"),
        ({"diff": "../change.diff"}, {}, "a file name"),
        ({"diff": "other.diff"}, {}, "other.diff is not there"),
        ({}, {"change.diff": DIFF.replace("\n", "\r\n")}, "CRLF line endings"),
        ({}, {"change.diff": DIFF.replace("hello", "hel\rlo")}, "has a carriage return inside a line"),
        ({}, {"change.diff": DIFF.replace("a/demo", "/demo")}, "change.diff: line 1 has an absolute path"),
        ({}, {"change.diff": DIFF.replace("b/demo", "/demo")}, "change.diff: line 1 has an absolute path"),
        ({}, {"change.diff": "\0"}, "is binary"),
        ({}, {"change.diff": "#" * (LARGEST + 1)}, "has more than 10,000,000 bytes"),
        ({}, {"change.diff": ""}, "change.diff: it changes no files"),
        ({}, {"patch.toml": "#" * 1_000_001}, "the file: patch.toml has more than 1,000,000 bytes"),
        ({"targets": [TARGET | {"bfore": "0"}]}, {}, 'targets[0].bfore: unknown key; did you mean "before"?'),
        ({}, {"change.diff": "nothing\n"}, "change.diff: line 1 is not part of a unified text diff"),
    ],
)
def test_problems_of_one_are_reported(tmp_path: Path, changes: Any, files: dict[str, str], said: str) -> None:
    write_patch(tmp_path / "louder", files=files, **changes)
    assert said in patch_problems(tmp_path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("evil.pth", "is run by every Python: no patch may change or add it"),
        ("sitecustomize.py", "is run by every Python: no patch may change or add it"),
        ("usercustomize/__init__.py", "is run by every Python: no patch may change or add it"),
        ("demo-1.0.dist-info/direct_url.json", "describes a package to Python: no patch may change or add it"),
        ("demo-1.0.egg-info/PKG-INFO", "describes a package to Python: no patch may change or add it"),
        ("demo.egg-link", "describes a package to Python: no patch may change or add it"),
    ],
)
def test_code_outside_of_packages_is_refused(tmp_path: Path, path: str, said: str) -> None:
    new: dict[str, Any] = {"files": {"new.py": "x = 1\n"}, "diff": None, "targets": [WHOLE | {"path": path}]}
    write_patch(tmp_path / "louder", **new)
    assert f"patch.toml: targets.{path}: {said}" in patch_problems(tmp_path)
    # a source tree of llama.cpp is no place where packages are installed
    write_patch(tmp_path / "louder", **new, target_distribution="llama.cpp")
    assert list(load_patches([tmp_path])) == ["louder"]


def test_a_patch_that_names_no_files_of_a_large_diff_is_reported_in_a_few_lines(tmp_path: Path) -> None:
    other = "".join(f"--- a/demo/{n}\n+++ b/demo/{n}\n@@ -1 +1 @@\n-a\n+b\n" for n in range(1000))
    write_patch(tmp_path / "louder", files={"change.diff": DIFF + other})
    said = patch_problems(tmp_path).splitlines()
    assert len(said) == MOST + 1
    assert "targets: the diff changes 980 more files without a table" in "".join(said)


def test_all_of_it_is_reported_at_once(tmp_path: Path) -> None:
    write_patch(tmp_path / "one", purpose=None)
    write_patch(tmp_path / "two", files={"change.diff": "nothing\n"}, targets=[TARGET, WHOLE])
    write_patch(tmp_path / "Three_")
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "empty").mkdir()
    said = patch_problems(tmp_path)
    assert [line.partition(": ")[0] for line in said.splitlines()] == [
        str(tmp_path / name / "patch.toml") for name in ("Three_", "empty", "link", "one", "two", "two")
    ]


@pytest.mark.parametrize("name", ["change.diff", "patch.toml"])
def test_special_files_are_refused_unread(tmp_path: Path, name: str) -> None:
    write_patch(tmp_path / "louder")
    file = tmp_path / "louder" / name
    file.rename(tmp_path / name)
    file.symlink_to(f"../{name}")
    assert f"{name} is a link" in patch_problems(tmp_path)
    file.unlink()
    os.mkfifo(file)
    assert f"{name} is not a regular file" in patch_problems(tmp_path)
    file.unlink()
    file.mkdir()
    assert f"{name} is not a regular file" in patch_problems(tmp_path)


def test_other_objects_than_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "louder")
    assert "the folder: is not a patch" in patch_problems(tmp_path)


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    write_patch(tmp_path / "louder")
    monkeypatch.setattr(Path, "open", denied)
    assert "patch.toml: the file: patch.toml cannot be read: Permission denied" in patch_problems(tmp_path)


def test_files_are_bounded_together_too(tmp_path: Path) -> None:
    text = "#" * 6_000_000
    after = text_sha256(text)
    targets = [{"path": f"demo/{n}.py", "after": after, "file": "new.py"} for n in range(4000)]
    write_patch(tmp_path / "louder", files={"new.py": text}, diff=None, targets=targets)
    assert patch_problems(tmp_path).count("with new.py its files have more than 10,000,000 bytes together") == 1


def test_a_patch_of_many_files_is_refused_in_a_moment(tmp_path: Path) -> None:
    targets = [TARGET | {"path": f"demo/x{number}.py"} for number in range(4000)]
    other = "".join(f"--- a/demo/{n}\n+++ b/demo/{n}\n@@ -1 +1 @@\n-a\n+b\n" for n in range(20_000))
    write_patch(tmp_path / "louder", files={"change.diff": other}, targets=targets)
    said = patch_problems(tmp_path)
    assert "targets.demo/x0.py: the diff does not change it; it changes demo/0, demo/1, demo/10, ...\n" in said
    assert len(said) < 10_000_000


def patches(tmp_path: Path) -> dict[str, Patch]:
    write_patch(tmp_path / "louder")
    write_patch(tmp_path / "softer", purpose="the other way")
    write_patch(tmp_path / "more", files={"new.py": "x = 1\n"}, diff=None, targets=[WHOLE])
    write_patch(
        tmp_path / "below", files={"new.py": "x = 1\n"}, diff=None, targets=[WHOLE | {"path": "demo/words.py/x"}]
    )
    write_patch(tmp_path / "old", versions=["0.9"])
    write_patch(tmp_path / "elsewhere", target_distribution="llama.cpp")
    for verdict in ("included", "impossible", "yours"):
        write_patch(tmp_path / verdict, verdict=verdict, diff=None, targets=[], files={})
    return load_patches([tmp_path])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["louder", "more"], []),
        (["lauder"], ['there is no patch "lauder"; did you mean "louder"?']),
        (["louder", "louder"], ["patch louder is listed twice"]),
        (["louder", "softer"], ["patches louder and softer both change demo/words.py"]),
        (["louder", "below"], ["patch below adds demo/words.py/x, which is below a file of another patch"]),
        (
            ["old", "elsewhere"],
            ["is for demo 0.9, but the env has 1.0", "is of llama.cpp, which the env does not have"],
        ),
        (["included", "impossible"], ["is not needed with demo 1.0: to be heard", "cannot be with demo 1.0"]),
        (["yours"], ["your own folder of that name must contain it"]),
    ],
)
def test_an_engine_names_those_that_are_for_it(tmp_path: Path, names: list[str], said: list[str]) -> None:
    found, wrong = select_patches(names, patches(tmp_path), VERSIONS, "the env")
    assert len(wrong) == len(said)
    assert all(text in line for text, line in zip(said, wrong, strict=True))
    assert [str(one) for one in found] == (names if not said else [str(one) for one in found])


def test_the_unpacked_size_of_files_counts(tmp_path: Path) -> None:
    one = patches(tmp_path)["louder"]
    write_patch(tmp_path / "again/louder", purpose="another reason", obsolete_when="later")
    assert collect_digests([one]) == collect_digests(load_patches([tmp_path / "again"]).values())


def test_shipped_files_are_sound() -> None:
    assert all(one.keys.test_notes and one.keys.evidence for one in load_patches([ROOT / "patches"]).values())
