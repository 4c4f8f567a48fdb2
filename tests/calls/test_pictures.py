"""Pictures in texts, in the forms in which tools, MCP servers and frameworks write them."""

import base64
import json

import pytest

from callboard.calls.pictures import MAX_FILES, Pictures


def encoded(head: bytes) -> str:
    return base64.b64encode(head + bytes(range(160, 256)) + b"\xff\xff\xfe").decode()


PNG = encoded(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
JPEG = encoded(b"\xff\xd8\xff\xe0")
GIF = encoded(b"GIF89a")
WEBP = encoded(b"RIFF\x24\x01\x00\x00WEBP")
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()
URL = f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    ("text", "shown", "urls"),
    [
        (URL, "[]", [URL]),
        (f"![a]({URL}) and again {URL}.", "![a]([]) and again [].", [URL]),
        (PNG, "[]", [URL]),
        (json.dumps({"image": PNG, "size": 3}), '{"image": "[]", "size": 3}', [URL]),
        (json.dumps({"image": JPEG}), '{"image": "[]"}', [f"data:image/jpeg;base64,{JPEG}"]),
        # As PHP writes JSON.
        (json.dumps([JPEG]).replace("/", "\\/"), '["[]"]', [f"data:image/jpeg;base64,{JPEG}"]),
        (json.dumps([URL]).replace("/", "\\/"), '["[]"]', [URL]),
        # URL-safe, as Pydantic writes bytes.
        (json.dumps([JPEG.replace("+", "-").replace("/", "_")]), '["[]"]', [f"data:image/jpeg;base64,{JPEG}"]),
        # In lines, as `base64` writes them.
        (f"A chart:\n{PNG[:76]}\n{PNG[76:]}\nDone", "A chart:\n[]\nDone", [URL]),
        (json.dumps(f"A chart:\n{PNG[:76]}\n{PNG[76:]}\nDone"), json.dumps("A chart:\n[]\nDone"), [URL]),
        (f"{GIF} {WEBP}", "[] []", [f"data:image/gif;base64,{GIF}", f"data:image/webp;base64,{WEBP}"]),
        (f"data:image/svg+xml;charset=utf-8;base64,{SVG}", "[]", [f"data:image/svg+xml;base64,{SVG}"]),
        # No pictures: an example, a path, the middle of other base64, another file.
        ("Write data:image/png;base64,iVBORw0KGgo…", "Write data:image/png;base64,iVBORw0KGgo…", []),
        ("see /9j/4/readme", "see /9j/4/readme", []),
        (f"JVBERi0{JPEG}", f"JVBERi0{JPEG}", []),
        (f"data:application/pdf;base64,JVBERi0{JPEG}", f"data:application/pdf;base64,JVBERi0{JPEG}", []),
    ],
)
def test_picture_in_a_text_is_a_file_and_a_mark(text: str, shown: str, urls: list[str]) -> None:
    pictures = Pictures()
    marked = pictures.take_from(text)
    for url in urls:
        kind, _, data = url.removeprefix("data:").partition(";base64,")
        marked = marked.replace(f"[image, {kind}, about {len(data) * 3 // 4} bytes: the user sees it]", "[]")
    assert marked == shown
    assert [file["url"] for file in pictures.files] == urls


def test_picture_for_which_there_is_no_room_leaves_a_mark_too() -> None:
    pictures = Pictures({"type": "image", "url": str(number)} for number in range(MAX_FILES))
    assert pictures.take_from(URL) == f"[image, image/png, about {len(PNG) * 3 // 4} bytes: it cannot be shown here]"
    assert len(pictures.files) == MAX_FILES
