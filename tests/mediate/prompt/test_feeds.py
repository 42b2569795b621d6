"""Feeds from real services: cached, bounded, and fetched beside the turn."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from claw_mediate.agents.directory import Agent
from claw_mediate.prompt.feeds import FeedReader
from tests.mediate.prompt.agent_context import TOKEN, AgentContext
from tests.peers import Answer, Service
from tests.waiting import DEADLINE, eventually_async, nobody_listens


@pytest.fixture
async def context(service: Service, tmp_path: Path) -> AsyncIterator[AgentContext]:
    made = AgentContext(service, tmp_path)
    yield made
    await made.close()


def serve(service: Service, said: Answer, name: str = "prices") -> None:
    service.routes["GET", f"/{name}"] = said


def fetched(context: AgentContext) -> list[str]:
    return [one.path for one in context.service.received]


@pytest.mark.requirement("feeds:fetch")
async def test_a_feed_is_fetched_as_the_agent_and_shown_as_it_is(context: AgentContext) -> None:
    serve(
        context.service,
        Response(b'{"NVDA": 1.50, "id": 9007199254740993}', media_type="application/json"),
    )
    context.has(context.feed())
    text = await context.text()
    assert (
        'Feed prices (from market):\n```json\n{"NVDA": 1.50, "id": 9007199254740993}\n```' in text
    )
    sent = context.service.received[0].headers
    assert (sent["x-claw-id"], sent["x-claw-pod"]) == ("analyst", "desk")
    assert sent["authorization"] == f"Bearer {TOKEN}"
    assert sent["accept"].startswith("application/json")
    (told,) = context.said("feed_fetch")
    assert (told["feed_name"], told["status_code"], told["error"]) == ("prices", 200, None)
    (told,) = context.said("feed_injection")
    assert (told["feed_status"], told["feed_cached"], told["feed_truncated"]) == (
        "included",
        False,
        False,
    )


@pytest.mark.requirement("feeds:reference")
@pytest.mark.parametrize(
    "factory", [None, asyncio.eager_task_factory], ids=["lazy tasks", "eager tasks as in mitmproxy"]
)
async def test_a_feeds_credential_may_be_a_reference(
    context: AgentContext, tmp_path: Path, factory: Any
) -> None:
    asyncio.get_running_loop().set_task_factory(factory)

    async def echo(request: Request) -> Response:
        return Response(f"You sent {request.headers['authorization']}.".encode())

    serve(context.service, echo)
    context.has(context.feed(auth={"secret": "feed-token"}))
    assert "unavailable" in await context.text()
    assert (context.service.received, context.said("feed_fetch")[0]["error"]) == (
        [],
        "credential_missing",
    )
    (tmp_path / "feed-token").write_text("from-a-file\n", encoding="utf-8")
    context.now += 60
    assert "You sent Bearer ••••••." in await context.text()
    assert context.service.received[0].headers["authorization"] == "Bearer from-a-file"


@pytest.mark.requirement("context:no-topology")
async def test_no_address_is_in_the_text_or_in_the_log(context: AgentContext) -> None:
    serve(context.service, Response(b"up"))
    context.has(
        context.feed(),
        context.feed("gone", url="http://127.0.0.1:9/gone"),
        context.feed("odd", url="http://[::1]:9/x?y=1"),
    )
    told = await context.text() + json.dumps(context.events)
    assert "127.0.0.1" not in told
    assert "http:" not in told
    assert str(context.service.port) not in told
    assert TOKEN not in told


@pytest.mark.requirement("feeds:ttl")
async def test_a_feed_is_fetched_once_in_its_ttl_by_each_agent(context: AgentContext) -> None:
    serve(context.service, Response(b"up"))
    context.has(context.feed(ttl=60))
    for _ in range(5):
        context.now += 11
        await context.text()
    assert len(fetched(context)) == 1
    assert [event["feed_cached"] for event in context.said("feed_injection")] == [False] + [
        True
    ] * 4
    assert {event["feed_stale_seconds"] for event in context.said("feed_injection")} == {None}


@pytest.mark.requirement("feeds:ttl")
async def test_a_ttl_of_zero_asks_each_time(context: AgentContext) -> None:
    serve(context.service, Response(b"up"))
    context.has(context.feed(ttl=0))
    assert "old" not in await context.text() + await context.text() + await context.text()
    assert len(fetched(context)) == 3


@pytest.mark.requirement("feeds:revalidate")
async def test_a_copy_that_has_just_expired_is_used_and_refreshed_beside_the_turn(
    context: AgentContext,
) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def second(_request: Request) -> Response:
        done = asyncio.run_coroutine_threadsafe(go.wait(), loop)
        await asyncio.wrap_future(done)
        return Response(b"new")

    serve(context.service, Response(b"first"))
    context.has(context.feed(ttl=60))
    await context.text()
    serve(context.service, second)
    context.now += 70
    for _ in range(3):  # each time while the service holds up the one refresh
        text = await context.text()
        assert "Feed prices (from market; 70 seconds old):\n```\nfirst\n```" in text
    go.set()
    await eventually_async(lambda: len(context.said("feed_fetch")) == 2, "the refresh is over")
    assert "Feed prices (from market):\n```\nnew\n```" in await context.text()
    assert len(fetched(context)) == 2


@pytest.mark.requirement("feeds:revalidate")
async def test_a_copy_that_is_much_older_is_not_taken_for_the_present(
    context: AgentContext,
) -> None:
    serve(context.service, Response(b"yesterday"))
    context.has(context.feed(ttl=60))
    await context.text()
    serve(context.service, Response(b"today"))
    context.now += 86_400
    text = await context.text()
    assert "today" in text
    assert "yesterday" not in text


@pytest.mark.requirement("feeds:stale-while-error")
async def test_when_the_fetch_fails_the_old_copy_is_used_with_its_age(
    context: AgentContext,
) -> None:
    serve(context.service, Response(b"old"))
    context.has(context.feed(ttl=60))
    await context.text()
    serve(context.service, Response(b"broken", status_code=500))
    context.now += 300
    assert "Feed prices (from market; 300 seconds old):\n```\nold\n```" in await context.text()
    assert context.said("feed_fetch")[-1]["error"] == "http_500"
    assert context.said("feed_injection")[-1]["feed_stale_seconds"] == 300
    serve(context.service, Response(b"new"))
    context.now += 11
    assert "Feed prices (from market):\n```\nnew\n```" in await context.text()


@pytest.mark.requirement("feeds:rest")
async def test_a_feed_that_failed_is_left_alone_for_a_while(context: AgentContext) -> None:
    serve(context.service, Response(b"", status_code=503))
    context.has(context.feed(ttl=60))
    for _ in range(5):
        assert "Feed prices (from market): unavailable at the moment." in await context.text()
        context.now += 3
    assert len(fetched(context)) == 2
    assert {event["feed_status"] for event in context.said("feed_injection")} == {"unavailable"}


@pytest.mark.requirement("feeds:concurrent")
async def test_feeds_are_fetched_side_by_side_and_turns_share_a_fetch(
    context: AgentContext,
) -> None:
    waiting: set[str] = set()

    async def together(request: Request) -> Response:
        waiting.add(request.url.path)
        await eventually_async(
            lambda: len(waiting) == 3, "all three are asked for"
        )  # never true one after the other
        return Response(request.url.path.encode())

    for name in "abc":
        serve(context.service, together, name)
    context.has(*(context.feed(name) for name in "abc"))
    texts = await asyncio.gather(context.text(), context.text(), context.text())
    assert len(set(texts)) == 1
    assert [texts[0].index(f"Feed {name} ") for name in "abc"] == sorted(
        texts[0].index(f"Feed {name} ") for name in "abc"
    )
    assert sorted(fetched(context)) == ["/a", "/b", "/c"]


@pytest.mark.requirement("feeds:concurrent")
async def test_a_turn_that_is_cancelled_does_not_stop_a_fetch_for_the_others(
    context: AgentContext,
) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def held(_request: Request) -> Response:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
        return Response(b"here")

    serve(context.service, held)
    context.has(context.feed())
    leaving, staying = asyncio.ensure_future(context.text()), asyncio.ensure_future(context.text())
    await eventually_async(lambda: context.service.received, "the service is asked")
    leaving.cancel()
    await asyncio.wait([leaving])
    go.set()
    assert "here" in await staying
    assert len(fetched(context)) == 1


async def endless(_request: Request) -> Response:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000
        await asyncio.Event().wait()

    return StreamingResponse(body())


@pytest.mark.requirement("feeds:caps")
@pytest.mark.parametrize(
    "said",
    [
        Response(b"x" * 100_000),
        endless,
        Response(gzip.compress(b"x" * 10_000_000), headers={"content-encoding": "gzip"}),
    ],
)
async def test_a_feed_that_is_huge_or_endless_is_cut_with_a_mark(
    service: Service, tmp_path: Path, said: Answer
) -> None:
    context = AgentContext(service, tmp_path, feed_bytes=500)
    serve(service, said)
    context.has(context.feed())
    assert (
        f"Feed prices (from market; cut: it goes on):\n```\n{'x' * 500}\n```"
        in await context.text()
    )
    assert context.said("feed_injection")[0]["feed_truncated"] is True
    assert context.said("feed_fetch")[0]["feed_source_exact"] is False
    await context.close()


@pytest.mark.requirement("feeds:caps")
async def test_feeds_beyond_the_total_are_left_out_with_a_line_each(
    service: Service, tmp_path: Path
) -> None:
    context = AgentContext(service, tmp_path, feed_bytes=500, total_bytes=800)
    for name in "abc":
        serve(service, Response(name.encode() * (400 if name != "c" else 20)), name)
    context.has(*(context.feed(name) for name in "abc"))
    text = await context.text()
    assert "Feed b (from market): left out, for all feeds together are too long." in text
    assert "b" * 20 not in text
    assert "c" * 20 in text
    assert [event["feed_status"] for event in context.said("feed_injection")] == [
        "included",
        "skipped_total_cap",
        "included",
    ]
    await context.close()


@pytest.mark.requirement("feeds:bounded")
async def test_a_feed_that_is_slow_costs_no_more_than_its_time(
    service: Service, tmp_path: Path
) -> None:
    async def never(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def drip(_request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        return StreamingResponse(body())

    context = AgentContext(service, tmp_path, seconds=0.1)
    serve(service, never, "never")
    serve(service, drip, "drip")
    context.has(context.feed("never"), context.feed("drip"))
    async with asyncio.timeout(DEADLINE):
        text = await context.text()
    assert text.count("unavailable at the moment") == 2
    assert {event["error"] for event in context.said("feed_fetch")} == {"timed_out"}
    await context.close()


@pytest.mark.requirement("feeds:bounded")
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\npart",
        b"not http at all\r\n\r\n",
        b"\0\xff" * 5000,
    ],
)
async def test_garbage_is_no_feed(context: AgentContext, said: bytes) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        context.has(context.feed(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"))
        assert "unavailable at the moment" in await context.text()
    assert context.said("feed_fetch")[0]["error"] == "broke_off"


@pytest.mark.requirement("feeds:own-host-only")
async def test_redirects_are_refused_and_proxies_of_the_environment_unused(
    context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    serve(context.service, Response(b"stolen"), "secret")
    serve(context.service, RedirectResponse(f"{context.service.url}/secret"), "away")
    serve(context.service, Response(b"here"), "here")
    context.has(context.feed("away"), context.feed("here"))
    text = await context.text()
    assert "here" in text
    assert "stolen" not in text
    assert "/secret" not in fetched(context)
    assert [
        event["error"] for event in context.said("feed_fetch") if event["feed_name"] == "away"
    ] == ["redirect_refused"]


@pytest.mark.requirement("feeds:redaction")
@pytest.mark.parametrize(
    "said",
    [
        JSONResponse({"you": f"sent {TOKEN}", TOKEN: [f"analyst:s3cret-planted {TOKEN}"]}),
        Response(f"<b>{TOKEN}</b> analyst:s3cret-planted sk-provider-planted"),
        Response(f"{'x' * 32760}{TOKEN} and more"),
    ],
)
async def test_no_credential_that_a_feed_says_back_reaches_the_prompt(
    context: AgentContext, said: Answer
) -> None:
    serve(context.service, said)
    context.has(context.feed())
    text = await context.text()
    for planted in (TOKEN[:8], "s3cret-planted", "sk-provider-planted"):
        assert planted not in text


@pytest.mark.parametrize("said", [Response(b""), Response(b" \n\0\x1b\n ")])
async def test_an_empty_feed_adds_nothing_to_the_prompt(
    context: AgentContext, said: Answer
) -> None:
    serve(context.service, said)
    context.has(context.feed())
    assert await context.text() == ""
    assert context.said("feed_injection")[0]["feed_status"] == "empty"


@pytest.mark.requirement("feeds:bounded")
async def test_a_feed_of_a_service_that_is_down_is_one_line(context: AgentContext) -> None:
    with nobody_listens() as address:
        context.has(
            context.feed(url=f"{address}/x"),
            context.feed("b", url="http://does-not-exist.invalid/x"),
        )
        assert (await context.text()).count("unavailable at the moment") == 2
    assert [event["error"] for event in context.said("feed_fetch")] == ["unreachable"] * 2


async def test_a_feed_that_is_taken_away_and_given_back_is_fetched_anew(
    context: AgentContext,
) -> None:
    serve(context.service, Response(b"up"))
    for _ in range(2):
        context.has(context.feed())
        await context.text()
        context.has()
        assert await context.text() == ""
    assert len(fetched(context)) == 2


async def test_stopping_does_not_wait_for_a_feed(context: AgentContext) -> None:
    async def never(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    serve(context.service, never)
    context.has(context.feed())
    waiting = asyncio.ensure_future(context.text())
    await eventually_async(lambda: context.service.received, "the service is asked")
    async with asyncio.timeout(DEADLINE):
        await context.close()
        assert "unavailable at the moment" in await waiting


@pytest.mark.requirement("workers:feeds")
@pytest.mark.parametrize(("ttl", "seconds", "shown"), [(3600, 30, None), (10, 30, 30)])
async def test_the_youngest_copy_of_the_other_workers_is_taken_with_its_age(
    context: AgentContext,
    service: Service,
    tmp_path: Path,
    ttl: int,
    seconds: int,
    shown: int | None,
) -> None:
    older, younger = AgentContext(service, tmp_path), AgentContext(service, tmp_path)
    for number, each in enumerate((older, younger)):
        serve(service, Response(f"copy {number}".encode()))
        each.has(each.feed(ttl=ttl))
        assert f"copy {number}" in await each.text()
    older.now += 2 * seconds
    younger.now += seconds

    async def ask_workers(question: bytes) -> dict[int, bytes]:
        return {
            number: each.feeds.reply(question)
            for number, each in enumerate((older, younger, context))
        }

    context.feeds = FeedReader(
        context.client,
        tmp_path,
        context.feeds.limits,
        context.log,
        lambda: context.now,
        ask_workers,
    )
    context.prompt.feeds = context.feeds
    serve(service, Response(b"gone", status_code=503))
    context.has(context.feed(ttl=ttl), context.feed("other", ttl=ttl))
    text = await context.text()
    assert "copy 1" in text
    assert "Feed other (from market): unavailable" in text
    first, other = context.said("feed_injection")
    assert (first["feed_status"], first["feed_stale_seconds"]) == ("included", shown)
    assert other["feed_status"] == "unavailable"
    context.agent = Agent(
        "another",
        *(
            getattr(context.agent, name)
            for name in ("metadata", "tools", "limits", "digest", "feeds")
        ),
    )
    assert "copy" not in await context.text()
    for each in (older, younger):
        await each.close()
