"""From a trained model to answers."""
