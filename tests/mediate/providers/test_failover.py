"""Model calls to real providers: the next one after a failure, keys, stickiness,
and repeated tries.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from claw_mediate.core.observer import RequestInfo
from claw_mediate.providers.client import ProviderResponse
from tests.mediate.providers.crossroads import WORDLESS, Crossroads, error, no_money, silence
from tests.peers import bad_key
from tests.waiting import eventually_async


@pytest.fixture(params=["openai", "anthropic"])
async def roads(tmp_path: Path, request: Any) -> AsyncIterator[Crossroads]:
    """Yield three providers with a key each, in both protocols."""
    made = Crossroads(tmp_path, request.param, {"one": 1, "two": 1, "three": 1})
    yield made
    await made.close()


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Crossroads]:
    """Yield a provider with two keys, and one with a single key."""
    made = Crossroads(tmp_path, "openai", {"one": 2, "two": 1})
    yield made
    await made.close()


@pytest.fixture
async def lone(tmp_path: Path) -> AsyncIterator[Crossroads]:
    """Yield a provider with one key."""
    made = Crossroads(tmp_path, "openai", {"one": 1})
    yield made
    await made.close()


@pytest.mark.requirement("failover:next-candidate")
@pytest.mark.parametrize("status", [500, 503, 529, 302, 204])
async def test_after_a_failing_provider_the_next_gets_the_request_for_its_own_model(
    roads: Crossroads, status: int
) -> None:
    roads.body = roads.body.replace('"m-one"', ' "m\\u002done" ').replace("{", '{"n": 1.0, ', 1)
    roads.peers["one"].says(error(status))
    roads.peers["two"].says(roads.reply("from two"))
    assert await roads.ask() == "from two"
    first, second = roads.peers["one"].received[0], roads.peers["two"].received[0]
    assert first.body.decode() == roads.body
    assert second.body.decode() == roads.body.replace('"m\\u002done"', '"m-two"')
    assert [first.path, second.path] == [
        f"/{name}{roads.wire.PATH}?a=%2F" for name in ("one", "two")
    ]
    for sent, name in ((first, "one"), (second, "two")):
        assert (sent.headers["x-of-the-runner"], f"sk-{name}-0" in str(sent.headers)) == (
            "kept",
            True,
        )
        assert ("x-api-key" in sent.headers) == ("messages" in roads.wire.PATH)
    assert (roads.moves(), roads.times()) == ([f"m-one → m-two: http_{status}"], [1, 1, 0])


@pytest.mark.requirement("failover:next-candidate")
@pytest.mark.parametrize("said", WORDLESS)
async def test_a_response_without_a_reply_is_followed_by_the_next(
    roads: Crossroads, said: str
) -> None:
    roads.peers["one"].says(WORDLESS[said])
    roads.peers["two"].says(roads.reply("from two"))
    assert await roads.ask() == "from two"
    assert roads.moves() == ["m-one → m-two: response_read_error"]


@pytest.mark.requirement("failover:next-candidate")
async def test_a_provider_that_cannot_be_reached_is_followed_by_the_next(roads: Crossroads) -> None:
    roads.peers["one"].stop()
    roads.peers["two"].stop()
    roads.peers["three"].says(roads.reply("from three"))
    assert await roads.ask() == "from three"
    assert roads.moves() == ["m-one → m-two: transport_error", "m-two → m-three: transport_error"]
    (event, _) = [event for event in roads.auth.events if event["type"] == "failover"]
    assert (event["claw_id"], event["turn_id"], event["model"]) == ("analyst", "turn_1", "m-two")
    assert (event["from_provider"], event["to_provider"]) == ("one", "two")


@pytest.mark.requirement("failover:time")
async def test_a_silent_provider_leaves_time_for_the_next(roads: Crossroads) -> None:
    roads.peers["one"].says(silence)
    roads.peers["two"].says(roads.reply("from two"))
    assert await roads.ask(seconds=2.0) == "from two"
    assert roads.moves() == ["m-one → m-two: provider_timeout"]


@pytest.mark.requirement("failover:final")
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422])
async def test_any_other_error_of_the_request_is_passed_on_and_kills_no_key(
    roads: Crossroads, status: int
) -> None:
    roads.peers["one"].says(error(status, "your fault"), roads.reply("from one"))
    assert await roads.ask(again=True) == f"{status} your fault"
    assert (roads.times(), roads.moves(), roads.slept) == ([1, 0, 0], [], [])
    assert await roads.ask() == "from one"


@pytest.mark.requirement("failover:sticky")
async def test_a_candidate_that_answered_stays_for_the_rest_of_the_turn(roads: Crossroads) -> None:
    roads.peers["one"].says(error(503), roads.reply("well again"))
    roads.peers["two"].says(roads.reply("first"), roads.reply("second"))
    assert [await roads.ask(), await roads.ask(again=True)] == ["first", "second"]
    assert (roads.times(), roads.route.candidate.model) == ([1, 2, 0], "m-two")
    roads.turn()
    assert await roads.ask() == "well again"


@pytest.mark.requirement("failover:sticky")
async def test_one_that_had_answered_is_tried_thrice_before_the_others_are_turned_to(
    roads: Crossroads,
) -> None:
    roads.peers["one"].says(error(500))
    roads.peers["two"].says(roads.reply("first"), error(502), error(503), error(529))
    assert await roads.ask() == "first"
    roads.peers["one"].says(roads.reply("well again"))
    assert await roads.ask(again=True) == "well again"
    assert (roads.times(), roads.slept) == ([2, 4, 0], [0.25, 1.0])
    assert roads.moves() == ["m-one → m-two: http_500", "m-two → m-one: http_529"]


@pytest.mark.requirement("retry:after-tools")
async def test_where_the_turn_has_cost_something_all_are_asked_again(roads: Crossroads) -> None:
    for peer in roads.peers.values():
        peer.says(error(503), error(503))
    roads.peers["three"].says(roads.reply("at last"))
    roads.peers["one"].says(error(500))
    roads.peers["two"].says(error(500))
    assert await roads.ask(again=True) == "at last"
    assert (roads.times(), roads.slept) == ([3, 3, 3], [0.25, 1.0])


@pytest.mark.requirement("retry:after-tools")
async def test_before_anything_was_spent_a_failure_is_the_runners_to_repeat(
    lone: Crossroads,
) -> None:
    lone.peers["one"].says(error(503, "busy"))
    assert await lone.ask() == "503 busy"
    assert (lone.times(), lone.slept) == ([1], [])


@pytest.mark.requirement("retry:after-tools")
async def test_a_provider_is_not_asked_for_ever(lone: Crossroads) -> None:
    lone.peers["one"].says(*[error(503, f"busy {number}") for number in range(9)])
    assert await lone.ask(again=True) == "503 busy 2"
    assert lone.times() == [3]


@pytest.mark.requirement("retry:after-tools")
async def test_nobody_waits_longer_than_the_turn_lasts(lone: Crossroads) -> None:
    lone.peers["one"].says(error(503, "busy", retry_after="4"))
    assert await lone.ask(again=True, seconds=3.0) == "503 busy"
    assert (lone.times(), lone.slept) == ([1], [])


@pytest.mark.requirement("retry:retry-after")
@pytest.mark.parametrize(
    ("status", "retry_after", "slept"),
    [
        (503, "3", [3.0]),
        (503, "600", [0.25]),
        (429, "3", [3.0]),
        (429, "0", [0.25]),
        (429, "", [2.0]),
    ],
)
async def test_a_short_retry_after_is_waited_for_with_the_only_key_that_there_is(
    lone: Crossroads, status: int, retry_after: str, slept: list[float]
) -> None:
    lone.peers["one"].says(error(status, retry_after=retry_after), lone.reply("at last"))
    assert await lone.ask(again=True) == "at last"
    assert lone.slept == slept


@pytest.mark.requirement("retry:retry-after")
async def test_a_long_retry_after_is_the_runners_to_wait_for(lone: Crossroads) -> None:
    lone.peers["one"].says(error(429, "slow down", retry_after="30"))
    assert await lone.ask(again=True) == "429 slow down"
    assert (lone.times(), lone.slept, await lone.ask()) == ([1], [], "503 no_provider_key")


@pytest.mark.requirement("retry:resting-key")
async def test_a_key_that_rests_for_a_moment_because_of_another_turn_is_waited_for(
    lone: Crossroads,
) -> None:
    lone.peers["one"].says(error(429, "slow down"), lone.reply("now"))
    assert await lone.ask() == "429 slow down"
    lone.turn()
    assert await lone.ask() == "now"
    assert lone.slept == [2.0]


def about_the_key(kind: str) -> JSONResponse:
    return {
        "bad": bad_key(),
        "forbidden": bad_key(403),
        "no money": no_money(),
        "throttled": error(429, retry_after="60"),
    }[kind]


@pytest.mark.requirement("keys:next-at-once")
@pytest.mark.parametrize("kind", ["bad", "forbidden", "no money", "throttled"])
async def test_a_bad_or_throttled_key_is_followed_by_the_next_at_once(
    pool: Crossroads, kind: str
) -> None:
    pool.peers["one"].says(about_the_key(kind), pool.reply("with the second"), pool.reply("again"))
    assert [await pool.ask(), await pool.ask()] == ["with the second", "again"]
    keys = [sent.headers["authorization"] for sent in pool.peers["one"].received]
    assert keys == ["Bearer sk-one-0", "Bearer sk-one-1", "Bearer sk-one-1"]
    assert (pool.slept, pool.moves(), pool.questions()) == ([], [], [])
    is_dead = kind in {"bad", "forbidden"}
    assert [event["action"] for event in pool.auth.said("provider_pool")] == [
        "dead" if is_dead else "cooldown"
    ]


@pytest.mark.requirement("keys:request-only")
@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_refusal_that_may_depend_on_the_request_burns_no_pool(
    tmp_path: Path, status: int
) -> None:
    pool = Crossroads(tmp_path, "openai", {"one": 3, "two": 1})
    pool.peers["one"].says(
        *[error(status, "Missing scopes") for _ in range(5)], pool.reply("for the victim")
    )
    assert [await pool.ask(again=True) for _ in range(5)] == [f"{status} Missing scopes"] * 5
    pool.turn()
    assert await pool.ask() == "for the victim"
    assert {sent.headers["authorization"] for sent in pool.peers["one"].received} == {
        "Bearer sk-one-0"
    }
    assert (pool.times(), pool.auth.said("provider_pool")) == ([6, 0], [])
    await pool.close()


@pytest.mark.requirement("keys:asked")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_flood_of_refusals_makes_the_proxy_ask_once_and_a_sound_key_stays(
    roads: Crossroads, status: int
) -> None:
    peer = roads.peers["one"]
    peer.says(*[error(status) for _ in range(30)], roads.reply("for the victim"))
    assert {await roads.ask() for _ in range(30)} == {f"{status} no"}
    await eventually_async(lambda: peer.questions, "the proxy asks")
    (question,) = peer.questions
    assert (question.method, question.path, question.body) == ("GET", "/one/v1/models", b"")
    assert "sk-one-0" in str(question.headers)
    assert "x-of-the-runner" not in question.headers
    assert ("anthropic-version" in question.headers) == ("messages" in roads.wire.PATH)
    assert await roads.ask() == "for the victim"
    assert (len(peer.questions), roads.auth.said("provider_pool")) == (1, [])


@pytest.mark.requirement("keys:asked")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_when_the_provider_is_asked_is_dead(
    pool: Crossroads, status: int
) -> None:
    pool.peers["one"].says(error(401, "no"), pool.reply("with the second"))
    pool.peers["one"].verdict = error(status)
    assert await pool.ask() == "401 no"
    await eventually_async(lambda: pool.auth.said("provider_pool"), "the key is dead")
    assert await pool.ask() == "with the second"
    (event,) = pool.auth.said("provider_pool")
    assert (event["key_id"], event["action"], event["reason"]) == (
        "k0",
        "dead",
        "refused_when_asked",
    )
    assert pool.questions() == ["GET /one/v1/models Bearer sk-one-0"]


@pytest.mark.requirement("keys:asked")
@pytest.mark.parametrize(
    "verdict",
    [
        error(500),
        error(404),
        error(429),
        Response(b"x" * (1 << 20), 503),
        Response(status_code=302),
        silence,
    ],
)
async def test_any_other_answer_to_the_question_leaves_the_key_as_it_is(
    pool: Crossroads, verdict: Any
) -> None:
    pool.peers["one"].says(error(401, "no"), pool.reply("again"))
    pool.peers["one"].verdict = verdict
    assert await pool.ask() == "401 no"
    await eventually_async(pool.questions, "the proxy asks")
    assert await pool.ask() == "again"
    await pool.upstream.close()
    assert pool.auth.said("provider_pool") == []
    assert pool.times() == [2, 0]


@pytest.mark.requirement("keys:scopes")
async def test_one_throttled_model_does_not_hold_up_another(lone: Crossroads) -> None:
    lone.peers["one"].says(error(429, "slow down", retry_after="3600"), lone.reply("another model"))
    assert await lone.ask() == "429 slow down"
    lone.turn()
    lone.route.candidates = [type(lone.route.candidate)(lone.route.candidate.provider, "m-small")]
    assert await lone.ask() == "another model"


@pytest.mark.requirement("keys:other-paths")
@pytest.mark.parametrize("status", [401, 403, 429])
async def test_a_refusal_for_a_kept_object_makes_the_proxy_ask_and_throttles_no_model(
    pool: Crossroads, status: int
) -> None:
    peer, provider = pool.peers["one"], pool.registry.all()["one"]
    peer.says(bad_key(status), pool.reply("for the victim"))
    got = await pool.upstream.fetch(
        "analyst", provider, RequestInfo("GET", "/responses/resp_1", [], b"")
    )
    assert isinstance(got, ProviderResponse)
    assert got.status == status
    await eventually_async(lambda: peer.questions or status == 429, "the proxy asks")
    assert await pool.ask() == "for the victim"
    assert pool.auth.said("provider_pool") == []


@pytest.mark.requirement("keys:trial")
async def test_a_dead_key_is_tried_again_by_one_of_many_requests(lone: Crossroads) -> None:
    lone.peers["one"].says(bad_key())
    assert [await lone.ask(), await lone.ask()] == ["401 no such key", "502 no_provider_key"]
    lone.auth.clock += 300
    answered = threading.Event()

    async def hesitate(_request: Request) -> Response:
        await asyncio.to_thread(answered.wait, 30)
        return lone.reply("alive")

    lone.peers["one"].says(hesitate, lone.reply("again"))
    trial = asyncio.create_task(lone.ask())
    await eventually_async(lambda: len(lone.peers["one"].received) == 2, "the trial is under way")
    assert [await lone.ask() for _ in range(5)] == ["502 no_provider_key"] * 5
    answered.set()
    assert [await trial, await lone.ask()] == ["alive", "again"]
    assert lone.times() == [3]
    assert [event["action"] for event in lone.auth.said("provider_pool")] == ["dead", "ready"]


@pytest.mark.requirement("keys:trial")
async def test_a_runner_that_leaves_during_the_trial_costs_the_others_nothing(
    lone: Crossroads,
) -> None:
    lone.peers["one"].says(bad_key())
    await lone.ask()
    lone.auth.clock += 300
    lone.peers["one"].says(silence, lone.reply("for the victim"))
    trial = asyncio.create_task(lone.ask())
    await eventually_async(lambda: len(lone.peers["one"].received) == 2, "the trial is under way")
    trial.cancel()
    await eventually_async(
        lambda: len(lone.auth.said("provider_pool")) == 2,
        "the proxy has asked, and the key is ready",
    )
    lone.turn()
    assert await lone.ask() == "for the victim"


@pytest.mark.requirement("keys:trial")
async def test_a_dead_key_beside_a_ready_one_is_tried_by_no_agents_request(
    pool: Crossroads,
) -> None:
    peer = pool.peers["one"]
    peer.says(
        bad_key(), *[pool.reply("with the second") for _ in range(4)], pool.reply("with the first")
    )
    peer.verdict = bad_key()
    assert await pool.ask() == "with the second"
    pool.auth.clock += 300
    assert await pool.ask() == "with the second"
    await eventually_async(lambda: peer.questions, "the proxy asks")
    assert await pool.ask() == "with the second"

    peer.verdict = JSONResponse({"data": []})
    pool.upstream._questions._asked.clear()  # some minutes later
    pool.auth.clock += 301
    assert await pool.ask() == "with the second"
    await eventually_async(
        lambda: pool.auth.said("provider_pool")[-1]["action"] == "ready", "the key is ready again"
    )
    assert await pool.ask() == "with the first"
    assert [event["action"] for event in pool.auth.said("provider_pool")] == ["dead", "ready"]


@pytest.mark.requirement("keys:exhausted")
@pytest.mark.parametrize(
    "kinds", [("bad", "throttled"), ("throttled", "throttled"), ("no money", "bad")]
)
async def test_a_provider_whose_keys_are_spent_is_followed_by_the_next(
    pool: Crossroads, kinds: list[str]
) -> None:
    pool.peers["one"].says(*[about_the_key(kind) for kind in kinds])
    pool.peers["two"].says(pool.reply("from two"), pool.reply("from two"))
    assert await pool.ask() == "from two"
    pool.turn()
    assert await pool.ask() == "from two"
    assert (pool.times(), pool.slept) == ([2, 2], [])
    assert pool.moves() == [
        "m-one → m-two: provider_keys_exhausted",
        "m-one → m-two: provider_key_unavailable",
    ]


@pytest.mark.requirement("failover:told")
async def test_when_all_fail_the_runner_is_told_the_last_real_answer(roads: Crossroads) -> None:
    roads.peers["one"].says(error(500, "the first"), error(503, "the last"))
    roads.peers["two"].says(bad_key())
    roads.peers["three"].stop()
    assert await roads.ask() == "401 no such key"
    roads.turn()
    assert await roads.ask() == "503 the last"
    assert roads.times() == [2, 1, 0]


@pytest.mark.requirement("failover:told")
@pytest.mark.parametrize(
    ("kind", "told"), [("bad", "502 no_provider_key"), ("throttled", "503 no_provider_key")]
)
async def test_without_an_answer_dead_keys_are_a_502_and_resting_ones_a_503(
    lone: Crossroads, kind: str, told: str
) -> None:
    lone.peers["one"].says(about_the_key(kind))
    assert [(await lone.ask())[:3], await lone.ask()] == ["401" if kind == "bad" else "429", told]


@pytest.mark.requirement("failover:told")
async def test_that_a_provider_is_down_says_more_than_that_another_has_no_key(
    pool: Crossroads,
) -> None:
    pool.peers["one"].stop()
    pool.peers["two"].says(bad_key())
    assert [await pool.ask(), await pool.ask()] == ["401 no such key", "502 provider_unreachable"]


@pytest.mark.requirement("keys:keyless")
async def test_a_provider_that_takes_no_key_is_sent_none(tmp_path: Path) -> None:
    roads = Crossroads(tmp_path, "openai", {"one": 0})
    roads.peers["one"].says(error(429, retry_after="1"), error(401), roads.reply("hello"))
    assert [await roads.ask(again=True), await roads.ask()] == ["401 no", "hello"]
    assert roads.asked() == {"one": ["m-one -"] * 3}
    assert roads.auth.said("provider_pool") == []
    await roads.close()


@pytest.mark.requirement("providers:key-states-persist")
async def test_after_a_restart_a_dead_key_is_not_tried_again(pool: Crossroads) -> None:
    pool.peers["one"].says(bad_key(), pool.reply("with the second"), pool.reply("and again"))
    assert await pool.ask() == "with the second"
    await pool.upstream.close()
    pool.open()
    assert await pool.ask() == "and again"
    assert [key.split()[-1] for key in pool.asked()["one"]] == ["sk-one-0", "sk-one-1", "sk-one-1"]


@pytest.mark.requirement("responses:headers")
async def test_a_turn_state_goes_back_to_its_provider_with_later_calls_of_the_turn(
    roads: Crossroads,
) -> None:
    stated = roads.reply("first")
    stated.headers["X-Codex-Turn-State"] = "s1"
    stated.headers["x-internal"] = "secret"
    stated.headers["x-ratelimit-limit-requests"] = "9"
    roads.peers["one"].says(stated, roads.reply("again"), error(500), roads.reply("later"))
    roads.peers["two"].says(roads.reply("other"))
    assert await roads.ask() == "first"
    assert roads.response is not None
    assert dict(roads.response.headers) == {
        "x-codex-turn-state": "s1",
        "x-ratelimit-limit-requests": "9",
    }
    assert [await roads.ask() for _ in range(2)] == ["again", "other"]
    roads.turn()
    assert await roads.ask() == "later"
    states = [sent.headers.get("x-codex-turn-state") for sent in roads.peers["one"].received]
    assert states == [None, "s1", "s1", None]
    assert "x-codex-turn-state" not in roads.peers["two"].received[0].headers


@pytest.mark.requirement("responses:reasoning-maker")
async def test_each_provider_gets_the_request_for_it_and_is_named_as_the_maker(
    roads: Crossroads,
) -> None:
    roads.adapt = lambda maker: json.dumps({**json.loads(roads.body), "user": maker}).encode()
    roads.peers["one"].says(error(500))
    roads.peers["two"].says(roads.reply("from two"))
    assert await roads.ask() == "from two"
    assert [roads.peers[name].received[0].json["user"] for name in ("one", "two")] == [
        "one/m-one",
        "two/m-two",
    ]
    assert roads.response is not None
    assert roads.response.maker == "two/m-two"
