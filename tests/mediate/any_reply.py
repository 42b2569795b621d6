"""Provider responses of any shape: valid ones, damaged ones, and bodies that are no
responses at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.responses import DIALECT as OPENAI_RESPONSES
from tests.mediate.made import catalog, granted
from tests.wires import Body, MadeCall, Wire, anthropic, openai, responses

DIALECTS: dict[str, Dialect] = {
    "openai": OPENAI_CHAT,
    "anthropic": ANTHROPIC_MESSAGES,
    "responses": OPENAI_RESPONSES,
}
CATALOG = catalog(
    granted("desk.get"), granted("desk.set", method="POST"), granted("desk.end"), native=["shell"]
)

TOOLS = ("desk__get", "desk.set", "desk__end", "shell", "invented")
"""A managed tool by alias, one by canonical name, one that ends a turn, a native
tool, and an unknown one.
"""
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_ODD = st.sampled_from(
    [
        "",
        "x" * 200,
        "data: x\n\n",
        "\u2028",
        0,
        -1,
        1.5,
        10**400,
        True,
        None,
        [],
        {},
        [[]],
        {"type": "text"},
        "tool_use",
    ]
)
ANY: st.SearchStrategy[Any] = st.recursive(
    _TEXT | _ODD,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(_TEXT, part, max_size=3),
    max_leaves=5,
)
_ARGUMENTS = st.sampled_from(
    ["{}", '{"a":1}', '{"a":1.0}', '{"a":2}', '{"a":', "[]", "", "null", '{"a":1,"a":2}']
)
CALLS = st.lists(
    st.builds(
        MadeCall,
        st.sampled_from(["c1", "c2", "", "é-1", "x" * 70]),
        st.sampled_from(TOOLS),
        _ARGUMENTS,
    ),
    max_size=4,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield from _places(part, (*path, key))


@st.composite
def spoilt(draw: st.DrawFn, document: Body) -> Any:
    """Replace or remove one place of the document, or add something to it."""
    made: Any = deepcopy(document)
    *way, last = draw(st.sampled_from([place for place in _places(made) if place]))
    holder = made
    for key in way:
        holder = holder[key]
    match draw(st.sampled_from(["replaced", "left out", "added"])):
        case "replaced":
            holder[last] = draw(ANY)
        case "left out":
            del holder[last]
        case _ if isinstance(holder, dict):
            holder[draw(_TEXT)] = draw(ANY)
        case _:
            holder.append(draw(ANY))
    return made


@st.composite
def bodies(draw: st.DrawFn, wire: Wire) -> bytes:
    """Return a body that may come with status 200."""
    body: Any = json.loads(wire.reply(draw(_TEXT), draw(CALLS), {}))
    for _ in range(draw(st.integers(0, 2))):
        if isinstance(body, dict) and body:
            body = draw(spoilt(body))
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode()
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


WIRES: dict[str, Wire] = {"openai": openai, "anthropic": anthropic, "responses": responses}
