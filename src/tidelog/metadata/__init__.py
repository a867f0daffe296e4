"""The cluster's metadata: an immutable image, the records folded into it, and who is told when it changes."""
