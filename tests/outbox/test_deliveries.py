"""The outbox: what is queued, when it is delivered, and what happens if that fails."""

import threading
from types import SimpleNamespace

import peewee
import pytest

from service import clock, db, metrics
from service.models import Delivery, Notification, PushTopic, User, deliveries
from service.outbox import worker
from service.outbox.transport import DeliveryError
from service.outbox.worker import LEASE, DeliveryWorker
from tests.support.messages import read, send
from tests.support.observe import at_once, query_plan, statements

MINUTES = clock.MINUTE


class RecordingTransport:
    """Records what it delivers; raises `error` instead, if there is one."""

    def __init__(self, channel, target=""):
        self.channel, self.target, self.error = channel, target, None
        self.delivered = []

    def deliver(self, delivery, notifications):
        if self.error:
            raise self.error
        self.delivered.append((delivery.topic, [row.body or row.title for row in notifications]))

    def close(self):
        pass


@pytest.fixture
def channels(application, monkeypatch):
    """Return a function that configures channels and return the worker of the first one."""
    monkeypatch.setattr(Delivery, "configured", ())

    def configure(*channels):
        Delivery.configure([pair if isinstance(pair, tuple) else (pair, "") for pair in channels])
        return DeliveryWorker(RecordingTransport(*Delivery.configured[0]), threading.Event())

    return configure


@pytest.fixture
def mail(channels, alice):
    User.update(is_verified=True).where(User.id == alice.user.id).execute()
    return channels("email")


def bodies(delivery_worker):
    return [texts for _, texts in delivery_worker.transport.delivered]


def work(delivery_worker):
    """Process everything that is due."""
    while delivery_worker.run_once():
        pass


def set_preference(client, **members):
    assert client.patch("/users/me/settings", {"notifications": members}).status == 200


class TestAnnouncements:
    def test_nothing_is_queued_without_a_channel(self, channels, alice, agent, session):
        send(agent, session)
        assert Delivery.select().count() == 0

    def test_unread_notifications_of_a_chat_are_delivered_together_after_five_minutes(
        self, host_clock, mail, agent, session
    ):
        for text in ("one", "two", "three"):
            send(agent, session, text)
        host_clock.forward(minutes=4, seconds=59)
        work(mail)
        assert bodies(mail) == []
        host_clock.forward(seconds=1)
        work(mail)
        assert bodies(mail) == [["one", "two", "three"]]
        assert Delivery.select().count() == 0

    def test_each_notification_is_delivered_once(self, host_clock, mail, agent, session):
        send(agent, session, "one")
        host_clock.forward(minutes=5)
        work(mail)
        send(agent, session, "two")
        host_clock.forward(minutes=5)
        work(mail)
        assert bodies(mail) == [["one"], ["two"]]

    def test_what_was_read_before_is_not_delivered(self, host_clock, mail, alice, agent, session):
        send(agent, session)
        read(alice, session)
        host_clock.forward(minutes=5)
        work(mail)
        assert bodies(mail) == [] and Delivery.select().count() == 0

    def test_push_notifications_are_delivered_after_ten_seconds(self, host_clock, channels, alice, agent, session):
        push = channels("push", "email")
        PushTopic.renew(alice.user.id)
        send(agent, session, "one")
        host_clock.forward(seconds=10)
        work(push)
        assert bodies(push) == [["one"]]
        assert [row.channel for row in Delivery.select()] == ["email"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda alice: set_preference(alice, email_enabled=False),
            lambda alice: User.update(is_verified=False).where(User.id == alice.user.id).execute(),
            lambda alice: User.update(is_disabled=True).where(User.id == alice.user.id).execute(),
        ],
        ids=["switched off", "not verified", "disabled"],
    )
    def test_users_who_may_not_be_reached_get_nothing(self, host_clock, mail, alice, agent, session, change):
        send(agent, session)
        change(alice)
        host_clock.forward(minutes=5)
        work(mail)
        assert bodies(mail) == [] and Delivery.select().count() == 0

    def test_muted_users_get_everything_unread_when_the_mute_ends(self, host_clock, mail, alice, agent, session):
        set_preference(alice, muted_until=clock.timestamp(clock.now() + 60 * MINUTES))
        send(agent, session, "one")
        host_clock.forward(minutes=30)
        work(mail)
        send(agent, session, "two")
        host_clock.forward(minutes=29)
        work(mail)
        assert bodies(mail) == [] and Delivery.select().count() == 1
        assert alice.get("/notifications/unread-count").data == {"unread_count": 2}
        host_clock.forward(minutes=1)
        work(mail)
        assert bodies(mail) == [["one", "two"]]

    @pytest.mark.parametrize("is_time_sensitive", [True, False])
    def test_time_sensitive_reminders_are_delivered_during_a_mute(self, host_clock, mail, alice, is_time_sensitive):
        set_preference(alice, muted_until=clock.timestamp(clock.now() + 60 * MINUTES))
        at = clock.timestamp(clock.now() + 10 * MINUTES)
        event = {"title": "Medicine", "starts_at": at, "reminder_at": at, "is_time_sensitive": is_time_sensitive}
        assert alice.post("/events", event).status == 201
        host_clock.forward(minutes=10)
        assert Notification.remind_all() == 1
        work(mail)
        assert bodies(mail) == ([["Medicine"]] if is_time_sensitive else [])

    def test_customers_of_one_chat_do_not_wait_for_each_other(self, host_clock, mail, alice, agent, admin, session):
        User.update(is_verified=True).execute()
        for staff in (agent, admin):
            send(staff, session, "note", is_private=True)
        send(alice, session, "question")
        host_clock.forward(minutes=5)
        mail.transport.error = DeliveryError("mailbox full")
        work(mail)
        assert {row.attempts for row in Delivery.select()} == {1}


