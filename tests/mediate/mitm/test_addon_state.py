"""State that all parts of the addon share: the host of a request, and the governed hosts."""

from __future__ import annotations

import tracemalloc

import pytest
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow

from claw_mediate.core import api_paths
from claw_mediate.mitm.addon_state import BASE_URL, AddonState, canonical, destination
from claw_mediate.telemetry.event_log import EventLog

GOVERNED = {"api.openai.com": "API.openai.com"}


@pytest.mark.requirement("entrance:any-spelling")
@pytest.mark.parametrize(
    ("spelling", "host"),
    [
        ("API.OpenAI.com.", "api.openai.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("a..b", "a..b"),
        ("", ""),
    ],
)
def test_a_host_has_one_spelling_and_an_odd_one_raises_nothing(spelling: str, host: str) -> None:
    assert canonical(spelling) == host


@pytest.mark.requirement("entrance:by-connection-and-sni")
@pytest.mark.parametrize(
    ("host", "sni", "wanted"),
    [
        ("api.openai.com", None, "API.openai.com"),
        ("10.0.0.1", "api.OPENAI.com", "API.openai.com"),
        ("example.com", "other.example", "example.com"),
        ("example.com", None, "example.com"),
    ],
)
def test_a_governed_name_of_connection_or_handshake_counts_before_any_other(
    host: str, sni: str | None, wanted: str
) -> None:
    flow = tflow.tflow()
    flow.request.host = host
    flow.request.headers["host"] = "api.openai.com"
    flow.client_conn.sni = sni
    assert destination(flow, GOVERNED) == wanted


@pytest.mark.requirement("entrance:by-connection-and-sni")
def test_at_the_base_url_no_name_counts() -> None:
    flow = tflow.tflow()
    flow.client_conn.proxy_mode = ProxyMode.parse("reverse:http://pod.invalid@8080")
    flow.request.host = flow.client_conn.sni = "api.openai.com"
    assert destination(flow, GOVERNED) is BASE_URL


@pytest.mark.requirement("entrance:by-connection-and-sni")
def test_before_a_script_has_set_it_nothing_is_governed_but_the_base_url() -> None:
    addon_state = AddonState(EventLog([].append))
    flow = tflow.tflow()
    assert not addon_state.governs(flow)
    assert addon_state.denies_egress
    flow.client_conn.proxy_mode = ProxyMode.parse("reverse:http://pod.invalid@8080")
    assert addon_state.governs(flow)


@pytest.mark.requirement("redaction:cost")
def test_long_paths_and_names_of_strangers_are_not_kept() -> None:
    tracemalloc.start()
    for number in range(20):
        assert api_paths.find_endpoint(f"/{number}" + "x" * 100_000) is None
        assert canonical(f"{number}" + "x" * 100_000).endswith("xxx")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
