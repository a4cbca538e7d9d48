"""The page of the deliveries of the outbox, for admins."""

from typing import Literal

import msgspec
from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.console.people import emails_of
from service.errors import DeliveryNotFound
from service.models import Delivery
from service.models.callers import Caller
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)


class DeliveriesQuery(Struct):
    """Filter of the list: deliveries that failed, or those that are pending."""

    failed: bool = False
    channel: Literal["", "email", "push", "webhook"] = ""
    cursor: Cursor = Cursor()
    done: str = ""


class DeliveryForm(ConsoleForm, kw_only=True):
    """A delivery to try again."""

    id: str = ""


@routes.get("/console/deliveries", statuses=(200, 400, 401, 403))
def show_deliveries(caller: Caller, query: DeliveriesQuery) -> HtmlPage:
    """Show the page of deliveries (admins only)."""
    return deliveries_page(caller, query)


def deliveries_page(caller: Caller, query: DeliveriesQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of deliveries."""
    state: Literal["failed", "pending"] = "failed" if query.failed else "pending"
    page = Delivery.list_page(query.cursor, layout.PAGE_ROWS, channel=query.channel or None, state=state)
    return layout.show(
        caller,
        "deliveries",
        gettext("Deliveries"),
        page=page,
        query=query,
        done=query.done,
        failure=failure,
        channels=dict.fromkeys(channel for channel, _ in Delivery.configured),
        emails=emails_of(row["user_id"] for row in msgspec.json.decode(page.rows) if row["user_id"]),
    )


@routes.post("/console/deliveries", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM, errors=(DeliveryNotFound,))
@layout.form_handler(deliveries_page, DeliveriesQuery)
def retry_delivery(caller: Caller, body: DeliveryForm) -> Redirect:
    """Try a delivery again (admins only)."""
    Delivery.get_for(caller, body.id).try_again(caller.id)
    return Redirect("/console/deliveries?done=retried")
