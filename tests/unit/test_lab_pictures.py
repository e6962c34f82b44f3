"""Pictures of dashboards: each panel is there, what a Prometheus says is drawn, and what it does not say is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse
from xml.etree import ElementTree

import pytest

from lab import pictures
from lab.dashboards import PAGES

BEGAN, ENDED = 1000.0, 1600.0
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", PAGES)
def test_each_panel_is_in_the_picture_and_who_has_drawn_it(name: str) -> None:
    title, _, graphs = PAGES[name]
    said = texts(pictures.picture(name, [[] for _ in graphs], BEGAN, ENDED))
    assert {title, *(one.title for one in graphs)} <= set(said)
    assert any("not by Grafana" in one for one in said)
    assert said.count("no data there") == len(graphs)


def test_a_line_has_its_legends_name_a_gap_where_there_was_nothing_and_no_markup() -> None:
    graph = PAGES["fleet"][2][1]
    values = [(1000.0, "1"), (1005.0, "0"), (1100.0, "1"), (1105.0, "NaN")]
    made = pictures.line(graph, {"box": "<b>", "instance": "chat"}, values)
    assert (made.name, len(made.points)) == ("<b> chat", 3)
    drawn = "\n".join(pictures.panel(graph, [made], BEGAN, ENDED, (0, 0)))
    assert "<b>" not in drawn
    assert "&lt;b&gt; chat" in drawn
    path = next(one for one in drawn.splitlines() if 'fill="none"' in one)
    assert (path.count("M"), path.count("L")) == (2, 1)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(0.5, "percentunit", "50 %"), (2.5e9, "bytes", "2.5 GB"), (1234, "Bps", "1.23 kB/s"), (7, "short", "7")],
)
def test_values_are_said_in_their_units(value: float, unit: str, said: str) -> None:
    assert pictures.worded(value, unit) == said


def test_every_unit_of_a_panel_has_words() -> None:
    for _, _, graphs in PAGES.values():
        for one in graphs:
            assert pictures.worded(1.0, one.unit)


@contextmanager
def prometheus(queries: list[str]) -> Iterator[str]:
    """One that has a box with an instance, and says one thing to all that it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            queries.append(parse_qs(urlparse(self.path).query)["query"][0])
            metric = {"box": "box", "instance": "chat"}
            rows = [{"metric": metric, "values": [[1000, "1"], [1005, "2"]]}]
            body = json.dumps({"data": {"result": rows}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_all_panels_are_asked_for_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    monkeypatch.setattr(pictures, "FOLDER", tmp_path / "pictures")
    with prometheus(queries) as url:
        monkeypatch.setattr("sys.argv", ["pictures", url])
        pictures.main()
    assert {path.stem for path in (tmp_path / "pictures").iterdir()} == set(PAGES)
    assert len(queries) == 2 + sum(len(graphs) for _, _, graphs in PAGES.values())
    # as Grafana puts them there where all is chosen
    assert 'rig:running{box=~"(box)", instance=~"(chat)"}' in queries
    assert not [one for one in queries if "$" in one]


@pytest.mark.parametrize("name", PAGES)
def test_pictures_in_docs_are_of_these_panels(name: str) -> None:
    said = texts((pictures.FOLDER / f"{name}.svg").read_text())
    assert [one.title for one in PAGES[name][2] if one.title not in said] == []
