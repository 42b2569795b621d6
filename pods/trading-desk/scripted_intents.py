"""What the SCRIPTED model decides: the messages and the offered tools in, one reply out. No network, no state, no pod.

The last user message names a few wishes (a table of words); each wish looks for an offered tool that fits it by name,
description and schema, fills the schema's properties from the text, and reads its result back from the transcript:

    the transcript since the last user message      the reply
    a wish has no fitting tool                      "I have no tool for …", whatever else was asked
    a result is an error                            the error, in words
    wishes left                                     the next call; "at once" in the text: all in one response
    no wish left                                    the final text, with the numbers that the results hold
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scripted_words import tell

type Json = dict[str, Any]

NOT_SYMBOLS = {"A", "API", "BUY", "CEO", "I", "ID", "JSON", "OK", "PM", "AM", "SELL", "SQL", "US", "USD"}
COMPANIES = {
    "apple": "AAPL",
    "amazon": "AMZN",
    "google": "GOOG",
    "microsoft": "MSFT",
    "nvidia": "NVDA",
    "tesla": "TSLA",
}
# The proxy's answers to calls that it did not run: the call is still to be made.
NOT_RUN = {"managed_tools_first"}


@dataclass(frozen=True)
class Wish:
    """Something a user can ask for: the words that ask for it, and what a tool for it looks like."""

    name: str
    asked_by: re.Pattern[str]
    tool_words: frozenset[str]
    needs: frozenset[str] = frozenset()


def _wish(name: str, asked_by: str, tool_words: str, needs: str = "") -> Wish:
    pattern = re.compile(rf"\b(?:{asked_by})\b", re.IGNORECASE)
    return Wish(name, pattern, frozenset(tool_words.split()), frozenset(needs.split()))


# In the order in which a turn fulfils them: look first, act then, write it down last.
WISHES = (
    _wish("cancelling orders", r"cancel", "cancel", "order_id"),
    _wish(
        "account balances", r"balances?|buying power|positions?|portfolio|holdings?", "market context balance account"
    ),
    _wish("order history", r"orders|order history", "orders history"),
    _wish(
        "quotes",
        r"quotes?|quoted|prices?|priced|(?:buy|sell|trade) (?:\d+|some|shares)",
        "quote quotes price",
        "symbol",
    ),
    _wish("trading", r"(?:buy|sell|trade) (?:\d+|some|shares)", "trade execute", "symbol side quantity"),
    _wish("notes", r"notes?|jot|save|write (?:it|this|that) down|memo", "note notes memo save"),
)
# What follows "note:" is to be written down, not to be done.
DICTATED = re.compile(r"(?<=\bnote): (.+)", re.IGNORECASE | re.DOTALL)
AT_ONCE = re.compile(r"\b(?:at once|same breath|in parallel|together)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    name: str
    arguments: Json


@dataclass(frozen=True)
class Reply:
    text: str | None = None
    calls: tuple[Call, ...] = ()


@dataclass
class Turn:
    """The transcript since the last user message: what was asked, which tools answered what."""

    text: str = ""
    results: list[tuple[str, Any]] = field(default_factory=list)


def decide(body: Json) -> Reply:
    """The reply to one chat completions request."""
    turn = read_turn(body.get("messages", []))
    tools = offered(body)
    choice = body.get("tool_choice", "auto")
    forced = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    if forced is not None:
        return Reply(calls=(Call(forced, fill(tools[forced], turn, "")),)) if forced in tools else _unable(forced)
    wishes = asked_for(turn.text)
    if not wishes:
        if choice == "required" and tools:
            name, function = next(iter(tools.items()))
            return Reply(calls=(Call(name, fill(function, turn, "")),))
        return Reply(f"I am a scripted model. I know about {', '.join(wish.name for wish in WISHES)}.")
    return _pursue(wishes, turn, tools if choice != "none" else {}, may_call=choice != "none")


def _pursue(wishes: list[Wish], turn: Turn, tools: dict[str, Json], may_call: bool) -> Reply:
    failed = next((tell(name, result) for name, result in turn.results if _error(result)), None)
    if failed is not None:
        return Reply(failed)
    fitting = {wish.name: find_tool(wish, tools) for wish in wishes}
    missing = [name for name, tool in fitting.items() if tool is None and name != "quotes"]
    if missing and may_call:
        return _unable(missing[0])
    answered = {name for name, _ in turn.results}
    todo = [tool for tool in fitting.values() if tool is not None and tool not in answered]
    story = " ".join(tell(name, result) for name, result in turn.results)
    if not todo:
        return Reply(story or "I have no tool for that.")
    calls = todo if AT_ONCE.search(turn.text) else todo[:1]
    return Reply(calls=tuple(Call(name, fill(tools[name], turn, story)) for name in calls))


def _unable(what: str) -> Reply:
    return Reply(f"I have no tool for that: none that I was offered is for {what}.")


def read_turn(messages: list[Json]) -> Turn:
    """Calls and results are paired by id; a call that was not run counts as never made."""
    turn, names = Turn(), dict[str, str]()
    for message in messages:
        match message.get("role"):
            case "user":
                turn, names = Turn(text=_text(message.get("content"))), {}
            case "assistant":
                for call in message.get("tool_calls") or []:
                    names[call["id"]] = call["function"]["name"]
            case "tool":
                result = _parsed(_text(message.get("content")))
                if _error(result) not in NOT_RUN:
                    turn.results.append((names.get(message.get("tool_call_id", ""), "tool"), result))
    return turn


def offered(body: Json) -> dict[str, Json]:
    """Function tools by name; other kinds of tools are nothing that a script can call."""
    functions = (tool.get("function") for tool in body.get("tools") or [] if tool.get("type") == "function")
    return {function["name"]: function for function in functions if function}


def asked_for(text: str) -> list[Wish]:
    spoken = DICTATED.sub("", text)
    found = [wish for wish in WISHES if wish.asked_by.search(spoken)]
    cancels = any(wish.name == "cancelling orders" for wish in found)
    return [wish for wish in found if not (cancels and wish.name == "order history")]


def find_tool(wish: Wish, tools: dict[str, Json]) -> str | None:
    """The best fit: by words of the tool's own name, then of its description; its schema must take what is needed."""
    best, best_score = None, 1
    for name, function in tools.items():
        properties = function.get("parameters", {}).get("properties", {})
        if not wish.needs <= properties.keys():
            continue
        own_name = name.rpartition("__")[2]
        score = 2 * len(wish.tool_words & set(words(own_name)))
        score += len(wish.tool_words & set(words(function.get("description") or "")))
        if score > best_score:
            best, best_score = name, score
    return best


