"""Secrets in a reply that comes one character an event: nobody is told them, and nothing keeps
them (docs/spec/live.md section 3).
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from claw_cli.app import app
from claw_contract.redaction.redactor import START_LENGTH, encoded_forms
from claw_contract.secret import DOTS
from tests.peers import Reply, text
from tests.proxy.live_pod import LISTS, LOOKS, GatedStream, Scene, events_of, managed_events, stream
from tests.proxy.live_runners import RawRunner, data_of
from tests.proxy.looking import PLANTED, SavingPod, in_file
from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, TOOL_TOKEN, Pod
from tests.waiting import eventually
from tests.wires import Body, MadeCall
from tests.wires.parts import word_of

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000"}
ARGUMENTS = ("-w", "flows")
ARGUMENT = re.compile("arguments|partial_json")
ODD = 'odd/"token"?+<planted>&0006'
"""A tool's token that is written in another way in JSON and in URLs."""
SECRETS = (*PLANTED, ODD)
BASE64 = [base64.b64encode(each.encode()).decode() for each in SECRETS]
PERCENT = quote(ODD, safe="")
IN_JSON = json.dumps(ODD)[1:-1]
SPELLED = {
    "plain": PROVIDER_KEY,
    "in base64": BASE64[0].rstrip("="),
    "in JSON": IN_JSON,
    "in a URL": PERCENT,
}
FORMS = {
    "plain": f"{PROVIDER_KEY} {ANTHROPIC_KEY} {TOOL_TOKEN} {ODD}",
    "in base64": " ".join(
        [
            BASE64[0],
            base64.urlsafe_b64encode(ODD.encode()).decode(),
            base64.b64encode(f"user:{ODD}".encode()).decode(),
        ]
    ),
    "in JSON": " ".join(
        [
            IN_JSON,
            json.dumps(IN_JSON),
            IN_JSON.replace("<", "\\u003c").replace("&", "\\u0026"),
            IN_JSON.replace("/", "\\/"),
        ]
    ),
    "in a URL": f"{PERCENT} {re.sub('%..', lambda escape: escape[0].lower(), PERCENT)}",
    "twice": f"{PROVIDER_KEY}{PROVIDER_KEY}",
    "one in the other": f"sk-prov{PROVIDER_KEY}",
    "behind its beginning": f"{PROVIDER_KEY[:-1]} {PROVIDER_KEY}",
}
KNOWN = {form for secret in SECRETS for form in encoded_forms(secret)}


@pytest.fixture(autouse=True, scope="module")
def odd_token(live_pod: Pod) -> None:
    """Give the agent a tool with a token that has other forms in JSON and in URLs."""
    odd = live_pod.tool("orders", auth={"type": "bearer", "token": ODD})
    live_pod.agent("analyst", *live_pod.balance_and_trade(), odd, stream="live")


def texts(document: Body) -> list[tuple[Body, str]]:
    """Return where the texts of an event are, as (the object, the member's name)."""
    if str(document.get("type")).endswith(".delta"):
        return [(document, "delta")]
    delta = document.get("delta")
    if isinstance(delta, dict):
        return [(delta, name) for name in ("text", "thinking", "partial_json") if delta.get(name)]
    choices = document.get("choices") or [{}]
    delta = choices[0].get("delta", {})
    found = [(delta, name) for name in ("content", "reasoning_content") if delta.get(name)]
    calls = [call["function"] for call in delta.get("tool_calls") or ()]
    return found + [(call, "arguments") for call in calls if call.get("arguments")]


def spelled(events: list[bytes]) -> list[bytes]:
    """Return events with one character of a text each."""
    told: list[bytes] = []
    for event in events:
        document = data_of(event)
        found = texts(document)
        if not found:
            told.append(event)
            continue
        ((place, name),) = found
        line = event.split(b"\n")[0] + b"\n" if event.startswith(b"event") else b""
        for character in str(place[name]):
            place[name] = character
            told.append(line + b"data: %b\n\n" % json.dumps(document).encode())
    return told


def heard_by(runner: RawRunner) -> dict[str, str]:
    """Return what a runner makes of all deltas of one kind, by that kind."""
    heard: dict[str, str] = {}
    for event in runner.events():
        for place, name in texts(event):
            kind = f"{event.get('type')} {name}"
            heard[kind] = heard.get(kind, "") + str(place[name])
    return heard


ENDED = re.compile(r"response\.(\w+)\.done")
PLACES = ("output_index", "content_index", "summary_index")


