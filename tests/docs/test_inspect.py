"""The page about inspecting: its filters find the flows that it says, and its commands exist."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import httpx2
import pytest

from claw_contract.log import EventType
from tests.docs.conftest import DocumentedPod
from tests.docs.pages import DOCS, rows, spans
from tests.proxy.looking import (
    SavingPod,
)  # before imports of mitmproxy's filters, whose parser is an old one
from tests.waiting import eventually

from claw_mediate.mitm.view.commands import CommandsAddon  # isort: skip

PAGE = DOCS / "inspect.md"
AGENT = "base-url"
"""The agent of this test; in the page it is the analyst."""
FINDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "~marker :llama:": lambda about: "claw.entry" in about,
    "~marker :robot:": lambda about: about.get("claw.kind") == "model",
    "~marker :wrench:": lambda about: about.get("claw.kind") == "tool",
    '~comment "of analyst"': lambda about: (
        about.get("claw.agent") == AGENT and "claw.entry" in about
    ),
    '~comment "by analyst"': lambda about: (
        about.get("claw.agent") == AGENT and "claw.parent" in about
    ),
    "~comment look_up": lambda about: about.get("claw.tool") == "api.look_up",
    "~meta claw.turn": lambda about: "claw.turn" in about,
}
"""The flows that each filter shows, by their metadata."""


@pytest.mark.requirement("docs:inspect")
def test_the_filters_of_the_page_find_what_it_says(documented: DocumentedPod) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Look it up."}]}
    token = documented.environment(AGENT)["OPENAI_API_KEY"]
    url = f"{documented.pod.url}/v1/chat/completions"
    assert (
        httpx2.post(url, json=body, headers={"authorization": f"Bearer {token}"}).status_code == 200
    )
    httpx2.get(f"{documented.pod.url}/health")
    saved = SavingPod(documented.pod)
    flows = eventually(
        lambda: saved.flows() if saved.found("~u /health") else None,
        "flows are saved in their order",
    )
    assert spans(rows(PAGE, "## mitmweb")) >= FINDS.keys()
    for text, shows in FINDS.items():
        shown = {flow.id for flow in saved.found(text.replace("analyst", AGENT))}
        assert shown == {flow.id for flow in flows if shows(flow.metadata)}
        assert 0 < len(shown) < len(flows), text


@pytest.mark.requirement("docs:inspect")
def test_the_commands_of_the_page_are_there_and_no_other() -> None:
    named = {
        span.split()[0] for span in spans(rows(PAGE, "## mitmweb")) if span.startswith("claw.")
    }
    made = {
        f"claw.{name}"
        for name in vars(CommandsAddon)
        if not name.startswith("_") and name not in {"name", "load"}
    }
    assert named == made


@pytest.mark.requirement("docs:inspect")
def test_every_type_of_event_is_in_the_page_and_no_other() -> None:
    assert spans(rows(PAGE, "## The log")) == set(get_args(EventType.__value__))


@pytest.mark.requirement("docs:inspect")
def test_the_schemas_that_the_page_names_are_json() -> None:
    (named,) = {
        span
        for span in PAGE.read_text(encoding="utf-8").split("`")
        if span.endswith("history.schema.json")
    }
    assert json.loads((DOCS.parent / named).read_text(encoding="utf-8"))["$schema"]
