"""What logs hold, as opposed to what connections carry: metadata and control records."""
