"""The model policy in the mediator: requests of every protocol, mediated and
forwarded, at every kind of entrance.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_mediate.core.model_names import NamedModel, find_named_models
from claw_mediate.http.large_bodies import MAX_INLINE_BYTES
from claw_mediate.mediator import Mediator
from claw_mediate.settings import SETTINGS, Settings
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known
from tests.peers import Provider
from tests.turns.desk import WIRES, tool
from tests.waiting import happens
from tests.wires import Wire

TOKEN = "analyst:secret-of-the-analyst"
BAD_KEY = b'{"error": {"type": "authentication_error", "code": "invalid_api_key", "message": "no such key"}}'
CHAIN = [("primary", "{}/big"), ("fallback", "second/other"), ("cheap", "{}/small")]


@dataclass
class Pod:
    """A mediator with one real server as two providers: one named after its
    protocol, and one named ``second``.
    """

    home: Path
    wire: Wire
    name: str
    provider: Provider = field(default_factory=Provider)
    events: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def open(self) -> None:
        self.provider.start()
        values = {setting.name: setting.default for setting in SETTINGS}
        values |= {"context": str(self.home / "context"), "auth": str(self.home / "auth")}
        # What a test writes counts at once.
        values |= {"history": str(self.home / "history"), "file_look_ms": "0", **self.settings}
        (self.home / "auth").mkdir()
        url, format_ = f"{self.provider.url}/v1", self.name
        second = {"base_url": url, "api_key": "sk-second", "api_format": format_}
        own = {"base_url": url, "api_key": "sk-own"}
        file = {"providers": {self.name: own, "second": second}}
        (self.home / "auth" / "providers.json").write_text(json.dumps(file), encoding="utf-8")
        self.mediator = Mediator(
            Settings.of(values), EventLog(lambda line: self.events.append(known(line))), {}
        )

    def agent(self, allowed: list[tuple[str, str]], *tools: dict[str, Any]) -> None:
        directory = self.home / "context" / "analyst"
        directory.mkdir(parents=True, exist_ok=True)
        refs = [{"slot": slot, "ref": ref.format(self.name)} for slot, ref in allowed]
        metadata = {
            "service": "analyst",
            "pod": "p",
            "token": TOKEN,
            "model_policy": {"mode": "clamp", "allowed": refs},
        }
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        if tools:
            (directory / "tools.json").write_text(
                json.dumps({"version": 1, "tools": tools}), encoding="utf-8"
            )

    @property
    def host(self) -> str:
        return f"api.{self.name}.com"

    async def sends(
        self, body: bytes, path: str = "", host: str | None = None
    ) -> RunnerResponse | Forward:
        request = Request(
            "POST", path or self.wire.PATH, [("authorization", f"Bearer {TOKEN}")], body, host
        )
        admitted = self.mediator.admit(request)
        assert isinstance(admitted, Identity)
        return await self.mediator.exchange(admitted, request)

    async def forwards(self, body: bytes, path: str = "", host: str | None = None) -> Forward:
        decision = await self.sends(body, path, host)
        assert isinstance(decision, Forward)
        return decision

    async def answers(self, body: bytes, host: str | None = None) -> tuple[int, Any]:
        decision = await self.sends(body, host=host)
        assert isinstance(decision, RunnerResponse)
        return decision.status, json.loads(b"".join([chunk async for chunk in decision.chunks]))

    def ends(self, decision: Forward, status: int, body: bytes, retry_after: str = "") -> None:
        """Play the provider's answer to a forwarded request."""
        handle: Any = decision.handle
        self.mediator.passthrough.note_status(handle, status, retry_after)
        self.mediator.passthrough.record_end(
            handle, status, ReceivedAnswer(status, {}), body, whole=True
        )

    def request(self, model: str | None) -> bytes:
        body = self.wire.request(
            [self.wire.user("Hi")], [], stream=False, more={"temperature": 1.0}
        )
        del body["model"]
        named = "" if model is None else f'"model" : {json.dumps(model)} , '
        return json.dumps(body).replace("{", "{" + named, 1).encode()

    def interventions(self) -> list[tuple[Any, ...]]:
        names = ("intervention", "model", "effective_provider", "effective_model")
        return [
            tuple(e.get(name) for name in names) for e in self.events if e["type"] == "intervention"
        ]


