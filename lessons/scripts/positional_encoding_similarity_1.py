"""How alike black and brown are by OpenAI's vectors, without positions. It needs a key."""

from vectors import cosine, openai_vectors

print(f"cosine_similarity(black, brown) = {cosine(*openai_vectors(['black', 'brown'])):.4f}")
