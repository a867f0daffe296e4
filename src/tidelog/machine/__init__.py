"""A state machine on a log: decide, append, replay, answer when committed. Controller and coordinators run on it."""
