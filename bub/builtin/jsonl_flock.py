"""The lock on an open file that processes share, as the systems have it: tried for, never waited for."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


if sys.platform == "win32":
    _FAR = 1 << 30  # bytes that are locked cannot be read there

    def try_lock(file: int) -> bool:
        """Take the lock; False when somebody else has it."""
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def try_shared(file: int) -> bool:
        """The same: here nobody can share it."""
        return try_lock(file)

    def unlock(file: int) -> None:
        """Give the lock back."""
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:

    def try_lock(file: int) -> bool:
        """Take the lock; False when somebody else has it."""
        return _try(file, fcntl.LOCK_EX)

    def try_shared(file: int) -> bool:
        """Take a share of it, so that nobody can take the lock; False when somebody has it."""
        return _try(file, fcntl.LOCK_SH)

    def unlock(file: int) -> None:
        """Give the lock back."""
        fcntl.flock(file, fcntl.LOCK_UN)

    def _try(file: int, how: int) -> bool:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def holder_of(path: str) -> int | None:
    """The process that has the lock of a file, where the system tells."""
    try:
        found = os.stat(path)
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with open("/proc/locks", encoding="ascii") as locks:
            for line in locks:
                words = line.split()  # number, kind, whether it is obeyed, how, process, file, from, to
                if words[1:2] == ["FLOCK"] and words[5:6] == [place] and int(words[4]) > 0:
                    return int(words[4])
    except (OSError, ValueError, AttributeError):
        pass
    return None
