"""The pages lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    """A link to a page or a file of this repository finds it."""
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_in_the_index():
    """Whoever starts at the index comes to every guide and decision."""
    docs = ROOT / "docs"
    linked = {
        (start.parent / link).resolve()
        for start in (docs / "index.md", docs / "decisions" / "README.md")
        for link in LINK.findall(start.read_text())
    }
    assert [page.name for page in PAGES if page.parent != ROOT and page.resolve() not in linked] == [
        "index.md"
    ]
