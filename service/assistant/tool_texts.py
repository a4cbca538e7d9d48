"""The question whether the assistant may call a tool, and its buttons, in the language of the chat session."""

from collections.abc import Sequence
from typing import NamedTuple

from service.escape import clean
from service.models.turns import Call


class Texts(NamedTuple):
    """The texts of one language. In the question, {tool}, {server} and {arguments} are filled in."""

    question: str
    reason: str  # with {reason}
    lasting: str
    group: str  # with {tools}


class Asked(NamedTuple):
    """A question, and the language that it is in."""

    text: str
    language: str


# Once, in this chat, always, no: as `tool_permissions.DECISIONS`.
LABELS = {
    "en": ("Once", "In this chat", "Always", "No"),
    "ar": ("مرة واحدة", "في هذه المحادثة", "دائمًا", "لا"),
    "de": ("Einmal", "In diesem Chat", "Immer", "Nein"),
    "es": ("Una vez", "En este chat", "Siempre", "No"),
    "fr": ("Une fois", "Dans ce chat", "Toujours", "Non"),
    "ja": ("1回だけ", "このチャットで", "常に", "いいえ"),
    "pt": ("Uma vez", "Neste chat", "Sempre", "Não"),
    "zh": ("仅此一次", "在此聊天中", "始终", "不"),
}

TEXTS = {
    "en": Texts(
        "May I use the tool “{tool}” of “{server}” with exactly this data?\n{arguments}",
        "The bot’s reason: {reason}",
        "“In this chat” and “Always” hold for 90 days. You can revoke them under Data shares.",
        "They also allow these tools, which only read: {tools}",
    ),
    "ar": Texts(
        "هل تسمح لي باستخدام الأداة «{tool}» من «{server}» بهذه البيانات تحديدًا؟\n{arguments}",
        "سبب الروبوت: {reason}",
        "يسري «في هذه المحادثة» و«دائمًا» لمدة 90 يومًا. يمكنك إلغاؤهما ضمن مشاركات البيانات.",
        "ويسمحان أيضًا بهذه الأدوات التي تقرأ فقط: {tools}",
    ),
    "de": Texts(
        "Darf ich das Werkzeug „{tool}“ von „{server}“ mit genau diesen Daten verwenden?\n{arguments}",
        "Begründung des Bots: {reason}",
        "„In diesem Chat“ und „Immer“ gelten 90 Tage. Sie können beides unter Datenfreigaben widerrufen.",
        "Beides erlaubt auch diese Werkzeuge, die nur lesen: {tools}",
    ),
    "es": Texts(
        "¿Puedo usar la herramienta «{tool}» de «{server}» con exactamente estos datos?\n{arguments}",
        "Motivo del bot: {reason}",
        "«En este chat» y «Siempre» valen durante 90 días. Puede revocarlos en los permisos de datos.",
        "También permiten estas herramientas, que solo leen: {tools}",
    ),
    "fr": Texts(
        "Puis-je utiliser l’outil « {tool} » de « {server} » avec exactement ces données ?\n{arguments}",
        "Raison donnée par le bot : {reason}",
        "« Dans ce chat » et « Toujours » valent 90 jours. Vous pouvez les révoquer dans les partages de données.",
        "Ils autorisent aussi ces outils, qui ne font que lire : {tools}",
    ),
    "ja": Texts(
        "「{server}」のツール「{tool}」を、次のデータで使用してもよろしいですか?\n{arguments}",
        "ボットの理由: {reason}",
        "「このチャットで」と「常に」は90日間有効です。データ共有で取り消すことができます。",
        "読み取り専用の次のツールも許可されます: {tools}",
    ),
    "pt": Texts(
        "Posso usar a ferramenta “{tool}” de “{server}” exatamente com estes dados?\n{arguments}",
        "Motivo do bot: {reason}",
        "“Neste chat” e “Sempre” valem por 90 dias. Você pode revogá-los nos compartilhamentos de dados.",
        "Também permitem estas ferramentas, que apenas leem: {tools}",
    ),
    "zh": Texts(
        "我可以使用“{server}”的工具“{tool}”,并且只使用以下数据吗?\n{arguments}",
        "机器人的理由:{reason}",
        "“在此聊天中”和“始终”的有效期为 90 天。您可以在数据共享中撤销。",
        "同时允许以下只读工具:{tools}",
    ),
}


def question_about(call: Call, arguments: str, reason: str, languages: Sequence[str]) -> Asked:
    """Return the question about a call, in the first of some languages that has texts, else in English.

    Names of tools come from another server, the reason from the assistant: each is in one line.
    """
    supported = (tag.partition("-")[0].lower() for tag in (*languages, "en"))
    language = next(one for one in supported if one in TEXTS)
    texts = TEXTS[language]
    tools = ", ".join(clean(tool) for tool in call.tools)
    lines = [
        texts.question.format(tool=clean(call.tool), server=call.server, arguments=arguments),
        *([texts.reason.format(reason=reason)] if reason else []),
        texts.lasting,
        *([texts.group.format(tools=tools)] if len(call.tools) > 1 else []),
    ]
    return Asked("\n".join(lines), language)
