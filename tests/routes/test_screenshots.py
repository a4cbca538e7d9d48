"""Screenshots of feedback: upload, access, deletion, import."""

import base64
import json
from typing import Any

import pytest

from service import db
from service.commands import run
from service.models import AuditLog, Feedback, FeedbackScreenshot, User
from service.models import feedback_screenshots as screenshots
from service.operate import import_export
from tests.support import pictures as made
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.images import PICTURE
from tests.support.installation import flags_of
from tests.support.observe import nothing_changes
from tests.support.pictures import BLUE, RED, SECRET, is_like, look, plain
from tests.support.sample_data import UNKNOWN_ID
from tests.support.server_process import json_lines

pytestmark = pytest.mark.database

LIMIT = 5_242_880
WIDE = made.save(plain(3000, 1500, RED), "PNG")


def submit(client: Client, **members: Any) -> str:
    """Submit feedback; return its identifier."""
    return str(client.post("/feedback", {"description": "It hums.", **members}).data["id"])


def upload(client: Client, id: str, content: bytes = PICTURE, **headers: str) -> Reply:
    return client.put(f"/feedback/{id}/screenshot", **as_form({"screenshot": content}), **headers)


def get(client: Client, id: str, size: str = "full", **headers: str) -> Reply:
    return client.get(f"/feedback/{id}/screenshot?size={size}", **headers)


def remove(client: Client, id: str) -> Reply:
    return client.delete(f"/feedback/{id}/screenshot")


def address(id: str) -> str:
    return f"/api/v1/feedback/{id}/screenshot"


def stored() -> set[str]:
    return {screenshot.feedback_id for screenshot in FeedbackScreenshot.select()}


class TestUpload:
    def test_stores_the_picture_and_a_thumbnail(self, alice, host_clock):
        id = submit(alice)
        host_clock.forward(seconds=1)
        reply = upload(alice, id, WIDE)
        assert (reply.status, reply.data["screenshot_url"]) == (200, address(id))
        assert reply.data["updated_at"] > reply.data["created_at"]
        assert alice.get("/feedback").data == [reply.data]
        assert look(alice.get(f"/{address(id)}").raw).size == (2048, 1024)
        assert look(get(alice, id, "thumbnail").raw).size == (320, 160)

    def test_replaces_the_previous_picture_and_an_external_address(self, alice):
        id = submit(alice, screenshot_url="https://example.com/shot.png")
        for color in (RED, BLUE):
            reply = upload(alice, id, made.save(plain(8, 8, color), "PNG"))
            assert reply.data["screenshot_url"] == address(id)
            assert is_like(look(get(alice, id).raw).getpixel((3, 3)), color, 20)
        assert FeedbackScreenshot.select().count() == 1

    def test_that_is_repeated_changes_nothing(self, alice):
        id = submit(alice)
        upload(alice, id, WIDE)
        with nothing_changes():
            assert upload(alice, id, WIDE).status == 200

    def test_removes_metadata(self, alice):
        id = submit(alice)
        upload(alice, id, made.save(plain(40, 30), "JPEG", exif=made.exif(1), icc_profile=made.srgb()))
        for size in ("full", "thumbnail"):
            assert SECRET not in get(alice, id, size).raw

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            (b"", (400, "file_missing")),
            (b"GIF89a" + bytes(100), (415, "unsupported_media_type")),
            (PICTURE[:-20], (400, "image_unreadable")),
            (bytes(LIMIT + 1), (413, "file_too_large")),
        ],
    )
    def test_that_is_invalid_is_refused(self, alice, content, error):
        id = submit(alice)
        upload(alice, id)
        with nothing_changes():
            assert upload(alice, id, content).error == error

    def test_is_limited_per_user(self, alice, bob, monkeypatch):
        monkeypatch.setitem(screenshots.USER_LIMITS, "user", 2)
        first, second, third = (submit(alice) for _ in range(3))
        for id in (first, second, second):
            assert upload(alice, id).status == 200
        with nothing_changes():
            assert upload(alice, third).error == (400, "image_limit_reached")
        assert upload(bob, submit(bob)).status == 200
        remove(alice, first)
        assert upload(alice, third).status == 200

    def test_cannot_be_replaced_by_the_address_of_a_screenshot(self, alice, bob):
        id = submit(bob)
        upload(bob, id)
        with nothing_changes():
            body = {"description": "x", "screenshot_url": address(id)}
            assert alice.post("/feedback", body).error == (400, "invalid_body")


