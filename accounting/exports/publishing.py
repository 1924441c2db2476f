"""Gives a file its name when it is whole.

Invariant: whoever looks at the name sees nothing, what was there before, or the whole new file, also when
the program is killed; nothing is replaced that it was not told to replace.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from accounting.errors import ConflictError, InvalidError


@contextmanager
def published(target: Path, *, is_forced: bool = False) -> Iterator[BinaryIO]:
    """A file to write that gets its name when the block ends, and is gone when it raises.

    Raises:
        ConflictError: The target is there, and may not be replaced.
        InvalidError: It cannot be written there.
    """
    part = target.with_name(f".{target.name}.part-{os.getpid()}")
    try:
        _require_file(target) if is_forced else _require_free(target)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(part, target, is_forced=is_forced)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidError(f"cannot write {target}: {reason}; name another") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _name(part: Path, target: Path, *, is_forced: bool) -> None:
    if is_forced:
        part.replace(target)
        return
    try:
        target.hardlink_to(part)  # unlike a rename it never replaces what came meanwhile
    except FileExistsError:
        _require_free(target)
        raise
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}:
            raise
        _require_free(target)  # a file system without links
        part.replace(target)


def _require_free(target: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        target.lstat()
        raise ConflictError(f"{target} exists; replace it with --force, or name another")


def _require_file(target: Path) -> None:
    """Devices, pipes and folders are never replaced, least of all by somebody who may do everything."""
    if target.exists() and not target.is_file():
        raise InvalidError(f"{target} is no file, so it is not replaced; name another")
