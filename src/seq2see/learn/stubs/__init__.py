"""The parts of a Transformer, to be written: `seq2see learn DIR` puts these files into DIR."""
