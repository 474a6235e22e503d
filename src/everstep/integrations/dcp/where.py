"""What DCP's ``checkpoint_id`` says: a step, of the run that was named before or of another one."""

from __future__ import annotations

import os
import re
from typing import Final

from everstep.errors import InvalidName
from everstep.format.ids import parse_run

__all__ = ["parse_checkpoint_id", "valid"]

_STEP: Final = re.compile(r"(?:.*/)?(?:step[-_]?)?([0-9]{1,16})/?", re.ASCII | re.IGNORECASE)


def parse_checkpoint_id(checkpoint_id: str | os.PathLike[str] | int) -> tuple[str | None, int]:
    """The run (None: the one named before) and the step.

    ``RUN@STEP``, a step (a number, or its text), or a folder's name whose last part is a step as training
    frameworks write them (``outputs/checkpoint/step-100``). Raises `InvalidName`.
    """
    if isinstance(checkpoint_id, int) and not isinstance(checkpoint_id, bool):
        if checkpoint_id < 0:
            raise InvalidName(f"step {checkpoint_id} is negative", step=checkpoint_id)
        return None, checkpoint_id
    text = os.fspath(checkpoint_id) if isinstance(checkpoint_id, str | os.PathLike) else repr(checkpoint_id)
    run, at, step = text.rpartition("@")
    if at and step.isascii() and step.isdigit():
        return parse_run(run), int(step)
    found = None if at else _STEP.fullmatch(text)
    if found is None:
        raise InvalidName(
            f"checkpoint_id {text!r} names no checkpoint",
            hint="give RUN@STEP, a step, or a folder name that ends in a step, as in step-100",
            name=text,
        )
    return None, int(found[1])


def valid(checkpoint_id: str | os.PathLike[str] | int) -> bool:
    """Whether it names a checkpoint."""
    try:
        parse_checkpoint_id(checkpoint_id)
    except InvalidName:
        return False
    return True
