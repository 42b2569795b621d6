"""Links of every page: their targets exist, the files that pages name exist, and no
page names a path of one machine.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, pages

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:addons|bench|certs|claw_[a-z]+|docs|pods|scripts|tests)/[\w./-]*)`")
PATH_OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:work|home/\w|Users|tmp/wt|root)\b")
REGISTRY = re.compile(
    r"https?://[\w.-]*(?:pypi|pythonhosted|npmjs|registry|crates\.io|proxy\.golang)[\w.-]*",
    re.IGNORECASE,
)
PAGES = pages()


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as GitHub makes them."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.requirement("docs:links")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_and_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in (found for pair in LINK.findall(CODE.sub("", text)) for found in pair if found):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), (
            f"{link}: no such heading; there are {sorted(anchors(target))}"
        )
    for name in FILE.findall(text):
        assert (ROOT / name).exists() or list(ROOT.glob(f"*/{name}")), (
            f"{name} is named, and not there"
        )


@pytest.mark.requirement("docs:no-machine")
def test_no_page_names_a_place_of_one_machine_or_a_registry() -> None:
    found = [
        (page.name, match)
        for page in PAGES
        for pattern in (PATH_OF_A_MACHINE, REGISTRY)
        for match in pattern.findall(page.read_text(encoding="utf-8"))
    ]
    assert found == []


_PUBLISHED = re.compile(r"pip install(?:\s+-\S+|[\s'\"])*clawdapus\b")
"""A command that asks a registry for our package, which is not there."""


def unpublished_installs(text: str) -> list[str]:
    """Return the commands that install our package by its name."""
    return _PUBLISHED.findall(text)


@pytest.mark.requirement("docs:install")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_what_nobody_has_published(page: Path) -> None:
    assert unpublished_installs(page.read_text(encoding="utf-8")) == []


@pytest.mark.requirement("docs:install")
@pytest.mark.parametrize(
    "line",
    [
        "    pip install clawdapus",
        "It needs `pip install clawdapus[redis]`.",
        "pip install -q 'clawdapus[otel]'",
        '"it is not installed: pip install "\n    "\'clawdapus[redis]\'"',
    ],
)
def test_an_install_from_a_registry_is_found(line: str) -> None:
    assert len(unpublished_installs(line)) == 1


@pytest.mark.requirement("docs:install")
def test_no_message_of_the_code_installs_what_nobody_has_published() -> None:
    files = [*ROOT.glob("claw_*/**/*.py"), *ROOT.glob("addons/*.py"), *ROOT.glob("pods/**/*.py")]
    sources = {file: file.read_text(encoding="utf-8") for file in files}
    assert len(sources) > 100
    assert [file for file, text in sources.items() if unpublished_installs(text)] == []


@pytest.mark.requirement("docs:links")
def test_no_two_pages_below_docs_have_one_title() -> None:
    titles = [
        page.read_text(encoding="utf-8").partition("\n")[0]
        for page in PAGES
        if page.is_relative_to(ROOT / "docs")
    ]
    assert sorted(titles) == sorted(set(titles))


@pytest.mark.requirement("docs:configs")
def test_every_block_of_json_and_toml_is_what_it_says() -> None:
    read = [
        (json.loads if block.language == "json" else tomllib.loads)(block.text)
        for page in PAGES
        for block in blocks(page)
        if block.language in {"json", "toml"}
    ]
    assert read
