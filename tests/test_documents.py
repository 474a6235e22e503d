"""The pages' runner itself: it removes what it made and nothing else, and a wrong page is found."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import documents


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with something in it."""
    (tmp_path / "precious").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_page_removes_its_own_folder_wherever_its_blocks_went(place):
    """A block that changes the working folder, even back to where the page came from, loses nobody's files."""
    namespace = {}
    documents._arrive(namespace)
    own = Path.cwd()
    assert own != place
    os.chdir(place)
    documents._leave(namespace)
    assert Path.cwd() == place
    assert not own.exists()
    assert (place / "precious").read_text() == "mine"


def test_a_page_that_never_arrived_removes_nothing(place):
    """What failed to set up is torn down by pytest all the same."""
    documents._leave({})
    documents._leave({documents.FOLDER: place, documents.ENVIRONMENT: dict(os.environ)})
    assert (place / "precious").read_text() == "mine"


def block(text):
    """A code block, as the runner gets it."""
    return SimpleNamespace(parsed=text)


@pytest.mark.parametrize("text", ["false", "true\nfalse\ntrue", "exit 3", "make no-such-target"])
def test_a_shell_block_that_fails_is_found(place, text):
    """The first command that fails stops the block, and the page."""
    assert documents._shell(block(text))


@pytest.mark.parametrize("text", ["true", "(exit 10)\ntrue", "make test  # everything"])
def test_a_shell_block_that_works_is_not_found(place, text):
    """Findings (exit code 10) are no failure; targets of make exist."""
    assert documents._shell(block(text)) is None


def test_exports_stay_for_the_blocks_that_follow(place, monkeypatch):
    """What a block exports of everstep's variables, the next one has."""
    monkeypatch.setenv("EVERSTEP_RUN", "before")
    assert documents._shell(block("export EVERSTEP_RUN=after")) is None
    assert documents._console(block("$ echo $EVERSTEP_RUN\nafter\n")) is None


@pytest.mark.parametrize("text", ["$ echo one\ntwo\n", "$ echo one\n$ false\n", "$ echo one\n...two\n"])
def test_another_answer_than_the_page_says_is_found(place, text):
    """The whole answer counts."""
    assert documents._console(block(text))


@pytest.mark.parametrize(
    "text", ["$ echo one two\none ...\n", "$ echo one\n", "$ echo 'copy: 1 B of 2 B (50 %)'; echo a\na\n"]
)
def test_the_answer_that_the_page_says_is_not_found(place, text):
    """Three dots stand for anything, no answer for any, and progress is left out."""
    assert documents._console(block(text)) is None