class TestAccess:
    def test_is_for_the_author_and_admins(self, alice, bob, agent, admin, anyone):
        id = submit(alice)
        upload(alice, id)
        for client, status in {alice: 200, admin: 200, bob: 403, agent: 403, anyone: 401}.items():
            for size in ("full", "thumbnail"):
                assert get(client, id, size).status == status

    def test_to_change_a_screenshot_is_for_the_author(self, alice, bob, agent, admin, anyone):
        id = submit(alice)
        upload(alice, id)
        with nothing_changes():
            for client, status in {admin: 403, bob: 403, agent: 403, anyone: 401}.items():
                assert upload(client, id, WIDE).status == status
                assert remove(client, id).status == status

    def test_of_unknown_feedback_is_not_found(self, alice, admin):
        with nothing_changes():
            for client in (alice, admin):
                for reply in (get(client, UNKNOWN_ID), upload(client, UNKNOWN_ID), remove(client, UNKNOWN_ID)):
                    assert reply.error == (404, "feedback_not_found")

    def test_of_feedback_without_a_screenshot_is_not_found(self, alice, bob):
        id = submit(alice, screenshot_url="https://example.com/shot.png")
        assert get(alice, id).error == (404, "screenshot_not_found")
        assert get(bob, id).error == (403, "forbidden")

    def test_has_headers_for_the_reader_only(self, alice):
        id = submit(alice)
        upload(alice, id)
        reply = get(alice, id)
        expected = {
            "content-type": "image/webp",
            "cache-control": "private, no-cache",
            "content-disposition": f'inline; filename="{id}.webp"',
            "content-security-policy": "default-src 'none'; sandbox",
            "cross-origin-resource-policy": "same-origin",
            "x-content-type-options": "nosniff",
        }
        sent = {name.lower(): value for name, value in reply.headers.items()}
        assert {name: sent.get(name) for name in expected} == expected
        assert get(alice, id, if_none_match=sent["etag"]).status == 304
        upload(alice, id, WIDE)
        assert get(alice, id, if_none_match=sent["etag"]).status == 200
        assert get(alice, id, "huge").error == (400, "invalid_parameter")


class TestDeletion:
    def test_by_the_author_is_repeatable(self, alice):
        id = submit(alice)
        upload(alice, id)
        for _ in range(2):
            reply = remove(alice, id)
            assert (reply.status, reply.data["screenshot_url"]) == (200, "")
        assert get(alice, id).error == (404, "screenshot_not_found")
        with nothing_changes():
            remove(alice, id)

    def test_by_the_author_removes_an_external_address(self, alice):
        id = submit(alice, screenshot_url="https://example.com/shot.png")
        assert remove(alice, id).data["screenshot_url"] == ""

    def test_of_the_author_removes_the_screenshots(self, alice, bob, admin):
        first, second = submit(alice), submit(bob)
        upload(alice, first)
        upload(bob, second)
        assert admin.delete(f"/users/{alice.user.id}").status == 200
        assert stored() == {second}
        assert Feedback.find(first) is None

    @pytest.mark.parametrize("with_messages", [True, False])
    def test_by_the_purge_removes_the_screenshots_of_a_user(self, alice, bob, session, say, settings, with_messages):
        if with_messages:
            say("Hello")
        own, other = submit(alice), submit(bob)
        upload(alice, own)
        upload(bob, other)
        db.close_database()
        assert run(["purge", "--user", alice.user.email, *flags_of(settings)]) == 0
        db.open_database(settings.data, settings.database)
        assert stored() == {other}
        assert Feedback.get_by_id(own).screenshot_url == ""
        assert Feedback.get_by_id(other).screenshot_url == address(other)
        entry = AuditLog.select().where(AuditLog.kind == "purged").get()
        assert json.loads(entry.details)["screenshots"] == 1

    def test_by_the_purge_of_a_message_keeps_the_screenshots(self, alice, session, say, settings):
        message, id = say("Hello"), submit(alice)
        upload(alice, id)
        db.close_database()
        assert run(["purge", "--message", message.id, *flags_of(settings)]) == 0
        db.open_database(settings.data, settings.database)
        assert stored() == {id}


