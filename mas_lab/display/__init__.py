"""Show tables, texts and progress to people."""
