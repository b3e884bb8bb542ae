"""Reads fairseq's checkpoints of the Transformer, with the dictionaries and BPE codes near them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.errors import FolderError, UserError
from seq2see.interchange.imported import (
    LARGEST_LIST,
    Imported,
    fitting,
    foreign,
    foreign_lines,
    model_config,
    one_number_of_heads,
)
from seq2see.interchange.names import HALVES, renamed
from seq2see.interchange.tensors import from_pytorch
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers import sentencepiece
from seq2see.tokenizers.tokenizer import Tokenizer

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # the first four ids
WORD_END = "</w>"
FAIRSEQ2 = "decoder_frontend.embed.weight"  # fairseq2's name for the embedding table of the target
ACTIVATIONS = ("relu", "gelu", "swish")


def read_fairseq(path: Path, languages: tuple[str | None, str | None] = (None, None)) -> Imported:
    """Read a checkpoint such as ``checkpoint_best.pt``."""
    found = from_pytorch(path)
    settings = _settings(found)
    theirs = found.get("model") if isinstance(found, dict) else None
    if any(FAIRSEQ2 in part for part in (found, theirs) if isinstance(part, dict)):
        raise FolderError(
            f"{path.name} is a fairseq2 checkpoint. It contains only weights: the number of heads, the place of the "
            "norms and the ids of the special tokens are in fairseq2's code. Import its NLLB models from the Hugging "
            "Face Hub instead (hf:facebook/nllb-200-distilled-600M)."
        )
    if settings is None or not isinstance(theirs, dict) or "decoder.embed_tokens.weight" not in theirs:
        raise FolderError(f"{path.name} is not a fairseq checkpoint of a Transformer: settings or weights are missing.")
    theirs = {name: tensor for name, tensor in theirs.items() if isinstance(tensor, Tensor)}
    model = _model(settings, theirs)
    tables = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    if tables[2] not in theirs and not model.share_output:
        theirs[tables[2]] = theirs.pop("decoder.embed_out")
    skipped = 2 if model.positions == "learned" else 0
    weights = renamed(theirs, model, tables, None, skipped)
    weights = weights.widened({half: int(settings[f"{half}_ffn_embed_dim"]) for half in HALVES}, model)
    source, target = _dictionaries(path, settings, languages)
    codes = _codes(source)
    return Imported(
        "fairseq",
        model,
        DecodingConfig(beam=5, length_penalty=1.0, penalty="length", length_ratio=0.0,
                       length_offset=min(200, model.max_length - 1), stopping="full", suppressed=(1,)),
        Tokenizers(
            _tokenizer(source, model.source_vocabulary, []),
            _tokenizer(target, model.target_vocabulary, ["</s>"]),
        ),
        weights,
        notes=[f"Texts are split {f'with {codes.name}' if codes else 'at spaces'}. Prepare them as for the model's "
               "training; some models expect lower case, or spaces around punctuation."],
    )  # fmt: skip


def _settings(found: Any) -> dict[str, Any] | None:
    """Return the settings of the model. Versions of fairseq store them in different places."""
    if not isinstance(found, dict):
        return None
    settings = found.get("args")
    if settings is None and isinstance(found.get("cfg"), dict):
        settings = found["cfg"].get("model")
    if isinstance(settings, Namespace):
        settings = vars(settings)
    return settings if isinstance(settings, dict) else None


def _model(settings: dict[str, Any], theirs: dict[str, Tensor]) -> ModelConfig:
    def same(name: str) -> Any:
        values = [settings.get(f"{half}_{name}") for half in ("encoder", "decoder")]
        if values[0] != values[1]:
            raise FolderError(
                f"The checkpoint's encoder_{name} differs from its decoder_{name}: only equal values are supported."
            )
        return values[0]

    activation = settings.get("activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise FolderError(f"The activation {activation!r} is not supported. Supported: {', '.join(ACTIVATIONS)}.")
    source, target = (theirs[f"{half}.embed_tokens.weight"].shape[0] for half in ("encoder", "decoder"))
    together = source == target and torch.equal(
        theirs["encoder.embed_tokens.weight"], theirs["decoder.embed_tokens.weight"]
    )
    learned = bool(same("learned_pos"))
    longest = min(int(settings.get(f"max_{side}_positions", 1024)) for side in ("source", "target"))
    if learned:
        longest = min(len(theirs[f"{half}.embed_positions.weight"]) - 2 for half in ("encoder", "decoder"))
    return model_config(
        source_vocabulary=source,
        target_vocabulary=target,
        d_model=int(same("embed_dim")),
        heads=one_number_of_heads(*(int(settings[f"{half}_attention_heads"]) for half in ("encoder", "decoder"))),
        d_ff=max(int(settings[f"{half}_ffn_embed_dim"]) for half in ("encoder", "decoder")),
        encoder_layers=int(settings["encoder_layers"]),
        decoder_layers=int(settings["decoder_layers"]),
        dropout=float(settings.get("dropout", 0.1)),
        norm="pre" if same("normalize_before") else "post",
        activation=activation,
        positions="learned" if learned else "fairseq",
        max_length=longest,
        share_embeddings=together,
        share_output=bool(settings.get("share_decoder_input_output_embed") or settings.get("share_all_embeddings")),
        scale_embeddings=not settings.get("no_scale_embedding", False),
        embedding_norm=bool(settings.get("layernorm_embedding", False)),
    )


def _dictionaries(path: Path, settings: dict[str, Any], languages: tuple[str | None, str | None]) -> tuple[Path, Path]:
    """Find dict.SOURCE.txt and dict.TARGET.txt beside the checkpoint, or in a folder near it."""
    names = [given or settings.get(key) for given, key in zip(languages, ("source_lang", "target_lang"), strict=True)]
    places = [path.parent, *sorted(p for p in path.parent.iterdir() if p.is_dir()), path.parent.parent,
              *sorted(p for p in path.parent.parent.iterdir() if p.is_dir())]  # fmt: skip
    for place in places:
        here = sorted(place.glob("dict.*.txt"))
        if here and None in names:
            known = ", ".join(file.name.split(".")[1] for file in here)
            raise UserError(f"Give the languages with --from-language and --to-language. Known: {known}.")
        files = [place / f"dict.{name}.txt" for name in names]
        if all(file.is_file() for file in files):
            return files[0], files[1]
    wanted = " and ".join(f"dict.{name or 'LANGUAGE'}.txt" for name in names)
    raise FolderError(
        f"{wanted} are missing: they list the tokens, and were expected beside {path.name} or in a folder near it."
    )


def _codes(dictionary: Path) -> Path | None:
    names = ("bpe.code", "bpe.codes", "bpecodes", "code", "sentencepiece.bpe.model", "spm.model")
    return next((file for name in names if (file := dictionary.parent / name).is_file()), None)


def _tokenizer(dictionary: Path, size: int, before: list[str]) -> Tokenizer:
    """Make the tokenizer: with BPE codes of subword-nmt, with a SentencePiece model, or at spaces only."""
    codes = _codes(dictionary)
    names = [*SPECIAL, *(line.rsplit(" ", 1)[0] for line in foreign_lines(dictionary) if line.strip())]
    fitting(len(names), size, dictionary.name)
    names += [f"madeupword{number:04}" for number in range(size - len(names))]
    if codes is not None and codes.suffix == ".model":
        engine = sentencepiece.engine_of(sentencepiece.read(foreign(codes, LARGEST_LIST)), names, "<unk>", SPECIAL)
    elif codes is not None:
        engine = _subwords(names, codes)
    else:
        engine = Engine(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
        engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer.of_others(engine, before, ["</s>"], "<pad>", size)


def _subwords(names: list[str], codes: Path) -> Engine:
    """Read subword-nmt's codes. Its ``a@@``, within a word, is ``a`` here, and its ``a``, at the end, is ``a</w>``."""
    ids: dict[str, int] = {}
    for number, name in enumerate(names):
        piece = name.removesuffix("@@") if name.endswith("@@") else name + WORD_END
        ids[name if number < len(SPECIAL) else piece] = number
    merges = []
    for line in foreign_lines(codes):
        parts = line.split(" ")
        if line.startswith("#version") or len(parts) < 2:
            continue
        merges.append((parts[0], parts[1]))
        for piece in (parts[0], parts[1], parts[0] + parts[1]):
            ids.setdefault(piece, len(ids))  # an id beyond the vocabulary becomes <unk>
    engine = Engine(models.BPE(ids, merges, unk_token="<unk>", end_of_word_suffix=WORD_END))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return engine
