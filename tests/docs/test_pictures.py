"""The drawn pictures are what their script draws from code and pages, and pages show them."""

from __future__ import annotations

import runpy
from xml.etree import ElementTree as ET

import pytest

from tests.docs.pages import DOCS, ROOT, pages

DRAWN = runpy.run_path(str(ROOT / "scripts" / "draw_pictures.py"))["DRAWN"]
FILES = sorted((DOCS / "pictures").glob("*.svg"))


@pytest.mark.requirement("docs:pictures")
def test_every_drawn_picture_is_there_and_no_other() -> None:
    assert [file.stem for file in FILES] == sorted(DRAWN)


@pytest.mark.requirement("docs:pictures")
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_what_the_script_draws(name: str) -> None:
    drawn = DRAWN[name]().svg()
    ET.fromstring(drawn)
    committed = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert committed == drawn, "run `make docs`"


@pytest.mark.requirement("docs:pictures")
@pytest.mark.parametrize("name", DRAWN)
def test_a_page_shows_the_picture(name: str) -> None:
    assert any(f"pictures/{name}.svg)" in page.read_text(encoding="utf-8") for page in pages())


@pytest.mark.requirement("docs:pictures")
def test_the_picture_of_a_request_has_the_ten_steps_of_the_page() -> None:
    picture = (DOCS / "pictures" / "request.svg").read_text(encoding="utf-8")
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition("### The way of a request")[2].partition("\n### ")[0]
    steps = [line for line in section.splitlines() if line[:1].isdigit()]
    assert len(steps) == 10
    for step in steps:
        number, title = step.partition(".**")[0].split(". **")
        assert f">{number}  {title}</text>" in picture
