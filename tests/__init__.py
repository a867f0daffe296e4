"""Tidelog's tests: they mirror src; stories/ and kafka/ look at the whole broker from outside."""
