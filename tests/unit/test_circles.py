"""No file imports itself by way of others: imports in functions and for types alone count too.

Who reads a file of a circle has to read all of them, and none of them can be taken out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules_of(source: Path) -> dict[str, Path]:
    """Return the files of the package, by the name of the module."""
    found = {}
    for path in (source / "ternmq").rglob("*.py"):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports_of(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom) and (node.module or "") in modules:
            whole = node.module or ""
            for one in node.names:
                part = f"{whole}.{one.name}"
                yield part if part in modules else whole


def circles_of(source: Path) -> set[frozenset[str]]:
    """Return the circles: sets of modules each of which leads to all others of its set."""
    modules = modules_of(source)
    edges = {name: set(imports_of(path, modules)) for name, path in modules.items()}
    reached = {name: _reached(name, edges) for name in edges}
    return {
        frozenset(other for other in ends if name in reached[other])
        for name, ends in reached.items()
        if name in ends
    }


def _reached(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that a module leads to; itself only if it is in a circle."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def told(circles: set[frozenset[str]]) -> str:
    """Return the circles as text, with the imports that make them."""
    modules = modules_of(ROOT / "src")
    lines = []
    for circle in sorted(circles, key=sorted):
        lines.append(f"a circle of {len(circle)} files:")
        for name in sorted(circle & modules.keys()):
            inside = sorted(set(imports_of(modules[name], modules)) & circle)
            lines.append(f"  {name} imports {', '.join(inside)}")
    return "\n".join(lines)


def test_no_file_imports_itself_by_way_of_others() -> None:
    found = circles_of(ROOT / "src")
    assert not found, (
        f"{told(found)}\n"
        "Hand in what the lower file needs, or have it define a Protocol of that; see "
        "ARCHITECTURE.md for what is below what."
    )


def test_circles_are_found_however_a_file_imports(tmp_path: Path) -> None:
    package = tmp_path / "ternmq"
    for name, text in {
        "__init__": "",
        "a": "from ternmq import b",
        "b": "def late():\n    import ternmq.c",
        "c": "if TYPE_CHECKING:\n    from ternmq.a import A",
        "d": "from ternmq.a import A\nfrom ternmq.e.f import F",
        "e/__init__": "",
        "e/f": "from ternmq.e import g",
        "e/g": "from ternmq.e.f import F",
        "h": "import ternmq.h",
    }.items():
        path = package / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert circles_of(tmp_path) == {
        frozenset({"ternmq.a", "ternmq.b", "ternmq.c"}),
        frozenset({"ternmq.e.f", "ternmq.e.g"}),
        frozenset({"ternmq.h"}),
    }
