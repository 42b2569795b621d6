#!/usr/bin/env python3
"""Print the counts that keep the structure sound, and exit 1 when one is over its limit.

    scripts/check_structure.py            the table
    scripts/check_structure.py --names    also what was counted, with its place
    scripts/check_structure.py --figures  also figures about the text; they have no limit: a reader
                                          decides

It reads the source files of the packages and runs none of them.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.docs.references import broken_references  # noqa: E402 - the tests are no package of the environment

LONG_FUNCTION_LINES = 10
PARTICIPLES = re.compile(
    r"_?(?:[A-Z][a-z]*(?:ed|ing|wn)|After|Against|Around|Before|Behind|Below|Beside|Beyond|Found|Given|Gone|Heard|Held|Hidden"
    r"|Kept|Left|Made|Of|Over|Read|Said|Seen|Sent|Taken|Told|Under|Within|Without|Written)"
)
"""Class names that are one participle, gerund or preposition, and nothing else."""
NOUNS = {
    "Billing",
    "Feed",
    "Finding",
    "Listing",
    "Opening",
    "Setting",
    "Spawn",
    "Spending",
    "Tracing",
}
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
QUESTIONS = re.compile(r"(?:What|Whether|Who|Whose|Where|How|Of|As|By)\b")
SQL = re.compile(
    (
        r"\b(?:SELECT .+ FROM|INSERT (?:OR \w+ )?INTO|CREATE TABLE|DELETE FROM|UPDATE \w+ "
        r"SET)\b|redis\.call\("
    ),
    re.DOTALL,
)


class Module(NamedTuple):
    """One source file, parsed."""

    path: Path
    name: str
    text: str
    tree: ast.Module
    nodes: list[ast.AST]
    """Every node of the tree."""


class Count(NamedTuple):
    """A row of the table: what was counted, and the most that there may be."""

    title: str
    limit: int
    names: list[str]

    @property
    def number(self) -> int:
        return len(self.names)


def main() -> int:
    modules = [
        read(path)
        for path in sorted([*ROOT.glob("claw_*/**/*.py"), *ROOT.glob("addons/*.py")])
        if not path.is_symlink()
    ]
    counts = list(count(modules))
    for row in counts:
        mark = "ok  " if row.number <= row.limit else "OVER"
        print(f"{mark}  {row.title:<58} {row.number:>7}   at most {row.limit}")
        if "--names" in sys.argv or row.number > row.limit:
            print(
                *(f"        {name}" for name in row.names), sep="\n", end="\n" if row.names else ""
            )
    if "--figures" in sys.argv:
        print(*describe(modules), sep="\n")
    return int(any(row.number > row.limit for row in counts))


def read(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return Module(path, name, text, tree, list(ast.walk(tree)))


def count(modules: list[Module]) -> Iterator[Count]:
    """Yield every row."""
    participles = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in pages()
        if path.suffix == ".py"
        for name in CLASS.findall(path.read_text(encoding="utf-8"))
        if is_participle(name)
    ]
    yield Count("classes named by a bare participle or preposition", 0, participles)

    questions = [
        at(module, node)
        for module, node, text in docstrings(modules)
        if QUESTIONS.match(text.lstrip())
    ]
    title = "docstrings that begin with What, Whether, Who, Where, How, Of, As or By"
    yield Count(title, 0, questions)

    dangling = [
        f"{path.relative_to(ROOT)}: {problem}" for path in pages() for problem in problems_of(path)
    ]
    yield Count("references that lead to nothing in the repository", 0, dangling)

    yield Count("import cycles", 0, import_cycles(modules))

    top = [
        str(module.path.name) for module in modules if module.path.parent == ROOT / "claw_mediate"
    ]
    yield Count("modules in claw_mediate/ itself", 7, top)

    carriers, unlisted = carriers_of_request(modules)
    yield Count("carriers of a request", 16, carriers)
    yield Count("carriers that ARCHITECTURE.md lists in vain, or not at all", 0, unlisted)

    registries = [
        f"{module.path.relative_to(ROOT)}"
        for module in modules
        if "mitm" in module.path.parts
        and re.search(r"Weak(KeyDictionary|Set)\[http\.HTTPFlow", module.text)
    ]
    yield Count("registries of flow state", 1, registries)

    stores = sorted(
        {
            module.path.relative_to(ROOT).parts[0]
            for module in modules
            if SQL.search(without_docstrings(module))
        }
    )
    yield Count("packages that hold SQL or Lua", 1, stores)


def describe(modules: list[Module]) -> Iterator[str]:
    """Yield what the text looks like, package by package: figures without a limit, for a reader.

    Only tokens that say something count: no comments, line ends or indentation.
    """
    headings = (
        ("package", "lines", "tokens", "functions, tokens", "of 10 lines or more,"),
        ("", "", "a line", "p50 / p90 / most", "in paragraphs"),
    )
    for package, lines, density, spread, share in headings:
        yield f"{package:<16} {lines:>7} {density:>22} {spread:>22} {share:>22}"

    packages = sorted({package_of(module) for module in modules})
    for package in packages:
        own = [module for module in modules if package_of(module) == package]
        lines = [line for module in own for line in module.text.splitlines() if line.strip()]
        density = sum(len(tokens_of(module.text)) for module in own) / len(lines)

        texts = [function_text(module, node) for module, node in functions(own)]
        sizes = sorted(len(tokens_of(text)) for text in texts) or [0]
        spread = f"{sizes[len(sizes) // 2]} / {sizes[len(sizes) * 9 // 10]} / {sizes[-1]}"

        long = [text for text in texts if text.count("\n") >= LONG_FUNCTION_LINES]
        parted = sum("\n\n" in without_docstring(text) for text in long)
        share = f"{100 * parted // max(len(long), 1)} %"
        yield f"{package:<16} {len(lines):>7} {density:>22.1f} {spread:>22} {share:>22}"

    places: dict[str, list[str]] = {}
    for module, node in classes(modules):
        if not node.name.startswith("_"):
            places.setdefault(node.name, []).append(module.name)

    shared = {name: found for name, found in places.items() if len(found) > 1}
    yield f"public class names that stand for several things: {len(shared)}"
    for name in sorted(shared):
        yield f"        {name}: {', '.join(shared[name])}"


def package_of(module: Module) -> str:
    return module.path.relative_to(ROOT).parts[0]


def function_text(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    lines = module.text.splitlines()[node.lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines))


def without_docstring(text: str) -> str:
    return re.sub(r'"""(?:.|\n)*?"""', "", text, count=1)


def tokens_of(text: str) -> list[str]:
    """Return the tokens that a reader reads."""
    layout = {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
    read_tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in read_tokens if token.type not in layout]


def pages() -> list[Path]:
    """Return every file that may refer to a page: sources, tests and Markdown."""
    patterns = (
        "claw_*/**/*.py",
        "addons/*.py",
        "tests/**/*.py",
        "bench/*.py",
        "pods/**/*.py",
        "*.md",
        "docs/**/*.md",
        "pods/**/*.md",
    )
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return [
        path
        for path in paths
        if not {"node_modules", "expected"} & set(path.parts) and not path.is_symlink()
    ]


def problems_of(path: Path) -> Iterator[str]:
    return broken_references(path.read_text(encoding="utf-8"), is_markdown=path.suffix == ".md")


def is_participle(name: str) -> bool:
    return PARTICIPLES.fullmatch(name) is not None and name.lstrip("_") not in NOUNS


def classes(modules: list[Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    for module in modules:
        yield from ((module, node) for node in module.nodes if isinstance(node, ast.ClassDef))


def carriers_of_request(modules: list[Module]) -> tuple[list[str], list[str]]:
    """Return the carriers that ARCHITECTURE.md lists, and where the page and the source differ.

    A class that is given a carrier, as a field or when it is made, must be listed, too, or the page
    says why it is none.
    """
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition("### The carriers of a request")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", section, re.MULTILINE)
    carriers = [name for name, _ in rows]
    homes = {(node.name, str(module.path.relative_to(ROOT))) for module, node in classes(modules)}
    wrong = [
        f"{name} is not in {path}"
        for name, path in rows
        if homes.isdisjoint({(name, path), (name, f"claw_mediate/{path}")})
    ]
    for module, node in classes(modules):
        if not module.name.startswith("claw_mediate") or node.name.startswith("_"):
            continue
        held = {*given_types(node)} & {*carriers}
        if held and f"`{node.name}`" not in section:
            wrong.append(f"{at(module, node)} holds {', '.join(sorted(held))}")
    return carriers, wrong


def given_types(node: ast.ClassDef) -> Iterator[str]:
    """Yield the types of what a class is given: its fields, and the parameters of ``__init__``."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            yield from ast.unparse(each.annotation).strip("'").split(" | ")
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            parameters = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]
            for parameter in parameters:
                if parameter.annotation is not None:
                    yield from ast.unparse(parameter.annotation).strip("'").split(" | ")


