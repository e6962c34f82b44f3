"""Which hub a token is for, and the servers that a run may trust with what."""

import pytest

from rigwright.fetch_job_spec import artefact_sources
from rigwright.model.download_origins import HUB_ORIGIN, origin_of
from tests.unit.samples import OperatorFolder, sample_artefact, sample_rig

OWN = "https://hub.example:8443"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://Hub.Example/base/", "https://hub.example"),
        ("https://hub.example:443", "https://hub.example"),
        ("http://hub.example:80/", "http://hub.example"),
        ("https://hub.example:80/", "https://hub.example:80"),
        ("http://hub.example:8080/a?b", "http://hub.example:8080"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, found: str) -> None:
    assert origin_of(url) == found


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ({"hub_token_origin": "http://127.0.0.1:9"}, "hub_token_origin", "over plain http the token is sent"),
        (
            {"hub_token_origin": "https://hub.example/base"},
            "hub_token_origin",
            "an http(s) URL of a host, without a path",
        ),
        ({"hub_token_origin": OWN}, "hub_token_origin", f"to {OWN}, but {HUB_ORIGIN} is used"),
        ({"mirrors": {"hub": [OWN]}}, "hub_token_file", f"to {HUB_ORIGIN}, but {OWN} is used"),
        (
            {"mirrors": {"hub": ["http://hub.example:8443"]}, "hub_token_origin": OWN},
            "hub_token_origin",
            "http://hub.example:8443 is plain http, which sends it in the clear",
        ),
        ({"hub_token_file": None, "hub_token_origin": OWN}, "hub_token_origin", "a token is required"),
        ({"redirects": ["http://10.0.0.5:8081/files"]}, "redirects[0]", "an http(s) URL of a host, without a path"),
        ({"redirects": ["10.0.0.5"]}, "redirects[0]", "an http(s) URL of a host, without a path"),
    ],
)
def test_a_token_for_plain_http_or_for_no_hub_is_refused(
    box: OperatorFolder, keys: dict[str, object], key: str, said: str
) -> None:
    box.write("token", "hf_" + "t" * 34)
    given = {"hub_token_file": "token", **keys}
    if isinstance(mirrors := given.get("mirrors"), dict):
        mirrors["store"] = ["http://127.0.0.1:8000/files/"]
    lines = [line for line in box.refusal_lines(**given) if f"box.{key}: " in line]
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("mirrors", "token", "told"),
    [
        ((), HUB_ORIGIN, [("", True, True)]),
        ((), None, [("", False, True)]),
        ((OWN,), OWN, [(OWN, True, False)]),
        (
            (f"{OWN}/base/", "https://other.example"),
            OWN,
            [(f"{OWN}/base", True, False), ("https://other.example", False, False)],
        ),
        (("http://hub.example:8443", OWN), OWN, [("http://hub.example:8443", False, False), (OWN, True, False)]),
        (("https://huggingface.co/", OWN), HUB_ORIGIN, [(HUB_ORIGIN, True, True), (OWN, False, False)]),
    ],
)
def test_a_hub_is_trusted_with_its_own_token_alone(
    mirrors: tuple[str, ...], token: str | None, told: list[tuple[str, bool, bool]]
) -> None:
    made = sample_rig(mirrors={"hub": mirrors} if mirrors else {}, hub_token_origin=token)
    one = sample_artefact(version="c" * 40, sources=("hub:org/name",), repository="org/name")
    assert [(row["endpoint"], row["token"], row["xet"]) for row in artefact_sources(made.network, one)] == told
