"""Children forked while a save runs, as data-loader workers are."""

import os
import signal
import threading

import numpy as np
import pytest

from everstep.store.local import LocalStore
from everstep.transfer.memory import Arena
from tests.transfer.made import flat_of, restore, save


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forks_during_uploads(tmp_path):
    """Children forked in the middle of saves end by themselves, having allocated and computed; the saves are whole."""
    arena, store = Arena(), LocalStore(tmp_path)
    arrays = {f"w{n}": np.random.default_rng(n).integers(0, 255, 4_000_000, np.uint8) for n in range(8)}
    flat = flat_of(arrays)
    indexes, errors = [], []

    def saves():
        try:
            for n in range(6):
                options = {"pack_bytes": 4_000_000}
                indexes.append(save(store, flat, name=f"s{n}", arena=arena, stage_options=options).index)
        except BaseException as error:  # noqa: BLE001 - carried to the assert below
            errors.append(error)

    thread = threading.Thread(target=saves)
    thread.start()
    statuses = []
    while thread.is_alive():
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # a child that hangs dies of it
            try:
                work = np.full(3_000_000, 3, np.uint8)
                ended = threading.Thread(target=work.sum)
                ended.start()
                ended.join()
                os._exit(0 if int(work.sum()) == 9_000_000 else 1)
            finally:
                os._exit(2)
        statuses.append(os.waitpid(pid, 0)[1])
    thread.join()
    assert not errors
    assert len(statuses) > 2
    assert set(statuses) == {0}
    for index in indexes:
        assert restore(store, flat, [index]) == [array.tobytes() for array in arrays.values()]
