"""Pictures of tables: pure functions from tables to figures, and the page that holds them."""
