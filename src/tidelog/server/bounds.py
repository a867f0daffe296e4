"""The bounds of connections, requests and answers. How they relate, and why, is in tests/server/test_bounds.py."""

# -- memory for requests on their way in

SHARED_BYTES = 256 * 1024
"""The buffer that all connections receive into."""
LARGE_FRAME_BYTES = 64 * 1024
"""A frame above this has a buffer of its own."""
FIRST_BYTES = 16 * 1024
"""What such a buffer begins with, where the pool has none."""
MAPPED_BYTES_MIN = 4 << 20
"""From here on it has the frame's size at once, and is mapped."""
POOLED_BUFFER_BYTES_MAX = 16 << 20
POOLED_BYTES_MAX = 64 << 20
"""Of one buffer that is kept for the next frame, and of all of them."""
KEPT_BYTES_MAX = 64 << 20
"""Of frames that are read in steps; beyond it, no more of their kind are received."""
PEEK_AFTER_BYTES = 384 * 1024
"""After a frame of a megabyte another is likely: receive it straight into a buffer as large or, where the pool has
none, its head only and then the rest, which saves a quarter of the cost; those that nearly fit into the shared buffer
are cheaper received there."""
PEEK_BYTES = 4096

# -- how long a request may take to come

REQUEST_DEADLINE_S = 60.0
REQUEST_BYTES_PER_S_MIN = 64 * 1024
"""A trickle holds memory: a request must be whole this long after its first byte, plus a second for so many bytes."""
SWEEP_S = 5.0
"""How often that is looked at."""

# -- handling requests

ACCEPTS_PER_EVENT = 64
HANDLING_S_A_TURN = 0.005
"""Of all connections together, for requests other than Produce and Fetch; then they take turns with what takes long."""
LIGHT_S = 0.0003
"""A connection whose requests take less of late comes before those that ask for more."""
UNKNOWN_S = 1.5 * LIGHT_S
"""What is thought of a newcomer: one request that takes little shows that it is light."""
STEPS_FROM_BYTES = 16 * 1024
"""A request as large as this may have so many elements that to read it takes long."""
LARGE_BYTES = 256 * 1024
"""One as large as this may take some hundred megabytes while it is handled."""
LARGE_AT_ONCE = 2
OTHERS_AT_ONCE = 8
"""Requests that are handled in steps beside each other, of the large ones and of the others."""
OPENED_A_STEP = 16
"""Partitions of a request whose logs are asked for at once."""
OPEN_WAIT_S = 20.0
"""Clients give up a request after 30 seconds: before that they are told to try again."""

# -- answers on their way out

LARGE_ANSWER_BYTES = 16 * 1024
"""One as large as this goes out by itself; smaller ones are gathered."""
PRODUCE_BYTES_MIN = 100
"""A Produce request is larger: where fewer bytes are left of a read, none is behind this one."""
ALIKE_MAX = 64
"""Produce requests that are handled together."""
ANSWERS_A_TURN = 256
"""Then other connections have theirs: a read may bring thousands of small requests."""
JOINED_BYTES_MAX = 1 << 20
"""An answer above this stays in the pieces that it was written in: to copy a hundred megabytes takes long."""
IOV_MAX = 512
"""Pieces of one call to send."""
GATHERED_BYTES = 256 * 1024
"""What is read for one call to send; a socket seldom takes more, and the rest would be read again."""
BYTES_A_TURN = 16 * 1024 * 1024
"""To a peer that takes all it is sent; then others have their turn."""
