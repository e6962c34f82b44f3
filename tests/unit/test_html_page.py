"""HTML pages: well-formed, self-contained, labelled, and with nothing of a host's that a browser obeys."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from checks.results import FailureCause, HostReport, Report, Result
from cli.box_picture import PicturedBox, PicturedCard, PicturedInstance, render_box, render_series
from cli.html_page import describe_host, list_speeds, render_check_page, render_public_page, render_speed_page
from rigwright.project_root import ROOT
from rigwright.speed_baselines import BaselineHistory

MARKUP = '<script>document.title="run"</script>"><img src="http://box.example/x" onerror="1">\x1b[31m\u202e&amp;</td>'
FINGERPRINT = {
    **{"driver": "580.1", "cards": ("RTX 3090",), "power_w": (300.0,), "lanes": (16,), "lock": "a" * 64},
    **{"variant": "llamacpp/demo", "settings": "1" * 12},
}
BOOT = "b" * 12
RUNS = [
    {"date": f"2026-11-0{day}T10:00:00Z", "boot": BOOT, "fingerprint": FINGERPRINT}
    | {"rates": {"essay": {"values": [rate]}}}
    for day, rate in ((1, 50.0), (2, 54.0), (3, 52.0))
]
HISTORY = BaselineHistory.model_validate(
    {
        "instances": {
            "chat": {"runs": RUNS, "accepted": [{"fingerprint": FINGERPRINT, "runs": RUNS[:2]}]},
            "idle": {"runs": [{**RUNS[0], "quick": True}]},
        }
    }
)
BOX = PicturedBox(
    MARKUP,
    (
        PicturedCard(0, MARKUP, 0, 1024, 24576, 8, 16),
        PicturedCard(1, "RTX 3090", 1, 0, 24576, 16, 16),
        PicturedCard(2, "RTX 3090"),
    ),
    ((0, 1, "NV4"), (0, 2, "SYS"), (1, 2, MARKUP)),
    (PicturedInstance(MARKUP, MARKUP, (0, 1)), PicturedInstance("small", "llamacpp/demo")),
    64.0,
)


def result(identifier: str, verdict: str, part: str = "", severity: str = "high", cause: str = "") -> Result:
    return Result(
        *(identifier, MARKUP, severity, MARKUP, part, verdict, 0.1),  # type: ignore[arg-type]
        **{"note": MARKUP, "expected": MARKUP, "found": MARKUP, "since": MARKUP, "cure": MARKUP, "cause": cause},
    )


def check_page() -> str:
    found = [
        *(result("M01", "fail", cause="disk"), result("M02", "fail", severity="critical"), result("M03", "ok")),
        *(result("S01", "ok", MARKUP), result("S02", "skip", MARKUP), result("S03", "changed", "chat")),
    ]
    causes = [FailureCause("disk", f"the disk is full {MARKUP}", MARKUP, MARKUP, ["M01"])]
    first = HostReport("box1", "not as declared", "a" * 64, 1, "", {MARKUP: MARKUP}, found, {}, causes)
    gone = HostReport("box2", "not reached", "a" * 64, None, "", {})
    report = Report(2, "2026-11-29T02:00:00Z", "0.1.0", "/rig.py", False, "not reached", 1.0, [first, gone])
    hosts = [
        describe_host("box1", 1, first, BOX, HISTORY),
        describe_host("box2", 2, gone, None, BaselineHistory()),
    ]
    return render_check_page(report, hosts)


LINKS = "![x](http://box.example/x) [y](http://box.example/y)"
PUBLIC = f"# Box\n\n| a |\n|---|\n| {MARKUP} |\n\n{LINKS}\n"
PAGES = {
    "check": check_page,
    "speed": lambda: render_speed_page(
        [describe_host("box1", 1, None, None, HISTORY)], "2026-11-29T02:00:00Z", "0.1.0"
    ),
    "public": lambda: render_public_page(PUBLIC, "2026-11-29", "0.1.0"),
}


@pytest.fixture(scope="module", params=[*PAGES])
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]()


def test_a_page_is_well_formed_and_has_landmarks_and_unique_ids(page: str) -> None:
    top = ElementTree.fromstring(page)
    assert top.attrib["lang"] == "en"
    assert [one.tag for one in top.find("body") or ()][:2] == ["a", "header"]
    assert len([*top.iter("main")]) == len([*top.iter("h1")]) == 1
    ids = Counter(one.attrib["id"] for one in top.iter() if "id" in one.attrib)
    assert [name for name, count in ids.items() if count > 1] == []
    named = {one.attrib[key] for one in top.iter() for key in ("aria-labelledby",) if key in one.attrib}
    assert named <= set(ids)
    assert {one.attrib["href"].removeprefix("#") for one in top.iter("a")} <= set(ids)


def test_a_page_needs_nothing_from_elsewhere(page: str) -> None:
    top = ElementTree.fromstring(page)
    tags = {one.tag for one in top.iter()}
    assert not tags & {"script", "img", "link", "iframe", "object", "form", "audio", "video", "base"}
    names = {name for one in top.iter() for name in one.attrib}
    assert not [name for name in names if name.startswith("on") or name in ("src", "srcset", "style")]
    assert all(one.attrib["href"].startswith("#") for one in top.iter() if "href" in one.attrib)
    assert not re.search(r"url\(|@import", page)
    assert "default-src 'none'" in page


def test_markup_and_control_characters_of_a_host_are_text(page: str) -> None:
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


def test_each_table_has_headers_and_each_picture_a_name() -> None:
    top = ElementTree.fromstring(check_page())
    for table in top.iter("table"):
        heads = [*(table.find("thead") or ()).iter("th")]
        assert heads
        assert {one.attrib["scope"] for one in heads} == {"col"}
        for row in (table.find("tbody") or ()).iter("tr"):
            assert len(row) == len(heads)
            assert [one.attrib["scope"] for one in row.iter("th")] == ["row"]
    for picture in top.iter("svg"):
        assert picture.attrib["role"] == "img"
        title = picture[0]
        assert (title.tag, title.attrib["id"]) == ("title", picture.attrib["aria-labelledby"])
        assert title.text


def test_results_are_listed_by_subject_with_the_most_severe_failure_first() -> None:
    text = " ".join("".join(ElementTree.fromstring(check_page()).itertext()).split())
    assert text.index("M02:") < text.index("M01:") < text.index("M03:")
    assert text.index("Checks of the host") < text.index("Checks of chat") < text.index("Checks of <script>")
    # a word stands beside each colour
    assert {"fails", "changed", "holds", "does not apply"} <= {*re.findall(r"fails|changed|holds|does not apply", text)}
    assert "the disk is full" in text


def test_a_picture_has_cards_by_node_links_instances_and_memory() -> None:
    top = ElementTree.fromstring(str(render_box(BOX, "box")))
    text = [one.text for one in top.iter("text")]
    for line in ("NUMA node 0", "NUMA node 1", "NUMA node unknown", "GPU 0", "1.0 of 24.0 GiB used", "NV4"):
        assert line in text
    assert "PCIe, 8 of 16 lanes" in text
    assert "memory not measured" in text
    assert text[0] == f"{text[0][: -len(', 64 GiB of memory')]}, 64 GiB of memory"
    assert len([one for one in top.iter("path") if one.attrib["class"] == "link"]) == 1
    assert len([one for one in top.iter("rect") if one.attrib["class"] == "instance"]) == 2
    width, height = (float(top.attrib[name]) for name in ("width", "height"))
    for one in top.iter("rect"):
        x, y, wide, high = (float(one.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + high <= height


@pytest.mark.parametrize("count", [0, 1, 8])
def test_links_that_overlap_have_a_level_each(count: int) -> None:
    cards = tuple(PicturedCard(index, "H200", index // 4) for index in range(count))
    links = tuple((a, b, "NV18") for a in range(count) for b in range(a + 1, count))
    top = ElementTree.fromstring(str(render_box(PicturedBox("box", cards, links), "box")))
    lines = [one.attrib["d"] for one in top.iter("path")]
    assert len(lines) == len(links)
    ends = [[float(part) for part in re.findall(r"[\d.]+", line)] for line in lines]
    for number, (left, _, level, right, _) in enumerate(ends):
        for start, _, other, end, _ in ends[:number]:
            assert level != other or right < start or end < left


def test_speeds_are_of_complete_runs_beside_what_was_accepted() -> None:
    (one,) = list_speeds(HISTORY, "speed")
    assert (one.instance, one.rate, one.accepted) == ("chat", "essay", 52.0)
    assert one.values == [(f"2026-11-0{day}T10:00:00Z", rate) for day, rate in ((1, 50.0), (2, 54.0), (3, 52.0))]


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [1.0, 2.0, 1e9]])
def test_a_line_of_speeds_stays_within_its_picture(values: list[float]) -> None:
    top = ElementTree.fromstring(str(render_series(values, "one", "chat")))
    for dot in top.iter("circle"):
        assert 0 <= float(dot.attrib["cx"]) <= 240
        assert 0 <= float(dot.attrib["cy"]) <= 48


def test_check_writes_the_page_also_where_no_host_is_reached(tmp_path: Path) -> None:
    (tmp_path / "rig.py").write_text(
        "from rigwright.inventory import hosts\n"
        'rigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_user": "ops",'
        ' "instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}},'
        ' "mirrors": {"shelf": ["http://127.0.0.1:8080/"]}}})\n'
    )
    command = [sys.executable, str(ROOT), "check", "rig.py", "--html", "page.html"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "box: not reached" in "".join(ElementTree.fromstring((tmp_path / "page.html").read_text()).itertext())


CHROMIUM = shutil.which("chromium")


@pytest.mark.all_only
@pytest.mark.skipif(not CHROMIUM, reason="no chromium here (Debian's package of that name)")
def test_a_browser_shows_the_page_and_runs_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(check_page())
    browser = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    address = f"file://{tmp_path}/page.html"
    shown = subprocess.run([*browser, "--dump-dom", address], capture_output=True, text=True, check=True, timeout=120)
    assert "<title>Checks, 2026-11-29T02:00:00Z</title>" in shown.stdout
    assert shown.stdout.count("<script") == 0
    printed = tmp_path / "page.pdf"
    subprocess.run([*browser, f"--print-to-pdf={printed}", address], capture_output=True, check=True, timeout=120)
    assert printed.read_bytes().startswith(b"%PDF-")
