"""Live replies that fail before their first word: they are asked for again, also at another
provider, and behind a head that went out by time (docs/spec/live.md sections 8 and 9).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from starlette.responses import JSONResponse

from tests.peers import Answer, DelayedAnswer, GatedReply, Provider, Reply, text
from tests.proxy.live_pod import BUYS, LISTS, GatedStream, Scene, events_of, failure, start_live
from tests.proxy.live_runners import WIRES, BrokenReply
from tests.proxy.pod import Pod, pod_at
from tests.proxy.test_failover import allow
from tests.waiting import eventually
from tests.wires import ReplyContent, Wire

SAYS = Reply("One two three.")
SPARE = {"chat": "spare/gpt-spare", "anthropic": "claude/claude-spare"}
FIRST = {"chat": "openai/gpt-test", "anthropic": "anthropic/claude-test"}


@pytest.fixture(scope="module")
def spare() -> Iterator[Provider]:
    """Yield a second provider of both kinds of API."""
    peer = Provider()
    peer.start()
    yield peer
    peer.stop()


@pytest.fixture(scope="module")
def live_pod(tmp_path_factory: pytest.TempPathFactory, spare: Provider) -> Iterator[Pod]:
    """Yield a pod whose streams begin at once, with two agents that have a second provider."""
    with pod_at(tmp_path_factory.mktemp("pod")) as pod:
        pod.environment["CLLAMA_LIVE_FIRST_MS"] = "1"
        pod.environment["CLLAMA_LIVE_IDLE_MS"] = "400"
        key = {"base_url": f"{spare.url}/v1", "api_key": "sk-spare-planted-0005"}
        (pod.home / "auth").mkdir()
        providers = {"spare": key, "claude": {**key, "api_format": "anthropic"}}
        written = json.dumps({"providers": providers})
        (pod.home / "auth" / "providers.json").write_text(written, encoding="utf-8")
        for kind, ref in SPARE.items():
            pod.agent(f"two-{kind}", *pod.balance_and_trade(), stream="live")
            allow(pod.home / "context" / f"two-{kind}", FIRST[kind], ref)
        start_live(pod)
        yield pod


@pytest.fixture
def second(spare: Provider) -> Provider:
    spare.forget_script()
    spare.received.clear()
    return spare


def ask_two(scene: Scene) -> str:
    """Return the agent of this protocol that has two providers."""
    return "two-anthropic" if scene.protocol == "anthropic" else "two-chat"


def let_go(gated: GatedReply) -> GatedReply:
    gated.release_all()
    return gated


def busy(wire: Wire) -> Answer:
    return JSONResponse(wire.error("server_error", "busy"), 503)


@pytest.mark.requirement("live:failure-failover")
@pytest.mark.parametrize("kind", ["status", "error", "cut", "unreadable"])
def test_what_fails_before_its_first_word_is_asked_of_the_second_provider(
    scene: Scene, second: Provider, kind: str
) -> None:
    first = events_of(scene.wire, SAYS)[:1]
    fails: dict[str, Answer] = {
        "status": busy(scene.wire),
        "error": let_go(BrokenReply(SAYS, "", failure(scene.wire))),
        "cut": let_go(BrokenReply(SAYS, "")),
        "unreadable": let_go(GatedStream([*first, b'data: {"half\n\n'])),
    }
    scene.says(fails[kind])
    second.says(BUYS, text("Bought."))
    runner = scene.ask(agent_id=ask_two(scene))
    assert scene.said(runner) == ReplyContent(f"{BUYS.text}{scene.glue}Bought.")
    assert len(scene.sent) == 1
    assert [sent.json["stream"] for sent in second.received] == [True, True]
    assert len(scene.writes) == 1
    reason = {"cut": "response_read_error", "unreadable": "response_read_error"}
    (moved,) = scene.log("failover")
    assert moved["reason"] == reason.get(kind, moved["reason"])


@pytest.mark.requirement("live:failure-shown-is-final")
def test_what_fails_behind_its_first_word_is_asked_of_nobody_else(
    scene: Scene, second: Provider
) -> None:
    scene.says(let_go(BrokenReply(SAYS, "two")))
    runner = scene.ask(agent_id=ask_two(scene))
    assert runner.end() == "cut"
    assert runner.text == "One two "
    assert second.received == []
    assert len(scene.sent) == 1


@pytest.mark.requirement("live:failure-by-time")
@pytest.mark.parametrize(
    ("protocol", "recovers"), [("chat", True), *((each, False) for each in WIRES)]
)
def test_behind_a_head_that_went_out_by_time_a_failure_is_tried_twice_more(
    scene: Scene, *, recovers: bool
) -> None:
    fails = [DelayedAnswer(busy(scene.wire)), busy(scene.wire)]
    scene.says(*fails, text("At last.") if recovers else busy(scene.wire))
    runner = scene.ask()
    eventually(lambda: b"claw round=1" in runner.stream or b"ping" in runner.stream, "a beat")
    assert runner.status == 200
    fails[0].go.set()  # type: ignore[union-attr]
    if recovers:
        assert scene.said(runner) == ReplyContent("At last.")
    else:
        assert "busy" in scene.error(runner)["message"]
        assert "retry-after" not in {name.lower() for name in runner.headers}
    assert len(scene.sent) == 3


@pytest.mark.requirement("live:failure-idle")
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1", "HTTP/2"])
def test_a_reply_that_falls_silent_behind_its_first_word_is_cut(scene: Scene, version: str) -> None:
    gated = GatedReply(SAYS)
    scene.says(gated)
    runner = scene.ask(version)
    eventually(lambda: gated.events, "the provider is asked")
    gated.release(next(at for at, each in enumerate(gated.events) if b"One" in each) + 1)
    if version == "HTTP/1.0":
        assert scene.error(runner)
    else:
        assert runner.end() == "cut"
    assert runner.text == "One "
    assert scene.ended()["error"] == "provider_idle"
    assert [each["where"] for each in scene.log("live_cut")] == ["text"]
    assert gated.left.wait(60), "the provider's connection is closed"


@pytest.mark.requirement("live:failure-idle")
def test_a_reply_that_falls_silent_unshown_is_asked_for_again(scene: Scene) -> None:
    gated = GatedReply(Reply("", LISTS.calls))
    scene.says(gated, SAYS)
    runner = scene.ask()
    eventually(lambda: gated.events, "the provider is asked")
    gated.release(next(at for at, each in enumerate(gated.events) if b"call_n" in each) + 1)
    assert scene.said(runner) == ReplyContent(SAYS.text)
    assert gated.left.wait(60), "the provider's connection is closed"
    assert len(scene.sent) == 2
