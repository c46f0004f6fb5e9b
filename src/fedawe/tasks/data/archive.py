"""Files in a tar.gz, read without unpacking it: nothing is written, whatever their names are."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from fedawe.core.errors import UserError
from fedawe.tasks.data.sets import unreadable


def members(path: Path, wanted: Callable[[tuple[str, ...]], bool], largest: int) -> Iterator[tuple[str, bytes]]:
    """Path and content of each wanted regular file, in the archive's order; refuses one of more than `largest` bytes.

    `wanted` is given the parts of a path.
    """
    try:
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # it would keep every member
                    parts = PurePosixPath(member.name).parts
                    if not member.isreg() or not parts or not wanted(parts):
                        continue
                    if not member.name.isprintable():  # it may appear in a message, on a terminal
                        raise UserError(f"{path}: has a member with the unprintable name {member.name!a}")
                    if member.size > largest:
                        raise UserError(
                            f"{path}: {member.name} has {member.size:,} bytes; expected at most {largest:,}"
                        )
                    file = tar.extractfile(member)
                    assert file is not None  # a regular file
                    yield str(PurePosixPath(*parts)), file.read()
            while stream.read(2**20):  # the checksum of the archive is at its very end
                pass
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise unreadable(path, error) from None
