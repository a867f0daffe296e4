"""The small changes that can be made to a module, each a slip that a programmer might make.

Comparisons, `and` and `or`, constants off by one, `+` and `-`, `min` and `max`, conditions and truths negated, and
statements left out. Never changed, since nobody could tell: docstrings and other texts, what is logged, type hints,
`__slots__`, `__all__`, imports, decorators, blocks under `if TYPE_CHECKING`, assertions and `check_invariants` (they
state what can't happen).
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
OTHER_END = {"min": "max", "max": "min"}
LARGE = 1000
"""A size or a time this large is off by one for nobody; the comparison with it is a change of its own."""
LOGGERS = frozenset(("log", "_log", "logger", "_logger", "logging"))
LEVELS = frozenset(("debug", "info", "warning", "error", "exception", "critical", "log"))
UNSEEN_FUNCTIONS = frozenset(("__repr__", "__str__", "check_invariants"))
UNSEEN_NAMES = frozenset(("__all__", "__slots__"))
UNSEEN_KEYWORDS = frozenset(("strict", "covariant", "contravariant"))
"""Of `zip`, an assertion, too; of `TypeVar`, a type hint."""
UNSEEN = (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr, ast.Global, ast.Nonlocal)


class Change(NamedTuple):
    """Bytes from `start` to `end` of a module become `text`."""

    start: int
    end: int
    text: str
    line: int
    kind: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def changes(source: bytes) -> list[Change]:
    """Every change that can be made and leaves Python, in the order of the places."""
    before = _parsed(source)
    return [change for change in conceivable(source) if _parsed(change.apply(source)) not in (None, before)]


def conceivable(source: bytes) -> list[Change]:
    """All of them, before it is known whether they leave Python, and another one: that takes long."""
    return sorted(set(_Finder(source).of(ast.parse(source))))


def _parsed(source: bytes) -> str | None:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return None


class _Finder:
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._begins = False  # in a constructor, where a field left out is noticed by whoever reads it
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def of(self, node: ast.AST) -> Iterator[Change]:
        """All changes in here, those of what is in it included."""
        if isinstance(node, UNSEEN) or _is_unseen(node):
            return
        inside, self._begins = self._begins, self._begins or getattr(node, "name", "") == "__init__"
        yield from self._here(node)
        for name, value in ast.iter_fields(node):
            if isinstance(node, ast.keyword) and node.arg in UNSEEN_KEYWORDS:
                continue
            if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(
                node, ast.Call
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.of(child)
        self._begins = inside

    def _here(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare():
                yield from self._comparisons(node)
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._operator(left, right, old, new, "and/or")
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                old, new = ARITHMETIC[type(node.op)]
                yield from self._operator(node.left, node.right, old, new, "arithmetic")
            case ast.AugAssign(op=ast.Add() | ast.Sub()):
                old, new = ARITHMETIC[type(node.op)]
                yield from self._operator(node.target, node.value, f"{old}=", f"{new}=", "arithmetic")
                yield self._left_out(node)
            case ast.Call(func=ast.Name(id=("min" | "max") as name)):
                yield self._replaced(node.func, OTHER_END[name], "min/max")
            case ast.UnaryOp(op=ast.Not()):
                yield self._replaced(node, self._text(node.operand), "negated", within=True)
            case ast.Constant(value=bool() as value):
                yield self._replaced(node, str(not value), "constant")
            case ast.Constant(value=int() as value) if abs(value) < LARGE:
                yield self._replaced(node, str(value + 1), "constant")
                if value > 1:
                    yield self._replaced(node, str(value - 1), "constant")
            case ast.If() | ast.While() | ast.IfExp():
                yield from self._negated(node.test)
            case ast.comprehension():
                for condition in node.ifs:
                    yield from self._negated(condition)
            case ast.Return(value=ast.Compare() | ast.BoolOp()):
                assert node.value is not None
                yield from self._negated(node.value)
            case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete() | ast.Return(value=None):
                yield self._left_out(node)
            case ast.Expr(value=ast.Call() | ast.IfExp() | ast.YieldFrom() | ast.Yield()):
                yield self._left_out(node)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() | ast.Tuple()]) if not self._begins:
                yield self._left_out(node)
            case _:
                pass

    def _comparisons(self, node: ast.Compare) -> Iterator[Change]:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARISONS[type(op)]
            yield from self._operator(left, right, old, new, "comparison")
            left = right

    def _operator(self, left: ast.expr, right: ast.expr, old: str, new: str, kind: str) -> Iterator[Change]:
        """What stands between the two is the operator, and parentheses, spaces, a comment perhaps."""
        begin, end = self._end(left), self._start(right)
        at = self._source.find(old.encode(), begin, end)
        if at >= 0:
            yield Change(at, at + len(old), new, self._line(at), kind)

    def _negated(self, condition: ast.expr) -> Iterator[Change]:
        if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            return  # that it is left out is a change of its own
        ops = condition.ops if isinstance(condition, ast.Compare) else []
        if len(ops) == 1 and not isinstance(ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            return  # a comparison of its own says the same
        yield self._replaced(condition, f"not ({self._text(condition)})", "negated", within=True)

    def _left_out(self, node: ast.stmt) -> Change:
        return self._replaced(node, "pass", "left out")

    def _replaced(self, node: ast.expr | ast.stmt, text: str, kind: str, *, within: bool = False) -> Change:
        return Change(self._start(node), self._end(node), f"({text})" if within else text, node.lineno, kind)

    def _text(self, node: ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def _line(self, at: int) -> int:
        return self._source.count(b"\n", 0, at) + 1


def _number(node: ast.AST) -> int:
    """What a product or power of numbers comes to; 0 where it is none."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _number(left) * _number(right)
        case ast.BinOp(left=left, op=ast.LShift(), right=right):
            return _number(left) << _number(right)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _number(left) ** _number(right)
        case _:
            return 0


def _is_unseen(node: ast.AST) -> bool:
    match node:
        case ast.BinOp():
            return _number(node) >= LARGE
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=level))):
            return name in LOGGERS and level in LEVELS
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
        case ast.If(body=body, orelse=[]):
            return all(map(_is_unseen, body))
        case ast.FunctionDef(name=name):
            return name in UNSEEN_FUNCTIONS
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in UNSEEN_NAMES
        case _:
            return False
