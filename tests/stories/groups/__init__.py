"""Members of consumer groups in processes of their own, bands of them for stories, and what their history must show."""
