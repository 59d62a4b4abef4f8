"""``python -m ternmq``: the same as the command ``ternmq``."""

from ternmq.cli.main import main

if __name__ == "__main__":
    main()