class TestAttempts:
    @pytest.fixture
    def queued(self, mail, host_clock, agent, session):
        send(agent, session, "one")
        host_clock.forward(minutes=5)
        return mail

    def test_failed_attempts_are_repeated_at_growing_intervals(self, host_clock, queued, monkeypatch):
        monkeypatch.setattr(worker, "JITTER", 0)
        queued.transport.error = DeliveryError("greylisted")
        delays = []
        for _ in range(10):
            work(queued)
            (delivery,) = Delivery.select()
            delays.append((delivery.due_at - clock.now()) // 1000)
            assert delivery.error == "greylisted"
            host_clock.forward(seconds=delays[-1])
        assert delays == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
        queued.transport.error = None
        work(queued)
        assert bodies(queued) == [["one"]] and Delivery.select().count() == 0

    def test_a_time_that_the_other_side_names_is_kept(self, host_clock, queued):
        queued.transport.error = DeliveryError("too many requests", after=10 * MINUTES)
        work(queued)
        (delivery,) = Delivery.select()
        assert delivery.due_at == clock.now() + 10 * MINUTES

    @pytest.mark.parametrize("ends", ["after three days", "at a final error"])
    def test_a_delivery_is_given_up(self, host_clock, queued, ends):
        queued.transport.error = DeliveryError("no such mailbox", is_final=ends == "at a final error")
        work(queued)
        host_clock.forward(days=3)
        work(queued)
        (delivery,) = Delivery.select()
        assert (delivery.info.state, delivery.error) == ("failed", "no such mailbox")
        host_clock.forward(days=26)
        assert not queued.run_once() and not Delivery.delete_old()
        host_clock.forward(days=5)
        assert Delivery.delete_old() == 1 and Delivery.select().count() == 0

    def test_a_failed_delivery_can_be_tried_again(self, host_clock, queued, admin):
        queued.transport.error = DeliveryError("no such mailbox", is_final=True)
        work(queued)
        queued.transport.error = None
        Delivery.get().try_again(admin.user.id)
        work(queued)
        assert bodies(queued) == [["one"]]

    def test_a_delivery_is_not_tried_again_during_an_attempt(self, host_clock, queued, admin):
        delivery = queued.claim()
        host_clock.forward(seconds=1)
        Delivery.get().try_again(admin.user.id)
        assert queued.claim() is None
        queued.transport.error = DeliveryError("no connection")
        queued.process(delivery)
        assert queued.claim() is None
        queued.transport.error = None
        Delivery.get().try_again(admin.user.id)
        assert Delivery.get().error == "no connection"
        work(queued)
        assert bodies(queued) == [["one"]]

    def test_a_muted_delivery_can_be_tried_again(self, host_clock, queued, alice, admin):
        queued.transport.error = DeliveryError("no connection")
        work(queued)
        set_preference(alice, muted_until=clock.timestamp(clock.now() + clock.DAY))
        host_clock.forward(minutes=1)
        work(queued)
        set_preference(alice, muted_until=None)
        queued.transport.error = None
        Delivery.get().try_again(admin.user.id)
        work(queued)
        assert bodies(queued) == [["one"]]

    def test_a_delivery_of_a_killed_worker_is_repeated_after_its_lease(self, host_clock, queued):
        assert queued.claim() and not queued.claim()
        host_clock.forward(minutes=LEASE / MINUTES)
        work(queued)
        assert bodies(queued) == [["one"]]

    @pytest.mark.parametrize("other", ["claims", "has made"])
    def test_a_delivery_that_another_worker_claims_during_the_search_is_not_claimed(self, queued, monkeypatch, other):
        found = deliveries._due

        class Due:
            def __init__(self, *arguments):
                self.query = found(*arguments)

            def row(self):
                found = self.query.row()
                delivery = Delivery.get()
                assert delivery.remove() if other == "has made" else delivery.set_due_at(clock.now() + LEASE)
                return found

        monkeypatch.setattr(deliveries, "_due", Due)
        assert queued.claim() is None

    def test_notifications_during_an_attempt_are_delivered_later(self, host_clock, queued, agent, session):
        delivery = queued.claim()
        send(agent, session, "two")
        queued.process(delivery)
        host_clock.forward(minutes=5)
        work(queued)
        assert bodies(queued)[0][0] == "one" and bodies(queued)[-1][-1] == "two"

    def test_several_workers_deliver_each_delivery_once(self, host_clock, mail, alice, agent, session):
        with db.write():
            for number in range(20):
                Delivery.add("email", "verification", user_id=alice.user.id, payload={"number": number})
        others = [DeliveryWorker(RecordingTransport("email"), threading.Event()) for _ in range(4)]

        def work_and_close(number):
            work(others[number])
            db.close_database()

        at_once(4, work_and_close)
        assert sum(len(other.transport.delivered) for other in others) == 20


class TestNotes:
    """A delivery is noted as made in the transaction that claims the next one."""

    @pytest.fixture
    def hook(self, channels):
        hook = channels(("webhook", "https://a.example"))
        with db.write():
            for _ in range(2):
                Delivery.add("webhook", "message.created", topic="chat 1")
        return hook

    def test_next_one_is_claimed_after_the_removal(self, hook):
        assert hook.run_once() and Delivery.select().count() == 2
        assert hook.run_once() and Delivery.select().count() == 1
        assert not hook.run_once() and Delivery.select().count() == 0

    @pytest.mark.parametrize("removal_fails", [False, True])
    def test_one_that_could_not_be_noted_is_not_made_again(self, hook, monkeypatch, removal_fails):
        def fail(*_):
            raise peewee.OperationalError("the database is unavailable")

        assert hook.run_once()
        with monkeypatch.context() as patch:
            patch.setattr(Delivery, "claim", fail)
            if removal_fails:
                patch.setattr(Delivery, "remove", fail)
            for _ in range(2):
                with pytest.raises(peewee.OperationalError):
                    hook.run_once()
        assert Delivery.select().count() == 1 + removal_fails
        work(hook)
        assert len(hook.transport.delivered) == 2 and Delivery.select().count() == 0

    def test_last_one_is_noted_when_the_thread_ends(self, hook, monkeypatch):
        deliver = hook.transport.deliver

        def deliver_and_stop(*arguments):
            deliver(*arguments)
            hook.stop.set()

        monkeypatch.setattr(hook.transport, "deliver", deliver_and_stop)
        hook.run()
        assert len(hook.transport.delivered) == Delivery.select().count() == 1


class TestPolling:
    @pytest.mark.parametrize("is_prompt", [False, True])
    def test_prompt_workers_poll_more_often_after_a_delivery(self, channels, is_prompt):
        hook, pauses, is_stopped = channels(("webhook", "https://a.example")), [], threading.Event()
        hook.is_prompt = is_prompt

        def wait(seconds):
            pauses.append(seconds)
            if len(pauses) == 2:
                with db.write():
                    Delivery.add("webhook", "message.created", topic="chat 1")
            if len(pauses) == 8:
                is_stopped.set()

        hook.stop = SimpleNamespace(wait=wait, is_set=is_stopped.is_set)
        hook.run()
        assert len(hook.transport.delivered) == 1
        assert pauses == [0.5, 0.5, 0, *([0.1, 0.2, 0.4] if is_prompt else [0.5] * 3), 0.5, 0.5]


class TestGivingWay:
    @pytest.fixture
    def hook(self, channels):
        hook = channels(("webhook", "https://a.example"))
        with db.write():
            Delivery.add("webhook", "message.created", topic="chat 1")
        metrics.shared.add(metrics.IN_FLIGHT)
        yield hook
        metrics.shared.add(metrics.IN_FLIGHT, -metrics.shared.total(metrics.IN_FLIGHT))

    def test_delivery_waits_for_requests_in_progress(self, hook, monkeypatch):
        pauses = []

        def sleep(seconds):
            pauses.append(seconds)
            assert not hook.transport.delivered
            metrics.shared.add(metrics.IN_FLIGHT, -1)

        monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
        assert hook.run_once() and hook.transport.delivered
        assert pauses == [worker.GIVE_WAY_INTERVAL]

    def test_requests_that_take_long_delay_it_for_a_short_time(self, hook, monkeypatch):
        times = iter([0.0, 0.0, worker.GIVE_WAY_TIMEOUT])
        monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None))
        assert hook.run_once() and hook.transport.delivered


