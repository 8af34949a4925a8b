"""What private things and orders look like: the one table that learned texts and kept traffic pass.

Every pattern is RE2's, which reads a character once. What it cannot say (no look-around) a predicate says of
what was thing. Prefixes and lengths of keys are what their providers document or scanners of secrets know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from combee.algo.linear import Pattern, pattern

Fits = Callable[[str, int, int], bool]
"""Says of a text, and where in it something was found, whether it is what it looks like."""


@dataclass(frozen=True, slots=True)
class Private:
    """A kind of private thing. A group of the pattern is the thing itself; without one all of it is."""

    what: str
    pattern: Pattern
    fits: Fits = lambda text, start, end: True
    learned: bool = True
    """whether a learned text that holds it is refused; if not, only kept traffic is redacted."""


def _before_none_of(marks: str) -> Fits:
    """Return whether what follows is no digit nor in ``marks``."""
    return lambda text, start, end: not text[end : end + 1].isdigit() and text[end : end + 1] not in [*marks]


def _random(text: str, start: int, end: int) -> bool:
    thing = text[start:end]
    return sum(map(thing.count, "0123456789")) >= 4 and thing.upper() != thing and thing.lower() != thing


def _of_forty(text: str, start: int, end: int) -> bool:
    thing = text[start:end]
    mixed = thing.upper() != thing and thing.lower() != thing and any(map(str.isdigit, thing))
    return len(thing) == 40 and text[end : end + 1] != "=" and mixed


def _keyed(text: str, start: int, end: int) -> bool:
    """Return whether a key has a part that no word is: sixteen letters and digits, or forty with
    dashes."""
    thing = text[start:end]
    parts = thing.replace("_", "-").split("-")
    return max(map(len, parts)) >= 16 or (len(thing) >= 40 and any(map(str.isdigit, thing)))


def _password(text: str, start: int, end: int) -> bool:
    return text[start:end].partition(":")[2].strip("<>{}[]$*.").casefold() not in _PLACEHOLDERS


def _mailbox(text: str, start: int, end: int) -> bool:
    """Return whether it is no password with the host it opens."""
    return not _USER.search(text[max(0, start - 200) : start])


def _credential(text: str, start: int, end: int) -> bool:
    word = text[start:end].split()[-1]
    return len(word) >= 24 or "=" in word or any(map(str.isdigit, word))


def _hexadecimal(text: str, start: int, end: int) -> bool:
    thing = text[start:end]
    return not thing.isdigit() and not thing.isalpha()


def _long_number(text: str, start: int, end: int) -> bool:
    after = text[end : end + 2]
    fraction = after[:1] == "." and after[1:].isdigit()
    return not text[start:end].endswith("000000") and after[:1] != "%" and not fraction


def _account(text: str, start: int, end: int) -> bool:
    """Return whether it may be somebody's number: no part of a code, and not the digits in a row."""
    plain = _long_number(text, start, end) and text[end : end + 1] != "-"
    return plain and text[start:end] not in "12345678901234567890"


def _national(text: str, start: int, end: int) -> bool:
    """Return whether seven digits follow one another, also those behind the end: 030 12 34567ext."""
    return start >= 0 and _SEVEN_DIGITS.search(text[start : start + 21]) is not None


_PLACEHOLDERS = frozenset({"", "password", "passwd", "pass", "pwd", "secret", "key", "token"})
_USER = pattern(r"://[^\s/@:]*:$")
_SEVEN_DIGITS = pattern(r"^(?:[ ()./-]{0,2}\d){7}")
_IN_ADDRESS = r"://([^\s/@:]*:[^\s/]+)@"
_KEY = r"(?:^|[^A-Za-z0-9])"
"""What may stand before a key: its prefix is no end of a word."""

