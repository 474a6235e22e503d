"""The reference is what the docstrings say."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_reference_is_up_to_date():
    """``make reference`` would change nothing."""
    made = runpy.run_path(str(DOCS / "make_reference.py"))["page"]()
    assert (DOCS / "reference.md").read_text() == made, "run `make reference`"


def test_every_public_name_is_described():
    """No public name and no error is without words of its own."""
    import inspect

    import everstep
    from everstep import errors

    public = [getattr(everstep, name) for name in everstep.__all__]
    public += [getattr(errors, name) for name in errors.__all__]
    assert [value for value in public if not inspect.getdoc(value)] == []
