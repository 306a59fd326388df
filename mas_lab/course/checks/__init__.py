"""One file per notebook: what is right, what is not yet, and the hints. Leaves out how an answer is asked for."""
