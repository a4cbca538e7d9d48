"""The customer of a chat session as its staff see them."""

import itertools
from typing import NamedTuple

from service import clock
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.data_shares import DataShare
from service.models.events import Event
from service.models.feedback import Feedback
from service.models.languages import languages_of
from service.models.users import User

ROWS = 5  # of each list
DEPTH = 100  # chats and events of the customer, in any app, that are read


class CustomerDetails(NamedTuple):
    """The customer of a chat session, and what concerns its app: other chats, events, feedback, data shares."""

    user: User
    languages: list[str]
    chats: list[ChatSession]
    events: list[Event]
    feedback: list[Feedback]  # for admins only, because feedback has no app
    data_shares: list[DataShare]


def read_customer_details(caller: Caller, session: ChatSession) -> CustomerDetails:
    """Return the customer of a chat session for a member of its staff. Lists have at most ROWS rows, newest first."""
    own = ChatSession.user_id == session.user_id
    chats = ChatSession.select().where(own).order_by(ChatSession.active_at.desc(), ChatSession.id.desc()).limit(DEPTH)
    visible = (chat for chat in chats if chat.id != session.id and caller.is_staff(chat.app_id))
    events = Event.select().where(Event.user_id == session.user_id, Event.starts_at >= clock.timestamp())
    events = events.order_by(Event.starts_at, Event.id).limit(DEPTH)
    feedback = Feedback.select().where(Feedback.user_id == session.user_id)
    shares = DataShare.select().where(DataShare.user_id == session.user_id, DataShare.active())
    of_app = DataShare.conversation_id.is_null() & (DataShare.app_id == session.app_id)
    shares = shares.where((DataShare.conversation_id == session.conversation_id) | of_app)
    return CustomerDetails(
        User.get_by_id(session.user_id),
        languages_of(session),
        list(itertools.islice(visible, ROWS)),
        [event for event in events if event.app_id == session.app_id][:ROWS],
        list(feedback.order_by(Feedback.created_at.desc(), Feedback.id.desc()).limit(ROWS))
        if caller.role == "admin"
        else [],
        list(shares.order_by(DataShare.granted_at.desc(), DataShare.id.desc()).limit(ROWS)),
    )
