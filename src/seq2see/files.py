"""Files of others are read within limits, and files of ours are written whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seq2see.errors import FolderError, UserError, shown

LOCK = ".lock"  # a process that works in a folder locks this file
AT_ONCE = 2**28  # bytes of one write: some systems take at most 2 GiB
STEP = "/step"  # ending of the name of a matrix's scales, in a file of weights
LARGEST_TEXT = 2**28  # bytes of a text file that is read at once
REMEMBERED = 4_000_000  # bytes from which the digest of a file is remembered
TEMPORARY = re.compile(r"\..+\.(\d+)\.seq2see-[0-9a-z_]{8}")
EXCHANGE = 2  # renameat2's RENAME_EXCHANGE
HERE = -100  # AT_FDCWD: paths are relative to the current folder
LOCKED_BYTE = 2**30  # on Windows, far behind the lock file's text, since others cannot read a locked byte
QUERY, STILL_ACTIVE = (0x1000, 259)  # Windows: the right to ask about a process, and the status of one that runs


# --- reading -----------------------------------------------------------------------------------------------------


def plain_file(path: Path, most: int | None = None) -> int:
    """Return the size of a file of a model folder, or refuse it.

    It refuses a link out of the folder, a device, a pipe, and a file of more than ``most`` bytes: reading one
    could show other files of this machine, or never end.
    """
    try:
        if not path.resolve().is_relative_to(path.parent.resolve()):
            raise FolderError(f"{path.name} is a link out of its folder: copy the file itself into the folder.")
        found = path.stat()
    except (OSError, RuntimeError, ValueError) as error:
        raise FolderError(f"{path.name} cannot be read ({error}).") from None
    if not stat.S_ISREG(found.st_mode):
        raise FolderError(f"{path.name} is not a plain file.")
    if most is not None and found.st_size > most:
        raise FolderError(f"{path.name} has {found.st_size:,} bytes, and at most {most:,} were expected.")
    return found.st_size


def given_file(path: Path, expected: str, most: int | None = None) -> int:
    """Return the size of a file that the user names, or refuse it; the message says what was ``expected``.

    It refuses a folder, a device, a pipe, and a file of more than ``most`` bytes: reading one could never end, or
    fill the memory.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UserError(f"There is no file {str(path)!r}: {expected} was expected.") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read ({reason(error)}): {expected} was expected.") from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe, not a file"
        raise UserError(f"{str(path)!r} is {what}: {expected} was expected.")
    if most is not None and found.st_size > most:
        raise UserError(
            f"{str(path)!r} has {found.st_size:,} bytes: {expected} was expected, of at most {most:,} bytes."
        )
    return found.st_size


def given_text(path: Path, expected: str, most: int = LARGEST_TEXT) -> str:
    """Read a text file that the user names, within the limits of ``given_file``."""
    given_file(path, expected, most)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{str(path)!r} is not UTF-8 text: {expected} was expected.") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read ({reason(error)}): {expected} was expected.") from None


def read_text(path: Path, most: int) -> str:
    """Read a text file of a model folder within the limits of ``plain_file``."""
    plain_file(path, most)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise FolderError(f"{path.name} is not UTF-8 text.") from None
    except OSError as error:
        raise FolderError(f"{path.name} cannot be read ({reason(error)}).") from None


