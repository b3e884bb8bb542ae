"""Learn the Transformer by writing it: eleven parts, each compared with what the shipped model `dates` records."""

from seq2see.learn.checks import Verdict, check

__all__ = ["Verdict", "check"]
