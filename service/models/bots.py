"""Bots, as the discovery feed shows them."""

from service import clock
from service.db import Table
from service.fields import Boolean, Identifier, JsonAsBytes, Number, Text, Timestamp, Word, reference


class Bot(Table):
    """A bot of an app (section 2.7 of the document)."""

    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app", index=True)
    name = Text(200)
    slug = Text(200)
    tagline = Text(1000)
    description = Text(10_000)
    category = Text(200)
    kind = Word("nobot", "bot")
    status = Word("draft", "published")
    presence = Word("offline", "online", "away", "rsvp")
    is_active = Boolean(default=True)
    is_featured = Boolean(default=False)
    rating = Number(default=0.0)
    country = Text(200)
    region = Text(200)
    city = Text(200)
    accent_color = Text(64)
    brand_color = Text(64)
    cover_url = Text(2048)
    icon_url = Text(2048)
    contact_email = Text(254)
    contact_phone = Text(64)
    contact_website = Text(2048)
    social_links = JsonAsBytes()
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