@pytest.fixture(params=["openai", "anthropic", "responses"])
async def pod(tmp_path: Path, request: Any) -> AsyncIterator[Pod]:
    made = Pod(
        tmp_path, WIRES[request.param], {"responses": "openai"}.get(request.param, request.param)
    )
    made.open()
    yield made
    await made.mediator.close(0)
    made.provider.stop()


@pytest.mark.requirement("policy:forwarded")
async def test_a_forwarded_request_has_its_model_replaced_and_no_other_byte(pod: Pod) -> None:
    pod.agent(CHAIN)
    decision = await pod.forwards(pod.request("gpt-huge"))
    assert decision.body == pod.request("big")
    assert decision.credential[0][1].endswith("sk-own")
    assert pod.interventions() == [("disallowed_clamped", "gpt-huge", pod.name, "big")]


@pytest.mark.requirement("policy:forwarded")
async def test_a_forwarded_request_for_an_allowed_model_says_it_as_its_provider_does(
    pod: Pod,
) -> None:
    pod.agent(CHAIN)
    decision = await pod.forwards(pod.request("second/other"))
    assert (decision.body, decision.credential[0][1].endswith("sk-second")) == (
        pod.request("other"),
        True,
    )
    assert pod.interventions() == []


@pytest.mark.requirement("policy:forwarded")
async def test_a_request_without_a_model_gets_the_primary_one(pod: Pod) -> None:
    pod.agent(CHAIN)
    assert (await pod.forwards(pod.request(""))).body == pod.request("big")
    bare = pod.request(None)
    assert (await pod.forwards(bare)).body == bare[:-1] + b',"model":"big"}'
    assert pod.interventions() == [("missing", "", pod.name, "big")] * 2


@pytest.mark.requirement("policy:spelling")
@pytest.mark.parametrize("tools", [(), (tool("balance"),)])
async def test_a_model_that_is_named_twice_is_refused(
    pod: Pod, tools: tuple[dict[str, Any], ...]
) -> None:
    pod.agent(CHAIN, *tools)
    pod.agent([])  # under a policy it is refused before a key is looked for
    twice = pod.request(f"{pod.name}/big").replace(b"{", b'{"m\\u006fdel": "gpt-huge", ', 1)
    assert (await pod.answers(twice))[0] == 400
    assert pod.provider.received == []


@pytest.mark.requirement("policy:forwarded")
async def test_what_is_sent_once_goes_to_the_first_model_whose_key_is_ready(pod: Pod) -> None:
    pod.agent(CHAIN)
    decision = await pod.forwards(pod.request("big"))
    pod.ends(decision, 429, b"", "60")
    assert (await pod.forwards(pod.request("big"))).body == pod.request("other")
    moves = [
        (e["from_model"], e["to_model"], e["reason"]) for e in pod.events if e["type"] == "failover"
    ]
    assert moves == [("big", "other", "provider_key_unavailable")]
    decision = await pod.forwards(pod.request("other"))
    pod.ends(decision, 401, BAD_KEY)
    assert (await pod.answers(pod.request("big")))[0] == 503


@pytest.mark.requirement("keys:other-paths")
@pytest.mark.parametrize("status", [401, 402, 403, 429])
async def test_what_another_path_refuses_or_throttles_says_nothing_of_a_key_for_models(
    pod: Pod, status: int
) -> None:
    pod.agent([("primary", "{}/big")])
    decision = await pod.forwards(b"", "/v1/files", pod.host)
    pod.ends(decision, status, BAD_KEY, "60")
    assert isinstance(await pod.sends(pod.request("big")), Forward)
    assert [event for event in pod.events if event["type"] == "provider_pool"] == []


