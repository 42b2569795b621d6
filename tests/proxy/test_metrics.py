"""/metrics through the real mitmdump: its figures are true, and no request to it
can hurt the proxy.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_parsed
from prometheus_client.parser import text_string_to_metric_families as parsed
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import calls, text
from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, SECRET, TOOL_TOKEN, Pod
from tests.proxy.scraped import ScrapedPod, started
from tests.waiting import eventually

OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


@pytest.mark.requirement("metrics:counts")
def test_what_is_counted_is_what_happened_in_a_turn(scraped: ScrapedPod) -> None:
    before = Growth(scraped)
    scraped.pod.provider.says(
        calls(("c1", "desk__balance", {}), ("c2", "desk__invented", {})), text("Seven.")
    )
    scraped.ask("broker")
    of = {"agent": "broker"}
    before.comes_to(1, "claw_requests_total", **of, mediated="yes")
    assert before.by("claw_requests_ended_total", **of, mediated="yes", outcome="ok") == 1
    assert before.by("claw_turn_rounds_sum") == 2
    assert before.by("claw_tool_calls_total", **of, tool="desk.balance", status="ok", code="") == 1
    assert before.by("claw_tool_calls_total", **of, tool="unknown", status="error") == 1
    assert before.by("claw_interventions_total", **of, intervention="unknown_tool_rejected") == 1
    assert before.by("claw_model_duration_seconds_count", provider="openai", status="ok") == 2
    assert before.by("claw_tool_duration_seconds_count", tool="desk.balance") == 1
    assert (
        before.by("claw_turn_duration_seconds_count")
        == before.by("claw_turn_overhead_seconds_count")
        == 1
    )
    told = next(event for event in reversed(scraped.pod.log()) if event["type"] == "response")
    assert before.by("claw_tokens_total", **of, kind="input") == told["tokens_in"] > 0
    assert before.by("claw_tokens_total", **of, kind="output") == told["tokens_out"] > 0
    assert before.by("claw_turn_overhead_seconds_sum") * 1000 == pytest.approx(told["overhead_ms"])


class Growth:
    """The growth of the figures since the object was made."""

    def __init__(self, scraped: ScrapedPod) -> None:
        self._scraped = scraped
        self._before = list(parsed(scraped.get().text))

    def comes_to(self, count: float, name: str, **labels: str) -> None:
        """Wait until the figure has grown by this count: a page is some moments old."""
        eventually(lambda: self.by(name, **labels) == count, f"{name} has grown by {count}")

    def by(self, name: str, **labels: str) -> float:
        old = (each for family in self._before for each in family.samples if each.name == name)
        return self._scraped.value(name, **labels) - sum(
            each.value for each in old if labels.items() <= each.labels.items()
        )


@pytest.mark.requirement("metrics:counts")
def test_own_overhead_is_what_a_turn_took_without_its_model_and_its_services(
    scraped: ScrapedPod,
) -> None:
    async def late(_request: Request) -> Response:
        await asyncio.sleep(0.3)
        return text("Seven.")

    before = Growth(scraped)
    scraped.pod.provider.says(late)
    scraped.ask()
    before.comes_to(1, "claw_turn_rounds_count")
    took, own, model = (
        before.by(f"claw_{name}_seconds_sum")
        for name in ("turn_duration", "turn_overhead", "model_duration")
    )
    assert took >= model >= 0.3
    assert own > 0
    assert own + model == pytest.approx(took, abs=max(0.1, took - 0.25)), (
        "no more of it than the model left"
    )
    assert own < took - 0.25


@pytest.mark.requirement("metrics:counts")
def test_turns_of_two_conversations_are_under_way_at_once_and_counted_by_agent(
    scraped: ScrapedPod,
) -> None:
    release = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def held(_request: Request) -> Response:
        loops.append(asyncio.get_running_loop())
        await release.wait()
        return text("Seven.")

    before = Growth(scraped)
    scraped.pod.provider.says(held, held)
    with ThreadPoolExecutor(2) as both:
        asking = [both.submit(scraped.ask, agent_id) for agent_id in ("analyst", "broker")]
        eventually(lambda: len(loops) == 2, "both are asked of the provider")
        eventually(lambda: scraped.value("claw_turns_under_way") == 2, "both are under way")
        loops[0].call_soon_threadsafe(release.set)
        assert [answer.result() for answer in asking] == ["Seven.", "Seven."]
    eventually(lambda: scraped.value("claw_turns_under_way") == 0, "both have ended")
    for agent_id in ("analyst", "broker"):
        before.comes_to(1, "claw_requests_ended_total", agent=agent_id, outcome="ok")


@pytest.mark.requirement("metrics:counts")
def test_a_failing_provider_is_counted_by_its_error_class_and_its_resting_key(
    scraped: ScrapedPod,
) -> None:
    before = Growth(scraped)
    scraped.pod.provider.says(*(JSONResponse({"error": {"message": "no"}}, 400) for _ in range(2)))
    for _ in range(2):
        with pytest.raises(openai.BadRequestError):
            scraped.ask()
    before.comes_to(2, "claw_requests_ended_total", agent="analyst", outcome="error")
    assert before.by("claw_request_errors_total", agent="analyst", code="provider_http_4xx") == 2
    assert before.by("claw_model_duration_seconds_count", status="error") == 2
    keys = {
        state: scraped.value("claw_provider_keys", provider="openai", state=state)
        for state in ("ready", "dead")
    }
    assert keys == {"ready": 1, "dead": 0}


@pytest.mark.requirement("metrics:format")
def test_it_speaks_prometheus_text_and_openmetrics(scraped: ScrapedPod) -> None:
    plain, newer = scraped.get(), scraped.get(**OPENMETRICS)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert newer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in open_parsed(newer.text)}
    assert {
        "claw_turn_overhead_seconds",
        "claw_requests",
        "claw_build_info",
        "process_cpu_seconds",
    } <= names
    assert (
        scraped.value("claw_build_info")
        == scraped.value("claw_ready")
        == scraped.value("claw_state_writable")
        == 1
    )


@pytest.mark.requirement("metrics:secrets")
def test_no_label_holds_a_secret_or_a_text_of_a_model(scraped: ScrapedPod) -> None:
    before = Growth(scraped)
    invented = "desk__a-name-that-no-operator-wrote"
    scraped.pod.provider.says(calls(("c1", invented, {})), text("Words of the model."))
    scraped.ask()
    before.comes_to(1, "claw_tool_calls_total", tool="unknown")
    said = scraped.get().text
    for each in (
        PROVIDER_KEY,
        ANTHROPIC_KEY,
        TOOL_TOKEN,
        SECRET,
        "that-no-operator-wrote",
        "Words of",
        "gpt-test",
    ):
        assert each not in said, each


@pytest.mark.requirement("metrics:reload")
def test_a_reloaded_script_keeps_its_counts_and_a_broken_one_is_not_ready(
    pod: Pod,
) -> None:
    script = pod.own_script()
    pod.agent("analyst", pod.tool("balance"))
    scraped = started(pod)
    pod.provider.says(text("Seven."), text("Eight."))
    scraped.ask()
    source = script.read_text(encoding="utf-8")
    script.write_text("raise RuntimeError('broken by an edit')\n", encoding="utf-8")
    eventually(lambda: scraped.value("claw_ready") == 0, "it says that it is not ready")
    assert scraped.value("claw_requests_total", agent="analyst") == 1
    script.write_text(source + "\n", encoding="utf-8")
    eventually(lambda: scraped.value("claw_ready") == 1, "the script is back")
    assert scraped.ask() == "Eight."
    eventually(
        lambda: scraped.value("claw_requests_total", agent="analyst") == 2, "the count goes on"
    )
