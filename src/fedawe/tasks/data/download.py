"""Downloads of the published files: resumed after an interruption, and visible only if the checksum is right."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from fedawe.core.errors import UserError
from fedawe.tasks.data.cache import locked
from fedawe.tasks.data.sets import KNOWN, File, Known, Report, check_md5, digest

PIECE = 2**18
ATTEMPTS = 4  # in a row without progress
TIMEOUT_SECONDS = 30


class _Failed(Exception):
    """Why a download from one address failed."""


def download(name: str, folder: Path, report: Report, mirror: str | None = None, pause: float = 1.0) -> list[Path]:
    """Fetch the missing files of a data set into `folder`/downloads; returns the paths of all its files.

    `mirror` is another address under which the files have their published names. `pause` seconds pass after a failure.
    """
    known = KNOWN.get(name)
    if known is None:
        raise UserError(f"{name!r} cannot be downloaded; {', '.join(KNOWN)} can")
    if mirror is not None and not _is_address(mirror):
        raise UserError(f"a mirror is an address that begins with http:// or https://, not {mirror!r}")
    into = folder / "downloads"
    for file in known.downloads:
        with locked(into, file.name):
            if (into / file.name).is_file():  # fetched before, or put there by the user
                check_md5(into / file.name, file)
            else:
                _fetch(known, file, into, report, mirror, pause)
    return [into / file.name for file in known.downloads]


def _is_address(text: str) -> bool:
    """Whether this is a URL that begins with http:// or https://."""
    try:
        return urlsplit(text).scheme in ("http", "https")
    except ValueError:  # brackets without an IPv6 address
        return False


def _fetch(known: Known, file: File, into: Path, report: Report, mirror: str | None, pause: float) -> None:
    part = into / f"{file.name}.part"
    reason = ""
    for address in [f"{mirror.rstrip('/')}/{file.name}"] if mirror else file.addresses:
        try:
            _persist(address, part, file, report, pause)
        except _Failed as error:
            reason = f"{address}: {error}"
            continue
        if digest(part, "md5") == file.md5:
            with _writing(part):
                part.replace(into / file.name)
            return
        part.unlink()
        reason = f"{address}: what it sends is not {file.name}, whose md5 is {file.md5}, and was deleted"
    missing = [other for other in known.downloads if not (into / other.name).is_file()]
    raise UserError(
        f"{reason}. Try again, or bring {' and '.join(other.name for other in missing)} "
        f"({', '.join(other.addresses[-1] for other in missing)}) from elsewhere, put it in {into}, "
        "and give the same command"
    )


def _persist(address: str, part: Path, file: File, report: Report, pause: float) -> None:
    """Fetch until the file is complete; fails after several attempts in a row without progress."""
    idle = 0
    while True:
        before = _size(part)
        try:
            return _attempt(address, part, file, report)
        except (OSError, http.client.HTTPException) as error:
            said = str(getattr(error, "reason", error))
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                said = f"the server says {error.code} {error.reason}"
                if error.code < 500:  # a repetition would get the same answer
                    raise _Failed(said) from None
            have = _size(part)
            idle = 0 if have > before else idle + 1
            if idle == ATTEMPTS:
                cut = f"the connection is cut after {have:,} bytes, which are kept" if have else "cannot be reached"
                raise _Failed(f"{cut} ({said})") from None
            time.sleep(pause)


def _attempt(address: str, part: Path, file: File, report: Report) -> None:
    """One request, for the missing part of the file."""
    have = _size(part)
    headers = {"User-Agent": "fedawe", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # the part is complete, or of another file: the checksum decides
            error.close()
            return
        raise
    with response:
        if response.headers.get_content_type() == "text/html":
            raise _Failed("it answers with a web page, not with the file")
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        done = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else file.size
        with _writing(part):
            sink = part.open("ab" if resumed else "wb")
        with sink:
            while piece := response.read(PIECE):
                with _writing(part):
                    sink.write(piece)
                    sink.flush()
                done += len(piece)
                report(f"downloading {file.name}", done, max(total, done))
        if length and done < total:
            raise ConnectionError(f"{total - done:,} bytes are missing")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Distinguishes a full disk from a failing network: only errors of writing become a `UserError` here."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
