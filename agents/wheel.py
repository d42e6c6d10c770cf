#!/usr/bin/env python3
"""Pack the two programs and the shipped configurations into a wheel for hosts with torch.

    python3 agents/wheel.py target/release [FOLDER]      the wheel is written to target/wheel, or FOLDER

The wheel has `dyad` for the environment's bin/, and a package `dyad` with dyad-full and configs/.
dyad-full finds libtorch in the package `torch` next to it: its run path is replaced. So the wheel
needs torch of exactly this release, and no compiler. After `make setup GPU=1` it has
dyad's own CUDA library too. Packing needs readelf and strip (binutils).
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "2.11.0"
RUN_PATH = b"$ORIGIN/../torch/lib"
# The set-up compiles dyad's own CUDA library to the folder of libtorch_cuda.so (device/cuda.rs).
CUDA = os.environ.get("DYAD_LIBTORCH_CUDA") or ROOT / ".libtorch/gpu/torch/lib/libtorch_cuda.so"
OWN_CUDA = Path(CUDA).with_name("libdyad_cuda.so")
# Libraries that every Linux of the wheel's tag has, by the manylinux policy.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
          "libstdc++.so.6", "ld-linux-x86-64.so.2"}
# The first manylinux with these versions of libstdc++, by the same policy.
LIBSTDCXX = {"3.4.24": 28, "3.4.28": 31, "3.4.29": 34, "3.4.30": 35, "3.4.32": 39, "3.4.33": 39}


def stop(text):
    sys.exit(f"wheel: {text}")


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, str(path)], check=True, capture_output=True, text=True).stdout


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", path)))


def number(version):
    return [int(part) for part in version.split(".")]


def manylinux(path):
    """Returns the smallest N for which the program runs on manylinux_2_N."""
    text = readelf("--version-info", path)
    libc = max(number(version)[1] for version in re.findall(r"\bGLIBC_(2\.\d+)", text))
    newest = max(re.findall(r"\bGLIBCXX_([\d.]+)", text), key=number, default="3.4")
    fitting = [n for version, n in LIBSTDCXX.items() if number(version) >= number(newest)]
    if not fitting:
        stop(f"{path} needs libstdc++ of GLIBCXX_{newest}, newer than any policy: add its row to LIBSTDCXX")
    return max(libc, fitting[0])


def lead_to_torch(path):
    """Replaces the run path. The old one is longer, and its rest is filled with zeros."""
    found = re.search(r"\(RUNPATH\).*\[(.+)\]", readelf("--dynamic", path))
    old = found.group(1).encode() if found else b""
    data = path.read_bytes()
    if len(old) < len(RUN_PATH) or data.count(old + b"\0") != 1:
        stop(f"{path} has the run path '{old.decode()}', which cannot be replaced: build it with make")
    path.write_bytes(data.replace(old + b"\0", RUN_PATH.ljust(len(old) + 1, b"\0")))


def programs(built, work):
    """Returns stripped copies of both programs, and the number of the manylinux tag."""
    tags = []
    for name in ("dyad", "dyad-full"):
        if not (built / name).is_file():
            stop(f"{built / name} is missing: cargo build --package agents --bins")
        shutil.copy(built / name, work / name)
        subprocess.run(["strip", "--strip-debug", str(work / name)], check=True)
        tags.append(manylinux(work / name))
        foreign = needed(work / name) - SYSTEM
        if name == "dyad" and foreign:
            stop(f"dyad is linked with {', '.join(sorted(foreign))}; it must start without them")
    lead_to_torch(work / "dyad-full")
    if OWN_CUDA.is_file():
        tags.append(manylinux(OWN_CUDA))
    return max(tags)


def shipped():
    """Returns the configurations, the files that they read, and the external trainer."""
    configs = ROOT / "configs"
    files = [ROOT / "trainer/external/fsdp2.py"]
    files += [path for path in configs.glob("*.toml") if path.name != "Cargo.toml"]
    for folder in ("data", "programs"):
        files += [path for path in (configs / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted((path.relative_to(ROOT), path) for path in files)


def metadata(version):
    return (f"Metadata-Version: 2.1\nName: dyad\nVersion: {version}\n"
            "Summary: Trains language-model agents that talk to each other\n"
            f"License: MIT OR Apache-2.0\nRequires-Python: >=3.10\nRequires-Dist: torch=={TORCH}\n")


def pack(work, tag, version, folder):
    name = f"dyad-{version}"
    target = folder / f"{name}-py3-none-{tag}.whl"
    about = f"Wheel-Version: 1.0\nGenerator: dyad\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    content = [(f"{name}.data/scripts/dyad", (work / "dyad").read_bytes(), 0o755),
               ("dyad/dyad-full", (work / "dyad-full").read_bytes(), 0o755)]
    if OWN_CUDA.is_file():
        content.append((f"dyad/{OWN_CUDA.name}", OWN_CUDA.read_bytes(), 0o755))
    content += [(f"dyad/{path}", file.read_bytes(), 0o644) for path, file in shipped()]
    content += [(f"{name}.dist-info/{path}", text.encode(), 0o644)
                for path, text in (("METADATA", metadata(version)), ("WHEEL", about))]
    record = ""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(path, data, mode):
            # A fixed date: equal content gives an equal wheel.
            info = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            info.external_attr = (0o100000 | mode) << 16
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED)
        for path, data, mode in content:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
            add(path, data, mode)
        add(f"{name}.dist-info/RECORD", (record + f"{name}.dist-info/RECORD,,\n").encode(), 0o644)
    return target


def main():
    if len(sys.argv) not in (2, 3):
        stop("name the folder of the built programs, such as target/release")
    folder = Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "target" / "wheel"
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    with tempfile.TemporaryDirectory() as work:
        number = programs(Path(sys.argv[1]), Path(work))
        target = pack(Path(work), f"manylinux_2_{number}_x86_64", version, folder)
    print(target)


if __name__ == "__main__":
    main()
