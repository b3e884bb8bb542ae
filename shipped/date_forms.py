"""Tables for dates as people write them: languages, templates, and the text around a date.

A template has %m for a month's full name, %b for its short one, %w for a weekday, %d for a day, %o for an
ordinal, %x for an ordinal in words, %y for a year, %z for a year of two digits, %n for the month's number, %r
for a Roman one, %T for a time; %N and %D have two digits.
"""

from __future__ import annotations

#: The languages of the training.
LANGUAGES = (
    "en", "fr", "de", "es", "it", "pt", "nl", "sv", "da", "nb", "nn", "fi", "is", "et", "lv", "lt", "pl", "cs", "sk",
    "sl", "hr", "sr", "sr_Latn", "bs", "mk", "bg", "ru", "uk", "be", "ro", "hu", "el", "tr", "az", "sq", "ca", "gl",
    "eu", "ga", "cy", "af", "sw", "id", "ms", "fil", "vi", "th", "ja", "ko", "zh", "zh_Hant", "ar", "ar_IQ", "ar_MA",
    "he", "fa", "ur", "hi", "bn", "mr", "gu", "ta", "te", "kn", "ml", "ka", "hy", "kk", "uz", "de_AT", "en_GB",
)  # fmt: skip
#: Regional forms that are not in the training, to measure how well other spellings are understood.
HELD_LOCALES = (
    "en_AU", "en_IN", "en_ZA", "en_CA", "fr_CA", "fr_CH", "fr_BE", "es_MX", "es_AR", "es_CL", "pt_PT", "nl_BE",
    "de_CH", "de_LU", "it_CH", "sv_FI", "ar_EG", "ar_LY", "ar_TN", "zh_HK", "ro_MD", "ru_UA", "ms_BN", "en_NZ",
    "fr_LU",
)  # fmt: skip
#: Weight of a language in the random choice; the others have 1.
WEIGHTS = {
    "en": 14, "en_GB": 4, "fr": 4, "de": 4, "es": 4, "it": 3, "pt": 3, "nl": 3, "ru": 3, "pl": 2, "ja": 2, "zh": 2,
}  # fmt: skip
#: Templates for every language.
COMMON = (
    "%d %m %y", "%d %b %y", "%d. %m %y", "%d. %b %y", "%d-%m-%y", "%d-%b-%y", "%m %d, %y", "%b %d, %y", "%m %d %y",
    "%b %d %y", "%d %m, %y", "%d %b, %y", "%y %m %d", "%y %b %d", "%d/%b/%y", "%d.%b.%y", "%b/%d/%y", "%b-%d-%y",
    "%y-%b-%d", "%w %d %m %y", "%w, %d %m %y", "%w, %m %d, %y", "%w %d %b %y", "%w, %d. %m %y", "%d %b '%z",
    "%d %b %z", "%d %m '%z", "%d-%b-%z", "%d%b%y", "%d/%b/%z", "%b. %d, %y", "%b %d '%z", "%m %d '%z", "%y, %m %d",
    "%y, %d %m", "%w %d. %m %y", "%d, %m %y", "%d %m (%y)", "(%d %m %y)", "%d %m %y %w", "%d %m %y (%w)", "%o %m %y",
    "%w %o %m %y", "%o %b %y",
)  # fmt: skip
#: Templates of single languages; the first two letters say which.
OWN: dict[str, tuple[str, ...]] = {
    "en": (
        "%o of %m %y", "%o of %m, %y", "the %o of %m %y", "the %o of %m, %y", "%m %o, %y", "%m %o %y", "%b %o, %y",
        "%b %o %y", "%m the %o, %y", "%m the %o %y", "%o %m, %y", "on %m %d, %y", "on the %o of %m %y",
        "%w the %o of %m %y", "%w, %m %o, %y", "%w the %o %m %y", "%b. %o, %y", "the %o %m %y", "the %o day of %m %y",
        "the %o day of %m, %y", "%x of %m %y", "%x of %m, %y", "the %x of %m %y", "%m %x, %y", "%m %x %y",
        "%b %x, %y", "the %x of %m, %y", "%w, the %x of %m %y", "%d of %m %y", "%m %d in %y", "the %o of %b %y",
        "%o of %b, %y", "%o %b '%z",
    ),
    "fr": (
        "le %d %m %y", "le %w %d %m %y", "%w le %d %m %y", "le %o %m %y", "du %d %m %y", "au %d %m %y",
        "en date du %d %m %y", "le %d %b %y",
    ),
    "de": (
        "den %d. %m %y", "am %d. %m %y", "%w, den %d. %m %y", "%w, dem %d. %m %y", "vom %d. %m %y", "%d.%m %y",
        "%d. %m. %y", "%d.%b.%y",
    ),
    "es": (
        "%d de %m de %y", "%d de %m del %y", "el %d de %m de %y", "%w, %d de %m de %y", "%w %d de %m de %y",
        "%d de %m, %y", "%d %m de %y",
    ),
    "pt": (
        "%d de %m de %y", "em %d de %m de %y", "%w, %d de %m de %y", "%o de %m de %y", "%d de %b de %y",
        "%d %m de %y",
    ),
    "it": ("il %d %m %y", "il %o %m %y", "%w %d %m %y", "dal %d %m %y", "del %d %m %y"),
    "nl": ("op %d %m %y", "%w %d %m %y", "de %o %m %y", "de %o van %m %y"),
    "ca": ("%d de %m de %y", "el %d de %m de %y", "%d de %m del %y"),
    "gl": ("%d de %m de %y", "o %d de %m de %y"),
    "sv": ("den %d %m %y", "den %o %m %y", "%w den %d %m %y"),
    "da": ("den %d. %m %y", "%d. %m %y"),
    "nb": ("den %d. %m %y", "%d. %m %y"),
    "ru": (
        "%d %m %y года", "%d %m %y г", "%d-го %m %y", "%d-го %m %y года", "«%d» %m %y", '"%d" %m %y г.',
        "%w, %d %m %y года",
    ),
    "uk": ("%d %m %y року", "%d %m %y р.", "«%d» %m %y року"),
    "bg": ("%d %m %y г.", "%d %m %y година"),
    "pl": ("%d %m %y r.", "%d %m %y roku", "dnia %d %m %y", "dnia %d %m %y r.", "%w, %d %m %y r."),
    "cs": ("dne %d. %m %y",),
    "hu": ("%y. %m %d.", "%y. %m %d", "%y %m %d."),
    "tr": ("%d %m %y %w", "%d %m %y tarihi"),
    "ro": ("la %d %m %y", "%d %m %y", "%o %m %y"),
    "el": ("%d %m %y", "την %d %m %y", "στις %d %m %y"),
    "vi": ("ngày %d %m năm %y", "%d %m năm %y", "ngày %d tháng %n năm %y"),
    "id": ("tanggal %d %m %y", "pada %d %m %y"),
    "ja": ("%y年%n月%d日", "%y年%n月%d日 %w", "%y年%n月%d日(%w)", "%y年 %n月 %d日", "西暦%y年%n月%d日"),
    "zh": ("%y年%n月%d日", "%y年%n月%d日 %w", "%y年%n月%d日%w", "%y 年 %n 月 %d 日", "公元%y年%n月%d日", "%y年%n月%d号"),
    "ko": ("%y년 %n월 %d일", "%y년%n월%d일", "%y년 %n월 %d일 %w"),
}  # fmt: skip
#: Numeric forms that can be read in one way only.
NUMERIC = (
    "%y-%N-%D", "%y-%N-%D", "%y-%n-%d", "%y/%N/%D", "%y/%n/%d", "%y.%N.%D", "%y.%n.%d", "%y%N%D", "%D.%N.%y",
    "%d.%n.%y", "%d. %n. %y", "%D.%N.%z", "%d.%n.%z", "%y %N %D", "%y. %n. %d.", "%y-%N-%D%T", "%y-%N-%D %T",
    "%d. %n. %y.", "%D.%N.%y.", "%d.%r.%y", "%d %r %y", "%d. %r. %y", "%d-%r-%y", "%d/%r/%y",
)  # fmt: skip
#: Numeric forms of which some can be read in two ways.
UNSURE = (
    "%D/%N/%y", "%d/%n/%y", "%D-%N-%y", "%d-%n-%y", "%D/%N/%z", "%d/%n/%z", "%D-%N-%z", "%D %N %y", "%d %n %y",
    "%D / %N / %y", "%D/%N-%y",
)  # fmt: skip
ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
TENS = ("", "", "twenty", "thirty")
FIRST = (
    "", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
)  # fmt: skip
BEFORE = (
    "on ", "dated ", "born ", "died ", "date: ", "since ", "by ", "until ", "from ", "c. ", "as of ", "due ", "≈ ",
)  # fmt: skip
AFTER = (
    " (date)", " at 5 pm", ", 10:15", " 10:15:30", " 23:59", "t10:15:30z", "t00:00", " utc", " 8am", ".", ",", ";",
    " ?",
)  # fmt: skip
#: Characters that OCR confuses with a digit.
LIKE = {"0": "oо", "1": "l|i", "2": "z", "5": "s", "6": "b", "8": "b", "9": "g"}
WORDS = (
    "tomorrow", "yesterday", "today", "now", "next week", "last year", "in two days", "morgen", "demain", "hier",
    "mañana", "the day after", "christmas", "easter", "week", "month", "year", "day", "date", "unknown", "n/a",
    "none", "tba", "null", "hello", "the", "a", "of", "price", "room", "page", "version", "call", "chapter", "total",
    "order no.", "born", "died",
)  # fmt: skip
