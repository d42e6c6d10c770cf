#!/usr/bin/env python3
"""Put libtorch where cargo finds it: `.libtorch/view/{include,lib}` at the root of the repository.

    python3 trainer/libtorch/setup.py          the CPU libraries (545 MB to fetch, 0.5 GB on disk)
    python3 trainer/libtorch/setup.py --gpu    the CUDA libraries too (2 GB more to fetch, 3 GB on disk)
    python3 trainer/libtorch/setup.py --check  report whether it is there; change nothing

libtorch comes in the official Python wheels; wheels.lock lists them with their digests. pip fetches
them with your own configuration (index, proxy, certificates), and only the C++ part is unpacked.
A second call is instant. A broken download continues where it stopped. cargo never sees an unfinished
folder.

LIBTORCH=/path/to/libtorch uses a libtorch 2.11.0 that you already have.
DYAD_WHEELS=/some/folder   takes wheels from there when their digests match (a shared cache, or a
                           machine without network).
"""

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

VERSION = "2.11.0"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOME = ROOT / ".libtorch"
VIEW = HOME / "view"
GPU = HOME / "gpu"
DOWNLOAD = HOME / "download"
LOCK = HERE / "wheels.lock"
# dyad's own CUDA library, compiled with the CUDA headers of the wheels, next to libtorch_cuda.so.
# device/cuda.rs opens it.
SHIM = HERE.parent / "src/shim"
OWN_SOURCES = [SHIM / "nccl.cpp", SHIM / "graph.cpp", SHIM / "flash.cpp", SHIM / "memory.cpp"]
OWN_HEADER = SHIM / "guarded.hpp"
OWN_LIBRARY = "libdyad_cuda.so"

# Files of the link view, taken from the wheels. No libtorch_cuda.so: torch-sys would link CUDA.
VIEW_FILES = {
    "torch/lib/libc10.so": "lib/libc10.so",
    "torch/lib/libtorch_cpu.so": "lib/libtorch_cpu.so",
    "torch/lib/libgomp.so.1": "lib/libgomp.so.1",
    "nvidia/cu13/lib/libcudart.so.13": "lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13": "lib/libcupti.so.13",
}


def say(text):
    print(f"libtorch: {text}", file=sys.stderr, flush=True)


def stop(text):
    say(text)
    sys.exit(1)


class Wheel:
    def __init__(self, line):
        self.part, self.requirement, self.size, self.sha256, self.file = line.split()
        self.size = int(self.size)


def read_lock():
    lines = [line.split("#")[0].strip() for line in LOCK.read_text().splitlines()]
    return [Wheel(line) for line in lines if line]


def made_from(folder):
    """Identifies the source of a finished folder; other wheels or contents cause a new one."""
    parts = ("cpu",) if folder == VIEW else ("cpu", "gpu")
    digests = [wheel.sha256 for wheel in read_lock() if wheel.part in parts]
    own = [] if folder == VIEW else [source.read_text() for source in (OWN_HEADER, *OWN_SOURCES)]
    return hashlib.sha256(repr((digests, sorted(VIEW_FILES.items()), *own)).encode()).hexdigest()


def is_made(folder):
    stamp = folder / ".made-from"
    return stamp.is_file() and stamp.read_text().strip() == made_from(folder)


# --- a libtorch of the user's own -----------------------------------------------------------------


def check_own(path):
    """Checks that LIBTORCH is the version that tch requires. Fetches nothing."""
    path = Path(path)
    for part in ("include", "lib"):
        if not (path / part).is_dir():
            stop(f"LIBTORCH={path} has no folder {part}/. Point it at a libtorch {VERSION}, or unset it.")
    version = None
    if (path / "build-version").is_file():
        version = (path / "build-version").read_text().strip()
    elif (path / "version.py").is_file():  # the torch folder of a Python environment
        for line in (path / "version.py").read_text().splitlines():
            if line.startswith("__version__"):
                version = line.split("'")[1]
    if version is None:
        stop(f"LIBTORCH={path} has no version (no build-version file). dyad needs {VERSION}; unset LIBTORCH "
             "to let the set-up fetch it.")
    if version.split("+")[0] != VERSION:
        stop(f"LIBTORCH={path} is version {version}; dyad needs {VERSION} (tch 0.24). Unset LIBTORCH to let the set-up "
             "fetch it.")
    say(f"using your own libtorch {version} in {path}")