PRIVATE = (
    Private(
        "a key or certificate",
        pattern(
            r"-----BEGIN [A-Z0-9 ]+-----(?s:.*?)(?:-----END [A-Z0-9 ]+-----|\z)"
            r"|-----BEGIN [A-Z ]*PRIVATE KEY"  # cut off
        ),
    ),
    Private("data", pattern(r"data:[\w.+/-]*;base64,[A-Za-z0-9+/=]*"), learned=False),
    Private(
        "a query",
        pattern(
            r"\?([^\s\"'<>#?]*(?:sig|signature|token|secret|passw(?:or)?d|key|keyid|credential|auth|jwt|session)="
            r"[^\s\"'<>#]+)",
            fold=True,
        ),
    ),
    Private("a secret", pattern(_IN_ADDRESS), _password),
    Private("a secret", pattern(_IN_ADDRESS), learned=False),
    Private(
        "a secret",
        pattern(
            r"\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|digest|token)\s+)?[^\s\"']{6,}",
            fold=True,
        ),
        learned=False,
    ),
    Private("a secret", pattern(r"\b(?:bearer|basic)\s+[\w.~+/-]{12,}=*", fold=True), _credential),
    Private(
        "a secret",
        pattern(
            r"[\w-]*(?:password|passwd|passphrase|secret|(?:api|access|account|private)[ _-]?key(?:[ _-]?id)?"
            r"|token)(?:[_-][\w\pL\pN]+)?[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;}]{6,}",
            fold=True,
        ),
    ),
    Private(
        "a secret",
        # Commas, quotes and brackets end what is above, which stands in code, and may be what passwords have.
        pattern(
            r"\b(?:password|passwd|secret|api[ _-]?key|token)\b\s{0,3}[:=]\s{0,3}\S{6,}",
            fold=True,
        ),
    ),
    Private(
        "an access key",
        # OpenAI, Anthropic, Stripe and others.
        pattern(_KEY + r"((?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,})"),
        _keyed,
    ),
    Private(
        "an access key",
        pattern(
            _KEY + r"((?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[0-9A-Z]{12,}"  # AWS
            r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gl(?:pat|ptt|dt|rt|cbt|ft|soat)-[\w-]{16,}"
            r"|xox[abeoprs]-[\w-]{10,}|xapp-\d-[\w-]{10,}"  # Slack
            r"|AIza[\w-]{30,}|GOCSPX-[\w-]{20,}|ya29\.[\w-]{20,}"  # Google
            r"|hf_[A-Za-z0-9]{20,}|(?:gsk|r8|xai|nvapi|pplx|tvly|fw|csk)[_-][\w-]{20,}"  # models
            r"|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|dckr_pat_[\w-]{20,}|rubygems_[0-9a-f]{32,}"
            r"|whsec_[A-Za-z0-9+/=]{20,}|sq0[a-z]{3}-[\w-]{20,}|shp(?:at|ca|pa|ss|tka)_[0-9a-fA-F]{32}"
            r"|eyJ[\w-]{10,}\.[\w-]{10,}"  # JSON web tokens
            r"|SG\.[\w-]{16,}\.[\w-]{16,}|(?:AC|SK)[0-9a-f]{32}|key-[0-9a-f]{32}"  # mail and messages
            r"|do[opr]_v1_[0-9a-f]{32,}|dapi[0-9a-f]{32}|hv[bsr]\.[\w-]{20,}|pul-[0-9a-f]{32,}|NRAK-[A-Z0-9]{20,}"
            r"|gl(?:sa|c)_[\w+/=-]{20,}|sntry[su]_[\w+/=-]{20,}|lin_(?:api|oauth)_\w{20,}|ntn_\w{20,}|figd_[\w-]{20,}"
            r"|ATATT[\w=-]{20,}|PMAK-[\w-]{20,}|sbp_[0-9a-f]{32,}|AGE-SECRET-KEY-1[0-9A-Z]{20,}"
            r"|\d{8,10}:AA[\w-]{30,})"  # Telegram
        ),
    ),
    Private(
        "an access key",
        pattern(
            r"(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/[\w/-]{16,}"
        ),
    ),
    Private("an access key", pattern(r"[A-Za-z0-9/+]{40,}"), _of_forty, learned=False),
    Private("a random string", pattern(r"\b[A-Za-z0-9+/]{36,}={0,2}"), _random),
    Private("a hexadecimal string", pattern(r"\b[0-9a-f]{32,}\b"), _hexadecimal),
    Private("an e-mail address", pattern(r"[\pL\pN_.+-]+@[\pL\pN_-]+(?:\.[\pL\pN_-]+)+"), _mailbox),
    Private("a social security number", pattern(r"(?:^|[^\d-])(\d{3}-\d{2}-\d{4})"), _before_none_of("-")),
    Private(
        "a card number",
        pattern(
            r"(?:^|[^\d.])((?:[3-6]\d|2[2-7])\d\d(?: \d{4} \d{4} \d{1,7}|-\d{4}-\d{4}-\d{1,7})"
            r"|3[47]\d\d[ -]\d{6}[ -]\d{5})"
        ),
        _before_none_of(""),
    ),
    Private("a bank account", pattern(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")),
    Private(
        "a card number",
        pattern(r"(?:^|[^\d.])(\d{4}(?: \d{4} \d{4} \d{1,7}|-\d{4}-\d{4}-\d{1,7}))"),
        _before_none_of(""),
        learned=False,
    ),
    Private(
        "a telephone number",
        pattern(
            r"(?:^|[^\w.])(\+\d{1,3}[ -]?(?:\(?\d{1,4}\)?[ -]?){2,5}\d{2,4}\b)",
        ),
    ),
    Private("a telephone number", pattern(r"\(\d{3}\) ?\d{3}-\d{4}\b")),
    Private(
        "a telephone number",
        pattern(
            # A date is read first, so that it is no number and the number behind it is one.
            r"(?:^|[^\w.,/-])(?:\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?:\b|[A-Za-z_])"
            r"|(\(?0\d{1,5}\)?(?:[ ./-]{0,2}\(?\d{2,8}\)?){0,5}[ ./-]{0,2}\(?\d{2,8}(?:\b|\)\B)))"
        ),
        _national,
        learned=False,
    ),
    Private(
        "a telephone number",
        pattern(
            r"(?:^|[^\w.,-])((?:\+?1[ .-]?)?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])\d{3}[ .-]\d{4}\b)",
        ),
        _before_none_of("-"),
        learned=False,
    ),
    Private("a long number", pattern(r"(?:^|[^\w.,-])(\d{9,}\b)"), _account),
    Private("a long number", pattern(r"(?:^|[^\d.,])(\d{9,})"), _long_number, learned=False),
)


@dataclass(frozen=True, slots=True)
class Order:
    """A way to give orders beyond one's trade. Patterns read case-folded words with one blank between."""

    what: str
    pattern: Pattern


def _orders(what: str, *forms: str) -> list[Order]:
    return [Order(what, pattern(form)) for form in forms]


_GAP = r"[^.;]{0,40}"
_PROMPT = r"(?:instruction|prompt|guideline|playbook|direction|polic|rule|bullet|command|task)(?:s|ies|y)?"
_BEFORE = r"(?:previous|prior|above|earlier|preceding|before|so far|until now|your|system|these|those)"
_SO_FAR = r"\b(?:previous|prior|above|earlier|before|so far|until now)\b"
_DROP = r"\b(?:ignor|disregard|forget|overrid|bypass|discard|skip)\w*\b"
# The same in other languages, without the marks on Latin letters: to drop, what came before, instructions.
_DROP_LATIN = (
    r"\b(?:ignor\w*|desconsider\w*|descart\w*|olvid\w*|esque[cz]\w*|oubli\w*|dimentic\w*|vergiss|verges\w*"
    r"|missacht\w*|negeer\w*|vergeet|zignoruj\w*|pomin\w*|zapomnij\w*|bortse|glom|unohda|ohita|sivuuta"
    r"|abaikan|lupakan|bo qua|hagyd figyelmen kivul|uita)\b"
)
_BEFORE_LATIN = (
    r"\b(?:todas?|todos|toutes?|tous|tutt[eio]|alle[ns]?|alla|wszystkie|vsechny|kaikki|semua|osszes|toate|sva"
    r"|tat ca|anterior\w*|previ\w*|precedent\w*|vorherig\w*|bisherig\w*|vorig\w*|obig\w*|voorgaande|eerdere"
    r"|poprzedni\w*|predchoz\w*|predosl\w*|prethodn\w*|tidigare|tidligere|aiemm\w*|aikaisem\w*|sebelum\w*"
    r"|korabbi|truoc)\b"
)
_PROMPT_LATIN = (
    r"\b(?:instruc\w*|instruk\w*|instruzion\w*|istruzion\w*|indicac\w*|indicaz\w*|ordenes|reglas|regras|regole"
    r"|regles|consignes?|directiv\w*|anweisung\w*|anleitung\w*|vorgaben|regeln?|polecen\w*|pokyn\w*|uputst\w*|ohjee?t"
    r"|utasit\w*|huong dan|aanwijzing\w*|perintah)\b"
)
_LATER = r"[^.;]{0,32}"
ORDERS = (
    *_orders(
        "it tells the reader to drop its instructions",
        rf"{_DROP}{_GAP}\b{_BEFORE}\b{_LATER}\b{_PROMPT}\b",
        rf"{_DROP}{_GAP}\b{_PROMPT}\b{_LATER}{_SO_FAR}",
        rf"{_DROP}{_GAP}\b(?:all|any|every|other)\b{_LATER}"
        r"\b(?:instruction|prompt|guideline|playbook|rule|policy|policie|command|direction)s?\b",
        # To skip every task without an owner is work.
        r"\b(?:ignor|disregard|forget|overrid|bypass|discard)\w* (?:all|any|every)(?: other)? tasks?\b",
        rf"\b{_PROMPT}\b{_LATER}{_SO_FAR}{_GAP}"
        r"\b(?:void|cancel\w*|invalid|revoked|superseded|no longer (?:appl\w+|valid|counts?|holds?))\b",
        rf"{_DROP_LATIN}{_LATER}{_BEFORE_LATIN}{_LATER}{_PROMPT_LATIN}",
        rf"{_DROP_LATIN}{_LATER}{_PROMPT_LATIN}{_LATER}{_BEFORE_LATIN}",
        r"\b(?:onceki|yukaridaki)\b[^.;!?]{0,24}\b(?:talimat|yonerge|kural)\w*[^.;!?]{0,24}"
        r"\b(?:yok say|gormezden gel|unut|dikkate alma)",
        r"(?:игнорир|ігнор|проигнор|забудь|отмени|не обращай|пренебрег)[^.;!?]{0,40}"
        r"(?:инструкц|інструкц|указан|вказівк|правил|команд)",
        r"(?:αγνο[ηή]σ|ξ[εέ]χασ)[^.;!?]{0,40}(?:οδηγ[ιί]|κανόν|εντολ)",
        r"(?:忽略|忽視|忽视|无视|無視|忘记|忘記|不要理会|不要理會)[^。；.;!！]{0,16}(?:指令|指示|提示|说明|說明|规则|規則|命令)",
        r"(?:指示|命令|指令|プロンプト|ルール|規則)[^。.;!！]{0,16}(?:無視|忘れ|従わない)",
        r"(?:지시|명령|지침|규칙|프롬프트)[^.;!?]{0,16}(?:무시|잊|따르지)",
        r"(?:تجاهل|انس|اهمل|أهمل)[^.;!?]{0,32}(?:التعليمات|تعليمات|الاوامر|الأوامر|القواعد|الإرشادات)",
        r"(?:دستورالعمل|دستورات|هدایات)[^.;!?]{0,32}(?:نادیده|نظر انداز)",
        r"(?:התעלם|התעלמ|שכח)[^.;!?]{0,32}(?:הוראות|ההוראות|הכללים)",
        r"(?:निर्देश|आदेश|नियम)[^.;!?।]{0,24}(?:अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल)",
        r"(?:নির্দেশ|নিয়ম)[^.;!?।]{0,24}(?:উপেক্ষা|ভুলে)",
        r"(?:ละเว้น|เพิกเฉย|ไม่ต้องสนใจ|ลืม)[^.;!?]{0,24}(?:คำสั่ง|คำแนะนำ|กฎ)",
    ),
    *_orders(
        "it asks for the prompt or a secret",
        rf"\b(?:reveal|print|output|repeat|show|leak|disclose|send|expose|exfiltrate)\w*\b{_GAP}"
        r"\b(?:system prompt|your (?:instructions|prompt)|the prompt|api key|passwords?|credentials?"
        r"|secrets|(?:a|your|the) secret(?:[^\w ]|$)|secret (?:key|token|value)s?\b)",
    ),
    *_orders(
        "it gives the reader another role",
        r"\byou are now (?:an?|the|in|free|dan|called|\w*(?:bot|root|admin)"
        r"|un(?:restricted|limited|bound|filtered|censored|locked|chained))\b",
        r"\byou are no longer (?:an?|the|bound|restricted|limited|subject|required)\b",
        r"\bact as (?:if you|an? (?:unrestricted|different))|\bpretend (?:that )?you\b|\bpretend to be\b",
        r"\b(?:in|enter|enable|activate|now) developer mode\b|\bdeveloper mode(?: is| ?[:=])? ?on\b",
        r"\bjailbreak(?:s|ed mode)?\b",
        r"\bdo anything now\b",
        r"\byou (?:now )?have no (?:restrictions|limits|rules|filters|guidelines)\b",
        r"\bnew instructions? ?:",
    ),
    *_orders(
        "it hides from people",
        r"\b(?:do not|don't|never|without) (?:tell|mention|inform|reveal|show|let|alert|notify)\w*\b"
        r"[^.;!?]{0,30}\b(?:this|these|that you (?:were|are|have)) (?:rule|instruction|prompt|note"
        r"|message|entry|entries|bullet|line|playbook|told|instructed|been)",
    ),
    *_orders(
        "it has the marks of a chat message",
        r"<\|[a-z_]+\|>|</?(?:system|assistant|user|instructions?)>|\[/?inst\]|<<sys>>"
        r"|^(?:system|assistant|user) ?:|^#{1,6} ?(?:system|assistant|user|instructions?)\b ?:",
    ),
    *_orders(
        "it fixes the answer whatever the task",
        rf"\b(?:regardless of|no matter|whatever|irrespective of)\b[^.;]{{0,20}}"
        rf"\b(?:question|task|input|problem|asked?|user)\b{_GAP}"
        r"\b(?:answer|reply|respond|output|return|say|write)\b",
        rf"\b(?:answer|reply|respond|output|return|say)\b{_GAP}"
        r"\b(?:regardless of|no matter|whatever|irrespective of)\b[^.;]{0,20}"
        r"\b(?:question|task|input|problem|asked?|user)\b",
    ),
    *_orders(
        "it sends the reader to an address",
        r"\b(?:https?|ftp|file|data|javascript|vbscript):/{0,2}\S|\bwww\.\w",
        r"!\[[^\]]*\]\([^)]*[:/{]|\]\( ?(?://|javascript|data)"
        r"|<(?:img|iframe|script|object|embed|video|audio|link|meta|form|svg)\b[^>]*(?:=|>)",
    ),
    *_orders(
        "it has the reader run a command",
        r"\b(?:curl|wget) (?:[-$\"'<]|[a-z0-9]+[./:])|\b(?:run|execute) (?:the )?(?:curl|wget|sudo|bash|sh)\b"
        r"|\brm -[rf]|\bsudo (?:-|rm|apt|su|ba?sh|cat|chmod|chown|systemctl|kubectl|docker|tee"
        r"|reboot|shutdown|halt|mount|dd|kill|service|useradd|usermod|passwd|python|pip|npm|curl|wget|cp|mv|vi)"
        r"|\beval\(|\bexec\(|\bos\.system|\bsubprocess\.|&& ?[a-z]{2}"
        r"|\$\((?:[a-z]+[ /|<]|(?:whoami|id|env|printenv|hostname|uname|ls|ps|pwd|reboot)\))"
        r"|\| ?(?:ba|z)?sh\b|\bbase64 -d",
    ),
)
