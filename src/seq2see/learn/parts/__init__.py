"""The parts of a Transformer, each in one way of writing it: `seq2see learn DIR` writes them without their bodies."""
