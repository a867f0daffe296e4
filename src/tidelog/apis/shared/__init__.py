"""What several APIs share: the context of a request, answers in stages, and what is looked up or checked for them."""
