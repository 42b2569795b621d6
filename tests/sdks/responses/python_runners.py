"""Runners in Python, as their makers ship them, which play scenarios over Responses, or over the
protocol that a play's ``api`` names: ``chat`` or ``anthropic``.

One process plays everything at once.

It runs in an environment of its own, without the packages of these tests. stdin: JSON plays;
stdout: for each, what the runner got: ``said`` (one text a turn), ``ran`` (how often its own tool
ran), ``errors``, and ``seen`` (all that it was shown).
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agents import Agent as OpenAIAgent
from agents import (
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from anthropic import AsyncAnthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel as PydanticChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

MODEL = "gpt-5.1"
FILES = "three files"
SEALED = "reasoning.encrypted_content"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
MAX_TRIES = 3

type ClientConversation = dict[str, Any]


class Talk(Protocol):
    """A runner with its history.

    ``ask`` is one turn of a user, with as many model calls as it takes.
    """

    async def ask(self, words: str) -> str: ...


class Record:
    """The answers that a runner got, and the tools that it ran."""

    def __init__(self) -> None:
        self.ran = 0
        self.seen: list[str] = []
        self.errors: list[str] = []

    def shell(self, command: str) -> str:
        """List the files."""
        del command
        self.ran += 1
        return FILES


class Sdk:
    """The OpenAI SDK with the loop that its users write. ``way``: plain, events or helper."""

    def __init__(self, play: ClientConversation, record: Record) -> None:
        self.client, self.record, self.mode, self.way = (
            client(play),
            record,
            play["mode"],
            play["way"],
        )
        self.history: list[Any] = []
        self.previous: str | None = None
        self.conversation: str | None = None

    async def ask(self, words: str) -> str:
        given: list[Any] = [{"role": "user", "content": words}]
        while True:
            response = await self._try(self._body(given))
            self.record.seen.append(response.model_dump_json(warnings=False))
            self.history += [
                *given,
                *(item.model_dump(exclude_none=True, warnings=False) for item in response.output),
            ]
            self.previous = response.id
            made = [item for item in response.output if item.type == "function_call"]
            if not made:
                return str(response.output_text)
            given = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": self.record.shell(**json.loads(call.arguments)),
                }
                for call in made
            ]

    def _body(self, given: list[Any]) -> dict[str, Any]:
        whole = [*self.history, *given]
        match self.mode:
            case "chain":
                return {
                    "input": given,
                    **({"previous_response_id": self.previous} if self.previous else {}),
                }
            case "conversation":
                return {"input": given}
            case "resend":
                return {"input": whole, "store": False, "include": [SEALED]}
        return {"input": whole}

    async def _try(self, body: dict[str, Any]) -> Any:
        if self.mode == "conversation":
            self.conversation = self.conversation or (await self.client.conversations.create()).id
            body["conversation"] = self.conversation
        tool = {"type": "function", "name": "shell", "parameters": SCHEMA, "strict": False}
        return await insist(
            self.record, lambda: self._respond({"model": MODEL, "tools": [tool], **body})
        )

    async def _respond(self, body: dict[str, Any]) -> Any:
        if self.way == "plain":
            return await self.client.responses.create(**body)
        if self.way == "helper":
            async with self.client.responses.stream(**body) as stream:
                async for event in stream:
                    self.record.seen.append(event.model_dump_json(warnings=False))
                return await stream.get_final_response()
        last: Any = None
        async for event in await self.client.responses.create(**body, stream=True):
            self.record.seen.append(event.model_dump_json(warnings=False))
            last = event
        if last.type != "response.completed":
            raise RuntimeError(last.type)
        return last.response


class AgentsSdk:
    """OpenAI's Agents SDK. ``way``: plain or events."""

    def __init__(self, play: ClientConversation, record: Record) -> None:
        self.client, self.record, self.mode, self.way = (
            client(play),
            record,
            play["mode"],
            play["way"],
        )
        settings = (
            ModelSettings(store=False, response_include=[SEALED])
            if self.mode == "resend"
            else ModelSettings()
        )
        kind: Any = OpenAIChatCompletionsModel if is_chat(play) else OpenAIResponsesModel
        model = kind(MODEL, openai_client=self.client)
        self.agent = OpenAIAgent(
            name="analyst",
            model=model,
            model_settings=settings,
            tools=[function_tool(record.shell)],
        )
        self.history: list[Any] = []
        self.chained: dict[str, Any] = {}

    async def ask(self, words: str) -> str:
        if self.mode == "conversation" and not self.chained:
            self.chained = {"conversation_id": (await self.client.conversations.create()).id}
        if self.mode == "chain":
            self.chained["auto_previous_response_id"] = True
        new = {"role": "user", "content": words}
        result = await insist(
            self.record, lambda: self._run([new] if self.chained else [*self.history, new])
        )
        self.record.seen += [
            str(result.raw_responses),
            str(result.new_items),
            json.dumps(result.to_input_list(), default=str),
        ]
        if self.mode == "chain":
            self.chained["previous_response_id"] = result.last_response_id
        else:
            self.history = result.to_input_list()
        return str(result.final_output)

    async def _run(self, given: list[Any]) -> Any:
        options = {**self.chained, "run_config": RunConfig(tracing_disabled=True)}
        if self.way == "plain":
            return await Runner.run(self.agent, given, **options)
        result = Runner.run_streamed(self.agent, given, **options)
        async for event in result.stream_events():
            self.record.seen.append(str(getattr(event, "data", event)))
        return result