def functions(
    modules: list[Module],
) -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in modules:
        yield from (
            (module, node)
            for node in module.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )


def docstrings(modules: list[Module]) -> Iterator[tuple[Module, ast.Expr, str]]:
    """Yield the docstrings of modules, classes, functions and attributes: every text of its own."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = node.value.value
                if isinstance(text, str):
                    yield module, node, text


def at(module: Module, node: ast.AST) -> str:
    line = getattr(node, "lineno", 1)
    return f"{module.path.relative_to(ROOT)}:{line} {getattr(node, 'name', '')}"


def without_docstrings(module: Module) -> str:
    """Return the strings of a module that are no docstrings: SQL is written in these."""
    bodies = [
        node.body
        for node in module.nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    docs = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    strings = (
        node
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    )
    return "\n".join(str(node.value) for node in strings)


def import_cycles(modules: list[Module]) -> list[str]:
    """Return the groups of modules that import each other when they are loaded,
    also those for types only.
    """
    names = {module.name for module in modules}
    graph = {
        module.name: {target for target in imports(module, names) if target != module.name}
        for module in modules
    }
    return [" ".join(sorted(group)) for group in strongly_connected(graph) if len(group) > 1]


def imports(module: Module, names: set[str]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield from (
                    [full] if full in names else [node.module] if node.module in names else []
                )


def strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components, by Kosaraju's algorithm.

    A first walk puts each node behind all that it reaches, but for those that reach it, too. So
    from the last node on, a walk over the reversed edges finds those that the node reaches as well:
    its component.
    """
    order: list[str] = []
    seen: set[str] = set()
    for name in graph:
        if name not in seen:
            order += _walk(name, graph, seen)

    reverse: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            reverse[target].add(name)

    groups: list[set[str]] = []
    seen.clear()
    for name in reversed(order):
        if name not in seen:
            group = _walk(name, reverse, seen)
            groups.append(set(group))
    return groups


def _walk(start: str, edges: dict[str, set[str]], seen: set[str]) -> list[str]:
    """Return what can be reached without a node of ``seen``, each node after those behind it.

    Add all of it to ``seen``. The walk has a stack of its own: Python's is too small for it.
    """
    left: list[str] = []
    stack = [(start, iter(edges[start]))]
    seen.add(start)
    while stack:
        name, targets = stack[-1]
        target = next((each for each in targets if each not in seen), None)
        if target is None:
            left.append(name)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(edges[target])))
    return left


if __name__ == "__main__":
    sys.exit(main())