def assert_ends_repeat_the_deltas(runner: RawRunner) -> None:
    """Check that what ends a text, a part or an item of Responses says what its deltas said."""
    said: dict[tuple[Any, ...], str] = {}
    for event in runner.events():
        kind = str(event.get("type"))
        place = tuple(event.get(name) for name in PLACES)
        if kind.endswith(".delta"):
            said[place] = said.get(place, "") + event["delta"]
        elif ENDED.fullmatch(kind) and "item" not in event:
            ended = event.get("part", event)
            (text,) = (ended[name] for name in ("text", "arguments") if name in ended)
            assert text == said[place]
        elif kind == "response.output_item.done":
            assert texts_of(event["item"]) == [said[at] for at in said if at[0] == place[0]]
        elif kind == "response.completed":
            whole = [text for item in event["response"]["output"] for text in texts_of(item)]
            assert whole == [*said.values()]


def texts_of(item: Body) -> list[str]:
    """Return the texts of an item of Responses."""
    if "arguments" in item:
        return [item["arguments"]]
    return [part["text"] for name in ("summary", "content") for part in item.get(name) or ()]


def assert_unknown(planted: bytes) -> None:
    assert [secret for secret in SECRETS if secret.encode() in planted] == []
    assert [form for form in KNOWN if form in planted] == []


@pytest.mark.requirement("live:secrets-spelled")
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_spelled_by_characters_reaches_nobody_and_is_kept_nowhere(
    scene: Scene, form: str
) -> None:
    words = f"It is {FORMS[form]} today."
    note = json.dumps({"note": f"of {FORMS[form]}!"})
    command = json.dumps({"cmd": f"echo {FORMS[form]}!"})
    looks = Reply(words, (MadeCall("call_m", "desk__balance", note),))
    ends = Reply(words, (shell(command),))
    scene.says(
        stream(spelled(events_of(scene.wire, looks, thought=words))),
        stream(spelled(events_of(scene.wire, ends, thought=words))),
    )
    runner = scene.ask()
    assert runner.end() == "whole"
    assert_ends_repeat_the_deltas(runner)
    heard = heard_by(runner)
    (arguments,) = (heard.pop(kind) for kind in [*heard] if ARGUMENT.search(kind))
    assert len(heard) == 2, "words and thoughts"
    for each in heard.values():
        assert_unknown(each.encode())
        assert each.count("It is ") == each.count(" today.") == 2
    command = json.loads(arguments)["cmd"]
    assert_unknown(command.encode())
    assert (command[:5], command[-1]) == ("echo ", "!")
    assert managed_events(runner) == []
    assert_unknown(runner.stream)

    _, again = scene.sent
    used = scene.pod.service.received[-1]
    assert "note" in used.path
    assert_unknown(again.body + used.path.encode() + used.body)
    assert_kept_nowhere(scene)


def assert_kept_nowhere(scene: Scene) -> None:
    """Check all that is kept of a turn with two model calls and one tool."""
    turn_id = scene.recorded()["turn_id"]
    scene.ended()
    assert_unknown((scene.pod.home / "history" / "analyst" / "history.jsonl").read_bytes())
    assert_unknown(scene.pod.said().encode())
    assert_unknown(in_file(scene.pod.home / "state.db"))
    assert_unknown(audited(scene.pod, turn_id))
    saved = SavingPod(scene.pod)
    eventually(
        lambda: len([f for f in saved.flows() if f.metadata.get("claw.turn") == turn_id]) == 4,
        "its flows are saved",
    )
    assert_unknown(saved.file.read_bytes())


def audited(pod: Pod, turn_id: str) -> bytes:
    """Return what an operator reads of a turn, for people and for programs."""
    asks = ["audit", "show", turn_id, "--history", str(pod.home / "history")]
    shows = [CliRunner().invoke(app, [*asks, *more]) for more in ([], ["--json"])]
    assert [each.exit_code for each in shows] == [0, 0]
    return b"".join(each.stdout_bytes for each in shows)


