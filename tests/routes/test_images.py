"""Pictures of messages: upload, sending, access, deletion, limits."""

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from service import db, pictures
from service.commands import run
from service.errors import ApiError
from service.models import ChatSession, Message, MessageImage, message_images
from service.operate import import_export
from service.pictures.containers import MAX_PIXELS
from tests.support import pictures as made
from tests.support.chats import delete, pin
from tests.support.client import walk
from tests.support.host_clock import Clock
from tests.support.images import PICTURE, get_image, images_of, send_images, stored_images, upload_image
from tests.support.installation import flags_of
from tests.support.messages import chat_notifications, edit
from tests.support.observe import nothing_changes
from tests.support.pictures import BLUE, GREEN, RED, SECRET, is_like, look, plain, webp_chunks
from tests.support.sample_data import UNKNOWN_ID
from tests.support.server_process import json_lines

pytestmark = pytest.mark.database

LIMIT = 5_242_880
WIDE = made.save(plain(3000, 1500, RED), "PNG")


def text_of_content(data: dict[str, Any]) -> Any:
    return json.loads(bytes(data["content"]))


class TestPictures:
    @pytest.mark.parametrize(("size", "expected"), [((3000, 1500), (2048, 1024)), ((1500, 3000), (1024, 2048))])
    def test_are_scaled_to_2048_pixels_and_keep_their_proportions(self, size, expected):
        picture = pictures.make_picture(made.save(plain(*size, RED), "PNG"))
        assert (picture.width, picture.height) == look(picture.content).size == expected
        assert max(look(picture.thumbnail).size) == 320
        assert is_like(look(picture.content).getpixel((5, 5)), RED, 20)

    @pytest.mark.parametrize("size", [(1, 1), (40, 30), (2048, 1)])
    def test_are_never_enlarged(self, size):
        assert pictures.make_picture(made.save(plain(*size, RED), "PNG"))[2:] == size

    def test_that_are_extremely_narrow_keep_one_pixel(self):
        picture = pictures.make_picture(made.save(plain(9000, 2, GREEN), "PNG"))
        assert (picture.width, picture.height) == (2048, 1)
        assert look(picture.thumbnail).size == (320, 1)

    def test_are_upright(self):
        raw = made.jpeg(plain(400, 200, BLUE), exif=b"Exif\0\0" + made.exif(6))
        assert pictures.make_picture(raw)[2:] == (200, 400)

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
    def test_have_no_metadata(self, kind):
        raw = made.save(plain(40, 30), kind, exif=made.exif(1), icc_profile=made.srgb())
        picture = pictures.make_picture(raw)
        for content in picture[:2]:
            assert set(webp_chunks(content)) <= {b"VP8 ", b"VP8X", b"ALPH"}
            assert SECRET not in content

    def test_keep_transparency(self):
        picture = pictures.make_picture(made.save(Image.new("RGBA", (3000, 3000), (255, 0, 0, 0)), "PNG"))
        assert look(picture.content).getpixel((9, 9))[3] == 0

    @pytest.mark.slow
    def test_have_at_most_one_mebibyte(self):
        picture = pictures.make_picture(made.jpeg(made.noise(2048, 2048), quality=70))
        assert len(picture.content) <= pictures.PICTURE_BYTES
        assert max(picture.width, picture.height) < 2048

    @pytest.mark.parametrize(
        ("make", "status"),
        [(make, status) for _, make, status in made.CORPUS],
        ids=[name for name, *_ in made.CORPUS],
    )
    def test_have_the_same_result_as_avatars_for_every_file(self, make: Callable[[], bytes], status: int):
        raw = make()
        if status == 200:
            picture = pictures.make_picture(raw)
            assert pictures.is_plain_webp(picture.content)
            assert look(picture.content).size == picture[2:]
        else:
            with pytest.raises(ApiError) as refused:
                pictures.make_picture(raw)
            assert refused.value.status == status

    @pytest.mark.parametrize("side", [(4095, 4095), (10_000, 4_095), (8_100, 6_100)])
    def test_of_a_large_jpeg_are_decoded_with_at_most_12_million_pixels(self, side, monkeypatch):
        sizes = []
        decode = pictures._decode

        def note_size(*arguments: Any) -> Image.Image:
            image = decode(*arguments)
            sizes.append(image.size)
            return image

        monkeypatch.setattr(pictures, "_decode", note_size)
        pictures.make_picture(made.jpeg(Image.new("L", side)))
        assert [width * height <= MAX_PIXELS for width, height in sizes] == [True]

    @pytest.mark.parametrize(("opacity", "mode", "side"), [(255, "RGB", 2048), (254, "RGBA", 1280)])
    def test_are_smaller_with_transparency(self, opacity, mode, side):
        raw = made.save(plain(2_500, 1_250, (200, 100, 50, opacity), "RGBA"), "PNG")
        picture = Image.open(io.BytesIO(pictures.make_picture(raw).content))
        assert (picture.mode, picture.size) == (mode, (side, side // 2))


class TestUpload:
    def test_returns_the_identifier_and_the_size(self, alice, session):
        reply = upload_image(alice, session, WIDE)
        assert reply.status == 201
        assert reply.data == {"id": reply.data["id"], "width": 2048, "height": 1024}

    def test_checks_the_size_and_the_type(self, alice, session):
        with nothing_changes():
            assert upload_image(alice, session, bytes(LIMIT + 1)).error == (413, "file_too_large")
            assert upload_image(alice, session, bytes(LIMIT)).error == (415, "unsupported_media_type")
            assert upload_image(alice, session, PICTURE[:-1]).error == (400, "image_unreadable")
            assert upload_image(alice, session, b"").error == (400, "file_missing")

    def test_is_for_participants_only(self, bob, other_agent, anyone, session):
        with nothing_changes():
            for client, error in ((bob, 403), (other_agent, 403), (anyone, 401)):
                assert upload_image(client, session).error[0] == error

    def test_with_an_idempotency_key_is_executed_once_for_one_file(self, alice, session):
        first, second = (upload_image(alice, session, idempotency_key="k") for _ in range(2))
        assert first.data == second.data
        assert stored_images() == {first.data["id"]}
        assert upload_image(alice, session, WIDE, idempotency_key="k").error == (400, "idempotency_key_reused")

    def test_that_was_not_sent_is_removed_after_a_day(self, alice, session, host_clock: Clock):
        first = upload_image(alice, session).data["id"]
        host_clock.forward(hours=23, minutes=59)
        second = upload_image(alice, session).data["id"]
        assert stored_images() == {first, second}
        host_clock.forward(minutes=1)
        third = upload_image(alice, session).data["id"]
        assert stored_images() == {second, third}

    def test_of_more_than_20_unsent_pictures_replaces_the_oldest(self, alice, bob, session, host_clock: Clock):
        sent = images_of(send_images(alice, session))
        ids = []
        for _ in range(21):
            host_clock.forward(seconds=1)
            ids.append(upload_image(alice, session).data["id"])
        assert stored_images() == {*ids[1:], sent[0]["url"].rpartition("/")[2]}

    def test_is_limited_per_user(self, alice, agent, session, monkeypatch):
        monkeypatch.setitem(message_images.USER_LIMITS, "user", 2)
        message = send_images(alice, session, 2).data
        with nothing_changes():
            assert upload_image(alice, session).error == (400, "image_limit_reached")
        assert upload_image(agent, session).status == 201
        assert alice.delete(f"/chats/{session.id}/messages/{message['id']}").status == 200
        assert upload_image(alice, session).status == 201


class TestMessage:
    def test_has_its_text_and_its_pictures(self, alice, session):
        ids = [upload_image(alice, session, content).data["id"] for content in (WIDE, PICTURE)]
        body = {"content": {"text": "Look"}, "images": ids}
        reply = alice.post(f"/chats/{session.id}/messages", body)
        base = f"/api/v1/chats/{session.id}/messages/{reply.data['id']}/images"
        assert (reply.status, reply.data["content_type"]) == (201, "image")
        assert text_of_content(reply.data) == {
            "text": "Look",
            "images": [
                {"url": f"{base}/{ids[0]}", "width": 2048, "height": 1024},
                {"url": f"{base}/{ids[1]}", "width": 8, "height": 8},
            ],
        }
        assert reply.data in walk(alice, f"/chats/{session.id}/messages")
        assert look(get_image(alice, images_of(reply)[0]).raw).size == (2048, 1024)

    def test_without_pictures_is_as_before(self, alice, session):
        content = {"text": "Look", "images": [{"url": "/x", "width": 1, "height": 1}]}
        reply = alice.post(f"/chats/{session.id}/messages", {"content": content, "images": []})
        assert (reply.data["content_type"], text_of_content(reply.data)) == ("text", content)

    @pytest.mark.parametrize(
        "content", ["Look", {}, {"text": 1}, {"text": "", "images": []}, {"text": "", "a": 1}, [1]]
    )
    def test_with_pictures_has_no_other_content_than_text(self, alice, session, content):
        image = upload_image(alice, session).data["id"]
        with nothing_changes():
            reply = alice.post(f"/chats/{session.id}/messages", {"content": content, "images": [image]})
            assert reply.error == (400, "invalid_body")
            assert "$.content" in reply.message

    def test_has_at_most_four_pictures(self, alice, session):
        assert send_images(alice, session, 4).status == 201
        ids = [upload_image(alice, session).data["id"] for _ in range(5)]
        with nothing_changes():
            body = {"content": {"text": ""}, "images": ids}
            assert alice.post(f"/chats/{session.id}/messages", body).error == (400, "invalid_body")
            body["images"] = [ids[0], ids[0].upper()]
            assert "more than once" in alice.post(f"/chats/{session.id}/messages", body).message
            body["images"] = ["x"]
            assert "$.images" in alice.post(f"/chats/{session.id}/messages", body).message

    def test_cannot_have_pictures_of_others_or_of_other_messages(self, alice, agent, session, bot):
        sent = images_of(send_images(alice, session))[0]["url"].rpartition("/")[2]
        other = ChatSession.create(app_id=session.app_id, user_id=alice.user.id, bot_id=bot.id)
        foreign, elsewhere = upload_image(agent, session).data["id"], upload_image(alice, other).data["id"]
        own = upload_image(alice, session).data["id"]
        with nothing_changes():
            for image in (sent, foreign, elsewhere, UNKNOWN_ID):
                body = {"content": {"text": ""}, "images": [own, image]}
                assert alice.post(f"/chats/{session.id}/messages", body).error == (404, "image_not_found")

    def test_is_sent_once_with_a_client_message_id(self, alice, session):
        ids = [upload_image(alice, session).data["id"] for _ in range(2)]
        body = {"content": {"text": "Look"}, "images": ids, "client_message_id": "1"}
        first, second = (alice.post(f"/chats/{session.id}/messages", body) for _ in range(2))
        assert first.data == second.data
        with nothing_changes():
            for changes in ({"images": ids[::-1]}, {"images": []}, {"content": {"text": "Other"}}):
                reply = alice.post(f"/chats/{session.id}/messages", body | changes)
                assert reply.error == (400, "client_message_id_reused")

    def test_that_is_edited_keeps_its_pictures(self, alice, session):
        sent = send_images(alice, session, text="Look", client_message_id="1")
        edited = edit(alice, Message.get_by_id(sent.data["id"]), "See")
        assert text_of_content(edited.data) == {"text": "See", "images": images_of(sent)}
        assert json.loads(bytes(edited.data["original_content"])) == {"text": "Look", "images": images_of(sent)}
        assert get_image(alice, images_of(edited)[0]).status == 200
        ids = [image["url"].rpartition("/")[2] for image in images_of(sent)]
        body = {"content": {"text": "Look"}, "images": ids, "client_message_id": "1"}
        assert alice.post(f"/chats/{session.id}/messages", body).data["id"] == sent.data["id"]
        path = f"/chats/{session.id}/messages/{sent.data['id']}"
        assert alice.patch(path, {"content": {"text": "", "images": []}}).error == (400, "invalid_body")

    def test_is_refused_in_an_archived_session_and_keeps_the_upload(self, alice, session):
        image = upload_image(alice, session).data["id"]
        alice.post(f"/chats/{session.id}/archive")
        with nothing_changes():
            body = {"content": {"text": ""}, "images": [image]}
            assert alice.post(f"/chats/{session.id}/messages", body).error == (400, "session_archived")


class TestPreviews:
    def test_have_the_text_or_the_word_photo(self, alice, agent, session, say):
        say("Hello", sender_id=agent.user.id, sender_type="agent")
        for text in ("", "A receipt"):
            send_images(alice, session, text=text)
        assert [body for _, body in chat_notifications(agent)][:2] == ["A receipt", "Photo"]
        newest = alice.get(f"/chats/{session.id}").data["last_message"]
        assert (newest["text"], newest["content_type"]) == ("A receipt", "image")

    def test_of_a_reply_have_the_content_type(self, alice, session):
        sent = send_images(alice, session)
        body = {"content": {"text": "Yes"}, "reply_to_message_id": sent.data["id"]}
        snapshot = alice.post(f"/chats/{session.id}/messages", body).data["reply_snapshot"]
        assert json.loads(bytes(snapshot)) == {"sender_type": "user", "content_type": "image", "text": ""}

    def test_of_the_search_find_the_text(self, alice, session):
        sent = send_images(alice, session, text="A receipt")
        assert [row["id"] for row in walk(alice, "/chats/search", q="receipt")] == [sent.data["id"]]

    def test_of_the_context_have_the_text(self, alice, session):
        for text in ("", "A receipt"):
            send_images(alice, session, text=text)
        messages = alice.get(f"/chats/{session.id}/context").data["messages"]
        assert [message["text"] for message in messages if message["role"] == "user"] == ["A receipt"]


class TestAccess:
    def test_is_as_to_the_message(self, alice, bob, agent, other_agent, admin, anyone, session):
        (image,) = images_of(send_images(alice, session))
        statuses = {alice: 200, agent: 200, admin: 200, bob: 403, other_agent: 403, anyone: 401}
        for client, status in statuses.items():
            for size in ("full", "thumbnail"):
                assert get_image(client, image, size).status == status

    def test_to_the_picture_of_a_note_is_for_staff_only(self, alice, agent, session):
        (image,) = images_of(send_images(agent, session, is_private=True))
        assert get_image(agent, image).status == 200
        assert get_image(alice, image).error == (404, "message_not_found")

    def test_needs_the_message_of_the_picture(self, alice, session):
        first, second = (images_of(send_images(alice, session))[0] for _ in range(2))
        head, tail = first["url"].rpartition("/")[0], second["url"].rpartition("/")[2]
        assert get_image(alice, {"url": f"{head}/{tail}"}).error == (404, "image_not_found")

    def test_to_an_unsent_picture_is_impossible(self, alice, session):
        message = send_images(alice, session).data
        unsent = upload_image(alice, session).data["id"]
        path = f"/api/v1/chats/{session.id}/messages/{message['id']}/images/{unsent}"
        assert get_image(alice, {"url": path}).error == (404, "image_not_found")

    def test_has_headers_for_the_reader_only(self, alice, session):
        (image,) = images_of(send_images(alice, session))
        reply = get_image(alice, image)
        identifier = image["url"].rpartition("/")[2]
        expected = {
            "content-type": "image/webp",
            "cache-control": "private, no-cache",
            "content-disposition": f'inline; filename="{identifier}.webp"',
            "content-security-policy": "default-src 'none'; sandbox",
            "cross-origin-resource-policy": "same-origin",
            "x-content-type-options": "nosniff",
        }
        assert {name: reply.headers.get(name) for name in expected} == expected
        assert get_image(alice, image, if_none_match=reply.headers["etag"]).status == 304
        thumbnail = get_image(alice, image, "thumbnail")
        assert thumbnail.headers["etag"] != reply.headers["etag"]
        assert get_image(alice, image, "huge").error == (400, "invalid_parameter")


class TestDeletion:
    def test_by_the_sender_removes_the_pictures(self, alice, agent, session):
        sent = send_images(alice, session, 2)
        assert delete(alice, Message.get_by_id(sent.data["id"])).status == 200
        assert stored_images() == set()
        for client in (alice, agent):
            assert get_image(client, images_of(sent)[0]).status == 404

    def test_by_the_customer_leaves_the_pictures_of_staff_to_staff(self, alice, agent, session):
        sent = send_images(agent, session)
        assert delete(alice, Message.get_by_id(sent.data["id"])).status == 200
        assert get_image(alice, images_of(sent)[0]).error == (404, "image_not_found")
        assert get_image(agent, images_of(sent)[0]).status == 200
        assert delete(agent, Message.get_by_id(sent.data["id"])).status == 200
        assert stored_images() == set()

    @pytest.mark.parametrize("flag", ["message", "session", "user"])
    def test_by_the_purge_removes_the_pictures(self, alice, bob, session, settings, flag):
        sent = send_images(alice, session).data
        unsent = upload_image(alice, session).data["id"]
        value = {"message": sent["id"], "session": session.id, "user": alice.user.email}[flag]
        db.close_database()
        assert run(["purge", f"--{flag}", value, *flags_of(settings)]) == 0
        db.open_database(settings.data, settings.database)
        assert stored_images() == ({unsent} if flag != "user" else set())
        message = Message.get_by_id(sent["id"])
        assert (message.content_type, message.gdpr_original_content_type) == ("gdpr_purged", "image")

    def test_of_a_pinned_message_removes_the_pictures(self, alice, session):
        message = Message.get_by_id(send_images(alice, session).data["id"])
        assert pin(alice, message).status == 200
        assert delete(alice, message).status == 200
        assert stored_images() == set()


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

    def test_of_an_export_has_the_same_pictures(self, alice, session, import_records):
        sent = send_images(alice, session, 2, text="Look")
        before = [get_image(alice, image, size).raw for image in images_of(sent) for size in ("full", "thumbnail")]
        records = self.exported()
        images = [record["message_image"] for record in records if "message_image" in record]
        assert {name for image in images for name in image} == {
            *("id", "chat_session_id", "user_id", "message_id", "position", "created_at", "image")
        }
        MessageImage.delete().execute()
        assert not import_records(*records)
        after = [get_image(alice, image, size).raw for image in images_of(sent) for size in ("full", "thumbnail")]
        assert before == after

    def test_converts_other_pictures(self, alice, session, import_records):
        message = send_images(alice, session)
        (image,) = MessageImage.select()
        record = {
            "id": image.id,
            "chat_session_id": session.id,
            "user_id": alice.user.id,
            "message_id": image.message_id,
        }
        assert not import_records({"message_image": {**record, "image": base64.b64encode(WIDE).decode()}})
        assert look(get_image(alice, images_of(message)[0]).raw).size == (2048, 1024)
        for wrong in ("", "x", base64.b64encode(b"GIF89a").decode()):
            with nothing_changes():
                (error,) = import_records({"message_image": {**record, "image": wrong}})
                assert error.startswith("$.message_image.image: ")

    def test_for_a_deleted_message_stores_no_picture(self, alice, session, import_records):
        sent = send_images(alice, session)
        records = [record for record in self.exported() if "message_image" in record]
        assert delete(alice, Message.get_by_id(sent.data["id"])).status == 200
        assert not import_records(*records)
        assert stored_images() == set()


def test_bots_reply_to_the_text_only(alice, session):
    send_images(alice, session)
    assert not Message.select().where(Message.sender_type == "bot").exists()
    send_images(alice, session, text="Hello")
    assert Message.select().where(Message.sender_type == "bot").count() == 1


def test_uploads_of_several_users_do_not_affect_each_other(alice, agent, session):
    first = upload_image(alice, session).data["id"]
    for _ in range(message_images.UNSENT_LIMIT + 1):
        upload_image(agent, session)
    assert first in stored_images()