def fill(function: Json, turn: Turn, story: str) -> Json:
    """Arguments for the schema: what the text says, typed as the property asks."""
    schema = function.get("parameters", {})
    known, dictated = dict(facts(turn.text)), DICTATED.search(turn.text)
    required = schema.get("required", [])
    arguments: Json = {}
    for name, rule in schema.get("properties", {}).items():
        if name in known:
            arguments[name] = str(known[name]) if rule.get("type") == "string" else known[name]
        elif name in required and rule.get("type") == "string":
            arguments[name] = dictated[1] if dictated else story or turn.text
    return arguments


def facts(text: str) -> Iterator[tuple[str, Any]]:
    """Argument name → value, as far as the text tells."""
    symbol = _symbol(text)
    if symbol:
        yield "symbol", symbol
    side = re.search(r"\b(buy|sell)\b", text, re.IGNORECASE)
    if side:
        yield "side", side[1].lower()
    order = re.search(r"\border\s+#?(\d+)", text, re.IGNORECASE)
    if order:
        yield "order_id", int(order[1])
    limit = re.search(r"\blast (\d+) orders\b", text, re.IGNORECASE)
    if limit:
        yield "limit", int(limit[1])
    quantity = re.search(r"\b(?:buy|sell)\s+(\d+)\b|\b(\d+)\s+shares\b", text, re.IGNORECASE)
    if quantity:
        yield "quantity", int(quantity[1] or quantity[2])


def _symbol(text: str) -> str | None:
    tickers = [word for word in re.findall(r"\b[A-Z]{1,5}\b", text) if word not in NOT_SYMBOLS]
    named = [COMPANIES[word] for word in words(text) if word in COMPANIES]
    return next(iter(tickers + named), None)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part.get("text", "") for part in parts if isinstance(part, dict))


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content


def _error(result: object) -> str | None:
    if isinstance(result, dict) and result.get("ok") is False:
        return str(result.get("error", {}).get("code", "error"))
    return None
