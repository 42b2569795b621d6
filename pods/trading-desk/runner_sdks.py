"""The two SDKs that an agent's runner may be built on: each streams a reply and keeps its history in its own form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import anthropic
import openai

SYSTEM = "You are an agent of a trading desk. Use your tools."
DESCRIPTION = "Write a note to the agent's own notebook."
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The note's text"}},
    "required": ["text"],
}
ERRORS = (openai.APIError, anthropic.APIError)


@dataclass
class Call:
    """A tool call as it arrives: in parts."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Reply:
    """What one request made the runner see."""

    text: str
    calls: list[Call]
    events: int


class OpenAI:
    """OpenAI chat completions: OPENAI_BASE_URL, OPENAI_API_KEY."""

    tool: ClassVar[Any] = {
        "type": "function",
        "function": {"name": "write_note", "description": DESCRIPTION, "parameters": SCHEMA},
    }

    def __init__(self, model: str) -> None:
        self._client = openai.OpenAI()
        self._model = model
        self._history: list[Any] = [{"role": "system", "content": SYSTEM}]

    def says(self, prompt: str) -> None:
        self._history.append({"role": "user", "content": prompt})

    def ran(self, call: Call, result: str) -> None:
        self._history.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def stream(self, show: Callable[[str], None]) -> Reply:
        text, events, calls = "", 0, dict[int, Call]()
        stream = self._client.chat.completions.create(
            model=self._model,
            messages=self._history,
            tools=[self.tool],
            stream=True,
            stream_options={"include_usage": True},
        )
        with stream:
            for event in stream:
                events += 1
                for choice in event.choices:
                    if choice.delta.content:
                        text += choice.delta.content
                        show(choice.delta.content)
                    for part in choice.delta.tool_calls or []:
                        _add(calls.setdefault(part.index, Call()), part)
        made = list(calls.values())
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if made:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in made
            ]
        self._history.append(message)
        return Reply(text, made, events)


def _add(call: Call, part: Any) -> None:
    call.id += part.id or ""
    call.name += part.function.name or ""
    call.arguments += part.function.arguments or ""


class Anthropic:
    """Anthropic messages: ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY."""

    tool: ClassVar[Any] = {"name": "write_note", "description": DESCRIPTION, "input_schema": SCHEMA}

    def __init__(self, model: str) -> None:
        self._client = anthropic.Anthropic()
        self._model = model
        self._history: list[Any] = []

    def says(self, prompt: str) -> None:
        self._history.append({"role": "user", "content": prompt})

    def ran(self, call: Call, result: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call.id, "content": result}
        if self._history[-1]["role"] == "user":
            self._history[-1]["content"].append(block)
        else:
            self._history.append({"role": "user", "content": [block]})

    def stream(self, show: Callable[[str], None]) -> Reply:
        text, events = "", 0
        with self._client.messages.stream(
            model=self._model, max_tokens=1024, system=SYSTEM, messages=self._history, tools=[self.tool]
        ) as stream:
            for event in stream:
                events += 1
                if event.type == "text":
                    text += event.text
                    show(event.text)
            message = stream.get_final_message()
        self._history.append({"role": "assistant", "content": message.content})
        made = [
            Call(block.id, block.name, json.dumps(block.input)) for block in message.content if block.type == "tool_use"
        ]
        return Reply(text, made, events)


SDKS = {"openai": OpenAI, "anthropic": Anthropic}