@pytest.mark.requirement("keys:request-only")
@pytest.mark.parametrize("status", [401, 402, 403])
async def test_one_agents_forwarded_request_disables_no_key(pod: Pod, status: int) -> None:
    pod.agent([("primary", "{}/big")])
    for body in (
        b"",
        b"<html>",
        b'{"error": {"message": "Missing scopes: api.responses.write", "code": null}}',
    ):
        pod.ends(await pod.forwards(pod.request("big")), status, body)
    await happens(lambda: pod.provider.questions or status == 402, "the proxy asks")
    assert isinstance(await pod.sends(pod.request("big")), Forward)
    assert [event for event in pod.events if event["type"] == "provider_pool"] == []


@pytest.mark.requirement("keys:asked")
async def test_a_forwarded_refusal_makes_the_proxy_ask(pod: Pod) -> None:
    pod.agent([("primary", "{}/big")])
    pod.provider.verdict = JSONResponse({"error": {"message": "revoked"}}, 401)
    for _ in range(10):
        pod.ends(await pod.forwards(pod.request("big")), 401, b"")
    await happens(
        lambda: [event for event in pod.events if event["type"] == "provider_pool"],
        "the key is dead",
    )
    assert (await pod.answers(pod.request("big")))[0] == 502
    assert [(sent.method, sent.path) for sent in pod.provider.questions] == [("GET", "/v1/models")]


@pytest.mark.requirement("providers:key-verdicts")
async def test_a_forwarded_request_that_finds_the_account_empty_lets_its_key_rest_for_all_models(
    pod: Pod,
) -> None:
    pod.agent([("primary", "{}/big"), ("cheap", "{}/small")])
    pod.ends(
        await pod.forwards(pod.request("big")),
        429,
        b'{"error": {"code": "insufficient_quota"}}',
        "1",
    )
    assert (await pod.answers(pod.request("small")))[0] == 503
    reasons = [event["reason"] for event in pod.events if event["type"] == "provider_pool"]
    assert reasons == ["http_429", "insufficient_quota"]


@pytest.mark.requirement("keys:scopes")
async def test_a_throttled_model_leaves_the_others_and_a_throttled_count_leaves_answers(
    pod: Pod,
) -> None:
    pod.agent([("primary", "{}/big"), ("cheap", "{}/small")])
    pod.ends(await pod.forwards(pod.request("big")), 429, b"", "60")
    assert (await pod.answers(pod.request("big")))[0] == 503
    assert isinstance(await pod.sends(pod.request("small")), Forward)
    if pod.wire.PATH.endswith("/chat/completions"):
        return

    pod.agent([("primary", "{}/small")])
    count = f"{pod.wire.PATH}/{'input_tokens' if pod.wire.PATH.endswith('responses') else 'count_tokens'}"
    pod.ends(await pod.forwards(pod.request("small"), count), 429, b"", "60")
    assert isinstance(await pod.sends(pod.request("small")), Forward)
    assert isinstance(await pod.sends(pod.request("small"), count), RunnerResponse)


@pytest.mark.requirement("keys:trial")
async def test_a_forwarded_trial_that_never_ends_well_makes_the_proxy_ask(pod: Pod) -> None:
    pod.agent([("primary", "{}/big")])
    registry: Any = pod.mediator.registry
    pod.ends(await pod.forwards(pod.request("big")), 401, BAD_KEY)
    assert (await pod.answers(pod.request("big")))[0] == 502
    now = registry._key_states.now() + 300
    registry._key_states.now = lambda: now
    trial = await pod.forwards(pod.request("big"))
    assert (await pod.answers(pod.request("big")))[0] == 502, "one at a time"
    pod.mediator.passthrough.record_end(trial.handle, 499, ReceivedAnswer(0, {}), b"", whole=False)  # type: ignore[arg-type]
    await happens(
        lambda: len([e for e in pod.events if e["type"] == "provider_pool"]) == 2,
        "the key is ready",
    )
    assert isinstance(await pod.sends(pod.request("big")), Forward)


