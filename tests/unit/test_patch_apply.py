"""Diffs are applied exactly as they are written, or not at all."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rigwright.patches import apply
from rigwright.patches.apply import LARGEST, PatchRefused, applied, outcome, parse

BEFORE = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
AFTER = BEFORE.replace(b"two\n", b"2\nand a half\n").replace(b"eight\n", b"")
DIFF = b"""\
diff --git a/pkg/numbers.txt b/pkg/numbers.txt
index 0000000..1111111 100644
--- a/pkg/numbers.txt
+++ b/pkg/numbers.txt
@@ -1,3 +1,4 @@
 one
-two
+2
+and a half
 three
@@ -7,3 +8,2 @@ six
 seven
-eight
 nine
"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def patch(diff: bytes = DIFF, **target: object) -> dict[str, Any]:
    own = {"path": "pkg/numbers.txt", "before": digest(BEFORE), "after": digest(AFTER)}
    return {"name": "numbers", "diff": diff.decode(), "targets": [own | target]}


def test_a_diff_becomes_what_it_says() -> None:
    assert applied(BEFORE, parse(DIFF)["pkg/numbers.txt"]) == AFTER
    assert outcome(patch(), {"pkg/numbers.txt": BEFORE}.get) == {"pkg/numbers.txt": AFTER}


