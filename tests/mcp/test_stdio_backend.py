"""Many sessions over one stdio server: ids, progress and subscriptions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.mcp.wrapped import RunningWrapper, messages


@pytest.mark.requirement("wrapper:own-ids")
def test_equal_ids_of_many_sessions_at_once_are_each_answered_with_their_own(
    wrapped: RunningWrapper,
) -> None:
    clients = [wrapped.open() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: clients[n].call("echo", request_id="same", of=n), range(8))
        )
    assert [(answer["id"], answer["result"]["arguments"]) for answer in answers] == [
        ("same", {"of": n}) for n in range(8)
    ]
    assert len({answer["result"]["id"] for answer in answers}) == 8, (
        "the server sees ids of the wrapper"
    )


@pytest.mark.requirement("wrapper:exact")
@pytest.mark.parametrize("request_id", [0, -1, 2**53 + 1, 2**70, "", 'a"b\u2028\U0001f600', "1"])
def test_numbers_and_ids_of_any_size_survive_both_ways(
    wrapped: RunningWrapper, request_id: int | str
) -> None:
    arguments = {
        "big": 2**53 + 1,
        "bigger": -(2**200),
        "small": 1e-7,
        "text": "ü\n\r\u2028\x7f",
        "deep": [{"a": [None]}],
    }
    answer = wrapped.open().call("echo", request_id=request_id, **arguments)
    assert (answer["id"], answer["result"]["arguments"]) == (request_id, arguments)


@pytest.mark.requirement("wrapper:progress")
def test_progress_reaches_the_session_that_asked_under_its_own_token_and_no_other(
    wrapped: RunningWrapper,
) -> None:
    clients = [wrapped.open(), wrapped.open()]
    params = {"name": "progress", "arguments": {}, "_meta": {"progressToken": "same"}}
    with clients[1].listening() as others, ThreadPoolExecutor(2) as pool:
        responses = list(pool.map(lambda client: client.send("tools/call", params), clients))
        clients[0].result("log", data="end")
        assert next(others)["method"] == "notifications/message"
    for response in responses:
        *notes, answer = messages(response)
        assert [note["params"] for note in notes] == [
            {"progressToken": "same", "progress": step} for step in (1, 2, 3)
        ]
        assert answer["result"]["token"] not in {None, "same"}
    quiet = messages(clients[0].send("tools/call", params, accept="application/json"))
    assert [message.get("method") for message in quiet] == [None], (
        "who accepts no stream gets the answer alone"
    )


@pytest.mark.requirement("wrapper:broadcast")
def test_log_messages_and_changed_lists_go_to_every_session(wrapped: RunningWrapper) -> None:
    first, second = wrapped.open(), wrapped.open()
    with first.listening() as at_first, second.listening() as at_second:
        asking = wrapped.open()
        changes = [
            ("change", kind, f"{kind}/list_changed") for kind in ("tools", "prompts", "resources")
        ]
        for tool, kind, method in (("log", "", "message"), *changes):
            own = messages(
                asking.send("tools/call", {"name": tool, "arguments": {"data": "d", "kind": kind}})
            )
            assert [own[0]["method"], next(at_first)["method"], next(at_second)["method"]] == [
                f"notifications/{method}"
            ] * 3


@pytest.mark.requirement("wrapper:subscriptions")
def test_one_session_that_unsubscribes_does_not_unsubscribe_another(
    wrapped: RunningWrapper,
) -> None:
    first, second = wrapped.open(), wrapped.open()
    for client in (first, second):
        assert client.send("resources/subscribe", {"uri": "test://a"}).json()["result"] == {}
    assert first.send("resources/unsubscribe", {"uri": "test://a"}).json()["result"] == {}
    seen = messages(first.send("seen"))[-1]["result"]["seen"]
    assert [
        message["method"] for message in seen if message["method"].startswith("resources/")
    ] == ["resources/subscribe"] * 2
    with second.listening() as heard:
        first.result("update", uri="test://a")
        assert next(heard)["params"] == {"uri": "test://a"}
    httpx2.delete(wrapped.url, headers=second.headers)
    assert first.send("resources/subscribe", {"uri": "test://a"}).json()["result"] == {}
    assert first.send("resources/unsubscribe", {"uri": "test://a"}).json()["result"] == {}
    seen = messages(first.send("seen"))[-1]["result"]["seen"]
    assert [message["method"] for message in seen if message["method"].startswith("resources/")][
        -1
    ] == "resources/unsubscribe"


@pytest.mark.requirement("wrapper:subscriptions-bounded")
def test_subscriptions_have_a_number_and_a_length(wrapped: RunningWrapper) -> None:
    client = wrapped.open()
    long = client.send("resources/subscribe", {"uri": "test://b", "more": "x" * 9_000}).json()[
        "error"
    ]
    assert (long["code"], "8192 bytes" in long["message"]) == (-32602, True)
    with httpx2.Client(headers=client.headers, timeout=60) as sender:

        def subscribe(number: int) -> dict[str, Any]:
            params = {"uri": f"test://{number}"}
            message = {
                "jsonrpc": "2.0",
                "id": number,
                "method": "resources/subscribe",
                "params": params,
            }
            answered: dict[str, Any] = sender.post(wrapped.url, json=message).json()
            return answered

        assert all("result" in subscribe(number) for number in range(256))
        assert "too many subscriptions" in subscribe(256)["error"]["message"]
    assert wrapped.open().send("resources/subscribe", {"uri": "test://256"}).json()["result"] == {}
    httpx2.delete(wrapped.url, headers=client.headers)
