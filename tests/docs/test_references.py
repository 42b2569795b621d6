"""Every reference of the code, the tests, the requirements and the pages leads to
something in the repository.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, pages
from tests.docs.references import broken_references, is_public_source
from tests.requirements import REQUIREMENTS

PACKAGES = sorted(path.name for path in ROOT.glob("claw_*") if (path / "__init__.py").exists())
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))
FOLDERS = [*PACKAGES, "addons", "bench", "pods", "scripts", "tests"]


def _report(files: list[Path]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}: {broken}"
        for file in files
        for broken in broken_references(
            file.read_text(encoding="utf-8"), is_markdown=file.suffix == ".md"
        )
    ]


@pytest.mark.requirement("docs:references")
@pytest.mark.parametrize("folder", FOLDERS)
def test_what_python_files_refer_to_is_in_the_repository(folder: str) -> None:
    files = [
        file for file in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in file.parts
    ]
    assert _report(files) == []


@pytest.mark.requirement("docs:references")
def test_the_source_of_a_requirement_is_public() -> None:
    assert [
        (id_, req.source) for id_, req in REQUIREMENTS.items() if not is_public_source(req.source)
    ] == []


@pytest.mark.requirement("docs:references")
def test_what_pages_refer_to_is_in_the_repository() -> None:
    assert _report(pages()) == []


@pytest.mark.requirement("docs:references")
@pytest.mark.parametrize(
    "text",
    [
        "docs/spec/medi~ation.md section 9",
        'docs/spec/medi~ation.md section 4, "Repeat~ed"',
        "docs/spec/medi~ator.md",
        "spec/medi~ation.md section 4",
        "docs/dec~isions/0099",
        "dec~ision 0099",
        "compile~.md, Output",
        "origin~-compile.md 2.13",
        "refer~ence/runners.md",
        "des~ign.md",
        "is~sue 6 item 2",
    ],
)
def test_a_reference_to_nothing_is_found(text: str) -> None:
    assert list(broken_references(text.replace("~", "")))


@pytest.mark.requirement("docs:references")
@pytest.mark.parametrize(
    "text",
    [
        'docs/spec/mediation.md section 4, "Repeats"',
        "``docs/spec/mediation.md`` sections 3 and 4",
        'docs/spec/compile.md, "Interpolation"',
        "docs/decisions/0015-at-most-once.md",
        "decision 0015",
        "mitmproxy issue 1234",
    ],
)
def test_a_reference_to_something_is_accepted(text: str) -> None:
    assert list(broken_references(text)) == []


_COUNT_OF_LINES = re.compile(r"\b\d[\d,]* lines\b|^\| *lines\b", re.MULTILINE | re.IGNORECASE)


@pytest.mark.requirement("docs:counts")
@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_counts_no_lines_of_code(page: Path) -> None:
    assert _COUNT_OF_LINES.findall(page.read_text(encoding="utf-8")) == []


@pytest.mark.requirement("docs:counts")
@pytest.mark.parametrize("text", ["270 lines", "about 1,100 lines here", "| lines of it | 9 |"])
def test_a_count_of_lines_is_found(text: str) -> None:
    assert _COUNT_OF_LINES.search(text)


@pytest.mark.requirement("docs:dependencies")
def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(each for extra in extras.values() for each in extra)]
    names = {re.split(r"[<>=\[]", each)[0].lower() for each in needed} - {"clawdapus"}

    page = (DOCS / "decisions" / "0005-dependencies.md").read_text(encoding="utf-8").lower()
    reasons = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    missing = {name for name in names if not any(name in reason for reason in reasons)}
    assert {name for name in missing if not name.startswith("opentelemetry-")} == set()


@pytest.mark.requirement("docs:decisions")
def test_the_index_of_decisions_has_every_page_with_its_title() -> None:
    rows = [
        (
            f"| [{page.name[:4]}]({page.name}) | "
            f"{page.read_text(encoding='utf-8').splitlines()[0][len('# 0000: ') :]} |"
        )
        for page in DECISIONS
    ]
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8").splitlines()
    listed = [line for line in index if line.startswith("| [")]
    assert listed == rows
    assert [row for row in rows if row.split(" | ")[1][0].islower()] == []
