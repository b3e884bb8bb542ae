"""From a text to its answer: options → texts, or their sentences → the network's engines → answers."""
