"""The simulator: a broker, its clients, its disk and its network in one process, on virtual time, from one seed."""
