"""Speed beside peers: ``python -m benchmarks NAME``, from a clone."""
