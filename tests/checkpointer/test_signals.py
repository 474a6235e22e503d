"""Stop signals set a flag, and nothing else."""

import os
import signal
import threading

import pytest

from everstep.checkpointer.signals import StopSignals


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