@pytest.mark.requirement("live:secrets-spelled")
@pytest.mark.parametrize("form", SPELLED)
def test_words_around_a_secret_that_is_spelled_are_there_before_the_next_is_said(
    scene: Scene, form: str
) -> None:
    secret, before, behind = SPELLED[form], "It is ", " today, my friend."
    gated = GatedStream(spelled(events_of(scene.wire, Reply(f"{before}{secret}{behind}"))))
    scene.says(gated)
    runner = scene.ask()
    assert gated.asked.wait(60)
    said = ""
    for event in gated.events:
        gated.release()
        letter = word_of(data_of(event))
        if not letter:
            continue
        said += letter
        if len(said) < len(before) + START_LENGTH:
            runner.hears(said)
        elif len(said) > len(before + secret):
            early = secret[: START_LENGTH - 1]
            runner.hears(f"{before}{early}{DOTS}{said[len(before + secret) :]}")
        else:
            assert len(runner.text) < len(before) + START_LENGTH
    assert runner.end() == "whole"


@pytest.mark.requirement("live:secrets-spelled")
@pytest.mark.parametrize("form", SPELLED)
def test_a_secret_spelled_in_a_call_that_is_shown_early_reaches_nobody(
    scene: Scene, form: str
) -> None:
    command = json.dumps({"cmd": f"echo {SPELLED[form]}!"})
    scene.says(stream(spelled(events_of(scene.wire, Reply("I look.", (shell(command),))))))
    runner = scene.ask(body={**scene.request(), **scene.wire.choice("shell")})
    (call,) = scene.said(runner).calls
    told = json.loads(call.arguments)["cmd"]
    assert (told[:5], told[-1]) == ("echo ", "!")
    assert_unknown(told.encode())
    assert_unknown(runner.stream)


def shell(command: str) -> MadeCall:
    return MadeCall("call_n", "shell", command)


@pytest.mark.requirement("live:secrets-spelled")
def test_a_text_that_only_begins_like_a_secret_is_shown_whole(scene: Scene) -> None:
    words = f"It is {PROVIDER_KEY[:-1]} or {BASE64[0][:12]}"
    scene.says(stream(spelled(events_of(scene.wire, Reply(words)))))
    runner = scene.ask()
    assert scene.said(runner).text == words


@pytest.mark.requirement("live:secrets-members")
def test_a_secret_in_any_member_of_an_event_breaks_no_stream(scene: Scene) -> None:
    more = {"model": f"model of {PROVIDER_KEY}", "service_tier": f"tier of {TOOL_TOKEN}"}
    looks = events_of(scene.wire, Reply("Let me look.", LOOKS.calls, more), thought=PROVIDER_KEY)
    ends = events_of(scene.wire, Reply("Fine.", (), more), thought=PROVIDER_KEY)
    scene.says(stream(looks), stream(ends))
    runner = scene.ask()
    assert scene.said(runner).text == f"Let me look.{scene.glue}Fine."
    assert_unknown(runner.stream)


@pytest.mark.requirement("live:secrets-next-turn")
@pytest.mark.parametrize("words", ["", "Let me look."])
def test_an_answer_with_the_beginning_of_a_secret_is_found_in_the_next_turn(
    scene: Scene, words: str
) -> None:
    ends = Reply(f"It is {PROVIDER_KEY} today.")
    scene.says(Reply(words, LOOKS.calls), stream(spelled(events_of(scene.wire, ends))), text("Ok."))
    first = scene.ask()
    said = scene.said(first)
    assert "sk-\N{BULLET}" in said.text
    recorded = scene.recorded()["response"]["json"]
    assert scene.wire.said(json.dumps(recorded).encode()) == said
    assert "sk-\N{BULLET}" in scene.wire.said(scene.wire.assembled(first.stream)).text

    kept = scene.wire.kept(scene.wire.assembled(first.stream))
    scene.said(scene.ask(body=scene.request(kept, scene.wire.user("And now?"))))
    assert scene.wire.called(scene.sent[-1].json) == ["desk__balance"]


@pytest.mark.requirement("live:secrets-members")
@pytest.mark.parametrize("protocol", ["chat"])
def test_words_behind_a_native_call_are_whole_where_a_secret_stands_before_it(
    scene: Scene,
) -> None:
    reply = Reply(f"It is {PROVIDER_KEY} today.", LISTS.calls)
    events = events_of(scene.wire, reply)
    called = max(at for at, each in enumerate(events) if b'"tool_calls": [' in each) + 1
    words = data_of(next(each for each in events if b"today" in each))
    words["choices"][0]["delta"] = {"content": " And more."}
    more = b"data: %b\n\n" % json.dumps(words).encode()
    scene.says(stream(spelled([*events[:called], more, *events[called:]])))
    said = scene.said(scene.ask())
    assert said.text.endswith(" today. And more.")
    assert said.calls == LISTS.calls
