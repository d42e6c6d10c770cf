"""Writes colours.jsonl: 24 tasks, each with a small PNG of one colour and some noise. python3 configs/data/colours.py > configs/data/colours.jsonl"""

import base64, json, random, struct, sys, zlib

sys.path.insert(0, sys.path[0] + "/../programs")
from vision_server import COLOURS

random.seed(0)


def png(colour, side=8):
    noisy = lambda value: min(255, max(0, value + random.randint(-20, 20)))
    raw = b"".join(b"\0" + bytes(noisy(value) for _ in range(side) for value in colour) for _ in range(side))
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


for number in range(24):
    name = list(COLOURS)[number % len(COLOURS)]
    url = "data:image/png;base64," + base64.b64encode(png(COLOURS[name])).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "colour "}]
    print(json.dumps({"id": f"square-{number}", "prompt": [{"role": "user", "content": content}], "label": name}))
