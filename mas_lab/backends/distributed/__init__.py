"""Several processes that a launcher started train as one. Leaves out: the loop, which does not know of them."""
