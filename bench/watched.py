"""`python -m bench.watched serve ...` is `tidelog serve`, but it tells of every turn of the loop above 10 ms of CPU.

The broker itself tells of turns above 50 ms, and of one each ten seconds: enough for an operator, not for a figure.
"""

from tidelog.cli import main
from tidelog.env import turns

turns.LONG_TURN_S = 0.0
turns.SAY_EVERY_S = 0.0

if __name__ == "__main__":
    main()
