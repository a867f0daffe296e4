"""One partition on disk, and the store that spans them: the bottom of a message's way."""