class LangChain:
    """LangChain's chat model, with the loop of its tutorials. ``way``: plain or events."""

    def __init__(self, play: ClientConversation, record: Record) -> None:
        self.record, self.way = record, play["way"]
        modes: dict[str, dict[str, Any]] = {
            "resend": {"store": False, "include": [SEALED]},
            "chain": {"use_previous_response_id": True},
        }
        model: Any = ChatOpenAI(
            model=MODEL,
            base_url=play["base"],
            api_key=play["key"],
            use_responses_api=not is_chat(play),
            **modes.get(play["mode"], {}),
        )
        if is_anthropic(play):
            model = ChatAnthropic(model=MODEL, base_url=anthropic_base(play), api_key=play["key"])
        self.model = model.bind_tools(
            [{"type": "function", "function": {"name": "shell", "parameters": SCHEMA}}]
        )
        self.messages: list[Any] = []

    async def ask(self, words: str) -> str:
        self.messages.append(HumanMessage(words))
        while True:
            said = await insist(self.record, self._say)
            self.record.seen.append(said.model_dump_json())
            self.messages.append(said)
            if not said.tool_calls:
                return str(said.text)
            for call in said.tool_calls:
                self.messages.append(
                    ToolMessage(self.record.shell(**call["args"]), tool_call_id=call["id"])
                )

    async def _say(self) -> Any:
        if self.way == "plain":
            return await self.model.ainvoke(self.messages)
        whole: Any = None
        async for chunk in self.model.astream(self.messages):
            whole = chunk if whole is None else whole + chunk
        return whole


class PydanticAi:
    """Pydantic AI. ``way``: plain or events."""

    def __init__(self, play: ClientConversation, record: Record) -> None:
        self.record, self.way = record, play["way"]
        modes: dict[str, dict[str, Any]] = {
            "resend": {"openai_store": False},
            "chain": {"openai_previous_response_id": "auto"},
        }
        kind: Any = PydanticChatModel if is_chat(play) else PydanticModel
        model = kind(MODEL, provider=OpenAIProvider(openai_client=client(play)))
        if is_anthropic(play):
            claude = AsyncAnthropic(base_url=anthropic_base(play), api_key=play["key"])
            model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=claude))
        self.agent: Any = Agent(
            model, model_settings=modes.get(play["mode"], {}), tools=[record.shell]
        )
        self.messages: list[Any] = []

    async def ask(self, words: str) -> str:
        result = await insist(self.record, lambda: self._run(words))
        self.messages = result.all_messages()
        self.record.seen.append(result.all_messages_json().decode())
        return str(result.output if self.way == "plain" else await result.get_output())

    async def _run(self, words: str) -> Any:
        if self.way == "plain":
            return await self.agent.run(words, message_history=self.messages)
        async with self.agent.run_stream(words, message_history=self.messages) as result:
            await result.get_output()
            return result


RUNNERS: dict[str, Callable[[ClientConversation, Record], Talk]] = {
    "openai-py": Sdk,
    "agents": AgentsSdk,
    "langchain": LangChain,
    "pydantic-ai": PydanticAi,
}


def is_chat(play: ClientConversation) -> bool:
    return play.get("api") == "chat"


def is_anthropic(play: ClientConversation) -> bool:
    return play.get("api") == "anthropic"


def anthropic_base(play: ClientConversation) -> str:
    """Return the base URL for clients that put ``/v1`` behind it themselves."""
    return str(play["base"]).removesuffix("/v1")


def client(play: ClientConversation) -> AsyncOpenAI:
    """Return the client of a play, with the SDK's own retries.

    Without ``base`` it asks the provider, as it believes.
    """
    return AsyncOpenAI(base_url=play["base"], api_key=play["key"])


async def insist(record: Record, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask as a program does that tries again when its SDK gave up."""
    for _ in range(MAX_TRIES - 1):
        try:
            return await ask()
        except Exception as error:  # noqa: BLE001 - each SDK has errors of its own
            record.errors.append(f"{type(error).__name__}: {error}")
    return await ask()


async def perform(play: ClientConversation) -> dict[str, Any]:
    record, said = Record(), list[str]()
    try:
        talk = RUNNERS[play["runner"]](play, record)
        for words in play["words"]:
            said.append(await talk.ask(words))
    except Exception as error:  # noqa: BLE001 - the test says which play failed
        record.errors.append(f"gave up: {type(error).__name__}: {error}")
    return {"said": said, "ran": record.ran, "errors": record.errors, "seen": "".join(record.seen)}


async def main() -> None:
    set_tracing_disabled(True)
    print(json.dumps(await asyncio.gather(*(perform(play) for play in json.load(sys.stdin)))))


asyncio.run(main())
