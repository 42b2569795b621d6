"""The real SDKs' readings of an answer, in one form.

Those of JavaScript run in one node process (tests/js/sdks.mjs).
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import json
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from tests.proxy.pod import ROOT

type Heard = dict[str, Any]
"""The reading: ``text``, ``reasoning``, ``refusal``, ``calls`` …, or ``error`` with ``kind``,
``status`` and ``message``.
"""

JAVASCRIPT = ROOT / "tests" / "js"


@dataclass(frozen=True)
class Job:
    """One request, and the SDK that makes it."""

    sdk: str
    base: str
    key: str
    body: dict[str, Any]


def hear(jobs: Sequence[Job]) -> list[Heard]:
    """Make all requests at once, each by its SDK; return the readings."""
    return asyncio.run(_hear(jobs))


async def _hear(jobs: Sequence[Job]) -> list[Heard]:
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(len(jobs) + 1)
    )  # all at once: some wait for others
    ours = [(place, job) for place, job in enumerate(jobs) if job.sdk in PYTHON]
    theirs = [(place, job) for place, job in enumerate(jobs) if job.sdk not in PYTHON]
    said = await asyncio.gather(
        asyncio.to_thread(_in_node, [job for _, job in theirs]),
        *(_in_python(job) for _, job in ours),
    )
    heard = dict(zip([place for place, _ in theirs], said[0], strict=True))
    heard |= dict(zip([place for place, _ in ours], said[1:], strict=True))
    return [heard[place] for place in range(len(jobs))]


def _in_node(jobs: Sequence[Job]) -> list[Heard]:
    if not jobs:
        return []
    install()
    said = json.dumps([vars(job) for job in jobs]).encode()
    run = subprocess.run(
        ["node", JAVASCRIPT / "sdks.mjs"], input=said, capture_output=True, check=False, timeout=100
    )
    assert run.returncode == 0, run.stderr.decode()
    heard: list[Heard] = json.loads(run.stdout)
    return heard


@functools.cache
def install(target: str = "tests/js/node_modules/.installed") -> None:
    """Make a target of the Makefile, once, in one of the processes that run tests;
    skip the test if that fails.
    """
    with (JAVASCRIPT / "package.json").open(encoding="utf-8") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        done = subprocess.run(["make", "--silent", "-C", ROOT, target], check=False, timeout=100)
    if done.returncode:
        pytest.skip(f"{target} can't be made: make sdks")


async def _in_python(job: Job) -> Heard:
    try:
        return await PYTHON[job.sdk](job)
    except Exception as error:  # noqa: BLE001 - any error that a runner could get
        status = getattr(error, "status_code", None)
        return {"error": {"kind": type(error).__name__, "status": status, "message": str(error)}}


def completed(made: Any, chunks: int) -> Heard:
    """Return the reading of an SDK's completion."""
    choice = made.choices[0]
    said = choice.message
    calls = [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in said.tool_calls or ()
        if call.type == "function"
    ]
    return {
        "whole": made.model_dump(warnings=False),
        "id": made.id,
        "role": said.role,
        "text": said.content,
        "refusal": said.refusal,
        "reasoning": getattr(said, "reasoning_content", None),
        "calls": calls,
        "finish": choice.finish_reason,
        "usage": made.usage and [made.usage.prompt_tokens, made.usage.completion_tokens],
        "chunks": chunks,
    }


def messaged(made: anthropic.types.Message, chunks: int) -> Heard:
    """Return the reading of an SDK's message."""
    blocks = [block.model_dump(warnings=False) for block in made.content]

    def joined(kind: str, name: str) -> str:
        return "".join(block[name] for block in blocks if block["type"] == kind)

    return {
        "whole": made.model_dump(warnings=False),
        "id": made.id,
        "role": made.role,
        "text": joined("text", "text"),
        "reasoning": joined("thinking", "thinking"),
        "signature": joined("thinking", "signature"),
        "calls": [
            {"id": block["id"], "name": block["name"], "arguments": json.dumps(block["input"])}
            for block in blocks
            if block["type"] == "tool_use"
        ],
        "finish": made.stop_reason,
        "usage": [made.usage.input_tokens, made.usage.output_tokens],
        "chunks": chunks,
    }


