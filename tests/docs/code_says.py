"""What the code says, read from the code: codes of its answers, refusals of its start, reasons of ``/ready``, events."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

HOLE = "…"
"""What stands for a value in a sentence."""
_NO_RUNNERS = ("replay.py",)
"""Modules whose answers no runner gets: a turn is played again for an operator."""
_CODE_AT = {"refuse": 2, "build_error_body": 2, "_refusal": 1, "Refuse": 1, "ModelFailed": 1, "TransportFailure": 0}
"""Where the code stands among the arguments of what makes an answer."""


type Named = dict[str, tuple[tuple[str, ...], ...]]
"""Names of constants → what each of that name is."""


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def modules(*packages: str) -> list[Path]:
    """Of packages, or by their own path."""
    places = [ROOT / package for package in packages]
    return sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))


def answers() -> set[str]:
    """Every code that a runner can be told; ``provider_http_…`` for those that end in a status."""
    files = [file for file in modules("claw_mediate") if file.name not in _NO_RUNNERS]
    everywhere: Named = {}
    for file in files:
        for name, values in _constants(tree(file)):
            everywhere[name] = (*everywhere.get(name, ()), values)
    found: set[str] = set()
    for file in files:
        here = everywhere | {name: (values,) for name, values in _constants(tree(file))}
        for function in _functions(tree(file)):
            known = here | {name: tuple((text,) for text in texts) for name, texts in _assigned(function) if texts}
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and (place := _CODE_AT.get(_name(call.func))) is not None:
                    found.update(_codes(call, place, known))
    return found


def events(kind: str, member: str) -> set[str]:
    """What events of this kind say in a member, where that is written where they are told."""
    found: set[str] = set()
    for file in modules("claw_mediate"):
        for function in _functions(tree(file)):
            local = dict(_assigned(function))
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and [kind] in map(_texts, call.args[:2]):
                    values = [keyword.value for keyword in call.keywords if keyword.arg == member]
                    found.update(text for value in values for text in _texts(value) or local.get(_name(value), ()))
    return found


def raised(file: Path, error: str) -> set[str]:
    """The sentences of such errors that a module raises."""
    return {
        text
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _name(node.exc.func) == error
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
    return {name: values[0] for name, values in _constants(tree(ROOT / file))}


def statuses() -> set[tuple[str, str]]:
    """(Code, status) of the answers that say both where they are made."""
    return {
        (code, str(call.args[place - 1].value))  # type: ignore[attr-defined]
        for file in modules("claw_mediate")
        for call in ast.walk(tree(file))
        if isinstance(call, ast.Call) and (place := _CODE_AT.get(_name(call.func), 0)) and len(call.args) > place
        for code in _texts(call.args[place])
        if isinstance(call.args[place - 1], ast.Constant)
    }


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _constants(module: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names → a text, or the parts of several values, of which those that are no text are empty."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            values = tuple("".join(_texts(part)) for part in parts)
            if isinstance(target, ast.Name) and any(values):
                yield target.id, values


def _assigned(function: ast.AST) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for one, its in zip(target.elts, value.elts, strict=True):
                    yield _name(one), _texts(its)
            elif isinstance(target, ast.Name):
                parts = value.elts if isinstance(value, ast.Tuple) else [value]
                yield target.id, [text for part in parts for text in _texts(part)]


def _codes(call: ast.Call, place: int, known: Named) -> Iterator[str]:
    """What stands at that place, or in the values that are spread there; nothing where it was handed in."""
    for at, argument in enumerate(call.args[: place + 1]):
        if isinstance(argument, ast.Starred):
            yield from (values[place - at] for values in known.get(_name(argument.value), ()) if len(values) > place - at)
        elif at == place:
            yield from _texts(argument) or (values[0] for values in known.get(_name(argument), ()))


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