@pytest.mark.requirement("keys:trial")
async def test_the_head_of_a_streams_answer_ends_the_trial(pod: Pod) -> None:
    pod.agent([("primary", "{}/big")])
    registry: Any = pod.mediator.registry
    pod.ends(await pod.forwards(pod.request("big")), 401, BAD_KEY)
    now = registry._key_states.now() + 300
    registry._key_states.now = lambda: now
    trial = await pod.forwards(pod.request("big"))
    pod.mediator.passthrough.note_status(trial.handle, 200, "")  # type: ignore[arg-type]
    assert isinstance(await pod.sends(pod.request("big")), Forward)


@pytest.mark.requirement("keys:trial")
async def test_a_request_that_is_refused_after_it_got_the_dead_key_wastes_no_trial(
    pod: Pod,
) -> None:
    pod.agent([("primary", "{}/big")])
    registry: Any = pod.mediator.registry
    pod.ends(await pod.forwards(pod.request("big")), 401, BAD_KEY)
    now = registry._key_states.now() + 300
    registry._key_states.now = lambda: now
    pod.agent([])  # Under a policy such a request is refused before a key is looked for
    twice = pod.request(f"{pod.name}/big").replace(b"{", b'{"m\\u006fdel": "gpt-huge", ', 1)
    assert (await pod.answers(twice))[0] == 400
    await happens(
        lambda: len([e for e in pod.events if e["type"] == "provider_pool"]) == 2,
        "the key is ready",
    )
    assert isinstance(await pod.sends(pod.request("big")), Forward)


@pytest.mark.requirement("retry:told")
async def test_a_runner_is_told_when_to_come_again(pod: Pod) -> None:
    pod.agent([("primary", "{}/big")], tool("balance"))
    pod.provider.says(Response(b'{"error": {"message": "slow"}}', 429, {"retry-after": "60"}))
    told = []
    for _ in range(2):
        decided = await pod.sends(pod.request("big"))
        assert isinstance(decided, RunnerResponse)
        told.append((decided.status, int(dict(decided.headers)["retry-after"])))
    (first, second), (status, seconds) = told
    assert (first, second, status, 0 < seconds <= 60) == (429, 60, 503, True)


