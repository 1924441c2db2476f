"""Finds what stands twice among any number of rows, in little memory: digests go to a temporary file.

Invariant: memory grows with one part in 64 of the rows, at 24 bytes each; nothing is missed, and what is
found is the second of two equal keys.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Self

_PARTS = 64
_ENTRY = struct.Struct(">16sQ")
_BUFFERED_ENTRIES = 4_096


class Repeats:
    """Told every key in order, tells afterwards which came again. A context manager: it holds a file."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = [bytearray() for _ in range(_PARTS)]
        self._chunks: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, number: int, key: Sequence[str]) -> None:
        """Take the key of a row."""
        text = "\x00".join(key).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=16).digest()
        part = digest[0] % _PARTS
        self._buffers[part] += _ENTRY.pack(digest, number)
        if len(self._buffers[part]) >= _BUFFERED_ENTRIES * _ENTRY.size:
            self._spill(part)

    def _spill(self, part: int) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._file.seek(0, 2)
        self._chunks[part].append((self._file.tell(), len(self._buffers[part])))
        self._file.write(self._buffers[part])
        self._buffers[part].clear()

    def found(self) -> Iterator[tuple[int, int]]:
        """(first row, row that repeats it), for every row that repeats one."""
        for part in range(_PARTS):
            first: dict[bytes, int] = {}
            for digest, number in self._entries(part):
                if digest in first:
                    yield first[digest], number
                else:
                    first[digest] = number

    def _entries(self, part: int) -> Iterator[tuple[bytes, int]]:
        for offset, size in self._chunks[part]:
            assert self._file is not None
            self._file.seek(offset)
            yield from _ENTRY.iter_unpack(self._file.read(size))
        yield from _ENTRY.iter_unpack(bytes(self._buffers[part]))
