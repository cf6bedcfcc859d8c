"""The formula that is shown is the one that is computed: its text, its numbers and its bytes come from one string."""
import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from threading import Lock
from types import CodeType

from minitp.errors import ConfigError
from minitp.plan.rows import Kind, Row

Number = int | float

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_SYMBOL = re.compile(r"[A-Za-z][A-Za-z_]*")
_ROUNDED_UP = re.compile(r"⌈[^⌈⌉/]*/[^⌈⌉/]*⌉")
_ONE_AT_A_TIME = Lock()
"""CPython counts the depth of a tree being built once for all threads (to 3.12): two at a time end in a SystemError."""
_PYTHON = str.maketrans({"·": "*", "−": "-", "²": "**2", "⌈": "(", "⌉": ")", "/": "@"})


def value(formula: str, symbols: Mapping[str, Number]) -> int:
    """What "2 · B · (T² + ⌈N/d⌉)" comes to: numbers, symbols, + − · ², parentheses and divisions that are rounded up.

    Whole numbers stay exact at any size. Where a number isn't whole (1.0625 bytes), the result is rounded up.
    """
    try:
        result = eval(_compiled(formula), {"__builtins__": {}}, symbols)
    except NameError as unknown:
        raise _refused(str(unknown.name)) from None
    return result if type(result) is int else ceil(result)


def numbers(formula: str, symbols: Mapping[str, Number]) -> str:
    """The formula with its symbols' numbers put in."""
    return _SYMBOL.sub(lambda found: f"{symbols[found.group()]:,}", formula)


def letters(formula: str) -> list[str]:
    """Its symbols, as they come."""
    return _SYMBOL.findall(formula)


def row(kind: Kind, term: str, formula: str, symbols: Mapping[str, Number], source: str, note: str = "") -> Row:
    """A term of a rank's memory whose bytes are what `formula` says."""
    return Row(kind, term, formula, numbers(formula, symbols), value(formula, symbols), source, note)


def literal(number: Number) -> str:
    """A number as a formula has it: 2.0 is "2", a block-wise type's bytes stay "1.0625"."""
    return repr(number if type(number) is int or number % 1 else int(number))


@lru_cache(maxsize=4096)
def _compiled(formula: str) -> CodeType:
    """The same few formulas are computed for hundreds of layouts: each is read once."""
    if "/" in _ROUNDED_UP.sub("", formula) or any(sign in formula for sign in ("@", "**")):
        raise _refused(formula)
    try:
        with _ONE_AT_A_TIME:
            tree = ast.parse(formula.translate(_PYTHON), mode="eval")
    except SyntaxError:
        raise _refused(formula) from None
    return compile(_python(tree.body), "formula", "eval")


def _python(node: ast.expr) -> str:
    match node:
        case ast.BinOp(left, ast.MatMult(), right):
            return f"-(-({_python(left)}) // ({_python(right)}))"
        case ast.BinOp(left, ast.Pow(), ast.Constant(2)):
            return f"({_python(left)} ** 2)"
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return f"({_python(left)} {_OPERATORS[type(op)]} {_python(right)})"
        case ast.Constant(int() | float() as number):
            return repr(number)
        case ast.Name(name):
            return name
    raise _refused(ast.unparse(node))


def _refused(part: str) -> ConfigError:
    return ConfigError("a formula has numbers, known symbols, + − · ², parentheses and divisions that are rounded up, "
                       f"⌈a/b⌉, not {part!r}")
