"""The editor's schema of a pod file, compared with the grammar: the same keys, the
same words, the same verdicts.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Collection, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from jsonschema import Draft7Validator

from claw_compile.diagnostics.diagnostic import start_of
from claw_compile.grammar import pod_file as grammar
from claw_compile.grammar.reader import Reader
from claw_compile.grammar.shapes import Choice, ValuePlace
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, decode, plain_data
from claw_compile.parsing.yaml_reader import read_yaml
from claw_compile.schema import editor
from tests.compile.case import case_files, expectations
from tests.compile.oracle import compose_binary
from tests.search_size import each_nth

PODS = sorted((Path(__file__).parents[3] / "pods").glob("*/*pod*.yml"))
SCHEMA = editor.editor_schema()
VALIDATOR = jsonschema_rs.Draft7Validator(SCHEMA)
EVERYTHING = """\
x-claw:
  pod: everything
  cllama-defaults: {proxy: [passthrough], mode: proxy, env: {OPENAI_API_KEY: key, NUMBER: 5, TAKEN: null}}
  tools-defaults: [{service: api, allow: all, deny: [trade]}]
  tool-policy-defaults: {max-rounds: 4}
  surfaces-defaults: ["volume://data rw"]
  strict-surfaces: false
  feeds-defaults: [market]
  skills-defaults: [skills/one.md]
  models-defaults: {primary: openai/gpt-4o}
  budget-defaults: {max-requests: 5, window: 24h}
  memory-defaults: {service: api}
  secrets: {token: {env: TOKEN}, key: {file: ./key}}
  context: {blocks: [{id: a, text: hear}]}
services:
  one:
    image: runner:1
    x-claw:
      agent: AGENTS.md
      type: openclaw
      cllama: {proxy: passthrough, mode: base-url}
      cllama-env: {LEVEL: debug}
      count: 3
      models: {primary: openai/gpt-4o, fallback: [openai/gpt-4o-mini, claude], small: null}
      surfaces:
        - ...
        - service://api
        - host:///srv ro
        - egress://
        - channel://chat: {dm: {}, guilds: {}, allow_from_handles: true, allow_from_services: [api]}
      tools: [..., {service: api, allow: [get, trade], deny: [trade]}]
      tool-policy: {max-rounds: 4, timeout-per-tool-ms: 1000, total-timeout-ms: 5000, on-budget: error, stream: live, preamble: hide}
      feeds: [..., news, {name: own, source: api, path: "/feed?x=1", ttl: 5, description: what}]
      skills: [..., skills/two.md]
      memory: {service: api, timeout-ms: 100}
      budget: {limit-usd: 2.5, max-requests: 5, window: 1h30m, behavior: hard_stop}
      context:
        channel: {x: 1}
        blocks:
          - {id: a, text: hear, kind: note, enabled: true, cadence: every_turn, placement: after_feeds, max-chars: 99}
      delivery: mediated
      service-auth: [{service: api, env: KEY, principal: me}, {service: other, secret: token}]
  api:
    image: api:1
    x-claw:
      describe-file: api.json
      mcp: {path: /mcp}
      base-url: http://api:80
      auth: {type: header, env: KEY, header: X-Key, username: me}
  other: {image: "api:1", x-claw: {mcp-stdio: {command: npx, args: [-y]}, auth: {type: basic, secret: key, username: me}}}
  files:
    x-claw:
      base-url: http://files:8080
      tools-host:
        file: toolhost.yml
        volume: workspaces
        exec:
          {enabled: true, network: false, allow: [git], deny: [], default_timeout_s: 1, max_timeout_s: 30, environment: {A: b}}
        spawn: {max_concurrent: 2}
        url_policy: {ports: [443], allow_private: [wiki], allowed_domains: [], blocked_domains: [example.org]}
        web_search: {endpoint: "https://search.example/", backend: brave, api_key: {env: KEY}}
        message:
          channels:
            ops: {webhook: "https://hooks.example/", token: {file: /run/token}}
            bus: {redis: {env: BUS}, stream: s}
        mcp_servers:
          time: {command: uvx, args: [mcp-server-time], env: {A: b, B: {env: C}}, internal_only: false, timeout_s: 5}
          hub: {url: "https://hub.example/mcp", headers: {Authorization: {env: HUB}}}
        limits:
          {result_bytes: 1KiB, read_bytes: 4096, write_bytes: 1MiB, memory_bytes: 1MiB, calls_per_minute: 9, concurrent: 2}
        protected: [.git/]
        audit_arguments: full
"""
NOWHERE = start_of("claw-pod.yml")
VALUES = (
    None,
    "",
    "x y",
    "...",
    "all",
    0,
    5,
    1.5,
    True,
    [],
    ["x y"],
    [None],
    {},
    {"nonsense": 5},
    "/a/../b",
    "$$",
    "7",
)
OF_ONE_PLACE = {
    *(
        "unknown-key",
        "missing-key",
        "wrong-type",
        "bad-limit",
        "bad-value",
        "all-mixed-with-names",
        "allow-missing",
    ),
    *("bad-surface", "bad-budget", "bad-model", "bad-block", "not-an-agent", "bad-name"),
}
NO_DOCUMENT = {
    "yaml-syntax",
    "duplicate-key",
    "second-document",
    "document-end",
    "alias-bomb",
    "not-a-mapping",
}
UNSEEN = {
    "files": "a control character is no matter of shape",
    "merge-keys": "what is merged from no mapping is lost before a schema sees it",
}
SEEN = {
    "reach": "Compose's schema has no networks that are null",
    "reserved-names": "Compose's schema has no service that is null, and none with a blank in its name",
    "sources/claw-pod": "Compose's schema has no build that is a list",
    "spread-in-defaults": "an editor sees '...' in defaults as what it is there: no grant",
}
"""Cases in which the schema's verdict differs from that of their codes, with the reason."""
RELATIONS = {"total-below-per-tool", "spread-twice", "count-conflict", "no-agents"}
"""Codes about the relation of two places: only claw check finds them, and no editor."""