class TestOrder:
    def test_deliveries_of_a_topic_wait_for_earlier_ones(self, host_clock, channels):
        hook = channels(("webhook", "https://a.example"), ("webhook", "https://b.example"))
        with db.write():
            for topic in ("chat 1", "chat 1", "chat 2"):
                Delivery.add("webhook", "message.created", topic=topic)
        first = hook.claim()
        assert first.topic == "chat 1"
        assert hook.claim().topic == "chat 2" and hook.claim() is None
        first.remove()
        assert hook.claim().topic == "chat 1" and hook.claim() is None

    def test_a_failed_delivery_does_not_hold_up_its_topic(self, host_clock, channels):
        hook = channels(("webhook", "https://a.example"))
        with db.write():
            for _ in range(2):
                Delivery.add("webhook", "message.created", topic="chat 1")
        hook.claim().fail("gone")
        assert hook.claim() is not None

    def test_deliveries_without_a_topic_are_independent(self, host_clock, channels):
        mail = channels("email")
        with db.write():
            for _ in range(2):
                Delivery.add("email", "verification")
        assert mail.claim() and mail.claim()


class TestCosts:
    def test_the_next_delivery_is_found_by_an_index(self, channels):
        hook = channels(("webhook", "https://a.example"))
        with db.write():
            Delivery.add("webhook", "message.created", topic="chat 1")
        with statements() as executed:
            assert hook.run_once() and not hook.run_once()
        found = [statement for statement in executed if statement[0].startswith(("SELECT ", "UPDATE "))]
        plans = [query_plan(*statement) for statement in found if "delivery" in statement[0]]
        assert len(plans) == 3  # the search, the claim, and the claim of the next one
        for plan in plans:
            scans = [step for step in plan.scans if not step.startswith("ModifyTable")]
            assert "delivery_due" in plan.ranges and not scans, plan

    def test_a_notification_of_a_user_costs_one_statement_per_channel(self, channels, alice):
        counts = []
        for configured in ((), ("email",), ("email", "push")):
            channels(*configured or ("webhook",))
            with db.write(), statements() as executed:
                Notification.notify(alice.user.id, "chat_message", "Hilda", {}, session_id=None)
            counts.append(len(executed))
        assert [count - counts[0] for count in counts] == [0, 1, 2]