# --- fetching -------------------------------------------------------------------------------------


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                return digest.hexdigest()
            digest.update(block)


def matches(path, wheel):
    return path.is_file() and path.stat().st_size == wheel.size and sha256_of(path) == wheel.sha256


def has_pip(python):
    try:
        return subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def find_pip():
    """Finds a Python with pip: this one, the system's, or a small new environment."""
    own = HOME / "venv" / "bin" / "python"
    for python in (sys.executable, "/usr/bin/python3", str(own)):
        if has_pip(python):
            return python
    say("this Python has no pip: making a small environment in .libtorch/venv")
    shutil.rmtree(HOME / "venv", ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    if made.returncode != 0 or not has_pip(str(own)):
        shutil.rmtree(HOME / "venv", ignore_errors=True)
        stop("pip is missing, and so is Python's venv. Install one of them and call this again:\n"
             "    apt-get install python3-pip        (or python3-venv)")
    return str(own)


def pip_tags():
    """Fixed tags, whichever Python runs pip: only the C++ part of the wheels is used."""
    machine = platform.machine()
    args = ["--only-binary", ":all:", "--no-deps", "--python-version", "3.11", "--implementation", "cp",
            "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
    for old in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_25", "manylinux_2_18",
                "manylinux_2_17", "manylinux2014", "manylinux1"):
        args += ["--platform", f"{old}_{machine}"]
    return args


def download(wheel, python, lock):
    """Fetches one wheel into .libtorch/download and returns its path."""
    cached = [Path(os.environ["DYAD_WHEELS"]) / wheel.file] if os.environ.get("DYAD_WHEELS") else []
    target = DOWNLOAD / wheel.file
    for path in [target] + cached:
        if matches(path, wheel):
            say(f"have {wheel.file}")
            return path
    target.unlink(missing_ok=True)
    say(f"fetching {wheel.requirement} ({wheel.size / 1e6:.0f} MB)")
    begun = time.monotonic()
    # First with pip's own session and a range request: pip itself restarts a broken download.
    # The child holds the lock too. If this process is killed, the next call waits for the child
    # instead of writing the same files.
    subprocess.run([python, str(Path(__file__).resolve()), "--fetch", wheel.file], pass_fds=[lock.fileno()])
    if not matches(target, wheel):
        requirements = DOWNLOAD / "requirement.txt"
        requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
        result = subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--require-hashes",
                                 *pip_tags(), "-d", str(DOWNLOAD), "-r", str(requirements)],
                                env={**os.environ, "PIP_RESUME_RETRIES": "20", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        requirements.unlink()
        if result.returncode != 0 or not matches(target, wheel):
            stop(f"could not fetch {wheel.requirement}. pip reports the cause above: the network, a proxy, or a package\n"
                 "index (pip's own configuration) without this wheel. Call this again to continue: complete files are kept,\n"
                 f"and a wheel fetched elsewhere is taken from a folder named by DYAD_WHEELS:\n    {wheel.file}")
    say(f"fetched {wheel.file} in {time.monotonic() - begun:.0f} s, digest right")
    return target


def fetch_with_resume(wheel):
    """Fetches with pip's finder and session, and so with the user's index, proxy and certificates.

    Runs under the Python that has pip. pip's internals are not a public interface: if anything fails
    here, the caller falls back to `pip download`.
    """
    try:
        from pip._internal.commands import create_command
        from pip._internal.cli.cmdoptions import make_target_python

        command = create_command("download")
        options, _ = command.parse_args(["--quiet", "--no-cache-dir", *pip_tags(), wheel.requirement])
        with command.main_context():
            session = command.get_default_session(options)
            finder = command._build_package_finder(options, session, target_python=make_target_python(options))
            name = wheel.requirement.split("==")[0]
            link = next((c.link for c in finder.find_all_candidates(name) if c.link.filename == wheel.file), None)
            if link is None:
                return say("the package index does not answer, or does not list it; asking pip why")
            part = DOWNLOAD / (wheel.file + ".part")
            for attempt in range(20):
                have = part.stat().st_size if part.exists() else 0
                if have >= wheel.size:
                    break
                try:
                    copy_rest(session, link.url_without_fragment, part, have, wheel)
                except Exception as error:  # a broken connection, of any type
                    now = part.stat().st_size if part.exists() else 0
                    say(f"the connection broke at {now / 1e6:.0f} MB ({type(error).__name__}); continuing there")
                    if now == have:
                        time.sleep(min(30, 1 + attempt))
            if matches(part, wheel):
                part.rename(DOWNLOAD / wheel.file)
            elif part.exists() and part.stat().st_size >= wheel.size:
                say("the digest is wrong: discarding this download")
                part.unlink()
    except Exception as error:
        say(f"plain `pip download` takes over ({type(error).__name__}: {error})")


def copy_rest(session, url, part, have, wheel):
    headers = {"Accept-Encoding": "identity"}
    if have:
        say(f"continuing at {have / 1e6:.0f} of {wheel.size / 1e6:.0f} MB")
        headers["Range"] = f"bytes={have}-"
    with session.get(url, headers=headers, stream=True) as response:
        response.raise_for_status()
        mode = "ab" if response.status_code == 206 else "wb"
        done = have if mode == "ab" else 0
        reported = time.monotonic()
        with open(part, mode) as file:
            for block in response.raw.stream(1 << 20, decode_content=False):
                file.write(block)
                done += len(block)
                if time.monotonic() - reported > 5:
                    reported = time.monotonic()
                    say(f"{done / 1e6:.0f} of {wheel.size / 1e6:.0f} MB")


# --- unpacking ------------------------------------------------------------------------------------


def copy_member(archive, name, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as source, open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    target.chmod(0o755 if ".so" in target.name else 0o644)


def finish(temporary, folder):
    """Renames the complete folder into place."""
    (temporary / ".made-from").write_text(made_from(folder) + "\n")
    if folder.exists():
        old = HOME / f"old-{os.getpid()}"
        folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old)
    else:
        temporary.rename(folder)


def make_view(wheels):
    temporary = HOME / f"tmp-{os.getpid()}"
    wanted = dict(VIEW_FILES)
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name in wanted:
                    copy_member(archive, name, temporary / wanted.pop(name))
                elif name.startswith("torch/include/") and not name.endswith("/"):
                    copy_member(archive, name, temporary / name[len("torch/"):])
    if wanted:
        stop(f"the wheels have no {', '.join(wanted)}: is wheels.lock right?")
    # The linker needs -ltorch; the code is in libtorch_cpu.so. A link, so nothing is loaded twice.
    (temporary / "lib" / "libtorch.so").symlink_to("libtorch_cpu.so")
    (temporary / "build-version").write_text(f"{VERSION}+cu130\n")
    finish(temporary, VIEW)


def make_gpu(wheels):
    """Makes the CUDA half with the paths of a Python environment, which its search paths need."""
    temporary = HOME / f"tmp-{os.getpid()}"
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                file = name.rsplit("/", 1)[1]
                header = name.startswith("nvidia/") and "/include/" in name and not name.endswith("/")
                cuda = name.startswith("nvidia/") and "/lib/" in name
                torch = name.startswith("torch/lib/") and ("cuda" in file or "nv" in file)
                # Files of the view are loaded from there: libtorch_cuda finds them by name.
                if header or (cuda or torch) and ".so" in file and name not in VIEW_FILES:
                    copy_member(archive, name, temporary / name)
    if not (temporary / "torch/lib/libtorch_cuda.so").is_file():
        stop("the wheels have no torch/lib/libtorch_cuda.so: is wheels.lock right?")
    compile_own(temporary)
    finish(temporary, GPU)


def compile_own(gpu):
    """Compiles dyad's own library against the unpacked headers and libraries, then drops the headers."""
    libraries = gpu / "torch/lib"
    include = VIEW / "include"
    compiler = os.environ.get("CXX", "g++")
    headers = [include, include / "torch/csrc/api/include", gpu / "nvidia/cu13/include", gpu / "nvidia/cu13/include/cccl",
               gpu / "nvidia/nccl/include"]
    command = [compiler, "-std=c++17", "-O1", "-fPIC", "-shared", "-DUSE_C10D_NCCL", "-D_GLIBCXX_USE_CXX11_ABI=1", "-w",
               *(f"-isystem{folder}" for folder in headers), *map(str, OWN_SOURCES), "-o", str(libraries / OWN_LIBRARY),
               f"-L{VIEW / 'lib'}", f"-L{libraries}", "-l:libtorch_cuda.so", "-l:libc10_cuda.so", "-ltorch_cpu", "-lc10",
               "-Wl,--allow-shlib-undefined", "-Wl,-rpath,$ORIGIN"]
    say(f"compiling {OWN_LIBRARY}")
    try:
        result = subprocess.run(command)
    except OSError as error:
        stop(f"{compiler} did not start ({error}): install a C++ compiler, or name one in CXX, and call this again.")
    if result.returncode != 0:
        stop(f"{compiler} could not compile {OWN_LIBRARY}: its messages are above.")
    for folder in gpu.glob("nvidia/*/include"):
        shutil.rmtree(folder)


# --- steps ----------------------------------------------------------------------------------------


def install(parts, folder, make, wheels, lock, note):
    if is_made(folder):
        return
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "AMD64"):
        stop(f"prepared for Linux on x86-64 only; this is {platform.system()} on {platform.machine()}. Set LIBTORCH to a\n"
             f"libtorch {VERSION} of your own; dyad is not tested there.")
    wheels = [wheel for wheel in wheels if wheel.part in parts]
    total = sum(wheel.size for wheel in wheels)
    say(f"{note}: {total / 1e6:.0f} MB to fetch, once")
    DOWNLOAD.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(HOME).free
    if free < 3 * total:
        stop(f"needs about {3 * total / 1e9:.1f} GB of free disk while unpacking; there is {free / 1e9:.1f} GB.")
    for stale in HOME.glob("tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)
    for stale in HOME.glob("old-*"):
        shutil.rmtree(stale, ignore_errors=True)
    python = find_pip()
    paths = [download(wheel, python, lock) for wheel in wheels]
    begun = time.monotonic()
    say("unpacking")
    make(paths)
    say(f"unpacked in {time.monotonic() - begun:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the CUDA libraries too")
    parser.add_argument("--check", action="store_true", help="only report whether libtorch is there (exit status 0 or 1)")
    parser.add_argument("--fetch", metavar="WHEEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    wheels = read_lock()
    if options.fetch:
        return fetch_with_resume(next(wheel for wheel in wheels if wheel.file == options.fetch))
    own = os.environ.get("LIBTORCH")
    if own and Path(own).resolve() != VIEW.resolve():
        return check_own(own)
    if options.check:
        sys.exit(0 if is_made(VIEW) and (not options.gpu or is_made(GPU)) else 1)
    if is_made(VIEW) and (not options.gpu or is_made(GPU)):
        return None
    HOME.mkdir(exist_ok=True)
    with open(HOME / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second call at the same time waits, then finds the finished folders
        install({"cpu"}, VIEW, make_view, wheels, lock, "the CPU libraries")
        if options.gpu:
            install({"cpu", "gpu"}, GPU, make_gpu, wheels, lock, "the CUDA libraries")
        if is_made(GPU):
            # The library that the program opens at run time, relative to the view.
            (VIEW / "cuda-path").write_text("../gpu/torch/lib/libtorch_cuda.so\n")
        shutil.rmtree(DOWNLOAD, ignore_errors=True)  # only after a good unpack
    say(f"ready in {VIEW.relative_to(ROOT)}")
    return None


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        stop("interrupted; call it again to continue.")
