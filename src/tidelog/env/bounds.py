"""The bounds of a turn of the loop, and of what runs beside it. How they relate is in tests/env/test_bounds.py."""

# -- a turn: callbacks, sockets, timers, and a slice of what takes long

TURN_S = 0.01
"""A turn that was busy for so long ends: callbacks and sockets that are still to come begin the next one."""
SLICE_S = 0.001
"""Long work has so much of each turn. A turn without work costs some microseconds, so that little is lost by many."""
WOKEN_S = 0.0002
"""What waited for something has so much when that is there, before it is long work as any other."""
WOKEN_S_A_TURN = 0.005
"""All of them together, with what is light."""
DRIVEN_S_A_TURN = 0.003
"""So much of a turn is for beginnings of what may prove short; the others wait for the next."""

# -- what is told of turns

LONG_TURN_S = 0.05
"""A turn above this is a long one."""
HELD_S = 0.01
"""A callback above this is remembered as what held the turn."""
CPU_READ_S = 0.005
"""How old the reading of the CPU time may be that a turn is measured from."""

# -- beside the loop

THREADS_MAX = 18
"""Eight for the group commit, three for the journal, the others for what takes long; each is made when first needed."""

# -- connecting outward

LOOKUPS_AT_ONCE = 2
"""Names that are looked up at once: each holds a thread, for half a minute where nobody answers."""
LOOKUPS_WAITING_MAX = 1000
"""Names that wait for that."""
