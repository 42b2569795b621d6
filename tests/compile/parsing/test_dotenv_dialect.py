"""``.env``, compared with the reading of the real Compose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.parsing.dotenv import read_dotenv
from claw_compile.parsing.node import Source
from tests.compile.oracle import compose_config

ENVIRON = {"A": "1", "E": "", "S": " "}
LINES = [
    *(
        "{}=1",
        "export {}=1",
        "  export   {} = 1  # c",
        "{}: yaml",
        "{}:y",
        "{}=a#b",
        "{}=a #b",
        "{}=",
        "{}= # no comment",
    ),
    *(
        "{}=#c",
        "{}=a\t#b",
        "{}='a b' # c",
        "{}='${{A}} $A # k'",
        '{}="${{A}}\\n\\t\\"q\\" \\$A"',
        "{}=${{A}}-${{B:-b}}",
    ),
    *(
        "{}='two\nlines'",
        '{}="two\nlines"',
        '{}="q"#c',
        "{}='it\\'s'",
        "{}='a\\\\b'",
        '{}="a\\\\b"',
        '{}="a\\x"',
        "{}==a",
    ),
    *(
        "{}=a'b",
        '{}=\\"a\\"',
        "{}=$$A",
        "{}=$",
        "{}=é",
        "{}='$$'",
        '{}="$$A"',
        "{}=a \\# b",
        "{}='a\n\nb'",
        "{}=1\r",
        "{}=\u2003a",
    ),
]


@pytest.mark.requirement("compile:dotenv")
def test_what_we_read_of_dotenv_compose_reads_alike(tmp_path: Path) -> None:
    names = [f"X{number}" for number in range(len(LINES))]
    text = "A=of-the-file\nB=above\n" + "\n".join(map(str.format, LINES, names)) + "\n"
    (tmp_path / ".env").write_text(text, encoding="utf-8", newline="")
    labels = {name: f"${{{name}}}" for name in names}
    file = tmp_path / "compose.yml"
    file.write_text(
        json.dumps({"name": "x", "services": {"a": {"image": "x", "labels": labels}}}),
        encoding="utf-8",
    )
    ours = read_dotenv(Source(".env", text), ENVIRON)
    assert ours.diagnostics == ()
    assert ours.value is not None
    theirs = compose_config(file, **ENVIRON)["services"]["a"]["labels"]
    assert {name: ours.value[name] for name in names} == theirs
