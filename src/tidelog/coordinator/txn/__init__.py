"""The transaction coordinator: who may write under a transactional id, what its transaction touched, how it ended."""
