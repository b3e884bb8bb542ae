"""Readers of formats whose own programs are no longer cared for: fairseq, Marian, CTranslate2 and Argos."""
