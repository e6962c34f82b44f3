"""Metrics of cards, by a stand-in for the driver's library: names, units, omitted values, counts."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from roles.monitoring.host import gpu
from roles.monitoring.host.gpu import CLIENTS, HEAD, Cards, Sample, Server, page
from tests.unit.stand_in_nvml import StandInCard, StandInNvml


def card_figures(cards: Cards) -> dict[tuple[str, str], float]:
    """Figure and card -> value; for one with a row for each reason, of the host's clocks too."""
    found = {}
    for one in cards.samples():
        labels = dict(one.labels)
        found[f"{one.name}{labels.get('reason', '')}", labels.get("gpu", "")] = one.value
    return found


def test_figures_have_the_names_and_units_of_dcgm() -> None:
    found = card_figures(Cards(StandInNvml([StandInCard(0, uncorrected=2)]), [280]))
    assert found == {
        ("rigwright_gpus_declared", ""): 1,
        ("DCGM_FI_DEV_SM_CLOCK", "0"): 1000,  # MHz
        ("DCGM_FI_DEV_MEM_CLOCK", "0"): 2000,
        ("DCGM_FI_DEV_GPU_TEMP", "0"): 40,  # degrees
        ("DCGM_FI_DEV_POWER_USAGE", "0"): 120.5,  # W
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "0"): 280,
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "0"): 7,  # mJ
        ("DCGM_FI_DEV_GPU_UTIL", "0"): 90,  # %
        ("DCGM_FI_DEV_MEM_COPY_UTIL", "0"): 30,
        ("DCGM_FI_DEV_FB_USED", "0"): 20480,  # MiB
        ("DCGM_FI_DEV_FB_FREE", "0"): 4096,
        ("DCGM_FI_DEV_FB_RESERVED", "0"): 480,
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "0"): 0,
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0"): 2,
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "0"): 0,
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "0"): 0,
        ("rigwright_gpu_throttledhardware", "0"): 0,
        ("rigwright_gpu_throttledsoftware thermal", "0"): 0,
        ("rigwright_gpu_throttledhardware thermal", "0"): 0,
        ("rigwright_gpu_throttledpower brake", "0"): 0,
        ("DCGM_FI_DEV_XID_ERRORS", "0"): 0,
        ("rigwright_gpu_xid_events", "0"): 0,
        ("rigwright_gpu_power_limit_declared_watts", "0"): 280,
    }


def test_a_card_is_named_as_dcgm_names_it() -> None:
    (labels,) = {
        one.labels for one in Cards(StandInNvml([StandInCard(0)]), [None]).samples() if one.name.endswith("GPU_TEMP")
    }
    assert dict(labels) == {
        **{"gpu": "0", "UUID": "GPU-0", "pci_bus_id": "00000000:01:00.0", "device": "nvidia0"},
        "modelName": "NVIDIA GeForce RTX 3090",
    }


def test_missing_figures_of_a_card_are_left_out_and_the_rest_is_exported() -> None:
    found = card_figures(Cards(StandInNvml([StandInCard(0, temperature=None), StandInCard(1)]), [None, 250]))
    assert ("DCGM_FI_DEV_GPU_TEMP", "0") not in found
    assert found["DCGM_FI_DEV_GPU_TEMP", "1"] == 40
    assert ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "1") not in found
    assert ("rigwright_gpu_power_limit_declared_watts", "0") not in found
    assert found["rigwright_gpu_power_limit_declared_watts", "1"] == 250


def test_a_card_that_has_fallen_off_the_bus_is_missing_and_the_others_are_not() -> None:
    found = card_figures(Cards(StandInNvml([StandInCard(0, lost=True), StandInCard(1)]), [None, None]))
    assert found["rigwright_gpus_declared", ""] == 2
    assert {gpu for _, gpu in found} == {"", "1"}


@pytest.mark.parametrize(
    ("reasons", "slow"),
    [(0x4, []), (0x8, ["hardware"]), (0xE4, ["software thermal", "hardware thermal", "power brake"])],
    ids=["its power limit", "hardware", "all at once"],
)
def test_causes_of_a_slow_card_are_distinguished_from_its_power_limit(reasons: int, slow: list[str]) -> None:
    found = card_figures(Cards(StandInNvml([StandInCard(0, reasons=reasons)]), [None]))
    prefix = "rigwright_gpu_throttled"
    assert [
        name.removeprefix(prefix) for (name, _), value in found.items() if name.startswith(prefix) and value
    ] == slow


def test_errors_of_the_driver_are_counted_with_the_last_one() -> None:
    nvml = StandInNvml([StandInCard(0, uncorrected=0), StandInCard(1, uncorrected=0)], xids=[(1, 31), (1, 79)])
    cards = Cards(nvml, [None, None])
    assert cards.open()
    assert [cards.wait(0) for _ in range(3)] == [True, True, True]
    found = card_figures(cards)
    assert (found["DCGM_FI_DEV_XID_ERRORS", "1"], found["rigwright_gpu_xid_events", "1"]) == (79, 2)
    assert (found["DCGM_FI_DEV_XID_ERRORS", "0"], found["rigwright_gpu_xid_events", "0"]) == (0, 0)


