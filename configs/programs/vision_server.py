"""A server in OpenAI's format that names the colours of PNG images.

It is a rule and no model: it replaces a vision model where there is none.

    python3 vision_server.py [PORT]

It prints its URL.
"""

import base64, json, struct, sys, zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (40, 70, 220), "yellow": (230, 210, 40), "black": (20, 20, 20), "white": (240, 240, 240)}


def mean(png):
    """Returns the mean colour of a PNG of 8-bit RGB that is not interlaced."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    if png[:8] != b"\x89PNG\r\n\x1a\n" or (depth, kind, png[28]) != (8, 2, 0):
        raise ValueError("the image is no PNG of 8-bit RGB")
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw, above, rows = zlib.decompress(data), bytes(width * 3), []
    for y in range(height):
        line = raw[y * (width * 3 + 1) : (y + 1) * (width * 3 + 1)]
        row = bytearray(line[1:])
        for i in range(len(row)):
            a, b, c = (row[i - 3], above[i], above[i - 3]) if i >= 3 else (0, above[i], 0)
            paeth = min((a, b, c), key=lambda near: abs(a + b - c - near))
            row[i] = (row[i] + (0, a, b, (a + b) // 2, paeth)[line[0]]) % 256
        rows.append(row)
        above = row
    pixels = b"".join(rows)
    return [sum(pixels[i::3]) / (width * height) for i in range(3)]


def answer(request):
    parts = [part for message in request["messages"] if isinstance(message["content"], list) for part in message["content"]]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    if any(not url.startswith("data:image/png;base64,") for url in urls):
        raise ValueError("send images as data:image/png;base64,..")
    seen = [mean(base64.b64decode(url.split(",", 1)[1])) for url in urls]
    far = lambda name, colour: sum((x - y) ** 2 for x, y in zip(COLOURS[name], colour))
    return " ".join(min(COLOURS, key=lambda name: far(name, colour)) for colour in seen) or "nothing"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        try:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", "content": answer(request)}
            status, reply = 200, {"object": "chat.completion", "model": request["model"], "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        except (ValueError, KeyError, TypeError, IndexError, struct.error, zlib.error) as error:
            status, reply = 400, {"error": {"message": str(error), "type": "invalid_request_error"}}
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8200), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
