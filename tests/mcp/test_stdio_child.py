"""A stdio server that is hostile, and what is taken of its output."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claw_mcp import stdio_child
from claw_mcp.protocol import RpcError
from tests.mcp.wrapped import CHILD, SilentObserver, messages, wrapper
from tests.waiting import eventually

RUN = [sys.executable, str(CHILD)]


def memory_of(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return (
        int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
        // 1024
    )


@pytest.mark.requirement("wrapper:asks")
def test_what_the_server_asks_under_the_id_of_a_call_is_no_answer_to_it(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        ping, roots, sampling = wrapped.open().result("ask")["answers"]
        assert (ping["result"], roots["result"], sampling["error"]["code"]) == (
            {},
            {"roots": []},
            -32601,
        )
        assert ping["id"] == roots["id"] == sampling["id"]


@pytest.mark.requirement("wrapper:bad-output")
@pytest.mark.requirement("wrapper:log")
def test_bad_output_is_logged_and_skipped(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        assert wrapped.open().result("garbage", a=1) == {"arguments": {"a": 1}}
        shown = {line["line"]: line["reason"] for line in wrapped.lines("mcp_bad_output")}
        assert shown["not json"] == "this is no JSON-RPC message"
        assert (
            shown['{"jsonrpc":"2.0","id":987654,"result":{}}'] == "an answer that nobody waits for"
        )
        assert len(shown) == 5


@pytest.mark.requirement("wrapper:unread-input")
async def test_too_many_calls_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stdio_child._MAX_CALLS == 1024
    monkeypatch.setattr(stdio_child, "_MAX_CALLS", 1)
    child = await stdio_child.StdioChild.start(RUN, dict(os.environ), SilentObserver())
    waiting = asyncio.ensure_future(child.call("tools/call", {"name": "hang"}, 60))
    await asyncio.sleep(0)
    with pytest.raises(RpcError, match="too many calls wait"):
        await child.call("seen", {}, 60)
    await child.stop()
    with pytest.raises(RpcError, match="ended before it answered"):
        await waiting


@pytest.mark.requirement("wrapper:long-line")
def test_a_line_of_a_hundred_megabytes_ends_the_run_in_bounded_memory(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        client = wrapped.open()
        assert client.call("large", mebibytes=100)["error"]["code"] == -32000
        assert client.result("echo", a=1)["arguments"] == {"a": 1}
        assert [line["reason"] for line in wrapped.lines("mcp_bad_output")] == [
            "a line is longer than 8388608 bytes"
        ]
        assert memory_of(wrapped.process.pid) < 200


@pytest.mark.requirement("wrapper:unread-input")
def test_a_server_that_reads_nothing_costs_bounded_memory_and_its_calls_end(tmp_path: Path) -> None:
    with wrapper(tmp_path, *RUN, "deaf", CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS="1000") as wrapped:
        client = wrapped.open()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: client.call("echo", text="x" * 3_000_000), range(16)))
        errors = {answer["error"]["message"] for answer in answers}
        assert errors == {
            "the server does not read its input",
            "the server did not answer within 1 s",
        }
        assert memory_of(wrapped.process.pid) < 300


@pytest.mark.requirement("wrapper:cancel")
def test_a_call_that_times_out_is_cancelled_at_the_server_and_its_late_answer_is_dropped(
    tmp_path: Path,
) -> None:
    with wrapper(tmp_path, CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS="300") as wrapped:
        client = wrapped.open()
        assert "did not answer" in client.call("slow", seconds=1)["error"]["message"]
        eventually(lambda: "result" in client.call("echo"), "the server answers again")
        heard = eventually(
            lambda: messages(client.send("seen"))[-1].get("result"), "it answers in its time"
        )
        assert any(
            each["params"].get("reason") == "timed out"
            for each in heard["seen"]
            if "params" in each
        )
        assert wrapped.lines("mcp_bad_output") == []


@pytest.mark.requirement("mcp:odd-answers")
def test_an_answer_with_half_of_a_surrogate_pair_is_an_answer(tmp_path: Path) -> None:
    with wrapper(tmp_path) as wrapped:
        assert wrapped.open().result("half") == {
            "content": [{"type": "text", "text": "cut \ufffd"}]
        }