def test_without_a_driver_it_says_how_many_cards_there_should_be_and_finds_one_that_comes() -> None:
    nvml = StandInNvml(driver=False)
    cards = Cards(nvml, [None, None])
    assert card_figures(cards) == {("rigwright_gpus_declared", ""): 2}
    assert not cards.lost
    nvml.driver = True
    assert ("DCGM_FI_DEV_GPU_TEMP", "1") in card_figures(cards)
    nvml.driver = False
    assert card_figures(cards) == {("rigwright_gpus_declared", ""): 2}
    assert cards.lost


def test_a_page_is_what_prometheus_reads_with_dcgms_types() -> None:
    told = page(Cards(StandInNvml([StandInCard(0), StandInCard(1)]), [280, None]).samples()).splitlines()
    assert told[:2] == ["# TYPE rigwright_gpus_declared gauge", "rigwright_gpus_declared 2.0"]
    at = told.index("# TYPE DCGM_FI_DEV_POWER_USAGE gauge")
    place = 'gpu="{0}",UUID="GPU-{0}",pci_bus_id="00000000:0{1}:00.0",device="nvidia{0}"'
    name = 'modelName="NVIDIA GeForce RTX 3090"'
    assert told[at + 1 : at + 3] == [
        f"DCGM_FI_DEV_POWER_USAGE{{{place.format(n, n + 1)},{name}}} 120.5" for n in (0, 1)
    ]
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter" in told
    kinds = [line for line in told if line.startswith("#")]
    assert len(kinds) == len(set(kinds))


def test_the_name_of_a_card_breaks_no_line() -> None:
    said = page([Sample("x", 1, (("modelName", 'a"} 1\n# EOF \\'),))])
    assert said == '# TYPE x gauge\nx{modelName="a\\"} 1\\n# EOF \\\\"} 1.0\n'


@contextmanager
def serve_figures(told: str = "x 1.0\n", address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """The exporter, at its address."""
    server = Server(address, 0, lambda: told)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_address[0], server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def fetch_figures(at: tuple[str, int], path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    """Status, type and text of what is answered."""
    connection = HTTPConnection(*at, timeout=5)
    connection.request(method, path)
    answer = connection.getresponse()
    found = (answer.status, answer.getheader("Content-Type") or "", answer.read().decode())
    connection.close()
    return found


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_figures_are_at_metrics_and_nothing_is_anywhere_else(address: str) -> None:
    with serve_figures(address=address) as at:
        assert fetch_figures(at) == (200, gpu.FORMAT, "x 1.0\n")
        assert fetch_figures(at, "/metrics?name[]=x")[0] == 200
        assert fetch_figures(at, "/metrics", "HEAD") == (200, gpu.FORMAT, "")
        assert fetch_figures(at, "/")[0] == 404
        assert fetch_figures(at, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize("sent", [b"GET\r\n\r\n", b"\r\n\r\n", b"\xff\x00 \r\n\r\n", b"a" * 3 * HEAD], ids=repr)
def test_an_invalid_request_is_closed_and_the_next_one_is_answered(sent: bytes) -> None:
    with serve_figures() as at:
        with socket.create_connection(at, timeout=5) as raw:
            raw.sendall(sent)
            with suppress(ConnectionResetError):  # the server had not read all of it
                assert raw.recv(100) == b""
        assert fetch_figures(at)[0] == 200


def test_a_silent_client_holds_one_place_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PATIENCE", 1.5)
    with serve_figures("x" * 20_000_000) as at:
        began = time.monotonic()
        silent = [socket.create_connection(at, timeout=5) for _ in range(CLIENTS - 1)]
        taking_nothing = socket.create_connection(at, timeout=5)
        taking_nothing.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        for one in silent:
            one.sendall(b"GET /metrics")
        with socket.create_connection(at, timeout=5) as beyond:
            with suppress(ConnectionResetError):
                assert beyond.recv(1) == b""
            # at once, while the others still wait
            assert time.monotonic() - began < 1.4
        time.sleep(max(0.0, began + 1 - time.monotonic()))
        for one in silent:
            with suppress(OSError):  # a byte now and then does not make it longer
                one.sendall(b" ")
        time.sleep(max(0.0, began + 2.2 - time.monotonic()))
        with socket.create_connection(at, timeout=5) as now:
            now.sendall(b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert now.recv(12) == b"HTTP/1.1 200"
        for one in (*silent, taking_nothing):
            one.close()


def test_it_takes_little_memory(tmp_path: Path) -> None:
    """By a stand-in for the driver's library; only real cards show the further memory of the real one."""
    lines = ("from tests.unit.stand_in_nvml import StandInNvml", "__getattr__ = StandInNvml().__getattribute__", "")
    (tmp_path / "pynvml.py").write_text("\n".join(lines))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    root = Path(gpu.__file__).parents[3]
    command = [sys.executable, "-S", gpu.__file__, "--address=127.0.0.1", f"--port={port}", "--power-limits=280,-"]
    process = subprocess.Popen(command, env={"PYTHONPATH": f"{tmp_path}:{root}"})
    try:
        until = time.monotonic() + 20
        while True:
            try:
                status, _, told = fetch_figures(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.05)
        assert status == 200
        assert 'DCGM_FI_DEV_GPU_TEMP{gpu="1"' in told
        (resident,) = (
            int(line.split()[1])
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )
        assert resident < 21 * 1024
    finally:
        process.kill()
        process.wait()
