"""Models of others, in and out: Hugging Face, fairseq, CTranslate2, Argos, ONNX. Each is proved equal by its logits."""
