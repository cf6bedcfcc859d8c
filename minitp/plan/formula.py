"""The formula that is shown is the one that is computed: its text, its numbers and its bytes come from one string."""
import ast
import operator
import re
from collections.abc import Mapping

from minitp.errors import ConfigError
from minitp.plan.rows import Kind, Row

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}
_SYMBOL = re.compile(r"[A-Za-z][A-Za-z_]*")


def value(formula: str, symbols: Mapping[str, int]) -> int:
    """What "2 · B · (T² + 1)" comes to: whole numbers, symbols, + − · ² and parentheses."""
    plain = formula.replace("·", "*").replace("−", "-").replace("²", "**2")
    return _value(ast.parse(plain, mode="eval").body, symbols)


def _value(node: ast.expr, symbols: Mapping[str, int]) -> int:
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Constant(int() as number):
            return number
        case ast.Name(name) if name in symbols:
            return symbols[name]
    raise ConfigError(f"a formula has whole numbers, known symbols, + − · ² and parentheses, not "
                      f"{ast.unparse(node)!r}")


def numbers(formula: str, symbols: Mapping[str, int]) -> str:
    """The formula with its symbols' numbers put in."""
    return _SYMBOL.sub(lambda found: f"{symbols[found.group()]:,}", formula)


def row(kind: Kind, term: str, formula: str, symbols: Mapping[str, int], source: str, note: str = "") -> Row:
    """A term of a rank's memory whose bytes are what `formula` says."""
    return Row(kind, term, formula, numbers(formula, symbols), value(formula, symbols), source, note)
