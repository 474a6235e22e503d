"""Becomes the command it is given, and dies when its parent does: ``leash.py PARENT COMMAND...``.

Run as a program, so that the test process itself never forks. Where the system has no such leash (only
Linux has), the command runs without one.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("the parent is gone")
    os.execv(command[0], command)  # the same process from here on: the leash stays


if __name__ == "__main__":
    main()
