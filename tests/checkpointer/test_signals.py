"""Stop signals set a flag, and nothing else."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from everstep.checkpointer.signals import SaveSignal, StopSignals


def test_sigterm_sets_the_flag_and_the_program_goes_on():
    """A SIGTERM inside the context ends nothing; what was before is back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_sigint_raises_keyboard_interrupt():
    """A person who presses Ctrl-C twice gets out at once."""
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received is signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_second_sigterm_changes_nothing():
    """A launcher that repeats itself does not cut the last save short."""
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received is signal.SIGTERM


def test_a_handler_of_the_program_is_called_too():
    """Whoever watched SIGTERM before still hears it."""
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        with StopSignals():
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_forked_child_can_be_terminated():
    """A data-loader worker forked inside the context dies of SIGTERM as it would have without us."""
    ready, tell = os.pipe()
    with StopSignals():
        child = os.fork()
        if child == 0:
            os.write(tell, b"ready")
            signal.pause()
            os._exit(0)
        os.read(ready, 5)
        os.kill(child, signal.SIGTERM)
        _pid, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_outside_the_main_thread_it_does_nothing():
    """Python allows handlers in the main thread only; a loop in another thread still works."""
    taken = []

    def work():
        with StopSignals() as signals:
            taken.append(signals.received)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert taken == [None]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_save_signal_is_only_counted():
    """It ends nothing inside the context; what was before is back afterwards."""
    before = signal.getsignal(signal.SIGUSR2)
    with SaveSignal(signal.SIGUSR2) as asked:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR2)
        assert asked.received == 3
    assert signal.getsignal(signal.SIGUSR2) is before


def test_a_save_signal_of_none_touches_nothing():
    """EVERSTEP_SAVE_SIGNAL=none: the program has the signal for itself."""
    before = signal.getsignal(signal.SIGUSR2)
    with SaveSignal(None):
        assert signal.getsignal(signal.SIGUSR2) is before


def test_whoever_had_the_save_signal_hears_it_too():
    """A handler of the program, and a second loop around this one."""
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda number, _frame: heard.append(number))
    try:
        with SaveSignal(signal.SIGUSR2) as outer, SaveSignal(signal.SIGUSR2) as inner:
            os.kill(os.getpid(), signal.SIGUSR2)
        assert (outer.received, inner.received, heard) == (1, 1, [signal.SIGUSR2])
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_handler_that_was_set_meanwhile_stays():
    """The program took the signal for itself in the middle: the end of the context does not take it away."""
    before = signal.getsignal(signal.SIGUSR2)

    def mine(_number, _frame):
        """The program's."""

    try:
        with SaveSignal(signal.SIGUSR2):
            signal.signal(signal.SIGUSR2, mine)
        assert signal.getsignal(signal.SIGUSR2) is mine
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells of it")
def test_a_handler_that_is_not_pythons_keeps_the_signal():
    """`faulthandler.register` writes every thread's stack on a signal; it cannot be called from here, so it stays."""
    program = """if True:
        import faulthandler, os, signal, sys
        from everstep.checkpointer.signals import SaveSignal
        faulthandler.register(signal.SIGUSR2, file=sys.stdout)
        with SaveSignal(signal.SIGUSR2) as asked:
            os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR2)
        print(asked.received)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("most recent call first") == 2
    assert done.stdout.splitlines()[-1] == "0"


def test_a_forked_child_outlives_a_save_signal():
    """A scheduler signals the whole job: a data-loader worker is not ended by it, nor is a SIGTERM kept from it."""
    ready, tell = os.pipe()
    with StopSignals(), SaveSignal(signal.SIGUSR2):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGUSR2)
            os.write(tell, b"alive")
            signal.pause()
            os._exit(0)
        assert os.read(ready, 5) == b"alive"
        os.kill(child, signal.SIGTERM)
        _pid, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_a_forked_child_has_the_programs_own_handler_back():
    """Where the program had a handler of its own, its workers have it as without us."""
    ready, tell = os.pipe()
    before = signal.signal(signal.SIGUSR2, lambda *_: os.write(tell, b"mine"))
    try:
        with SaveSignal(signal.SIGUSR2) as asked:
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGUSR2)
                os._exit(asked.received)
            assert os.read(ready, 4) == b"mine"
            _pid, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 0
    finally:
        signal.signal(signal.SIGUSR2, before)