@pytest.mark.parametrize("context", ["0", "1", "3"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\nc\n", "b\nc\n"),
        ("a\nb\nc\n", "a\nb\nc\nd\n"),
        ("a\nb\nc", "a\nb\nc\n"),
        ("a\nb\nc\n", "a\nb\nC"),
        ("a\n\n\n b\n", "a\n\n b\n+\n"),
        ("x\x0cy\nz\n", "x\x0cy\nZ\n"),
        ("-- a\n++ b\nc\n", "++ b\n-- a\nd\n"),
        ("\n".join(map(str, range(99))) + "\n", "\n".join(str(n) for n in range(-2, 99) if n % 7) + "\n"),
    ],
)
def test_it_becomes_what_diff_and_patch_make_of_it(tmp_path: Path, old: str, new: str, context: str) -> None:
    (tmp_path / "a").write_text(old)
    (tmp_path / "b").write_text(new)
    command = ["diff", f"-U{context}", "--label=a/f", "--label=b/f", "a", "b"]
    diff = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).stdout
    assert applied(old.encode(), parse(diff)["f"]) == new.encode()


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_output_of_git_is_read(tmp_path: Path) -> None:
    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, check=True).stdout

    git("init", "--quiet")
    file = tmp_path / "x/f.py"
    file.parent.mkdir()
    file.write_text("one\n")
    git("add", ".")
    file.write_text("two\n")
    file.with_name("new.py").write_text("new\n")
    git("add", "--intent-to-add", ".")
    diff = git("diff", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/")
    found = parse(diff)
    assert applied(b"one\n", found["x/f.py"]) == b"two\n"
    assert applied(b"", found["x/new.py"]) == b"new\n"


@pytest.mark.parametrize(
    "header", [b"diff -ruN a/p/x b/p/x\n", b"diff -r -u --new-file a/p/x b/p/x\n", b"index 0000000..1111111 100755\n"]
)
def test_further_fields_of_a_change_of_one_text_are_passed_over(header: bytes) -> None:
    assert parse(header + DIFF) == parse(DIFF)


def test_diff_says_in_its_users_language_that_a_line_has_no_end() -> None:
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ Kein Zeilenumbruch am Dateiende.\n+b\n"
    assert applied(b"a", parse(diff)["f"]) == b"b\n"


def test_lines_are_added_at_the_end_and_not_beyond_it() -> None:
    hunks = parse(b"--- a/f\n+++ b/f\n@@ -1,0 +2 @@\n+b\n")["f"]
    assert applied(b"a\n", hunks) == b"a\nb\n"
    with pytest.raises(PatchRefused, match="line 1: expected a line to insert after, found the end of the file"):
        applied(b"", hunks)


def changed(old: bytes, new: bytes) -> bytes:
    assert old in DIFF
    return DIFF.replace(old, new)


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        (b"", "changes no files"),
        (b"hello\n", "line 1 is not part of a unified text diff"),
        (DIFF[:-1], "last line is incomplete"),
        (changed(b"\n", b"\r\n"), "CRLF line endings"),
        (changed(b"+2\n", b"+\x00\n"), "is binary"),
        (changed(b"+2\n", b"+\xff\n"), "is not UTF-8"),
        (b"#" * LARGEST + DIFF, "has more than 10,000,000 bytes"),
        (changed(b"pkg/", b"/etc/"), "is absolute"),
        (changed(b"pkg/", b"../"), "with .."),
        (changed(b"pkg/", b"x/../../"), "with .."),
        (changed(b"pkg/", b"p kg/"), "is not part of a unified text diff:"),
        (changed(b"b/pkg/numbers.txt\n@@", b"b/pkg/p kg\n@@"), "characters other than"),
        (changed(b"+++ b/pkg/numbers.txt", b"+++ b/pkg/letters.txt"), "renames 'pkg/numbers.txt'"),
        (changed(b"+++ b/pkg/numbers.txt", b"+++ /dev/null"), "removes a/pkg/numbers.txt"),
        (changed(b"--- a/pkg", b"--- pkg"), "does not name a/PATH and b/PATH"),
        (changed(b"+++ b", b"*** b"), "does not begin with +++"),
        (changed(b"index ", b"old mode 100644\nnew mode 100755\nindex "), "line 2 is not part of"),
        (DIFF + b"GIT binary patch\n", "line 15 is not part of"),
        (DIFF + DIFF, "pkg/numbers.txt is listed twice"),
        (DIFF[: DIFF.index(b"@@")], "has no hunks"),
        (
            changed(b"-two\n+2\n+and a half\n", b" two\n").replace(b"1,4", b"1,3").replace(b"+8,2", b"+7,2"),
            "changes nothing",
        ),
        (changed(b"@@ -7,3", b"@@ -2,3"), "overlaps"),
        (changed(b"+8,2", b"+9,2"), "does not end where its header says"),
        (changed(b"-1,3 +1,4", b"-0,3 +0,4"), "line 5 does not start a hunk"),
        (changed(b"-1,3 +1,4", b"-1,4 +1,4"), "the hunk at line 5 is truncated at line 11"),
        (changed(b"-1,3 +1,4", b"-1,2 +1,4"), "a different number of lines"),
        (changed(b"-7,3 +8,2", b"-7,4 +8,2"), "the hunk at line 11 is truncated at line 15"),
        (changed(b"@@ -1,3 +1,4 @@", b"@@ -1,3 +1,4"), "line 5 does not start a hunk"),
        (changed(b" three\n", b"three\n"), "is truncated at line 10"),
    ],
)
def test_an_inexact_diff_is_refused(diff: bytes, said: str) -> None:
    with pytest.raises(PatchRefused) as refused:
        parse(diff)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BEFORE.replace(b"two", b"TWO"), "line 2: expected 'two', found 'TWO'"),
        (b"zero\n" + BEFORE, "line 1: expected 'one', found 'zero'"),
        (BEFORE[:-5], "line 9: expected 'nine', found the end of the file"),
        (BEFORE[:-1], "line 9: expected 'nine', found 'nine'"),
        (b"", "line 1: expected 'one', found the end of the file"),
    ],
)
def test_nothing_is_searched_for_nearby(content: bytes, said: str) -> None:
    with pytest.raises(PatchRefused) as refused:
        applied(content, parse(DIFF)["pkg/numbers.txt"])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("made", "there", "said"),
    [
        (patch(), b"other", f"expected {digest(BEFORE)}, found {digest(b'other')}: the patch is for another version"),
        (patch(), None, f"expected {digest(BEFORE)}, found no file"),
        (patch(before=None), BEFORE, f"expected no file, found {digest(BEFORE)}"),
        (patch(after="0" * 64), BEFORE, f"the result is {digest(AFTER)}, but the patch says {'0' * 64}"),
        (patch(path="pkg/other.txt"), BEFORE, "the diff does not change it"),
        (patch(text=BEFORE.decode()), BEFORE, "it changes nothing"),
        (patch(before=digest(b"a\r\n")), b"a\r\n", "CRLF line endings"),
        (patch(text="x" * (LARGEST + 1)), BEFORE, "the result has 10,000,001 bytes: at most 10,000,000"),
    ],
)
def test_bytes_before_and_after_are_the_declared_ones(made: dict[str, Any], there: bytes | None, said: str) -> None:
    with pytest.raises(PatchRefused) as refused:
        outcome(made, lambda _: there)
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"patch numbers: {made['targets'][0]['path']}: ")


