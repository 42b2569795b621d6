"""The ids of files, containers and the like: which a request names, and which an answer gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from claw_mediate.core.known_paths import (
    KNOWN_PATHS,
    OBJECT_KINDS,
    PROXY_BASE,
    ApiBase,
    Family,
    PathMatch,
    find_known_path,
)
from claw_mediate.core.object_ids import (
    DIALECT_RULES,
    EVAL_RULES,
    MAX_NAMED,
    MEMBERS,
    MESSAGE_SHAPE,
    OTHER_RULES,
    RESPONSE_SHAPE,
    GivenObject,
    MemberRules,
    NamedObject,
    UnreadableObjectsError,
    find_given_objects,
    find_named_objects,
    rules_for,
    shape_of_answer,
)


def named(body: Any, rules: MemberRules = OTHER_RULES) -> set[tuple[str, str]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {(each.kind, each.id) for each in find_named_objects(raw, rules)}


READ = {
    "a text": ({"file_id": "f"}, {("file", "f")}),
    "a list": ({"file_ids": ["f", "g"]}, {("file", "f"), ("file", "g")}),
    "a list for a text": ({"file_id": ["f"]}, {("file", "f")}),
    "a text for a list": ({"file_ids": "f"}, {("file", "f")}),
    "an object with an id": ({"container": {"id": "c", "skills": []}}, {("container", "c")}),
    "an object without one": ({"container": {"type": "auto"}}, set()),
    "files of a new container": (
        {"tools": [{"container": {"type": "auto", "file_ids": ["f"]}}]},
        {("file", "f")},
    ),
    "a number": ({"file_id": 7}, {("file", "7")}),
    "nothing": ({"file_id": None, "container": "", "file_ids": [], "thread_id": False}, set()),
    "a file of a chat": (
        {"messages": [{"content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        {("file", "f")},
    ),
    "an input of responses": (
        {"input": [{"content": [{"type": "input_file", "file_id": "f"}]}]},
        {("file", "f")},
    ),
    "an output of the runner's": (
        {"input": [{"output": [{"type": "input_image", "file_id": "f"}]}]},
        {("file", "f")},
    ),
    "a search": (
        {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]},
        {("vector_store", "v")},
    ),
    "a mask": ({"tools": [{"input_image_mask": {"file_id": "f"}}]}, {("file", "f")}),
    "a shell": (
        {"tools": [{"environment": {"type": "container_reference", "container_id": "c"}}]},
        {("container", "c")},
    ),
    "a source": (
        {"messages": [{"content": [{"source": {"type": "file", "file_id": "f"}}]}]},
        {("file", "f")},
    ),
    "a batch of messages": ({"requests": [{"params": {"container": "c"}}]}, {("container", "c")}),
    "a prompt's variable": (
        {"prompt": {"variables": {"x": {"type": "input_file", "file_id": "f"}}}},
        {("file", "f")},
    ),
    "an annotation": (
        {"input": [{"content": [{"annotations": [{"file_id": "f"}]}]}]},
        {("file", "f")},
    ),
    "twice in one object": (b'{"file_id":"f","file_id":"g"}', {("file", "f"), ("file", "g")}),
    "an escaped name": (b'{"fil\\u0065\\u005fid":"f"}', {("file", "f")}),
    "an escaped id": (b'{"file_id":"\\u0066"}', {("file", "f")}),
    "white space": (b'{"file_id" \r\n\t: "f"}', {("file", "f")}),
    "its own case": ({"file_id": "File-A"}, {("file", "File-A")}),
    "an input that is no call's": (
        {"type": "tool_use", "input": [{"file_id": "f"}]},
        {("file", "f")},
    ),
    "a call's member beside its input": (
        {"type": "tool_use", "input": {"file_id": "x"}, "file_id": "f"},
        {("file", "f")},
    ),
    "two types": (b'{"type":"tool_use","type":"input_file","file_id":"f"}', {("file", "f")}),
    "an array": ([{"file_id": "f"}], {("file", "f")}),
    "an object in a member": ({"file_id": {"file_id": "f"}}, {("file", "f")}),
}


@pytest.mark.requirement("objects:members")
@pytest.mark.parametrize(("body", "expected"), READ.values(), ids=READ)
def test_an_id_is_read_wherever_a_provider_may_read_it(
    body: Any, expected: set[tuple[str, str]]
) -> None:
    assert named(body) == expected
    assert named(body, DIALECT_RULES) == expected


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "title": str.title,
    "camel case": lambda name: name.title().replace("_", ""),
    "one word": lambda name: name.replace("_", ""),
    "dashes": lambda name: name.replace("_", "-"),
    "the long s": lambda name: name.replace("s", "\u017f"),
}


@pytest.mark.requirement("objects:members")
@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_member_is_read_in_every_spelling(
    member: str, spell: Callable[[str], str], ascii_only: bool
) -> None:
    name, object_id = spell(member), "files/x" if member == "file_uri" else "x"
    body = json.dumps({"a": [{name: object_id}]}, ensure_ascii=ascii_only).encode()
    assert find_named_objects(body, OTHER_RULES) == (NamedObject(MEMBERS[member], object_id, name),)


@pytest.mark.requirement("objects:members")
@pytest.mark.parametrize("letter", [b"f", b"F", b"_", b"i", b"D"])
def test_an_escaped_letter_of_a_members_name_is_read(letter: bytes) -> None:
    name = b"File_iD".replace(b"F", letter, 1) if letter in b"fF" else b"File_iD"
    body = b'{"%b":"x"}' % name.replace(letter, b"\\u%04x" % ord(letter), 1)
    assert [each.id for each in find_named_objects(body, DIALECT_RULES)] == ["x"]


@pytest.mark.requirement("responses:named-once")
@pytest.mark.parametrize(
    "body",
    [
        {"previous_response_id": "own", "extra_body": {"previous_response_id": "other"}},
        {"previous_response_id": "own", "Previous_Response_Id": "other"},
        {"previousResponseId": "other"},
        {"Conversation": "other"},
        {"extra_body": {"conversation": {"ID": "other"}}},
        {"batch_request": {"responses": {"previous_response_id": "other"}}},
    ],
)
def test_what_a_dialect_does_not_read_of_a_chain_is_anothers(body: Any) -> None:
    written = json.dumps(body).encode()
    chain = ["own"] if b"own" in written else []
    assert [each.id for each in find_named_objects(written, DIALECT_RULES, chain)] == ["other"]


@pytest.mark.requirement("responses:named-once")
@pytest.mark.parametrize(
    "body",
    [{"previous_response_id": "own"}, {"x": {"conversation": "talk"}}, {"conversation": None}],
)
def test_what_a_dialect_reads_of_a_chain_is_its_own(body: Any) -> None:
    chain = ["own"] if "previous_response_id" in body else []
    assert find_named_objects(json.dumps(body).encode(), DIALECT_RULES, chain) == ()


@pytest.mark.requirement("objects:members")
def test_a_file_of_googles_is_read_from_its_address_and_no_other() -> None:
    parts = [
        {
            "fileData": {
                "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a?alt=media"
            }
        },
        {"file_data": {"file_uri": "files/b"}},
        {"fileData": {"fileUri": "https://www.youtube.com/watch?v=x"}},
        {"fileData": {"fileUri": "gs://bucket/x"}},
    ]
    assert named({"contents": [{"parts": parts}]}) == {("file", "files/a"), ("file", "files/b")}


@pytest.mark.requirement("objects:members")
def test_parameters_are_a_schema_of_functions_only() -> None:
    tools = [
        {"type": kind, "parameters": {"file_ids": [kind]}}
        for kind in ("function", "custom", "openrouter:files")
    ]
    assert named({"tools": [*tools, {"parameters": {"file_id": "x"}}]}, DIALECT_RULES) == {
        ("file", "openrouter:files")
    }


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize(
    ("family", "path", "answer", "given"),
    [
        ("xai", "/v1/batches", {"batch_id": "b", "name": "n"}, GivenObject("batch", "b")),
        ("xai", "/v1/videos/generations", {"request_id": "r"}, GivenObject("video", "r")),
        ("google", "/v1/batches", {"id": "batches/b"}, GivenObject("batch", "batches/b")),
    ],
)
def test_ids_of_other_forms_are_given(
    family: Family, path: str, answer: Any, given: GivenObject
) -> None:
    match = find_known_path(ApiBase(family, ("/v1",)), "POST", path)
    assert match is not None
    shape = shape_of_answer(match)
    assert shape is not None
    assert find_given_objects(json.dumps(answer).encode(), shape) == (given,)


@pytest.mark.requirement("objects:paths")
@pytest.mark.parametrize("slash", ["/", "%2F", "%2f"])
def test_an_id_of_googles_has_a_slash(slash: str) -> None:
    base = ApiBase("google", ("/v1beta/openai",))
    batches = (("batch", "GET", ""), ("batch", "POST", "/cancel"))
    for kind, method, rest in (*batches, ("file", "GET", "/content"), ("file", "DELETE", "")):
        folder = "batches" if kind == "batch" else "files"
        match = find_known_path(base, method, f"/v1beta/openai/{folder}/{folder}{slash}x{rest}")
        assert match is not None
        assert match.ids == {kind: f"{folder}/x"}
        assert match.path == f"/{folder}/{folder}{slash.upper()}x{rest}"


@pytest.mark.requirement("objects:members")
@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"content": 'the member "file_id": "f" of a file'}]},
        {"messages": [{"content": [{"type": "text", "text": '{"file_id": "f"}'}]}]},
        {"metadata": {"file_id": "f", "thread_id": "t"}},
        {"client_metadata": {"thread_id": "t", "container": "c"}},
        {"messages": [{"content": [{"type": "tool_use", "input": {"file_id": "f"}}]}]},
        {"messages": [{"content": [{"type": "server_tool_use", "input": {"container": "c"}}]}]},
        {"messages": [{"tool_calls": [{"function": {"arguments": {"file_id": "f"}}}]}]},
        {"messages": [{"tool_calls": [{"function": {"arguments": '{"file_id": "f"}'}}]}]},
        {
            "tools": [
                {
                    "function": {
                        "parameters": {
                            "properties": {"file_id": {"default": "f"}},
                            "example": {"file_id": "f"},
                        }
                    }
                }
            ]
        },
        {"tools": [{"input_schema": {"required": ["file_id"], "examples": [{"file_id": "f"}]}}]},
        {"tools": [{"input_examples": [{"container": "c"}]}]},
        {"tools": [{"type": "mcp", "headers": {"thread_id": "t"}}]},
        {"response_format": {"json_schema": {"schema": {"example": {"file_id": "f"}}}}},
        {"input": [{"action": {"env": {"container_id": "c"}}}]},
        {"prompt": {"variables": {"file_id": "a text of the runner's"}}},
        {"thread": "t", "file": "f", "files": ["f"], "my_file_id": "f"},
    ],
)
def test_text_and_data_of_the_runners_are_no_ids(body: Any) -> None:
    assert named(body) == named(body, DIALECT_RULES) == set()


@pytest.mark.requirement("objects:members")
def test_a_dialects_request_may_have_words_that_are_ids_elsewhere() -> None:
    body = {"thread_id": "t", "assistant_id": "a"}
    assert named(body) == {("thread", "t"), ("assistant", "a")}
    assert named(body, DIALECT_RULES) == set()


@pytest.mark.requirement("objects:evals")
def test_an_eval_names_its_file_and_the_stores_that_all_agents_share() -> None:
    source = {"type": "jsonl", "source": {"type": "file_id", "id": "f"}}
    assert named({"data_source": source}, EVAL_RULES) == {("file", "f")}
    for shared, kind in {
        "responses": "response",
        "stored_completions": "stored_completion",
        "logs": "stored_completion",
    }.items():
        for body in (
            {"data_source": {"type": shared}},
            {"data_source": {"source": {"type": shared, "metadata": {}}}},
        ):
            assert named(body, EVAL_RULES) == {(kind, shared)}
            assert named(body) == set()
    rows = {
        "source": {
            "type": "file_content",
            "content": [{"item": {"file_id": "f"}, "sample": {"type": "logs"}}],
        }
    }
    assert named({"data_source": rows}, EVAL_RULES) == set()


@pytest.mark.requirement("objects:members")
@pytest.mark.parametrize(
    "body",
    [
        b'{"file_id":1',
        b'{"file_id":"f"} x',
        b'\xff{"file_id":"f"}',
        b'{"x":' * 100_000 + b'"file_id":1',
        b'"file_id": nul',
    ],
)
def test_a_body_in_which_ids_cant_be_told_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableObjectsError, match="not one JSON document"):
        find_named_objects(body, OTHER_RULES)


@pytest.mark.requirement("objects:members")
def test_a_request_names_a_bounded_number_of_objects() -> None:
    body = json.dumps({"file_ids": [f"f{number}" for number in range(MAX_NAMED)]}).encode()
    assert len(find_named_objects(body, OTHER_RULES)) == MAX_NAMED
    with pytest.raises(UnreadableObjectsError, match="more than 2000 objects"):
        find_named_objects(body.replace(b"]", b',"more"]'), OTHER_RULES)


def given(document: Any, method: str, path: str) -> set[tuple[str, str]]:
    match = find_known_path(PROXY_BASE, method, path)
    assert match is not None
    shape = shape_of_answer(match)
    found = () if shape is None else find_given_objects(json.dumps(document).encode(), shape)
    return {(each.kind, each.id) for each in found}


FILE = {"id": "file-9", "object": "file"}
GIVES = {
    "a file": ("POST", "/v1/files", FILE, {("file", "file-9")}),
    "a file that is read": ("GET", "/v1/files/file-9", FILE, set()),
    "an upload": ("POST", "/v1/uploads", {"id": "u"}, {("upload", "u")}),
    "its file": ("POST", "/v1/uploads/u/complete", {"id": "u", "file": FILE}, {("file", "file-9")}),
    "a batch": ("POST", "/v1/batches", {"id": "b", "output_file_id": None}, {("batch", "b")}),
    "its files": (
        "GET",
        "/v1/batches/b",
        {"id": "b", "output_file_id": "o", "error_file_id": "e"},
        {("file", "o"), ("file", "e")},
    ),
    "a batch of messages": ("POST", "/v1/messages/batches", {"id": "b"}, {("message_batch", "b")}),
    "a vector store": ("POST", "/v1/vector_stores", {"id": "v"}, {("vector_store", "v")}),
    "a file in it": ("POST", "/v1/vector_stores/v/files", {"id": "f"}, set()),
    "a container": ("POST", "/v1/containers", {"id": "c", "file_ids": ["f"]}, {("container", "c")}),
    "an assistant": (
        "POST",
        "/v1/assistants",
        {"id": "a", "metadata": {"id": "x"}},
        {("assistant", "a")},
    ),
    "an eval": ("POST", "/v1/evals", {"id": "e"}, {("eval", "e")}),
    "a run of an eval": ("POST", "/v1/evals/e/runs", {"id": "r"}, set()),
    "a video": ("POST", "/v1/videos", {"id": "v"}, {("video", "v")}),
    "a thread with a store": (
        "POST",
        "/v1/threads",
        {"id": "t", "tool_resources": {"file_search": {"vector_store_ids": ["v"]}}},
        {("thread", "t"), ("vector_store", "v")},
    ),
    "a run with its thread": (
        "POST",
        "/v1/threads/runs",
        {"id": "run_1", "thread_id": "t"},
        {("thread", "t")},
    ),
    "an image of a message": (
        "GET",
        "/v1/threads/t/messages",
        {"data": [{"content": [{"type": "image_file", "image_file": {"file_id": "f"}}]}]},
        {("file", "f")},
    ),
    "what a message repeats": (
        "GET",
        "/v1/threads/t/messages",
        {"data": [{"metadata": {"file_id": "f"}}]},
        set(),
    ),
    "a run": ("POST", "/v1/threads/t/runs", {"id": "run_1", "metadata": {"thread_id": "x"}}, set()),
    "an embedding": ("POST", "/v1/embeddings", {"id": "e", "data": []}, set()),
    "a conversation": ("POST", "/v1/conversations", {"id": "conv_1"}, set()),
}


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize(("method", "path", "document", "expected"), GIVES.values(), ids=GIVES)
def test_what_a_request_makes_is_given_and_what_it_only_mentions_is_not(
    method: str, path: str, document: Any, expected: set[tuple[str, str]]
) -> None:
    assert given(document, method, path) == expected


@pytest.mark.requirement("objects:given")
def test_every_path_that_makes_an_object_gives_it() -> None:
    elsewhere = {"response", "conversation", "stored_completion"}
    for family, rows in KNOWN_PATHS.items():
        for row in rows:
            if row.creates is not None and row.creates not in elsewhere:
                shape = shape_of_answer(PathMatch(family, row, {}, row.pattern))
                assert shape is not None
                assert row.creates in {kind for _, kind in shape.places}, row.pattern
    assert elsewhere < set(OBJECT_KINDS)


CODE = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c"}
CITED = {"type": "container_file_citation", "container_id": "c", "file_id": "cfile_1"}
TEXT = {
    "type": "output_text",
    "text": "file_id",
    "annotations": [CITED, {"type": "url_citation", "url": "u"}],
}
BOTH = {("container", "c"), ("file", "cfile_1")}
RESPONSES: list[tuple[Any, set[tuple[str, str]]]] = [
    ({"output": [CODE]}, {("container", "c")}),
    ({"output": [{"type": "message", "content": [TEXT]}]}, BOTH),
    (
        {"output": [{"type": "shell_call", "environment": {"container_id": "c"}}]},
        {("container", "c")},
    ),
    ({"output": [{"type": "file_search_call", "results": [{"file_id": "f"}]}]}, {("file", "f")}),
    ({"type": "response.completed", "response": {"output": [CODE]}}, {("container", "c")}),
    ({"type": "response.output_item.added", "item": CODE}, {("container", "c")}),
    ({"type": "response.output_text.annotation.added", "annotation": CITED}, BOTH),
    ({"type": "response.content_part.done", "part": TEXT}, BOTH),
    (
        {
            "output": [],
            "metadata": {"file_id": "f"},
            "tools": [{"container": "x", "file_ids": ["f"]}],
        },
        set(),
    ),
    ({"output": [{"type": "function_call", "arguments": '{"file_id":"f"}'}]}, set()),
    (
        {
            "output": [
                {
                    "type": "local_shell_call",
                    "action": {"env": {"container_id": "c", "file_id": "f"}},
                }
            ]
        },
        set(),
    ),
    (
        {
            "output": [
                {
                    "type": "mcp_list_tools",
                    "tools": [{"annotations": {"file_id": "f"}, "name": "x"}],
                }
            ]
        },
        set(),
    ),
    ({"output": [{"type": "tool_search_call", "arguments": {"container_id": "c"}}]}, set()),
]
UPLOADED = {"type": "code_execution_output", "file_id": "f"}
RESULT = {
    "type": "bash_code_execution_tool_result",
    "content": {"type": "bash_code_execution_result", "content": [UPLOADED]},
}
MESSAGES: list[tuple[Any, set[tuple[str, str]]]] = [
    (
        {"container": {"id": "c", "expires_at": "x"}, "content": [RESULT]},
        {("container", "c"), ("file", "f")},
    ),
    (
        {"type": "message_start", "message": {"container": {"id": "c"}, "content": []}},
        {("container", "c")},
    ),
    ({"type": "message_delta", "delta": {"container": {"id": "c"}}}, {("container", "c")}),
    ({"type": "content_block_start", "content_block": RESULT}, {("file", "f")}),
    ({"container": None, "content": [{"type": "text", "text": "file_id"}]}, set()),
    (
        {
            "content": [
                {"type": "tool_use", "input": {"file_id": "f", "content": {"content": [UPLOADED]}}}
            ]
        },
        set(),
    ),
    (
        {
            "content": [
                {
                    "type": "mcp_tool_result",
                    "content": [{"type": "text", "text": "", "file_id": "f"}],
                }
            ]
        },
        set(),
    ),
]


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize(
    ("shape", "document", "expected"),
    [(RESPONSE_SHAPE, *row) for row in RESPONSES] + [(MESSAGE_SHAPE, *row) for row in MESSAGES],
)
def test_a_model_gives_what_its_provider_made_and_not_what_it_wrote(
    shape: Any, document: Any, expected: Any
) -> None:
    assert {
        tuple(each) for each in find_given_objects(json.dumps(document).encode(), shape)
    } == expected


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize(
    "document",
    [b"", b"[DONE]", b'{"container"', b'"container"', b'{"container":7}', b'\xff"container"'],
)
def test_what_is_no_answer_gives_nothing(document: bytes) -> None:
    assert find_given_objects(document, MESSAGE_SHAPE) == ()


def test_the_rules_follow_the_path() -> None:
    base = ApiBase("openai", ("/v1",))
    runs, threads = (
        find_known_path(base, "POST", path) for path in ("/v1/evals/e/runs", "/v1/threads")
    )
    assert runs is not None
    assert threads is not None
    assert rules_for(runs.row) is EVAL_RULES
    assert rules_for(threads.row) is rules_for(None) is OTHER_RULES
    assert GivenObject("file", "f") == ("file", "f")
