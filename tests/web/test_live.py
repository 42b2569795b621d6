"""mitmweb as a pod's proxy: a real browser's view, the commands, and options that
the page can't switch off.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from playwright.sync_api import expect

from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, SECRET, TOOL_TOKEN
from tests.waiting import eventually
from tests.web.browser import Browser, browsing
from tests.web.conftest import Live, openai_turn

HIDDEN = [
    "model round 1",
    "desk.balance round 1",
    "desk.trade round 1",
    "model round 2",
    "desk.trade round 2",
    "model round 3",
]


@pytest.fixture
def browser(live: Live, tmp_path: Path) -> Iterator[Browser]:
    with browsing(live.web, tmp_path / "profile") as opened:
        yield opened


@pytest.mark.requirement("web:address")
def test_mitmweb_says_where_its_page_is(live: Live) -> None:
    assert f"Web server listening at {live.web.url}" in live.pod.stderr.read_text(encoding="utf-8")


@pytest.mark.requirement("web:browser")
def test_an_operator_finds_a_turn_reads_it_and_sees_its_hidden_requests_and_no_secret(
    live: Live, browser: Browser
) -> None:
    found = browser.find("~marker llama & ~u chat/completions")
    expect(found.first).to_be_visible()
    openai_turn(live.pod)  # the page shows it while it runs
    expect(found).to_have_count(
        sum("/chat/" in turn["request"]["path"] for turn in live.web.turns())
    )
    found.first.click()
    browser.page.get_by_text("Response", exact=True).click()
    shown = browser.page.locator(".contentview")
    expect(shown).to_contain_text("cllama → desk → model")
    expect(shown).to_contain_text("assistant: Bought. \\x1b[2J 49,000 are left.")
    turn_id = live.web.turns()[0]["comment"].split()[1]
    rows = browser.find(f"~comment {turn_id}")  # mitmweb's own parser knows no ~meta
    expect(rows).to_have_count(1 + len(HIDDEN))
    comments = [comment.inner_text() for comment in browser.page.locator("td.col-comment").all()]
    assert [comment for comment in comments if comment] == [
        f"claw {turn_id} of analyst",
        *(f"claw {what} of {turn_id} by analyst" for what in HIDDEN),
    ]
    rows.nth(1).click()
    browser.page.get_by_text("Response", exact=True).click()
    expect(shown).to_contain_text("desk__balance")
    everything = browser.received() + browser.page.content()
    assert "desk__balance" in everything
    assert any(
        "flows/add" in frame and "claw desk.trade round 1" in frame for frame in browser.frames
    )
    assert [
        key for key in (SECRET, TOOL_TOKEN, PROVIDER_KEY, ANTHROPIC_KEY) if key in everything
    ] == []


@pytest.mark.requirement("web:commands")
def test_agents_and_providers_are_read_again_when_that_is_asked_and_what_changed_is_said(
    live: Live,
) -> None:
    pod = live.pod
    assert live.web.command("claw.reload") == "nothing has changed"
    pod.agent("analyst", pod.tool("balance", path="/other"), pod.tool("quote"))
    pod.agent("clerk", pod.tool("quote"))
    (pod.home / "auth").mkdir()
    providers = pod.home / "auth" / "providers.json"
    providers.write_text(
        json.dumps({"providers": {"openai": {"api_key": "sk-another-key-planted-0007"}}}),
        encoding="utf-8",
    )
    told = live.web.command("claw.reload")
    pod.agent("analyst", *pod.balance_and_trade())
    shutil.rmtree(pod.home / "context" / "clerk")
    providers.write_text("{", encoding="utf-8")
    then = live.web.command("claw.reload")
    providers.unlink()
    assert told.splitlines() == [
        "analyst: + desk.quote, - desk.trade, desk.balance changed",
        "clerk: added, 1 tool",
        "provider openai has keys api_key (before: env:OPENAI_API_KEY)",
    ]
    assert then.splitlines()[:2] == [
        "analyst: + desk.trade, - desk.quote, desk.balance changed",
        "clerk: removed",
    ]
    assert then.splitlines()[2].startswith("providers.json can't be used: ")
    assert (
        live.web.command("claw.reload")
        == "provider openai has keys env:OPENAI_API_KEY (before: api_key)"
    )


@pytest.mark.requirement("web:replay")
def test_a_turn_that_is_still_in_the_list_is_played_again_without_anybody_being_asked(
    live: Live,
) -> None:
    asked = len(live.pod.provider.received), len(live.pod.service.received)
    told = live.web.command("claw.replay", f"@{live.web.turns()[0]['id']}")
    assert told.splitlines()[1:] == ["nothing differs"]
    assert (len(live.pod.provider.received), len(live.pod.service.received)) == asked


@pytest.mark.requirement("web:guarded")
def test_the_page_can_unload_the_script_and_then_nothing_governed_goes_out(live: Live) -> None:
    asked = len(live.pod.provider.received)
    live.web.ask("/options", {"scripts": []}, method="PUT")
    with pytest.raises(openai.InternalServerError, match="not ready to decide") as refused:
        openai_turn(live.pod)
    live.pod.provider.script.clear()
    assert refused.value.status_code == 503
    assert len(live.pod.provider.received) == asked
    live.web.ask("/options", {"scripts": [str(live.pod.script)]}, method="PUT")
    eventually(live.pod._ready, "the script is back")
    openai_turn(live.pod)


@pytest.mark.requirement("web:guarded")
@pytest.mark.parametrize(
    "change", [{"stream_large_bodies": "1k"}, {"ignore_hosts": [".*"]}, {"rawtcp": True}], ids=str
)
def test_the_page_cannot_set_what_lets_requests_out_undecided(
    live: Live, change: dict[str, Any]
) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        live.web.ask("/options", change, method="PUT")
    openai_turn(live.pod)


@pytest.mark.requirement("web:guarded")
def test_without_the_password_the_page_tells_and_does_nothing(live: Live) -> None:
    for path, body in (
        ("/flows", None),
        ("/options", None),
        ("/commands/claw.turn", {"arguments": ["@all"]}),
    ):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            live.web.ask(path, body, password="another")