@pytest.fixture
def import_records(application, tmp_path):
    """Return a function that imports records and return the errors without file and line."""

    def run_import(*records):
        path = tmp_path / "records.jsonl"
        path.write_bytes(json_lines(records))
        return [error.partition(": ")[2] for error in import_export.import_files([path])]

    return run_import


class TestImport:
    def exported(self) -> list[dict[str, Any]]:
        lines: list[bytes] = []
        import_export.export(lines.append)
        return [json.loads(line) for line in lines]

    def test_of_an_export_has_the_same_screenshots(self, alice, import_records):
        id = submit(alice)
        upload(alice, id, WIDE)
        before = [get(alice, id, size).raw for size in ("full", "thumbnail")]
        records = self.exported()
        [record] = [one["feedback_screenshot"] for one in records if "feedback_screenshot" in one]
        assert set(record) == {"feedback_id", "image"}
        FeedbackScreenshot.delete().execute()
        assert not import_records(*records)
        assert [get(alice, id, size).raw for size in ("full", "thumbnail")] == before
        assert Feedback.get_by_id(id).screenshot_url == address(id)

    def test_converts_other_pictures(self, alice, import_records):
        id = submit(alice)
        record = {"feedback_id": id, "image": base64.b64encode(WIDE).decode()}
        assert not import_records({"feedback_screenshot": record})
        assert look(get(alice, id).raw).size == (2048, 1024)
        assert Feedback.get_by_id(id).screenshot_url == address(id)
        for wrong in ("", "x", base64.b64encode(b"GIF89a").decode()):
            with nothing_changes():
                [error] = import_records({"feedback_screenshot": {**record, "image": wrong}})
                assert error.startswith("$.feedback_screenshot.image: ")

    def test_for_unknown_feedback_is_refused(self, application, import_records):
        record = {"feedback_id": UNKNOWN_ID, "image": base64.b64encode(PICTURE).decode()}
        with nothing_changes():
            [error] = import_records({"feedback_screenshot": record})
            assert "feedback_id" in error

    def test_clears_the_address_of_a_missing_screenshot(self, alice, import_records):
        id = submit(alice)
        upload(alice, id)
        [record] = [one for one in self.exported() if "feedback" in one]
        FeedbackScreenshot.delete().execute()
        assert not import_records(record)
        assert Feedback.get_by_id(id).screenshot_url == ""

    @pytest.mark.parametrize("wrong", ["/api/v1/feedback/x/screenshot", "/etc/passwd", "javascript:alert(1)"])
    def test_refuses_other_addresses(self, wrong, alice, import_records):
        id = submit(alice)
        with nothing_changes():
            [error] = import_records(
                {"feedback": {"id": id, "user_id": alice.user.id, "description": "x", "screenshot_url": wrong}}
            )
            assert error.startswith("$.feedback.screenshot_url: ")


def test_disabled_author_cannot_read_the_screenshot(alice, admin):
    id = submit(alice)
    upload(alice, id)
    User.get_by_id(alice.user.id).change("operator", {"is_disabled": True})
    assert get(alice, id).status == 401
    assert get(admin, id).status == 200