def data_of(text: str) -> Any:
    source = decode("claw-pod.yml", text.encode())
    assert source.value is not None
    root = read_yaml(source.value).value
    return None if root is None else plain_data(root)


def node(data: Any) -> Node:
    """Return the data as nodes of a pod file; strings are quoted."""
    match data:
        case dict():
            return MapNode(
                tuple(Entry(ScalarNode(key, NOWHERE), node(data[key])) for key in data), NOWHERE
            )
        case list():
            return ListNode(tuple(map(node, data)), NOWHERE)
        case str():
            return ScalarNode(data, NOWHERE)
        case _:
            return ScalarNode(json.dumps(data), NOWHERE, plain=True)


def errors(data: Any) -> list[str]:
    """Return the errors that the grammar finds in the data."""
    root = node(data)
    assert isinstance(root, MapNode)
    diagnostics = grammar.read_pod("claw-pod.yml", root, lambda _: "set").diagnostics
    return [
        each.message for each in diagnostics if each.is_error and each.code.name not in RELATIONS
    ]


def closed(schema: Any) -> Iterator[frozenset[str]]:
    """Yield the keys of every mapping that takes no others."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False:
            yield frozenset(schema["properties"])
        for part in schema.values():
            yield from closed(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from closed(part)


def words(schema: Any) -> Iterator[frozenset[str]]:
    """Yield every closed set of words."""
    if isinstance(schema, dict):
        for key, part in schema.items():
            if key == "anyOf" and len(part) == 2 and "enum" in part[0]:
                yield frozenset(part[0]["enum"])
            yield from words(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from words(part)


@pytest.mark.requirement("cli:schema")
def test_the_keys_and_words_are_those_that_the_grammar_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: set[frozenset[str]] = set()
    options: set[frozenset[str]] = set()

    read_keys, read_word = Reader.keys, Choice.read

    def note_keys(
        self: Reader, node: MapNode, what: str, known: Collection[str]
    ) -> dict[str, Entry]:
        keys.add(frozenset(known))
        return read_keys(self, node, what, known)

    def note_options(
        self: Choice[str], reader: Reader, node: Node, place: ValuePlace
    ) -> str | None:
        options.add(frozenset(self.options))
        return read_word(self, reader, node, place)

    monkeypatch.setattr(Reader, "keys", note_keys)
    monkeypatch.setattr(Choice, "read", note_options)
    assert errors(data_of(EVERYTHING)) == []
    ours = [SCHEMA["definitions"]["claw_pod"], SCHEMA["definitions"]["claw_service"]]
    assert set(closed(ours)) == keys
    assert set(words(ours)) == options


def places(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    parts = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, part in parts:
        yield from places(part, (*path, key))


def put(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return changed


@pytest.mark.long
@pytest.mark.requirement("cli:schema")
def test_whatever_stands_at_a_place_the_schema_says_what_the_grammar_says() -> None:
    whole = data_of(EVERYTHING)
    differ = []
    for part in (
        {**whole, "services": {}},
        *({"services": {name: service}} for name, service in whole["services"].items()),
    ):
        ours = [path for path in places(part) if "x-claw" in (path[0], *path[2:3])]
        for path, value in each_nth(4, itertools.product(ours, VALUES)):
            data = put(part, path, value)
            diagnostics = errors(data)
            if VALIDATOR.is_valid(data) is bool(diagnostics):
                differ.append((".".join(map(str, path)), value, diagnostics))
    assert differ == []


@pytest.mark.requirement("cli:schema")
def test_it_is_a_schema_and_every_pod_fits_it() -> None:
    Draft7Validator.check_schema(SCHEMA)
    pods = {path: data_of(path.read_text(encoding="utf-8")) for path in PODS}
    assert pods
    assert {
        str(path): VALIDATOR.is_valid(data)
        for path, data in pods.items()
        if not VALIDATOR.is_valid(data)
    } == {}


@pytest.mark.requirement("cli:schema")
@pytest.mark.parametrize("case", case_files(), ids=lambda case: f"{case.parent.name}/{case.stem}")
def test_a_case_fits_it_unless_one_place_of_it_is_wrong(case: Path) -> None:
    codes = {
        each.code for each in expectations(case) if each.severity == "E" and each.file == case.name
    }
    if codes & NO_DOCUMENT:
        return
    data = data_of(case.read_text(encoding="utf-8"))
    name = f"{case.parent.name}/{case.stem}".removeprefix("cases/")
    fits = name in UNSEEN or not (codes & OF_ONE_PLACE or name in SEEN)
    assert VALIDATOR.is_valid(data) is fits


@pytest.mark.requirement("cli:schema")
def test_composes_part_is_the_schema_of_the_compose_that_judges_our_files() -> None:
    vendored = (
        resources.files("claw_compile.schema")
        .joinpath(editor.COMPOSE_SPEC)
        .read_bytes()
        .rstrip(b"\n")
    )
    assert vendored in compose_binary().read_bytes()
