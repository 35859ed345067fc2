"""Folders and files that no other user can have written, for content that is trusted, such as code.

The checks of a folder report problems early. The check of each file as it is opened gives the guarantee: a file that
this user owns and nobody else may write has what this user wrote.
"""

from __future__ import annotations

import os
import stat

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags for opening files: do not follow a link, do not wait for a pipe."""


class NotPrivateError(OSError):
    """Another user may have written here."""


def make_private_folder(folder: str) -> None:
    """Makes the folder unless it exists; NotPrivateError if it is another user's, or others may write there.

    Also if its path contains a link of another user, or a folder in which everybody may rename entries.
    """
    folder = os.path.abspath(folder)
    _make(folder)
    for above in {*_above(folder), *_above(os.path.realpath(folder))}:
        _check_above(above)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivateError(f"{folder} is not a folder")
    _check_own(folder, found)


def check_trusted_folder(folder: str) -> None:
    """NotPrivateError unless this user or root owns the folder, and nobody else can write there."""
    for above in {*_above(os.path.abspath(folder)), *_above(os.path.realpath(folder))}:
        _check_above(above)
    found = os.stat(folder)
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_WRITE:
        raise NotPrivateError(f"{folder} can be written by other users")


def open_private(path: str) -> int:
    """Opens a regular file of this user that nobody else may write; NotPrivateError for any other."""
    handle = os.open(path, _OPEN)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivateError(f"{path} is not a file")
        _check_own(path, found)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _make(folder: str) -> None:
    """Makes a folder and its missing parents, readable by this user only."""
    if os.path.lexists(folder):
        return
    _make(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return


def _above(folder: str) -> list[str]:
    """The parents of a folder, from the root on, links included."""
    parts = folder.split(os.sep)
    return [os.sep.join(parts[:count]) or os.sep for count in range(1, len(parts))]


def _check_above(folder: str) -> None:
    found = os.lstat(folder)
    if stat.S_ISLNK(found.st_mode):
        if found.st_uid not in (0, os.geteuid()):
            raise NotPrivateError(f"{folder} is a link of another user")
        found = os.stat(folder)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise NotPrivateError(f"{folder} can be written by everybody")


def _check_own(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise NotPrivateError(f"{path} belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise NotPrivateError(f"{path} can be written by others: chmod go-w")
