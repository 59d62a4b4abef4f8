"""A Debian folder with a newer Python than the machine has.

debootstrap makes it from the package sources that the machine's own apt uses. Commands run in it as
root in a mount namespace of their own, with the checkout at the same path as outside, so nothing
has to be unmounted afterwards. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SUITES: Final = {"3.13": "trixie", "3.14": "forky"}
"""Which Debian release has which Python as its ``python3``."""

PACKAGES: Final = (
    "python3", "python3-venv", "ca-certificates", "e2fsprogs", "git", "iproute2", "make", "mount",
    "procps", "strace", "tmux", "util-linux", "xfsprogs",
)  # fmt: skip

FOLDERS: Final = Path("/var/tmp/ternmq-debian")
"""Kept over a reboot; only root gets here."""
_SCRIPT: Final = Path("/usr/share/debootstrap/scripts/sid")
"""For releases that this machine's debootstrap has not heard of."""
_MAKE_S: Final = 1800
_NET: Final = (
    "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/etc/hosts",
)  # fmt: skip
"""Settings of the machine that installing in the folder needs as well."""

_ENTER: Final = """
set -e
root=$1 checkout=$2; shift 2
tmp=$(mktemp -d "$root/var/tmp/XXXXXXXX")
chmod 1777 "$tmp"
trap 'rm -rf --one-file-system "$tmp"' EXIT
mount --bind "$tmp" "$root/tmp"
mkdir -p "$root$checkout"
mount --bind "$checkout" "$root$checkout"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
chroot "$root" sh -c 'cd "$0" && exec "$@"' "$checkout" "$@"
"""
"""``/tmp`` is on disk: a broker whose memory is limited would pay for what is in a tmpfs."""


def available(version: str) -> str:
    """Return why a folder for this version cannot be had; empty when it can."""
    if version not in SUITES:
        return f"no Debian release is known for Python {version}"
    if os.geteuid() != 0:
        return "making a Debian folder needs root"
    for tool in ("debootstrap", "unshare", "chroot"):
        if shutil.which(tool) is None:
            return f"needs {tool}: apt-get install {tool}"
    return ""


def _source() -> str:
    """Return the address of the Debian archive that apt uses here."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    for address in listed:
        if address.rstrip("/").endswith("/debian"):
            return address
    raise FileNotFoundError("apt names no Debian archive; has `apt-get update` been run?")


def make(version: str) -> Path:
    """Return the folder of a version, which is made if it is not there.

    Raises:
        subprocess.CalledProcessError: debootstrap failed; its log is in the folder.
    """
    suite = SUITES[version]
    folder = FOLDERS / suite
    if (folder / "usr/bin/python3").exists() and not (folder / "debootstrap").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    script = [] if _SCRIPT.with_name(suite).exists() else [str(_SCRIPT)]
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
         suite, str(folder), _source(), *script],
        check=True, timeout=_MAKE_S, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return folder


def command(folder: Path, checkout: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs ``arguments`` in the folder, at the checkout's path."""
    for name in _NET:
        if Path(name).is_file():
            target = folder / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, target)
    return [
        "unshare", "--mount", "--propagation", "private", "--",
        "sh", "-c", _ENTER, "enter", str(folder), str(checkout), *arguments,
    ]  # fmt: skip


def environment(outside: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command in the folder: pip's settings and nothing of paths."""
    inside = {name: value for name, value in outside.items() if name.startswith(("PIP_", "LC_"))}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**inside, "PATH": path, "HOME": "/root", "LANG": "C.UTF-8"}
