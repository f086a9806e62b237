"""Whether a file lies on this machine: locks and fsync over a network do not keep their word."""

import logging
from pathlib import Path

from dpexp import _validate

__all__ = ["refuse_network_file_systems"]

_log = logging.getLogger(__name__)
_MOUNTS = Path("/proc/mounts")
_SHARED = frozenset(
    [
        "9p",
        "acfs",
        "afp",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "webdav",
    ]
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.gocryptfs", "fuse.encfs"})


def refuse_network_file_systems(path: Path) -> None:
    """Refuses a file that other machines may have open too.

    Args:
        path: The file; it need not be there yet.

    Raises:
        UserError: It lies on a network or host-shared file system.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        _log.warning("Cannot tell whether %s lies on a network file system; it must not.", path)
        return
    kind = _kind_at(path.resolve(), mounts)
    if kind in _SHARED or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE):
        raise _validate.refuse(
            "budget.store",
            str(path),
            f"a file on a local disk; this one is on {kind}, where two machines could spend the same twice",
            "Name a local file, or share one SQL server: budget.store=postgresql+psycopg://user@host/database.",
        )


def _kind_at(path: Path, mounts: str) -> str:
    """The type of the file system at a path; of two mounts at one place the later one counts."""
    kind, depth = "", -1
    for line in mounts.splitlines():
        place, found = _decoded(line.split()[1]), line.split()[2]
        if path.is_relative_to(place) and len(place.parts) >= depth:
            kind, depth = found, len(place.parts)
    return kind


def _decoded(place: str) -> Path:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(code, character)
    return Path(place)
