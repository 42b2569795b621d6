"""The words of the code, read from its source: codes of answers, refusals to start,
reasons of ``/ready``, events.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

HOLE = "…"
"""The mark that takes the place of a value in a sentence."""
_NO_RUNNERS = ("replay.py",)
"""Modules whose answers no runner gets: they replay a turn for an operator."""
_NO_RUNNER_CODES = {"turn_settled"}
"""Codes of turns whose outcome is dropped (``TurnRegistry.settle``)."""
_CODE_AT = {
    "refuse": 2,
    "build_error_body": 2,
    "_refusal": 1,
    "Refuse": 1,
    "ModelFailed": 1,
    "TransportFailure": 0,
}
"""The position of the code among the arguments of each function that makes an answer."""


type Named = dict[str, tuple[tuple[str, ...], ...]]
"""Names of constants → the values of all constants of that name."""


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def modules(*packages: str) -> list[Path]:
    """Return the source files of these packages, or of these paths."""
    places = [ROOT / package for package in packages]
    return sorted(
        file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))
    )


def answers() -> set[str]:
    """Return every code that a runner can get; ``provider_http_…`` stands for those
    that end in a status.
    """
    files = [file for file in modules("claw_mediate") if file.name not in _NO_RUNNERS]
    everywhere: Named = {}
    for file in files:
        for name, values in _constants(tree(file)):
            everywhere[name] = (*everywhere.get(name, ()), values)
    found: set[str] = set()
    for file in files:
        here = everywhere | {name: (values,) for name, values in _constants(tree(file))}
        for function in _functions(tree(file)):
            known = here | {
                name: tuple((text,) for text in texts)
                for name, texts in _assigned(function)
                if texts
            }
            for call in ast.walk(function):
                if (
                    isinstance(call, ast.Call)
                    and (place := _CODE_AT.get(_name(call.func))) is not None
                ):
                    found.update(_codes(call, place, known))
    return found - _NO_RUNNER_CODES


def events(kind: str, member: str) -> set[str]:
    """Return the values of a member in events of this kind, where they are written at the call."""
    found: set[str] = set()
    for file in modules("claw_mediate"):
        for function in _functions(tree(file)):
            local = dict(_assigned(function))
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and [kind] in map(_texts, call.args[:2]):
                    values = [keyword.value for keyword in call.keywords if keyword.arg == member]
                    found.update(
                        text
                        for value in values
                        for text in _texts(value) or local.get(_name(value), ())
                    )
    return found


def raised(file: Path, error: str) -> set[str]:
    """Return the messages with which a module raises this error."""
    return {
        text
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and _name(node.exc.func) == error
        for text in _texts(node.exc.args[0])
    }


def said_in(file: str, *functions: str) -> set[str]:
    """Return the sentences in these functions."""
    sentences: set[str] = set()
    for function in _functions(tree(ROOT / file)):
        if function.name in functions:
            doc = ast.get_docstring(function, clean=False)
            within = {
                id(part)
                for each in ast.walk(function)
                if isinstance(each, ast.JoinedStr)
                for part in each.values
            }
            for node in ast.walk(function):
                if id(node) not in within and isinstance(node, ast.Constant | ast.JoinedStr):
                    sentences |= {
                        text for text in _texts(node) if " " in text.strip() and text != doc
                    }
    return sentences


def constants(file: str) -> dict[str, str]:
    """Return the constants of a module that are strings."""
    return {name: values[0] for name, values in _constants(tree(ROOT / file))}


def statuses() -> set[tuple[str, str]]:
    """Return (code, status) of the answers whose source has both."""
    return {
        (code, str(call.args[place - 1].value))  # type: ignore[attr-defined]
        for file in modules("claw_mediate")
        for call in ast.walk(tree(file))
        if isinstance(call, ast.Call)
        and (place := _CODE_AT.get(_name(call.func), 0))
        and len(call.args) > place
        for code in _texts(call.args[place])
        if isinstance(call.args[place - 1], ast.Constant)
    }


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _constants(module: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield names with a string, or with the parts of a tuple; parts that are no
    strings are empty.
    """
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
    """Yield the strings at that position of a call, or in a constant that is spread
    there; nothing for a parameter.
    """
    for at, argument in enumerate(call.args[: place + 1]):
        if isinstance(argument, ast.Starred):
            yield from (
                values[place - at]
                for values in known.get(_name(argument.value), ())
                if len(values) > place - at
            )
        elif at == place:
            yield from _texts(argument) or (values[0] for values in known.get(_name(argument), ()))


def _texts(node: ast.expr) -> list[str]:
    """Return a string, or both of a conditional expression, with HOLE in the place of values."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return [
                "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in parts)
            ]  # type: ignore[misc]
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
