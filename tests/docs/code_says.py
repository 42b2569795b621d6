"""What the code says, read from the code: codes of its answers, refusals of its start, reasons of ``/ready``, events."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

HOLE = "…"
"""What stands for a value in a sentence."""
_CODE_AT = {"refused": 2, "refuse": 2, "refusal": 2, "Refuse": 1, "ModelFailed": 1, "Unreachable": 0}
"""Where the code stands among the arguments of what makes an answer."""


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def modules(*packages: str) -> list[Path]:
    return sorted(file for package in packages for file in (ROOT / package).rglob("*.py"))


def answers() -> set[str]:
    """Every code that a runner can be told; ``provider_http_…`` for those that end in a status."""
    files = modules("claw_mediate")
    named = {name: value for file in files for name, value in _constants(tree(file))}
    found: set[str] = set()
    for file in files:
        for function in _functions(tree(file)):
            local = dict(_assigned(function))
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and (place := _CODE_AT.get(_name(call.func))) is not None:
                    found |= _codes(call, place, local, named)
    return found


def events(kind: str, member: str) -> set[str]:
    """What events of this kind say in a member, where that is written where they are told."""
    found: set[str] = set()
    for file in modules("claw_mediate"):
        for call in ast.walk(tree(file)):
            if isinstance(call, ast.Call) and call.args and _texts(call.args[0]) == [kind]:
                values = [keyword.value for keyword in call.keywords if keyword.arg == member]
                found.update(text for value in values for text in _texts(value))
    return found


def raised(file: str) -> set[str]:
    """The sentences of the errors that a module raises."""
    return {
        text
        for node in ast.walk(tree(ROOT / file))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
        for text in _texts(node.exc.args[0])
    }


def said_in(file: str, *functions: str) -> set[str]:
    """The sentences that stand in these functions."""
    sentences: set[str] = set()
    for function in _functions(tree(ROOT / file)):
        if function.name in functions:
            doc = ast.get_docstring(function, clean=False)
            within = {id(part) for each in ast.walk(function) if isinstance(each, ast.JoinedStr) for part in each.values}
            for node in ast.walk(function):
                if id(node) not in within and isinstance(node, ast.Constant | ast.JoinedStr):
                    sentences |= {text for text in _texts(node) if " " in text.strip() and text != doc}
    return sentences


def constants(file: str) -> dict[str, str]:
    """The constants of a module that are text."""
    return dict(_constants(tree(ROOT / file)))


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Names in capitals → text, or the code of a refusal that is one value (status, code, sentence)."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            value = node.value.elts[1] if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3 else node.value  # noqa: PLR2004
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield target.id, value.value


def _assigned(function: ast.AST) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for one, its in zip(target.elts, value.elts, strict=True):
                    yield _name(one), _texts(its)
            elif isinstance(target, ast.Name):
                yield target.id, _texts(value)


def _codes(call: ast.Call, place: int, local: dict[str, list[str]], named: dict[str, str]) -> set[str]:
    starred = next((each.value for each in call.args if isinstance(each, ast.Starred)), None)
    if starred is not None:
        return {named[_name(starred)]}
    if len(call.args) <= place:
        return set()
    argument = call.args[place]
    if texts := _texts(argument):
        return set(texts)
    name = _name(argument)
    return set(local.get(name) or ([named[name]] if name in named else []))


def _texts(node: ast.expr) -> list[str]:
    """A text, or both of a choice; with holes where values are."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(part.value if isinstance(part, ast.Constant) else HOLE for part in parts)]  # type: ignore[misc]
        case ast.IfExp(body=one, orelse=other):
            return [*_texts(one), *_texts(other)]
        case _:
            return []


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