def parsed(text: str | bytes, name: str) -> Any:
    """Read JSON; refuse invalid JSON, deep nesting and numbers of thousands of digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{name} is not JSON that can be read ({shown(str(error), 100)}).") from None


def digest(path: Path) -> bytes:
    """Return a file's sha256. That of a large file is stored in the user's cache folder under the file's
    path, inode, size and times, so that a large model is read only once.
    """
    found = path.stat()
    key = f"{path.resolve()} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    note = cache_folder() / "digests" / hashlib.sha256(key.encode()).hexdigest()
    if found.st_size >= REMEMBERED:
        with suppress(OSError, ValueError):
            return bytes.fromhex(note.read_text(encoding="ascii")[:64].rjust(64, "x"))
    with path.open("rb") as file:
        value = hashlib.file_digest(file, "sha256").digest()
    if found.st_size >= REMEMBERED and path.stat() == found:
        with suppress(OSError, FolderError):  # without a writable cache it only takes longer
            write_atomically(note, value.hex().encode())
    return value


def cache_folder() -> Path:
    """Return the cache folder of this user."""
    home, kept = Path.home(), os.environ.get("XDG_CACHE_HOME")
    if not kept and sys.platform == "win32":
        kept = os.environ.get("LOCALAPPDATA")
    return (Path(kept) if kept else home / ("Library/Caches" if sys.platform == "darwin" else ".cache")) / "seq2see"


# --- writing -----------------------------------------------------------------------------------------------------


class Writer(io.RawIOBase):
    """Writes bytes to a new file until all of them are taken, and counts them."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self.handle, self.written = path, handle, 0

    def writable(self) -> bool:
        """Return True: modules that compress or buffer ask for it."""
        return True

    def write(self, data: Any) -> int:
        """Write all bytes: the system may accept only some of them without an error."""
        left = memoryview(data).cast("B")
        size = len(left)
        while len(left):
            try:
                taken = os.write(self.handle, left[:AT_ONCE])
            except OSError as error:
                raise unwritten(self.path, error) from error
            if taken <= 0:
                raise unwritten(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            self.written += taken
            left = left[taken:]
        return size


@contextmanager
def writing(path: Path, ending: str = "") -> Iterator[Writer]:
    """Write a file so that it is either whole or not there, even if the disk is full or the power fails.

    The bytes go to a temporary file, reach the disk and are counted there; then the file gets its name.
    Nothing is left if anything fails. If processes of other machines write into the same folder, the
    temporary name has an ``ending``, and the caller removes what killed processes have left.
    """
    temporary, handle = None, -1
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not ending:
                remove_leftovers(path.parent)
            prefix = f".{path.name}." if ending else temporary_prefix(path.name)
            handle, name = tempfile.mkstemp(ending, prefix, path.parent)
        except OSError as error:
            raise unwritten(path, error) from error
        temporary = Path(name)
        with Writer(
            path,
            handle,
            # close it, so that it is not flushed later to a handle that belongs to another file by then
        ) as writer:
            yield writer
        try:
            os.fsync(handle)
            if os.fstat(handle).st_size != writer.written:
                raise OSError(errno.EIO, "the disk did not keep all bytes")
            os.close(handle)
            handle = -1
            temporary.chmod(0o644)
            temporary.replace(path)
            temporary = None
            synchronise(path.parent)
        except OSError as error:
            raise unwritten(path, error) from error
    finally:
        if handle >= 0:
            with suppress(OSError):
                os.close(handle)
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def unwritten(path: Path, error: OSError) -> FolderError:
    """Return the message that a file could not be written."""
    return FolderError(f"{path.name} could not be written to {path.parent}: {reason(error)}.")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or not there, even if the power fails."""
    with writing(path) as file:
        file.write(data)


def reason(error: OSError) -> str:
    """Return why the system refused something; not every library uses the system's words."""
    return error.strerror or str(error) or type(error).__name__


def temporary_prefix(name: str) -> str:
    """Return the beginning of a temporary name: it contains the purpose and the process."""
    return f".{name}.{os.getpid()}.seq2see-"


def is_temporary(name: str) -> bool:
    """Whether this is the name of a temporary file or folder, of any process."""
    return TEMPORARY.fullmatch(name) is not None


def synchronise(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk.

    Windows opens no folder, and synchronises only what is opened for writing.
    """
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def send_to_disk(folder: Path) -> None:
    """Wait until all files and folders below a folder are on the disk, with their names."""
    for path in folder.rglob("*"):
        if path.is_file() or path.is_dir():
            synchronise(path)
    synchronise(folder)


class Lock:
    """Locks a folder for this process until the lock is released or the process ends."""

    def __init__(self, folder: Path) -> None:
        self.handle = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise FolderError(f"{folder} cannot be written: {reason(error)}.") from None
        try:
            _lock(self.handle)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                os.lseek(self.handle, 0, os.SEEK_SET)
                other = os.read(self.handle, 20).decode("ascii", "replace")
                raise FolderError(
                    f"Process {other if other.isdigit() else '(unknown)'} is at work in {folder}: wait for its end, or "
                    "name another folder."
                ) from None
            return  # a file system without locks
        with suppress(OSError):  # the lock works on a full disk, too
            os.ftruncate(self.handle, 0)
            os.lseek(self.handle, 0, os.SEEK_SET)
            os.write(self.handle, str(os.getpid()).encode())

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)


def _lock(handle: int) -> None:
    """Lock an open file for this process, or raise an OSError."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    else:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed have left in a folder: their temporary files and folders."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            found = TEMPORARY.fullmatch(entry.name)
            if found is None:
                continue
            if not _runs(int(found[1])):
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    else:
                        Path(entry.path).unlink()


def _runs(process: int) -> bool:
    """Whether a process runs. Windows' ``os.kill`` would end it, whatever the signal."""
    if sys.platform == "win32":
        return _runs_on_windows(process)
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _runs_on_windows(process: int) -> bool:
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
    handle = kernel.OpenProcess(QUERY, False, process)
    if not handle:
        return False
    status = ctypes.c_ulong()
    asked = kernel.GetExitCodeProcess(handle, ctypes.byref(status))
    kernel.CloseHandle(handle)
    return not asked or status.value == STILL_ACTIVE


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces the folder ``path`` in one step.

    At every moment ``path`` is either the old folder or the new one. If the system cannot exchange two names
    (other systems than Linux, some network file systems), it is neither for a moment.
    """
    path = path.resolve()
    remove_leftovers(path.parent)
    try:
        new = Path(tempfile.mkdtemp(dir=path.parent, prefix=temporary_prefix(path.name)))
    except OSError as error:
        raise FolderError(f"{path} cannot be written anew, since {path.parent} cannot: {reason(error)}.") from None
    try:
        yield new
        new.chmod(stat.S_IMODE(path.stat().st_mode))
        synchronise(new)
        inside = Path.cwd() == path
        if not _exchanged(new, path):
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=temporary_prefix(path.name)))
            path.rename(old / "old")
            new.rename(path)
            new = old
        synchronise(path.parent)
        if inside:
            os.chdir(path)
    except OSError as error:
        raise FolderError(f"{path} could not be written: {reason(error)}.") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def whole_or_nothing(out: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes ``out`` at the end, or is removed if something fails."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"{out} exists already: name a new folder.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out.parent)
        made = Path(tempfile.mkdtemp(dir=out.parent, prefix=temporary_prefix(out.name)))
    except OSError as error:
        raise FolderError(f"{out} cannot be written: {reason(error)}.") from None
    try:
        yield made
        made.chmod(0o755)
        send_to_disk(made)
        if out.exists():
            out.rmdir()
        made.rename(out)
        synchronise(out.parent)
    except OSError as error:
        raise FolderError(f"{out} could not be written: {reason(error)}.") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, if the system can."""
    if not sys.platform.startswith("linux"):
        return False
    # Auditors of the process see this rename as they see any other.
    sys.audit("os.rename", str(one), str(other), -1, -1)
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0)


def carry_over(old: Path, new: Path, left: set[str]) -> None:
    """Link everything of a folder into another one, except for the names in ``left``: no bytes are copied."""
    for entry in old.iterdir():
        if entry.name in left or is_temporary(entry.name) or (new / entry.name).exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, new / entry.name, symlinks=True, copy_function=_linked)
        else:
            _linked(str(entry), str(new / entry.name))


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):  # Windows knows no links to links
        shutil.copy2(source, target, follow_symlinks=False)
    return target