def run(tmp_path: Path, *patches: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"patches": patches}))
    command = [sys.executable, "-I", apply.__file__, str(plan), str(tmp_path / "top")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    file = tmp_path / "top/pkg/numbers.txt"
    file.parent.mkdir(parents=True)
    file.write_bytes(BEFORE)
    return tmp_path / "top"


def test_a_tree_is_patched_by_the_file_alone(top: Path, tmp_path: Path) -> None:
    file = top / "pkg/numbers.txt"
    (top / "pkg/__pycache__").mkdir()
    compiled, others = (top / f"pkg/__pycache__/{name}.cpython-310.pyc" for name in ("old", "numbers"))
    compiled.write_text("of the file before")
    others.write_text("of numbers.py")
    file.chmod(0o755)
    (tmp_path / "cached").hardlink_to(file)
    (top / "pkg/old.py").write_text("x = 0\n")
    new = {"path": "pkg/new/more.py", "before": None, "after": digest(b"x = 1\n"), "text": "x = 1\n"}
    old = new | {"path": "pkg/old.py", "before": digest(b"x = 0\n")}
    done = run(tmp_path, patch(), {"name": "more", "diff": "", "targets": [new, old]})
    said = "patched pkg/numbers.txt\npatched pkg/new/more.py\npatched pkg/old.py\n"
    assert (done.returncode, done.stdout) == (0, said)
    assert file.read_bytes() == AFTER
    assert (file.stat().st_mode & 0o777, file.stat().st_nlink) == (0o755, 1)
    assert (tmp_path / "cached").read_bytes() == BEFORE
    assert (top / "pkg/new/more.py").read_text() == "x = 1\n"
    assert (compiled.exists(), others.exists()) == (False, True)
    assert run(tmp_path, patch()).returncode == 1


def test_a_file_at_the_temporary_path_is_left_alone(top: Path, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("own")
    (top / "pkg/.numbers.txt.patched").symlink_to(tmp_path / "own")
    assert run(tmp_path, patch()).returncode == 1
    assert ((tmp_path / "own").read_text(), (top / "pkg/numbers.txt").read_bytes()) == ("own", BEFORE)


def _link(top: Path) -> None:
    (top / "pkg/numbers.txt").rename(top / "kept")
    (top / "pkg/numbers.txt").symlink_to("../kept")


def _link_above(top: Path) -> None:
    (top / "pkg").rename(top / "kept")
    (top / "pkg").symlink_to("kept")


def _folder(top: Path) -> None:
    (top / "pkg/numbers.txt").unlink()
    (top / "pkg/numbers.txt").mkdir()


def _large(top: Path) -> None:
    (top / "pkg/numbers.txt").write_bytes(b"\n" * (LARGEST + 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_link, "it is a link, or not a regular file"),
        (_link_above, "pkg is a link, or not a directory"),
        (_folder, "it is a link, or not a regular file"),
        (_large, "it has more than 10,000,000 bytes"),
    ],
)
def test_special_files_of_the_tree_are_refused(top: Path, tmp_path: Path, change: Any, said: str) -> None:
    change(top)
    done = run(tmp_path, patch())
    assert (done.returncode, done.stdout) == (1, f"patch numbers: pkg/numbers.txt: {said}\n")


def test_either_all_is_applied_or_nothing(top: Path, tmp_path: Path) -> None:
    absent = {"path": "pkg/absent.py", "before": "1" * 64, "after": "2" * 64, "text": "x"}
    done = run(tmp_path, patch(), {"name": "more", "diff": "", "targets": [absent]})
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert (top / "pkg/numbers.txt").read_bytes() == BEFORE
