"""The tokenizers of Hugging Face folders: what cuts a text, and which tokens each family puts around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from seq2see.errors import FolderError, UserError, suggest
from seq2see.interchange.imported import fitting, read_json
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers import sentencepiece
from seq2see.tokenizers.tokenizer import Tokenizer

Languages = tuple[str | None, str | None]


def tokenizers_of(
    path: Path, family: str, settings: dict[str, Any], sizes: tuple[int, int], languages: Languages
) -> Tokenizers:
    """Return how both sides of a model are cut; ``settings`` are those of its config and of its generation."""
    about = read_json(path / "tokenizer_config.json") if (path / "tokenizer_config.json").is_file() else {}
    engines = _engines(path, family, about, settings, sizes)
    names = [{number: name for name, number in e.get_vocab(with_added_tokens=True).items()} for e in engines]

    def token(key: str, side: int) -> str:
        number = settings.get(key)
        number = number[0] if isinstance(number, list) and number else number
        if number not in names[side]:
            raise FolderError(
                f"The vocabulary does not fit: {key} is {number!r}, and the tokenizer has no such token."
            )
        return names[side][number]

    ends = [token("eos_token_id", side) for side in (0, 1)]
    pads = [token("pad_token_id", side) for side in (0, 1)]
    start = token("decoder_start_token_id", 1) if settings.get("decoder_start_token_id") is not None else ""
    known = [set(names[0].values()), set(names[1].values())]
    source, target = _languages(family, about, settings, names, known, languages)
    kind = str(about.get("tokenizer_class", "")).removesuffix("Fast")
    begin: tuple[list[str], list[str]]  # before and after the source
    if family == "bart":
        first = token("bos_token_id", 0)
        begin, frame = ([first], [ends[0]]), [start or ends[1], first]
    elif family == "m2m_100":
        behind = kind == "NllbTokenizer" and about.get("legacy_behaviour") is True
        begin = ([], [ends[0], *source]) if behind else (source, [ends[0]])
        frame = [start or ends[1], *target]
    elif family == "mbart" and "50" in kind:
        begin, frame = (source, [ends[0]]), [start or ends[1], *target]
    elif family == "mbart":
        begin, frame = ([], [ends[0], *source]), target or [start]
    else:
        begin, frame = _own_frame(engines[0]) or (source, [ends[0]]), [start or pads[1], *target]
    return Tokenizers(
        Tokenizer.of_others(engines[0], *begin, pads[0], sizes[0]),
        Tokenizer.of_others(engines[1], frame, [ends[1]], pads[1], sizes[1]),
    )


def _own_frame(engine: Engine) -> tuple[list[str], list[str]] | None:
    """Return what a tokenizer puts before and after a text by a template of its own, if it has one."""
    state = json.loads(engine.post_processor.__getstate__()) if engine.post_processor else {}
    if state.get("type") != "TemplateProcessing":
        return None
    parts = [part.get("SpecialToken", {}).get("id") for part in state["single"]]
    place = parts.index(None)
    return parts[:place], parts[place + 1 :]


def _languages(
    family: str,
    about: dict[str, Any],
    settings: dict[str, Any],
    names: list[dict[int, str]],
    known: list[set[str]],
    languages: Languages,
) -> tuple[list[str], list[str]]:
    """Return the tokens of both languages, as far as the family has such."""
    given = [languages[0] or about.get("src_lang"), languages[1] or about.get("tgt_lang")]
    if family == "marian":
        # The language to translate into stands before the source, where the model knows several.
        if languages[1] is None:
            return [], []
        return [_language(languages[1], known[0], "--to-language")], []
    if family not in ("m2m_100", "mbart"):
        if any(languages):
            raise UserError(f"A model of the family {family} has no languages to choose from.")
        return [], []
    forced = settings.get("forced_bos_token_id")
    if (
        family == "mbart"
        and forced is None
        and settings.get("decoder_start_token_id") != settings.get("eos_token_id")
    ):
        forced = settings.get("decoder_start_token_id")
    if not given[1] and forced in names[1]:
        given[1] = names[1][forced]
    found = []
    for option, language, side in (("--from-language", given[0], 0), ("--to-language", given[1], 1)):
        if not language:
            raise UserError(f"This model knows many languages: say {option}. {_some(known[side])}")
        found.append([_language(str(language), known[side], option)])
    return found[0], found[1]


def _language(code: str, known: set[str], option: str) -> str:
    for name in (code, f"__{code}__", f">>{code}<<"):
        if name in known:
            return name
    codes = sorted(name.strip("_<>") for name in known if _is_language(name))
    raise UserError(f"{option} is {code!r}, which this model does not know. {suggest(code, codes)}")


def _is_language(name: str) -> bool:
    return (
        (name.startswith("__") and name.endswith("__") and len(name) < 12)
        or (name.startswith(">>") and name.endswith("<<"))
        or (
            len(name) in (5, 8)
            and name[2:3] + name[3:4] in ("_" + name[3:4], name[2] + "_")
            and name.isascii()
        )
    )


def _some(known: set[str]) -> str:
    codes = sorted(name.strip("_<>") for name in known if _is_language(name))
    return f"Known are, among others: {', '.join(codes[:12])}." if codes else ""


def _engines(
    path: Path, family: str, about: dict[str, Any], settings: dict[str, Any], sizes: tuple[int, int]
) -> list[Engine]:
    """Return what cuts the source and the target."""
    if (path / "tokenizer.json").is_file():
        engines = []
        own = path / "target" / "tokenizer.json"  # where our export puts it
        for file, size in zip(
            (path / "tokenizer.json", own if own.is_file() else path / "tokenizer.json"), sizes, strict=True
        ):
            try:
                engine = Engine.from_file(str(file))
            except Exception as error:  # the library raises bare Exception
                raise FolderError(f"tokenizer.json cannot be read ({error}): download it again.") from None
            fitting(engine.get_vocab_size(), size, "tokenizer.json")
            engines.append(engine)
        return engines
    if family == "marian":
        return _marian(path, about, sizes)
    special = _special(about, path)
    if family == "bart" and (path / "merges.txt").is_file():
        return [_byte_level(path, special, size) for size in sizes]
    model = _spm(path)
    if (path / "vocab.json").is_file():
        names = _listed(path / "vocab.json")
        names += [name for name in special["more"] if name not in set(names)]
    elif family == "pegasus":
        # The first ids are for what is masked in training; the pieces come after them.
        masked = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103))]
        names = ["<pad>", "</s>", *masked, *(piece.text for piece in model.pieces[2:])]
    else:
        pieces = [piece.text for piece in model.pieces[3:]]
        names = ["<s>", "<pad>", "</s>", "<unk>", *pieces, *special["more"], "<mask>"]
    fitting(len(names), sizes[0], "the tokenizer")
    around = ["<s>", "</s>", "<pad>", "<unk>", *special["more"], "<mask>"]
    around = [name for name in dict.fromkeys(around) if name in set(names)]
    padded = [*names, *(f"unused {number}" for number in range(sizes[0] - len(names)))]
    return [sentencepiece.engine_of(model, padded, "<unk>", around) for _ in sizes]


def _special(about: dict[str, Any], path: Path) -> dict[str, list[str]]:
    """Return the special tokens beyond the usual ones, such as languages, in the order of their ids."""
    file = path / "special_tokens_map.json"
    also = read_json(file) if file.is_file() else {}
    more = [
        name if isinstance(name, str) else str(name.get("content"))
        for key in ("additional_special_tokens", "extra_special_tokens")
        for name in (about.get(key) or also.get(key) or [])
        if isinstance(name, str | dict)
    ]
    return {"more": list(dict.fromkeys(more))}


def _listed(file: Path) -> list[str]:
    """Return the tokens of a vocabulary in the order of their ids."""
    ids = read_json(file)
    names = sorted(ids, key=lambda name: ids[name] if type(ids[name]) is int else -1)
    if [ids[name] for name in names] != list(range(len(names))):
        raise FolderError(f"{file.name} does not number its {len(names):,} tokens from 0 on.")
    return names


def _spm(path: Path) -> sentencepiece.SentencePiece:
    for name in ("sentencepiece.bpe.model", "spiece.model", "sentencepiece.model"):
        if (path / name).is_file():
            return sentencepiece.read(path / name)
    raise FolderError(
        f"{path.name} has no tokenizer: neither tokenizer.json nor a SentencePiece model is there."
    )


def _marian(path: Path, about: dict[str, Any], sizes: tuple[int, int]) -> list[Engine]:
    """Read Marian's files: pieces by source.spm and target.spm, numbers by vocab.json."""
    engines = []
    for side, size in zip(("source", "target"), sizes, strict=True):
        own = path / "target_vocab.json"
        file = own if side == "target" and own.is_file() else path / "vocab.json"
        names = _listed(file)
        fitting(len(names), size, file.name)
        spm = path / f"{side}.spm"
        if not spm.is_file():
            raise FolderError(f"{path.name} has no {spm.name}: the folder is incomplete.")
        names += [f"unused {number}" for number in range(size - len(names))]
        known = set(names)
        if "<unk>" not in known:
            raise FolderError(f"{file.name} has no <unk>: it is not a vocabulary of Marian.")
        special: list[str] = [name for name in ("</s>", "<unk>", "<pad>") if name in known]
        special += [name for name in names if name.startswith(">>") and name.endswith("<<")]
        engines.append(sentencepiece.engine_of(sentencepiece.read(spm), names, "<unk>", special))
    return engines


def _byte_level(path: Path, special: dict[str, list[str]], size: int) -> Engine:
    """Read BART's files: vocab.json and merges.txt, over bytes."""
    from tokenizers import decoders, models, pre_tokenizers

    try:
        model = models.BPE.from_file(str(path / "vocab.json"), str(path / "merges.txt"))
    except Exception as error:  # the library raises bare Exception
        raise FolderError(f"vocab.json and merges.txt cannot be read ({error}).") from None
    engine = Engine(model)
    fitting(engine.get_vocab_size(), size, "vocab.json")
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    names = ["<s>", "<pad>", "</s>", "<unk>", *special["more"]]
    engine.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    engine.add_special_tokens([AddedToken("<mask>", normalized=False, lstrip=True)])
    return engine
