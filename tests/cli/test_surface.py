"""The command line's surface is frozen: names, options, defaults and the shape of every JSON document."""

import json
from pathlib import Path

import click
import pytest

from everstep.cli.entry import program
from everstep.cli.group import VERBS
from tests.cli.worlds import ask, trained

GOLDEN = Path(__file__).parent / "golden"


def commands():
    """Every verb's command, by name."""
    context = click.Context(program)
    return {name: program.get_command(context, name) for name in program.list_commands(context)}


def described(parameter):
    """A parameter as far as scripts depend on it."""
    info = parameter.to_info_dict()
    kept = {
        "name": info["name"],
        "opts": info["opts"],
        "required": info["required"],
        "type": info["type"]["name"],
    }
    if isinstance(parameter, click.Option):
        kept |= {"flag": parameter.is_flag, "multiple": parameter.multiple}
    return kept


def frozen(name, value):
    """Compare with the golden file; write it when it is not there, and fail so that it is looked at."""
    path = GOLDEN / name
    text = json.dumps(value, indent=1, sort_keys=True) + "\n"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was written: look at it and add it")
    assert json.loads(path.read_text()) == value, f"the surface changed; if that is meant, remove {path}"


def test_commands_and_options_are_frozen():
    """A verb or option that goes or changes its kind breaks scripts."""
    frozen(
        "surface.json",
        {name: [described(one) for one in command.params] for name, command in commands().items()},
    )


def test_the_table_of_verbs_says_what_the_verbs_say():
    """The short help that is shown without loading a verb is the verb's own first line."""
    for name, command in commands().items():
        assert command.help.splitlines()[0].strip() == VERBS[name][1], name
        assert command.name == name


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_takes_a_store_and_json(name):
    """One spelling everywhere; doctor, drill and import included."""
    names = {one.name for one in commands()[name].params}
    assert {"store", "as_json"} <= names
    if name not in {"doctor", "drill"}:
        assert "run" in names


def shape(value):
    """The types of a document: a list is its first item's."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def test_json_documents_are_frozen(tmp_path, capsys):
    """Every verb's document keeps its fields and their types, and says its schema version."""
    store = trained(tmp_path / "store")
    other = tmp_path / "other"
    file = tmp_path / "model.safetensors"
    asked = {
        "ls": ["ls"],
        "ls RUN": ["ls", "digits"],
        "show": ["show", "digits"],
        "save --no-wait": ["save", "digits", "--no-wait"],
        "tag NAME": ["tag", "best", "digits@20"],
        "tag": ["tag"],
        "tag --delete": ["tag", "best", "--delete"],
        "diff": ["diff", "digits@10", "digits@20"],
        "verify": ["verify", "digits@10"],
        "fork": ["fork", "digits@20", "second"],
        "cp": ["cp", "digits@10", "--to", str(other)],
        "export": ["export", "digits", "--out", str(file), "--select", "model"],
        "import": ["import", str(file), "--run", "imported", "--step", "1"],
        "doctor": ["doctor", "--probe-mb", "1"],
        "prune --dry-run": ["prune", "digits", "--keep", "last 1", "--dry-run"],
        "prune": ["prune", "digits@20", "--yes", "--check", "light"],
        "undelete --list": ["undelete", "digits", "--list"],
        "undelete": ["undelete", "digits@20"],
        "du": ["du"],
        "plan": ["plan", "--state", "1GB", "--stall", "1s", "--bandwidth", "1GB/s", "--mtbf", "4h"],
        "error": ["show", "digits@11"],
    }
    shapes = {}
    for name, words in asked.items():
        answer = ask(capsys, *words, "--store", store, "--json")
        assert answer.json["schema_version"] == 1
        shapes[name] = shape(answer.json)
    frozen("documents.json", shapes)