def _openai(job: Job, kind: Any) -> Any:
    return kind(base_url=f"{job.base}/v1", api_key=job.key, max_retries=0, timeout=60)


def _anthropic(job: Job, kind: Any) -> Any:
    return kind(base_url=job.base, api_key=job.key, max_retries=0, timeout=60)


async def _openai_stream(job: Job) -> Heard:
    chunks = 0
    async with (
        _openai(job, openai.AsyncOpenAI) as client,
        client.chat.completions.stream(**job.body) as stream,
    ):
        async for event in stream:
            chunks += event.type == "chunk"
        return completed(await stream.get_final_completion(), chunks)


async def _openai_create(job: Job) -> Heard:
    def create() -> Heard:
        with _openai(job, openai.OpenAI) as client:
            return _added_up(client.chat.completions.create(**job.body, stream=True))

    return await asyncio.to_thread(create)


def _added_up(stream: Any) -> Heard:
    """Add up the chunks of a stream, as most runners do."""
    heard: Heard = dict.fromkeys(("id", "role", "text", "refusal", "reasoning", "finish", "usage"))
    calls: list[dict[str, Any]] = []
    heard |= {"calls": calls, "chunks": 0}
    for chunk in stream:
        heard["chunks"] += 1
        heard["id"] = chunk.id or heard["id"]
        if chunk.usage is not None:
            heard["usage"] = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens]
        for choice in chunk.choices:
            heard["finish"] = choice.finish_reason or heard["finish"]
            delta = choice.delta
            grown = {"role": delta.role, "text": delta.content, "refusal": delta.refusal}
            grown["reasoning"] = getattr(delta, "reasoning_content", None)
            heard |= {
                name: (heard[name] or "") + part for name, part in grown.items() if part is not None
            }
            for part in delta.tool_calls or ():
                if part.index == len(calls):
                    calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
                calls[part.index]["arguments"] += part.function.arguments or ""
    return heard


async def _anthropic_stream(job: Job) -> Heard:
    def stream() -> Heard:
        with (
            _anthropic(job, anthropic.Anthropic) as client,
            client.messages.stream(**job.body) as events,
        ):
            chunks = sum(1 for _ in events)
            return messaged(events.get_final_message(), chunks)

    return await asyncio.to_thread(stream)


async def _anthropic_async_stream(job: Job) -> Heard:
    async with (
        _anthropic(job, anthropic.AsyncAnthropic) as client,
        client.messages.stream(**job.body) as events,
    ):
        return messaged(await events.get_final_message(), 0)


async def _anthropic_create(job: Job) -> Heard:
    async with _anthropic(job, anthropic.AsyncAnthropic) as client:
        made: Any = None
        chunks = 0
        async for event in await client.messages.create(**job.body, stream=True):
            chunks += 1
            match event.type:
                case "message_start":
                    made = event.message
                case "content_block_start":
                    assert event.index == len(made.content)
                    made.content.append(event.content_block)
                case "content_block_delta":
                    _grow(made.content[event.index], event.delta)
                case "message_delta":
                    made.stop_reason = event.delta.stop_reason
                    made.usage.output_tokens = event.usage.output_tokens
        assert event.type == "message_stop"
        for block in made.content:
            if block.type == "tool_use":
                block.input = json.loads(block.input or "{}")
        return messaged(made, chunks)


def _grow(block: Any, delta: Any) -> None:
    match delta.type:
        case "text_delta":
            block.text += delta.text
        case "thinking_delta":
            block.thinking += delta.thinking
        case "signature_delta":
            block.signature += delta.signature
        case "input_json_delta":
            block.input = (block.input or "") + delta.partial_json


PYTHON: dict[str, Callable[[Job], Awaitable[Heard]]] = {
    "openai-py create": _openai_create,
    "openai-py stream": _openai_stream,
    "anthropic-py create": _anthropic_create,
    "anthropic-py stream": _anthropic_stream,
    "anthropic-py async stream": _anthropic_async_stream,
}
OPENAI = (
    "openai-py create",
    "openai-py stream",
    "openai-js create",
    "openai-js stream",
    "ai openai",
)
ANTHROPIC = (
    "anthropic-py create",
    "anthropic-py stream",
    "anthropic-py async stream",
    "anthropic-js create",
    "anthropic-js stream",
    "ai anthropic",
)
