"""Words, names and letters of which the world's texts are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")
Draw = Callable[[Random], str]


def pick(r: Random, some: Sequence[T]) -> T:
    """Return one of some things."""
    return some[int(r.random() * len(some))]


def between(r: Random, low: int, high: int) -> int:
    """Return a whole number from low to high, both included."""
    return low + int(r.random() * (high - low + 1))


def weighted(*pairs: tuple[float, T]) -> Callable[[Random], T]:
    """Return a function that draws one of some things, each with its weight."""
    table: list[T] = []
    total = sum(weight for weight, _ in pairs)
    for weight, thing in pairs:
        table += [thing] * max(1, round(1000 * weight / total))
    return lambda r: table[int(r.random() * len(table))]


WORDS = (
    "the of and to in for with from by at on is not new old all one two first last next open red blue green black white "
    "grey yellow small large big long short high low north south east west street avenue road lane square river lake hill "
    "mountain valley forest garden house office room door window table chair paper book page letter word line point star "
    "light dark night day week month year hour minute morning evening summer winter spring autumn sun moon rain snow wind "
    "fire water stone wood iron steel gold silver copper glass salt sugar bread milk tea coffee apple orange lemon cherry "
    "rice corn bean fish bird horse dog cat cow sheep wolf bear fox lion eagle owl rose lily oak pine maple king queen "
    "prince knight captain doctor teacher student artist writer singer player driver farmer baker miller smith mason "
    "company group bank fund trust union club team school college university institute museum library hospital hotel "
    "station airport harbor bridge tower castle church market store shop factory plant mill mine field farm park camp "
    "order invoice report account balance payment price cost total amount rate tax sum net gross item product model type "
    "size weight width height length depth color code number name title date time place city town village state country "
    "region county district area zone phone mail web site link file folder image video audio text data base system server "
    "client user admin guest member manager director president chief head lead senior junior assistant general special "
    "global local national international central royal united free public private digital smart quick brown lazy happy "
    "quiet bright clear fresh warm cold soft hard fast slow strong deep wide round flat sharp heavy rapid simple double "
    "project plan task test draft final version release build review update change create remove delete select insert "
    "active pending closed cancelled shipped returned approved rejected complete partial missing unknown valid error "
    "warning notice alert message event signal input output value key index list array map set tree node graph path "
    "network machine engine motor wheel battery cable screen printer camera sensor radio energy power solar medical "
    "legal sales support service finance research design marketing production quality safety security training science "
    "history music art physics chemistry biology geography economics law medicine engineering association society "
    "learning computer language theory method analysis process control structure function principle programming"
).split()
FIRST = (
    "James Mary John Patricia Robert Jennifer Michael Linda William Elizabeth David Barbara Richard Susan Joseph Jessica "
    "Thomas Sarah Charles Karen Daniel Nancy Matthew Lisa Anthony Betty Mark Sandra Paul Ashley Steven Emily Andrew Donna "
    "Kenneth Carol George Ruth Joshua Sharon Kevin Laura Brian Helen Edward Amy Ronald Anna Timothy Emma Jason Olivia Ryan "
    "Sophia Jacob Chloe Gary Grace Eric Alice Stephen Julia Jonathan Marie Larry Diana Scott Hannah Frank Clara Justin Eva "
    "Hans Greta Jürgen Ursula Klaus Ingrid Pierre Amélie François Élodie Luc Chantal José María Carlos Lucía Miguel Sofía "
    "João Inês Pedro Beatriz Giulia Marco Chiara Luca Piotr Agnieszka Łukasz Zofia Jiří Tereza Ivan Olga Dmitri Natasha "
    "Åsa Björn Søren Astrid Lars Freja Mehmet Ayşe Ali Fatima Omar Leila Yusuf Noor Ravi Priya Arjun Ananya Wei Mei Li Jun "
    "Hiroshi Yuki Kenji Sakura Min-jun Ji-woo Nguyen Linh Kofi Ama Chidi Ngozi Thabo Zanele Mary-Ann Jean-Luc Anne-Marie "
    "Bill Tom Bob Jim Sue Ann Max Leo Mia Zoe Ida Ben Sam Kim Lee Ian Amy Ray Roy Kay Fay Guy Ned Ted Kit"
).split()
LAST = (
    "Smith Johnson Williams Brown Jones Garcia Miller Davis Rodriguez Martinez Hernandez Lopez Gonzalez Wilson Anderson "
    "Thomas Taylor Moore Jackson Martin Lee Perez Thompson White Harris Sanchez Clark Ramirez Lewis Robinson Walker Young "
    "Allen King Wright Scott Torres Nguyen Hill Flores Green Adams Nelson Baker Hall Rivera Campbell Mitchell Carter Roberts "
    "Müller Schmidt Schneider Fischer Weber Wagner Becker Hoffmann Schäfer Köhler Dubois Lefèvre Moreau Girard Rossi Russo "
    "Ferrari Bianchi Romano Silva Santos Ferreira Oliveira Kowalski Nowak Wiśniewski Novák Dvořák Svoboda Horváth Nagy Popescu "
    "Ivanov Petrov Smirnova Kuznetsov Johansson Andersson Nilsson Hansen Olsen Virtanen Korhonen Yılmaz Demir Kaya Haddad "
    "Khan Ahmed Patel Sharma Singh Gupta Chen Wang Zhang Liu Tanaka Suzuki Sato Watanabe Kim Park Choi Tran Okafor Mensah "
    "O'Brien O'Neill McDonald MacLeod Fitzgerald Grant Novak Stone Cooper Ward Cox Gray Fox Hunt Marsh Lake Frost Day Bell"
).split()
CITIES = (
    "London Paris Berlin Madrid Rome Vienna Prague Warsaw Lisbon Dublin Oslo Stockholm Helsinki Athens Budapest Zürich Geneva "
    "Brussels Amsterdam Hamburg Munich Köln Lyon Marseille Toulouse Milan Naples Turin Barcelona Valencia Sevilla Porto Kraków "
    "Boston Chicago Dallas Houston Austin Denver Seattle Portland Phoenix Atlanta Miami Detroit Richmond Toronto Montréal "
    "Vancouver Sydney Melbourne Perth Auckland Tokyo Osaka Kyoto Seoul Beijing Shanghai Mumbai Delhi Cairo Nairobi Lagos Lima"
).split()
TWO_WORDS = "New York,Los Angeles,San Diego,San Francisco,Las Vegas,St. Louis,El Paso,Fort Worth,Rio de Janeiro,Cape Town".split(
    ","
)
COUNTRIES = (
    "France Germany Spain Italy Austria Poland Portugal Ireland Norway Sweden Finland Greece Hungary Switzerland Belgium "
    "Netherlands Denmark Turkey Egypt Kenya Nigeria Japan Korea China India Australia Canada Mexico Brazil Chile Peru USA UK"
).split()
STATES = dict(
    pair.split(":")
    for pair in (
        "Alabama:AL Alaska:AK Arizona:AZ Arkansas:AR California:CA Colorado:CO Connecticut:CT Delaware:DE Florida:FL "
        "Georgia:GA Hawaii:HI Idaho:ID Illinois:IL Indiana:IN Iowa:IA Kansas:KS Kentucky:KY Louisiana:LA Maine:ME "
        "Maryland:MD Massachusetts:MA Michigan:MI Minnesota:MN Mississippi:MS Missouri:MO Montana:MT Nebraska:NE "
        "Nevada:NV Ohio:OH Oklahoma:OK Oregon:OR Pennsylvania:PA Tennessee:TN Texas:TX Utah:UT Vermont:VT Virginia:VA "
        "Washington:WA Wisconsin:WI Wyoming:WY"
    ).split()
)
SYLLABLES = (
    "ba be bi bo bu ca ce co da de di do du fa fe fi fo ga ge go ha he hi ho ja jo ka ke ki ko la le li lo lu ma me mi mo mu "
    "na ne ni no nu pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we ya yo za zo an en in on un ar "
    "er or el al is us ist ton ham ley son berg ing ent tra ste pri gra blo cha sho ther qua xen"
).split()
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "àâäåæçèéêëîïñòóôöøùúûüÿœß", "ąćęłńóśźżčďěňřšťůýžđ", "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя", "іїєґўљњћџ", "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ", "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ", "अआइईउऊएकखगघचजटडतथदधनपफबभमयरलवशसह",
    "অআইঈএকখগঘচছজটডতথদধনপফবভমযরলশসহ", "அஆஇஈஉஎகஙசஞடணதநபமயரலவழளறன", "กขคงจฉชซญดตถทธนบปผพฟมยรลวสหอ", "가나다라마바사아자차카타파하고노도로모보소오조",
    "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめも", "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホ",
    "一二三四五六七八九十人口山川田木火水金土日月年上下左右大小中東西南北", "ሀለሐመሠረሰሸቀበተቸኀነኘአከኸወዐዘዠየደጀገ", "ᎠᎡᎢᎣᎤᎥᎦᎧᎨᎩᎪᎫᎬᎭᎮᎯᎰᎱᎲ",
]  # fmt: skip
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SMALL = LETTERS.lower()
BOTH = LETTERS + SMALL
DIGITS = "0123456789"
MIXED = BOTH + DIGITS


def some_of(r: Random, letters: str, low: int, high: int) -> str:
    """Return a string of random letters."""
    count, size, random = between(r, low, high), len(letters), r.random
    return "".join([letters[int(random() * size)] for _ in range(count)])


def digits(r: Random, low: int, high: int) -> str:
    """Return some digits."""
    return some_of(r, DIGITS, low, high)


def invented(r: Random) -> str:
    """Return a word of syllables."""
    random, size = r.random, len(SYLLABLES)
    return "".join([SYLLABLES[int(random() * size)] for _ in range(1 + int(random() * 3.2))])


def plain(r: Random) -> str:
    """Return a word in small letters."""
    return pick(r, WORDS) if r.random() < 0.6 else invented(r)


def first_name(r: Random) -> str:
    """Return a first name, known or invented."""
    return pick(r, FIRST) if r.random() < 0.7 else invented(r).capitalize()


def last_name(r: Random) -> str:
    """Return a family name, known or invented."""
    return pick(r, LAST) if r.random() < 0.7 else invented(r).capitalize()


def city(r: Random) -> str:
    """Return the name of a city."""
    x = r.random()
    return pick(r, CITIES) if x < 0.6 else pick(r, TWO_WORDS) if x < 0.75 else invented(r).capitalize()


def capitalised(r: Random) -> str:
    """Return a word with a capital."""
    return plain(r).capitalize()


def upper(r: Random) -> str:
    """Return a word in capitals."""
    return plain(r).upper()


def any_case(r: Random) -> str:
    """Return a word in any case."""
    x, found = r.random(), plain(r)
    return found if x < 0.4 else found.capitalize() if x < 0.85 else found.upper()


def speech(r: Random) -> Draw:
    """Return a kind of words for one task: mostly Latin ones, else random strings of one of the alphabets."""
    x = r.random()
    if x < 0.33:
        return plain
    if x < 0.55:
        return capitalised
    if x < 0.72:
        return any_case
    if x < 0.76:
        return upper
    if x < 0.82:
        return lambda q: some_of(q, MIXED, 1, 8)
    if x < 0.86:
        return lambda q: some_of(q, SMALL, 1, 7)
    letters = pick(r, ALPHABETS)
    low, high = (1, 4) if letters[0] > "\u3000" else (2, 7)
    if r.random() < 0.4 and letters[0].upper() != letters[0]:
        return lambda q: some_of(q, letters, low, high).capitalize()
    return lambda q: some_of(q, letters, low, high)


#: The names of months and days; two letters of the language, its months, its days from Monday on.
MONTHS: dict[str, list[str]] = {
    key: names.split()
    for key, names in {
        "en": "January February March April May June July August September October November December",
        "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "nl": "januari februari maart april mei juni juli augustus september oktober november december",
        "sv": "januari februari mars april maj juni juli augusti september oktober november december",
        "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
        "cs": "ledna února března dubna května června července srpna září října listopadu prosince",
        "tr": "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",
        "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
        "el": "Ιανουαρίου Φεβρουαρίου Μαρτίου Απριλίου Μαΐου Ιουνίου Ιουλίου Αυγούστου Σεπτεμβρίου Οκτωβρίου Νοεμβρίου Δεκεμβρίου",
    }.items()
}
DAYS: dict[str, list[str]] = {
    key: names.split()
    for key, names in {
        "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
        "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "es": "lunes martes miércoles jueves viernes sábado domingo",
        "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
        "pt": "segunda terça quarta quinta sexta sábado domingo",
        "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        "sv": "måndag tisdag onsdag torsdag fredag lördag söndag",
        "ru": "понедельник вторник среда четверг пятница суббота воскресенье",
    }.items()
}
#: Pairs that people know: a table each.
TABLES: list[dict[str, str]] = [
    STATES,
    dict(zip(MONTHS["en"], [m[:3] for m in MONTHS["en"]], strict=True)),
    {m: str(n) for n, m in enumerate(MONTHS["en"], 1)},
    {m: f"{n:02d}" for n, m in enumerate(MONTHS["en"], 1)},
    {m[:3]: m for m in MONTHS["en"]},
    {d[:3]: d for d in DAYS["en"]},
    {d: str(n) for n, d in enumerate(DAYS["en"], 1)},
    *[dict(zip(MONTHS["en"], MONTHS[key], strict=True)) for key in ("de", "fr", "es", "it")],
    *[dict(zip(DAYS["en"], DAYS[key], strict=True)) for key in ("de", "fr", "es")],
    dict(pair.split(":") for pair in (
        "one:1 two:2 three:3 four:4 five:5 six:6 seven:7 eight:8 nine:9 ten:10 eleven:11 twelve:12 thirteen:13 twenty:20"
    ).split()),
    dict(pair.split(":") for pair in (
        "first:1st second:2nd third:3rd fourth:4th fifth:5th sixth:6th seventh:7th eighth:8th ninth:9th tenth:10th"
    ).split()),
    dict(pair.split(":") for pair in (
        "km:kilometer m:meter cm:centimeter mm:millimeter kg:kilogram g:gram mg:milligram l:liter ml:milliliter "
        "ft:foot in:inch yd:yard mi:mile lb:pound oz:ounce h:hour min:minute s:second"
    ).split()),
    dict(pair.split(":") for pair in (
        "hydrogen:H helium:He lithium:Li carbon:C nitrogen:N oxygen:O fluorine:F neon:Ne sodium:Na magnesium:Mg "
        "aluminium:Al silicon:Si phosphorus:P sulfur:S chlorine:Cl potassium:K calcium:Ca iron:Fe copper:Cu zinc:Zn "
        "silver:Ag tin:Sn gold:Au mercury:Hg lead:Pb"
    ).split()),
    dict(pair.split(":") for pair in (
        "alpha:α beta:β gamma:γ delta:δ epsilon:ε theta:θ lambda:λ mu:μ pi:π rho:ρ sigma:σ tau:τ phi:φ omega:ω"
    ).split()),
    dict(pair.split(":") for pair in (
        "France:FR Germany:DE Spain:ES Italy:IT Austria:AT Poland:PL Portugal:PT Ireland:IE Norway:NO Sweden:SE "
        "Finland:FI Greece:GR Switzerland:CH Belgium:BE Netherlands:NL Denmark:DK Japan:JP China:CN India:IN Canada:CA"
    ).split()),
    dict(pair.split(":") for pair in (
        "France:Paris Germany:Berlin Spain:Madrid Italy:Rome Austria:Vienna Poland:Warsaw Portugal:Lisbon Ireland:Dublin "
        "Norway:Oslo Sweden:Stockholm Finland:Helsinki Greece:Athens Hungary:Budapest Belgium:Brussels Japan:Tokyo "
        "Korea:Seoul China:Beijing Egypt:Cairo Kenya:Nairobi Peru:Lima"
    ).split()),
    dict(pair.split(":") for pair in (
        "dollar:$ euro:€ pound:£ yen:¥ USD:$ EUR:€ GBP:£ JPY:¥ INR:₹"
    ).split()),
    dict(pair.split(":") for pair in (
        "A:Alfa B:Bravo C:Charlie D:Delta E:Echo F:Foxtrot G:Golf H:Hotel I:India J:Juliett K:Kilo L:Lima M:Mike"
    ).split()),
    dict(pair.split(":") for pair in (
        "Street:St. Avenue:Ave. Road:Rd. Boulevard:Blvd. Lane:Ln. Drive:Dr. Square:Sq. Apartment:Apt. Suite:Ste. Floor:Fl."
    ).split()),
]  # fmt: skip
