"""What the import contract cannot see: each rule is a walk over the source, and each is shown to catch."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "everstep"
FILES = sorted(SOURCE.rglob("*.py"))
FRAMEWORK_ROOMS = {"state", "ranks", "integrations"}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
LONGEST = 600

Finding = tuple[int, str]


def environment_reads(tree: ast.Module) -> Iterator[Finding]:
    """Reads of the process's environment, by attribute or by an imported name."""
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os":
            yield node.lineno, f"os.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((node.lineno, f"os.{each.name}") for each in node.names if each.name in names)


def imported(node: ast.AST) -> Iterator[str]:
    """The top-level packages that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (each.name.partition(".")[0] for each in node.names)
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module.partition(".")[0]


def pickles(tree: ast.Module) -> Iterator[Finding]:
    """Anything that turns bytes into code or objects of any class, and ``allow_pickle`` or unsafe ``weights_only``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and [each.name for each in node.names] == ["UnpicklingError"]:
            continue  # to say that a foreign file was refused
        yield from ((node.lineno, name) for name in imported(node) if name in PICKLES)
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
            if node.arg == "allow_pickle" and node.value.value is not False:
                yield node.value.lineno, "allow_pickle"
            if node.arg == "weights_only" and node.value.value is not True:
                yield node.value.lineno, "weights_only"


def loaded_with_the_module(tree: ast.Module) -> Iterator[Finding]:
    """Frameworks imported when the module is, not when a function runs; imports for types alone do not count."""

    def walk(node: ast.AST) -> Iterator[Finding]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield from (
                (child.lineno, name) for name in imported(child) if name in {"torch", "jax", "jaxlib"}
            )
            yield from walk(child)

    yield from walk(tree)


def findings(rule: Callable[[ast.Module], Iterator[Finding]], files: list[Path]) -> list[str]:
    """Where a rule is broken, one line each."""
    return [
        f"{path.relative_to(SOURCE)}:{line}: {what}"
        for path in files
        for line, what in rule(ast.parse(path.read_text(), str(path)))
    ]


def test_only_config_reads_the_environment():
    """Settings have one door: a flag, a variable and a file are weighed in one place."""
    assert (
        findings(environment_reads, [path for path in FILES if path != SOURCE / "config" / "reading.py"])
        == []
    )


def test_nothing_is_pickled_or_unpickled():
    """A checkpoint from a stranger runs no code, in or out."""
    assert findings(pickles, FILES) == []


def test_the_core_loads_without_a_framework():
    """Rooms other than state, ranks and integrations never load torch or jax on import."""
    core = [path for path in FILES if path.relative_to(SOURCE).parts[0] not in FRAMEWORK_ROOMS]
    assert findings(loaded_with_the_module, core) == []


def test_no_file_is_longer_than_a_reader_holds():
    """Past 600 lines a file is two nouns."""
    long = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (environment_reads, "import os\nx = os.environ.get('A')"),
        (environment_reads, "import os\nx = os.getenv('A')"),
        (environment_reads, "from os import environ"),
        (pickles, "import pickle"),
        (pickles, "def f():\n    from pickle import loads"),
        (pickles, "numpy.load(file, allow_pickle=True)"),
        (pickles, "torch.load(file, weights_only=False)"),
        (loaded_with_the_module, "import torch.nn"),
        (loaded_with_the_module, "try:\n    from jax import numpy\nexcept ImportError:\n    pass"),
        (loaded_with_the_module, "class A:\n    import torch"),
    ],
)
def test_a_breach_is_found(rule, source):
    """Each rule finds the breaches that it is for."""
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (environment_reads, "import os\nx = os.path.join('a', 'environ')"),
        (pickles, "torch.load(file, weights_only=True)"),
        (pickles, "from pickle import UnpicklingError"),
        (loaded_with_the_module, "def f():\n    import torch"),
        (loaded_with_the_module, "if TYPE_CHECKING:\n    import torch"),
    ],
)
def test_what_is_allowed_is_not_found(rule, source):
    """The rules leave alone what they allow."""
    assert not list(rule(ast.parse(source)))
