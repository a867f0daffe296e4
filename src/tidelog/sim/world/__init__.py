"""The simulated world: time, disks, a network, and the processes that live on them."""