@pytest.mark.requirement("policy:mediated")
async def test_a_mediated_turn_is_clamped_fails_over_and_tells_both_models_in_history(
    pod: Pod,
) -> None:
    pod.agent(CHAIN, tool("balance"))
    says = pod.wire.reply("from the other", [], {})
    pod.provider.says(Response(b"busy", 503), Response(says, media_type="application/json"))
    status, body = await pod.answers(pod.request("gpt-huge"))
    assert (status, pod.wire.said(json.dumps(body).encode()).text) == (200, "from the other")
    assert [sent.json["model"] for sent in pod.provider.received] == ["big", "other"]
    first, second = (sent.body for sent in pod.provider.received)
    assert second == first.replace(b'"big"', b'"other"')
    (line,) = (
        (pod.home / "history" / "analyst" / "history.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    entry = json.loads(line)
    assert [
        entry[name] for name in ("requested_model", "effective_provider", "effective_model")
    ] == [
        "gpt-huge",
        "second",
        "other",
    ]
    assert entry["request_effective"]["model"] == "other"
    assert pod.interventions() == [("disallowed_clamped", "gpt-huge", pod.name, "big")]
    (turn,) = {
        event["turn_id"]
        for event in pod.events
        if event["type"] in {"failover", "intervention", "response"}
    }
    assert turn == entry["turn_id"]


@pytest.mark.requirement("policy:destination")
@pytest.mark.parametrize("tools", [(), (tool("balance"),)])
async def test_a_destination_whose_provider_the_policy_does_not_know_is_refused(
    pod: Pod, tools: tuple[dict[str, Any], ...]
) -> None:
    pod.agent([("primary", "second/other")], *tools)
    status, body = await pod.answers(pod.request("big"), pod.host)
    assert status == 403
    assert body["error"]["message"] == "the model policy allows no model of this provider"
    assert body["error"].get("code", "model_not_allowed") == "model_not_allowed"
    assert body["error"]["type"] == "permission_error"
    assert pod.provider.received == []


@pytest.mark.requirement("policy:destination")
async def test_a_destination_keeps_its_provider_and_its_names_of_models(pod: Pod) -> None:
    pod.agent(CHAIN)
    assert (await pod.forwards(pod.request("small"), host=pod.host)).body is None
    assert (await pod.forwards(pod.request("second/other"), host=pod.host)).body == pod.request(
        "big"
    )
    assert [name for name, *_ in pod.interventions()] == ["unreachable_clamped"]


@pytest.mark.requirement("policy:bad-ref")
async def test_a_bad_ref_is_told_once_and_not_with_each_request(pod: Pod) -> None:
    pod.agent([("primary", "nowhere/x"), ("fallback", "{}/big")])
    for _ in range(2):
        assert (await pod.forwards(pod.request(f"{pod.name}/big"))).body == pod.request("big")
    (event,) = [event for event in pod.events if event["type"] == "intervention"]
    assert event["intervention"] == "model_ref_unreachable:nowhere/x"
    assert event["reason"] == "no provider 'nowhere' is configured"


@pytest.mark.requirement("policy:bad-ref")
async def test_a_policy_of_which_nothing_can_be_asked_is_a_502(pod: Pod) -> None:
    pod.agent([("primary", "nowhere/x")])
    status, body = await pod.answers(pod.request("x"))
    assert (status, body["error"]["message"]) == (
        502,
        "no model that the model policy allows is available here",
    )


@pytest.mark.requirement("policy:spelling")
@pytest.mark.parametrize(
    "spell",
    [
        str.upper,
        lambda path: path.replace("/", "//"),
        lambda path: f"{path}/?x=1",
        lambda path: path.replace("/v1", "/v1;a=b/"),
        lambda path: path.replace("/v1", "/v1/threads/.."),
        lambda path: path.replace("/v1", "/v1/threads/%2e%2e/."),
        lambda path: f"{path}/x/..;/",
    ],
)
async def test_no_spelling_of_the_path_is_a_way_round_the_policy(pod: Pod, spell: Any) -> None:
    pod.agent(CHAIN)
    assert (await pod.forwards(pod.request("gpt-huge"), spell(pod.wire.PATH))).body == pod.request(
        "big"
    )


@pytest.mark.requirement("policy:clamp")
async def test_without_a_policy_or_with_an_empty_one_the_runner_chooses(pod: Pod) -> None:
    pod.agent([])
    assert (await pod.forwards(pod.request("gpt-huge"))).body is None
    assert (await pod.forwards(pod.request("second/gpt-huge"))).body == pod.request("gpt-huge")
    assert pod.interventions() == []


@pytest.mark.requirement("bodies:beside-the-loop")
async def test_other_models_of_a_large_body_are_searched_in_a_thread(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.agent(CHAIN)
    threads: list[threading.Thread] = []

    def find(body: bytes) -> list[NamedModel]:
        threads.append(threading.current_thread())
        return find_named_models(body)

    monkeypatch.setattr("claw_mediate.providers.routing.find_named_models", find)
    body = pod.request("big")
    await pod.forwards(body)
    await pod.forwards(body[:-1] + b" " * MAX_INLINE_BYTES + b"}")
    small, large = threads
    assert small is threading.main_thread()
    assert large is not threading.main_thread()
