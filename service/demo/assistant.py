"""The canned assistant of the demo: it replies to questions about the weather and parcels, with the demo's tools.

It sees what a model would see, the messages and functions of a request, and requests calls as a model does. It knows
nothing of permissions: the service asks the customer.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.demo.tools import SKIES
from service.types import JsonObject

REASON = "why_for_customer"  # the argument that the service adds to each function
REFUSED = "Refused"  # how the result of a call begins that the customer does not permit


class Texts(NamedTuple):
    """The patterns and the texts of one language. A pattern has the argument of the tool as its group."""

    weather: str
    parcel: str
    not_of_city: str  # words behind the name of a city
    weather_reason: str
    parcel_reason: str
    forecast: str
    statuses: dict[str, str]  # of parcels
    no_parcel: str
    refused: str
    failed: str
    skies: dict[str, str]


class Question(NamedTuple):
    """A question that a tool answers."""

    tool: str
    argument: str  # its name
    value: str
    texts: Texts

    @property
    def reason(self) -> str:
        """Why the tool is called, for the customer."""
        is_weather = self.tool == "get_forecast"
        return (self.texts.weather_reason if is_weather else self.texts.parcel_reason).format(self.value)


# Bounded, because messages are long: {0,60} and not *.
CITY = r"\s+([^\W\d_][^\n.?!,;:]{0,58})"
NUMBER = r"\b[^.?!\n]{0,60}?\b([A-Z]{1,3}-\d{3,6}(?:-[A-Z]{2,6})?)\b"

TEXTS = {
    "en": Texts(
        weather=rf"\b(?:weather|forecast)\b[^.?!\n]{{0,60}}?\b(?:in|for|at){CITY}",
        parcel=rf"\b(?:parcel|package|order|delivery|shipment){NUMBER}",
        not_of_city="today|tonight|tomorrow|now|right|please|this|next|in|on|at|over|like",
        weather_reason="To look up the weather in {}.",
        parcel_reason="To look up where parcel {} is.",
        forecast="The forecast for {city}: {sky}, {low_celsius} to {high_celsius} °C."
        " (It is made up, like all data of the demo.)",
        statuses={
            "in_transit": "Parcel {number} is on its way. It has left the depot in {place}.",
            "delayed": "Parcel {number} is delayed: the van broke down near {place}.",
        },
        no_parcel="There is no parcel with this number.",
        refused="I have not looked it up, because you did not allow it.",
        failed="I cannot look it up now. Please ask again later.",
        skies=dict(zip(SKIES, ("clear sky", "clouds", "rain", "fog", "thunderstorms"), strict=True)),
    ),
    "de": Texts(
        weather=rf"\b(?:Wetter|Wettervorhersage|Vorhersage)\b[^.?!\n]{{0,60}}?\b(?:in|für){CITY}",
        parcel=rf"\b(?:Paket|Päckchen|Sendung|Bestellung|Lieferung){NUMBER}",
        not_of_city="heute|morgen|übermorgen|jetzt|gerade|bitte|in|diese|dieses|nächste|nächstes",
        weather_reason="Um das Wetter in {} nachzusehen.",
        parcel_reason="Um nachzusehen, wo das Paket {} ist.",
        forecast="Die Vorhersage für {city}: {sky}, {low_celsius} bis {high_celsius} °C."
        " (Sie ist erfunden, wie alle Daten der Demo.)",
        statuses={
            "in_transit": "Das Paket {number} ist unterwegs. Es hat das Depot in {place} verlassen.",
            "delayed": "Das Paket {number} verspätet sich: Der Lieferwagen hatte bei {place} eine Panne.",
        },
        no_parcel="Es gibt kein Paket mit dieser Nummer.",
        refused="Ich habe nicht nachgesehen, weil Sie es nicht erlaubt haben.",
        failed="Ich kann gerade nicht nachsehen. Bitte fragen Sie später noch einmal.",
        skies=dict(zip(SKIES, ("klarer Himmel", "Wolken", "Regen", "Nebel", "Gewitter"), strict=True)),
    ),
    "es": Texts(
        weather=rf"\b(?:tiempo hace|tiempo hará|clima|pronóstico)\b[^.?!\n]{{0,60}}?\b(?:en|para){CITY}",
        parcel=rf"\b(?:paquete|pedido|envío){NUMBER}",
        not_of_city="hoy|mañana|ahora|por|en|este|esta",
        weather_reason="Para consultar el tiempo en {}.",
        parcel_reason="Para consultar dónde está el paquete {}.",
        forecast="El pronóstico para {city}: {sky}, de {low_celsius} a {high_celsius} °C."
        " (Es inventado, como todos los datos de la demostración.)",
        statuses={
            "in_transit": "El paquete {number} está en camino. Ha salido del almacén de {place}.",
            "delayed": "El paquete {number} se retrasa: la furgoneta se averió cerca de {place}.",
        },
        no_parcel="No hay ningún paquete con este número.",
        refused="No lo he consultado, porque no lo ha permitido.",
        failed="Ahora no puedo consultarlo. Vuelva a preguntar más tarde.",
        skies=dict(zip(SKIES, ("cielo despejado", "nubes", "lluvia", "niebla", "tormentas"), strict=True)),
    ),
    "fr": Texts(
        weather=rf"\b(?:météo|temps fait-il|temps fera-t-il)\b[^.?!\n]{{0,60}}?\b(?:à|au|pour){CITY}",
        parcel=rf"\b(?:colis|commande|livraison){NUMBER}",
        not_of_city="aujourd|demain|maintenant|s['’]il|ce|cette",
        weather_reason="Pour consulter la météo de {}.",
        parcel_reason="Pour savoir où est le colis {}.",
        forecast="Les prévisions pour {city} : {sky}, de {low_celsius} à {high_celsius} °C."
        " (Elles sont inventées, comme toutes les données de la démonstration.)",
        statuses={
            "in_transit": "Le colis {number} est en route. Il a quitté le dépôt de {place}.",
            "delayed": "Le colis {number} est en retard : la camionnette est tombée en panne près de {place}.",
        },
        no_parcel="Aucun colis n’a ce numéro.",
        refused="Je n’ai pas cherché, car vous ne l’avez pas permis.",
        failed="Je ne peux pas chercher maintenant. Reposez la question plus tard.",
        skies=dict(zip(SKIES, ("ciel dégagé", "nuages", "pluie", "brouillard", "orages"), strict=True)),
    ),
}

# What the assistant replies to; the bot gives a canned answer to all other messages.
QUESTIONS = "(?i)" + "|".join(f"(?:{pattern})" for texts in TEXTS.values() for pattern in (texts.weather, texts.parcel))


def reply(messages: Sequence[JsonObject], tools: Sequence[JsonObject]) -> JsonObject | None:
    """Return the message of the assistant that follows others: a text, or the call of a function.

    None if it has no reply.
    """
    asked = [str(message.get("content")) for message in messages if message.get("role") == "user"]
    if messages and messages[-1].get("role") == "tool":
        question = next(filter(None, map(question_in, reversed(asked))), None)
        return {"role": "assistant", "content": _answer(question, str(messages[-1]["content"]))} if question else None
    question = question_in(asked[-1]) if asked else None
    return _call(question, tools) if question else None


def question_in(text: str) -> Question | None:
    """Return the last question in a text that a tool answers."""
    found = max(_questions_in(text), key=lambda one: one[0], default=None)
    return found[1] if found else None


def _questions_in(text: str) -> Iterator[tuple[int, Question]]:
    """Yield the questions in a text, each with its position."""
    for texts in TEXTS.values():
        for match in re.finditer(texts.weather, text, re.IGNORECASE):
            city = re.split(rf"\s+(?:{texts.not_of_city})\b", match[1], maxsplit=1, flags=re.IGNORECASE)[0].strip()
            yield match.start(), Question("get_forecast", "city", city, texts)
        for match in re.finditer(texts.parcel, text, re.IGNORECASE):
            yield match.start(), Question("track_parcel", "number", match[1].upper(), texts)


def _call(question: Question, tools: Sequence[JsonObject]) -> JsonObject | None:
    """Return the message that calls the function of a question; None without such a function."""
    functions = (tool["function"] for tool in tools)
    function = next((one for one in functions if f"__{question.tool}" in one["name"]), None)
    if function is None:
        return None
    arguments = {question.argument: question.value}
    if REASON in function["parameters"]["properties"]:
        arguments[REASON] = question.reason
    called = {"name": function["name"], "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": called}]}


def _answer(question: Question, result: str) -> str:
    """Return the answer to a question, from the result of the call."""
    texts = question.texts
    if result.startswith(REFUSED):
        return texts.refused
    if question.tool == "track_parcel" and result.startswith("No parcel"):
        return texts.no_parcel
    try:
        found = json.loads(result)
    except ValueError:
        return texts.failed
    if question.tool == "get_forecast":
        return texts.forecast.format(**found | {"sky": texts.skies[found["sky"]]})
    return texts.statuses[found["status"]].format(**found)
