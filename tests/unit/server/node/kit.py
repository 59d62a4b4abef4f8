"""Brokers of one group in this process, with a coordinator in memory."""

from __future__ import annotations

from pathlib import Path

from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.server.engine.engine import Core
from ternmq.server.node.node import Node
from ternmq.settings import Mode, load
from tests.black_box.process import free_port

TOKEN = "0123456789abcdef" * 2


def node(folder: Path, register: Register, name: str = "a") -> Node:
    """Return a broker that has not been started."""
    settings = load(
        environ={
            "TERNMQ_DATA": str(folder), "TERNMQ_LISTEN": f"127.0.0.1:{free_port()}",
            "TERNMQ_HTTP": "off", "TERNMQ_NAME": name, "TERNMQ_CLUSTER": "sqlite:////not/used",
            "TERNMQ_CLUSTER_TOKEN": TOKEN,
        },
        mode=Mode.SERVE,
    )  # fmt: skip
    return Node(settings, coordinator=MemoryCoordinator(register))


def core_of(primary: Node) -> Core:
    """Return the core of a broker that leads."""
    assert primary.server is not None
    return primary.server.core


def has_member(primary: Node) -> bool:
    """Return whether a follower counts."""
    reign = primary.reigning
    return (
        reign is not None
        and reign.primary is not None
        and any(one.member for one in reign.primary.figures())
    )
