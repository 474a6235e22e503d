"""The page of faults says what is so: its tests exist, and the tests' numbers are on it."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "faults.md").read_text()
NAMED = re.findall(r"`((?:\w+/)?test_\w+\.py)((?:::\w+)+)`", PAGE)


def defined(path: Path) -> set[str]:
    """The functions and classes of a file, those in classes behind their class."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(f"::{node.name}")
        if isinstance(node, ast.ClassDef):
            names |= {
                f"::{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
    return names


def test_every_test_on_the_page_exists():
    """No row points to a test that was renamed or removed."""
    assert len(NAMED) > 70
    assert [file for file, _ in NAMED if not (TESTS / file).exists()] == []
    assert [file + name for file, name in NAMED if name not in defined(TESTS / file)] == []


def test_every_fault_has_one_row():
    """The numbers go from 1 to 38, each once, and each row names a test or says with what it comes."""
    rows = re.findall(r"^\| (\d+) \|(.*)$", PAGE, re.MULTILINE)
    assert sorted(int(number) for number, _ in rows) == list(range(1, 39))
    assert [number for number, row in rows if "test_" not in row and "comes with" not in row] == []


def test_every_test_of_a_fault_is_on_the_page():
    """Whoever writes a test in tests/faults tells of its file; numbers in docstrings are numbers of rows."""
    files = {path.relative_to(TESTS).as_posix() for path in (TESTS / "faults").glob("test_*.py")}
    assert sorted(files - {file for file, _ in NAMED}) == []
    for path in TESTS.rglob("test_*.py"):
        for numbers in re.findall(r"\(faults? ([\d, ]+)\)", path.read_text()):
            assert all(1 <= int(number) <= 38 for number in numbers.split(",")), path
