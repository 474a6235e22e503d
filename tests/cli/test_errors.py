"""Errors are a code, words and a hint, never a traceback; exit codes say their kind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everstep.errors
from everstep.cli import output
from everstep.errors import EverstepError
from tests.cli.worlds import ask, shell, trained


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store that the tests of this file only read."""
    made = trained(tmp_path_factory.mktemp("read") / "store")
    assert shell("tag", "best", "digits@20", "--store", made).code == 0
    return made


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        (["show", "digits@11"], 3, "E-CHECKPOINT-NOT-FOUND", "10"),
        (["show", "digts"], 3, "E-RUN-NOT-FOUND", "did you mean digits?"),
        (["ls", "Digit"], 3, "E-RUN-NOT-FOUND", "did you mean digits?"),
        (["ls", "quite-another"], 3, "E-RUN-NOT-FOUND", "runs here: digits"),
        (["verify", "digts"], 3, "E-RUN-NOT-FOUND", "did you mean digits?"),
        (["cp", "digts", "--to", "memory://x"], 3, "E-RUN-NOT-FOUND", "did you mean digits?"),
        (["show", "tag:bset"], 3, "E-CHECKPOINT-NOT-FOUND", "did you mean best?"),
        (["show", "tag:unlike"], 3, "E-CHECKPOINT-NOT-FOUND", "tags here: best"),
        (["show", "digits@ten"], 2, "E-USAGE", "RUN@STEP"),
        (["show"], 2, "E-USAGE", "EVERSTEP_RUN"),
        (["show", "@10"], 2, "E-USAGE", "EVERSTEP_RUN"),
        (["sho"], 2, "E-USAGE", "--help"),
        (["ls", "--nope"], 2, "E-USAGE", "everstep ls --help"),
        (["fork", "digits@10", "a/b"], 2, "E-INVALID-NAME", "letters"),
        (["import", "/nowhere.safetensors", "--run", "r", "--step", "1"], 3, "E-NOT-FOUND", "path"),
    ],
)
def test_an_error_has_a_code_words_and_a_hint(words, code, error, hint, store, capsys):
    """What a person reads on stderr; nothing is on stdout."""
    extra = [] if words == ["sho"] else ["--store", store]
    answer = ask(capsys, *words, *extra)
    assert answer.code == code
    assert answer.err.startswith(f"error[{error}]: ")
    assert "Traceback" not in answer.err
    assert "\nhint: " in answer.err
    assert hint in answer.err
    assert answer.out == ""


def test_a_json_error_is_a_document_on_stdout(store, capsys):
    """A script reads one document either way, and people still see the words."""
    answer = ask(capsys, "show", "digits@11", "--store", store, "--json")
    assert answer.code == 3
    assert answer.json["error"]["code"] == "E-CHECKPOINT-NOT-FOUND"
    assert answer.json["error"]["exit_code"] == 3
    assert answer.json["error"]["fields"] == {"run": "digits", "step": 11}
    assert answer.err.startswith("error[")


def test_a_usage_error_is_a_document_too(capsys):
    """Also when the words could not be parsed."""
    answer = ask(capsys, "ls", "--json", "--nope")
    assert answer.json["error"]["code"] == "E-USAGE"
    assert answer.code == 2


def test_no_store_named_says_how_to_name_one():
    """Without flag, variable and settings."""
    answer = shell("ls", cwd="/")
    assert answer.code == 2
    assert "EVERSTEP_STORE" in answer.err


def test_the_store_and_run_come_from_the_environment(store):
    """EVERSTEP_STORE and EVERSTEP_RUN stand for --store and --run; @STEP speaks of that run."""
    answer = shell("show", "@20", env={"EVERSTEP_STORE": store, "EVERSTEP_RUN": "digits"})
    assert answer.code == 0, answer.err
    assert answer.out.startswith("digits@20\n")


def test_a_place_that_is_no_store_is_not_found_and_not_made(tmp_path, capsys):
    """A reader never writes."""
    answer = ask(capsys, "ls", "--store", tmp_path / "none")
    assert answer.code == 3
    assert not (tmp_path / "none").exists()


def all_errors(kind=EverstepError):
    """Every class of the tree."""
    yield kind
    for inner in kind.__subclasses__():
        yield from all_errors(inner)


def test_every_error_of_the_tree_has_the_exit_code_of_its_branch(capsys):
    """0 ok, 1 error, 2 usage, 3 not found, 4 access denied, 5 try again, 6 integrity failure."""
    branches = {"UsageError": 2, "NotFound": 3, "AccessDenied": 4, "TryAgain": 5, "IntegrityError": 6}
    for kind in all_errors():
        if kind.__module__ != everstep.errors.__name__:
            continue
        want = next((branches[base.__name__] for base in kind.__mro__ if base.__name__ in branches), 1)
        assert output.fail(kind("words", hint="what to do"), as_json=False) == want, kind
        assert capsys.readouterr().err == f"error[{kind.code}]: words\nhint: what to do\n"


def test_a_file_that_cannot_be_written_is_an_error_of_words(store, tmp_path, capsys):
    """An operating system's error on the user's own file is no traceback."""
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "below.safetensors"
    answer = ask(capsys, "export", "digits", "--store", store, "--out", out, "--select", "model")
    assert answer.code in {1, 2}
    assert answer.err.splitlines()[-2].startswith("error[")
    assert str(tmp_path / "file") in answer.err


def test_control_characters_in_names_do_not_reach_the_terminal(capsys):
    """A leaf named by an attacker cannot repaint the screen."""
    output.table(("LEAF",), [("\x1b[2Jgone",)])
    output.fail(EverstepError("bad \x1b]0;title\x07 name"), as_json=False)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\\x1b[2Jgone" in out


def test_a_lone_surrogate_can_be_shown(capsys):
    """Not every text can be encoded; all can be shown."""
    output.line("a\ud800b")
    output.document({"name": output.jsonable("a\ud800b")})
    assert "\\ud800" in capsys.readouterr().out


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_no_colour_unless_on_a_terminal(variable, store):
    """A pipe gets plain text, with or without NO_COLOR."""
    answer = shell("ls", "--store", store, env=variable)
    assert "\x1b" not in answer.out + answer.err


@pytest.mark.parametrize(("variable", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_on_a_terminal_unless_refused(variable, coloured, store):
    """On a terminal headings are bold; NO_COLOR turns that off."""
    here, there = os.openpty()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "everstep"), "ls", "--store", store],
        stdout=there,
        stderr=there,
        env={"TERM": "xterm", **variable},
        check=True,
    )
    os.close(there)
    shown = os.read(here, 65536)
    os.close(here)
    assert done.returncode == 0
    assert (b"\x1b[1m" in shown) is coloured


def test_a_reader_that_goes_away_is_no_error(store):
    """`everstep ls | head -1` ends as the shell expects of a closed pipe: 141 and not a word."""
    words = [str(Path(sys.executable).parent / "everstep"), "show", "digits", "--all", "--store", store]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


def test_an_interrupt_exits_130(store, monkeypatch, capsys):
    """Ctrl-C is neither success nor a traceback."""

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("everstep.cli.places.opened", interrupted)
    answer = ask(capsys, "ls", "--store", store)
    assert answer.code == 130
    assert "interrupted" in answer.err
    assert "Traceback" not in answer.err
