"""Notes, hints and help of diagnostics: the other place, the intended name, the remedy."""

from __future__ import annotations

import pytest

from claw_compile.compiler import check_pod
from claw_compile.diagnostics.report import as_text
from tests.compile.case import CASES, ENVIRON


@pytest.mark.requirement("compile:edge-cases")
@pytest.mark.parametrize(
    ("case", "line", "says"),
    [
        ("spread.yml", 13, ("spread.yml:12:11: note: the first one is here",)),
        (
            "spread-without-defaults.yml",
            9,
            ("'tools-defaults'", "Add the defaults, or remove `...`."),
        ),
        ("allow.yml", 9, ("'allow: all'",)),
        ("allow.yml", 10, ("'allow: all'",)),
        (
            "unknown-tool.yml",
            10,
            ("did you mean 'get_quote'?", "api declares get_quote, get_orders, trade"),
        ),
        (
            "tools-without-cllama.yml",
            7,
            (
                "inherits has 'tools'",
                "tools-without-cllama.yml:3:3: note: it is inherited from here",
                "'tools: null'",
            ),
        ),
        (
            "locked/claw-pod.yml",
            13,
            (
                "+ delete_account (write): POST /delete  +WRITE",
                "- gone (read)",
                "claw lock --accept api",
            ),
        ),
        (
            "presented.yml",
            4,
            (
                "desk_api.get_quote",
                "desk_api__get_quote_f448b739",
                "same.json:2:14: note: the other one",
            ),
        ),
        ("several-ports.yml", 12, ("'9090' is taken", "set 'x-claw.base-url'")),
        ("port-range.yml", 12, ("'3000-3005'", "set 'x-claw.base-url'")),
        ("count.yml", 10, ("'one-1'", "count.yml:9:32: note: 'count' of one makes it")),
        ("count.yml", 13, ("write 'count' under 'x-claw'",)),
        ("count.yml", 27, ("there are api-0 to api-1", "without 'count'")),
        (
            "reserved-names.yml",
            5,
            ("'One' and 'one'", "reserved-names.yml:3:3: note: the other one is here"),
        ),
        ("unset-variable.yml", 15, ("UNSET_FILE is not set: name a descriptor",)),
        (
            "token-missing.yml",
            17,
            ("did you mean 'API_TOKN'?", "bearer.json:4:37: note: it is asked for here"),
        ),
        ("proxies.yml", 8, ("KEY has two values", "proxies.yml:6:45: note: the other one is here")),
        ("duplicate-keys.yml", 8, ("duplicate-keys.yml:6:7: note: the first one is here",)),
        ("document-end.yml", 8, ("write '- ...', with the dash",)),
        ("feeds.yml", 13, ("write one of 'market/prices', 'press/prices'",)),
    ],
)
def test_a_mistake_is_told_with_what_it_is_about_and_how_it_goes_away(
    case: str, line: int, says: tuple[str, ...]
) -> None:
    diagnostics = [
        each for each in check_pod(CASES / case, ENVIRON).diagnostics if each.span.line == line
    ]
    reported = as_text(diagnostics) + "".join(each.code.remedy for each in diagnostics)
    assert [words for words in says if words not in reported] == [], reported
