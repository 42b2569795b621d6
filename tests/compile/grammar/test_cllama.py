"""``cllama`` in each of its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.resolving import agent


@pytest.mark.requirement("compile:proxy")
@pytest.mark.parametrize(
    ("claw", "proxies", "mode"),
    [
        ("", ["passthrough"], "base-url"),
        (", cllama: null", [], "base-url"),
        (", cllama: []", [], "base-url"),
        (", cllama: passthrough", ["passthrough"], "base-url"),
        (", cllama: [passthrough]", ["passthrough"], "base-url"),
        (", cllama: {proxy: [passthrough], mode: transparent}", ["passthrough"], "transparent"),
    ],
)
def test_cllama_takes_a_name_a_list_or_a_mapping(
    tmp_path: Path, claw: str, proxies: list[str], mode: str
) -> None:
    only = agent(tmp_path, claw)
    assert only.cllama is not None
    assert [proxy.text for proxy in only.cllama.proxies] == proxies
    assert (only.has_proxy, only.mode) == (bool(proxies), mode)
