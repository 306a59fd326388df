"""Ways in and out: programs of one's own behind a gateway. Leaves out: what is learned from them (the cells)."""
