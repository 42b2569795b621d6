"""Variables, compared with the reading of the real Compose."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from claw_compile.parsing.environment import interpolate
from tests.compile.oracle import compose_config

ENVIRON = {"A": "1", "E": "", "S": " "}
WORDS = [
    "$",
    "{",
    "}",
    "A",
    "E",
    "S",
    "Z",
    ":",
    "-",
    "?",
    "+",
    " ",
    "${",
    "${A",
    "${Z:-",
    "x",
    "$$",
    ".",
]
CASES = [
    *(
        "${Z:-${B:-c}}",
        "${Z-x:-y}",
        "$$HOME",
        "${S:-d}",
        "${E:-d}",
        "${E-d}",
        "${E:+x}",
        "${E+x}",
        "${A:+${E:-q}}",
    ),
    *(
        "$$$A",
        "$$$$A",
        "${Z:-}",
        "${Z:-a}b}",
        "${Z:-{}}",
        "${Z:-$$A}",
        "$",
        "a $ b",
        "$1",
        "${Z:-a$}",
        "${Z:-a:?b}",
    ),
    *("${A:?${Q}}", "${Z:-${Y:-${W:-deep}}}tail}", "$-", "${Z-$}", "$É", "%{A}"),
]


@pytest.mark.requirement("compile:interpolation")
def test_what_we_fill_in_compose_fills_in_alike(tmp_path: Path) -> None:
    random_texts = (
        "".join(random.Random(seed).choices(WORDS, k=1 + seed % 9)) for seed in range(600)
    )
    texts = [
        text for text in (*CASES, *random_texts) if not interpolate(text, ENVIRON.get).problems
    ]
    assert set(CASES) <= set(texts)
    file = tmp_path / "compose.yml"
    labels = {f"label-{number}": text for number, text in enumerate(texts)}
    file.write_text(
        json.dumps({"name": "x", "services": {"a": {"image": "x", "labels": labels}}}),
        encoding="utf-8",
    )
    filled = compose_config(file, **ENVIRON)["services"]["a"]["labels"]
    theirs = [filled[name] for name in labels]
    assert [interpolate(text, ENVIRON.get).text for text in texts] == theirs
