"""A script without an event loop: send the lines of a file, then work through them.

ternmq dev                                       # a broker, in one terminal
python examples/sync_script.py send names.txt    # in another
python examples/sync_script.py work              # until nothing is left
"""

import sys
from pathlib import Path

import ternmq
import ternmq.sync


def send(path: Path) -> None:
    """Send every line; returns when all are on disk."""
    lines = path.read_text(encoding="utf-8").splitlines()
    with ternmq.sync.connect() as client:
        receipts = client.send_many("names", lines)
        print(f"{len(receipts)} lines are stored, the last at offset {receipts[-1].offset}")


def work() -> None:
    """Greet everybody; an empty pull says that nobody is left."""
    with ternmq.sync.connect() as client:
        while batch := client.pull("names", group="greeting", max_messages=100, wait=1):
            for delivery in batch:
                with delivery.process():
                    name = delivery.decode(str)
                    if not name:
                        raise ternmq.Reject("an empty line")
                    print(f"hello {name}")
        for dead in client.deadletters.browse("names", "greeting"):
            print(f"not greeted: line {dead.offset + 1}: {dead.reason}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", path]:
            send(Path(path))
        case ["work"]:
            work()
        case _:
            sys.exit(__doc__)
