"""Back ends: where weights live, and how they generate and learn."""
