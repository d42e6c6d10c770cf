"""Starts real vLLM servers on loopback, and lends them to the cases."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

VENV = Path(__file__).resolve().parents[1] / ".venv-vllm"
SMOLLM = VENV / "smollm2"
# Importing torch and vLLM takes most of it, on a busy machine minutes.
START = 600
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Threads are not bound to cores: a container may not allow it.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # The routes for whole weights and for adapters.
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def request(url, body=None, timeout=600):
    """Returns status and text of a GET, or of a POST of `body` as JSON."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Server:
    """One `vllm serve`, which can be killed and started again at the same address."""

    def __init__(self, home, model, *flags):
        self.model, self.flags = model, flags
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / f"vllm-{self.port}.log"
        self.process = None

    def start(self):
        command = [VENV / "bin/vllm", "serve", self.model, "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--enforce-eager", "--max-logprobs", "20", "--enable-log-requests"]
        # On a CPU, vLLM 0.32 ends when a prompt with a seed is computed in several pieces.
        command += ["--no-enable-chunked-prefill", *self.flags]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **ENVIRONMENT}, start_new_session=True
            )
        end = time.monotonic() + START
        while not self.is_well():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"vLLM did not start: {self.log}")
            time.sleep(0.5)
        return self

    def is_well(self):
        try:
            return request(self.url + "/health", timeout=30)[0] == 200
        except OSError:
            return False

    def kill(self):
        """Kills the server and the processes that it started."""
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.process = None

    def label(self):
        """Returns the name of the weights that it serves."""
        return json.loads(request(self.url + "/weight_info")[1])["weight_version"]

    def models(self):
        """Returns the names of its model and adapters."""
        return [model["id"] for model in json.loads(request(self.url + "/v1/models")[1])["data"]]

    def count(self, name):
        """Returns the sum of a counter of its /metrics."""
        lines = request(self.url + "/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))

    def aborted(self):
        """Returns how often all calls were aborted, and how many calls that ended."""
        text = self.log.read_text()
        ended = re.findall(r"Aborted request\(s\) (\S+)\.", text)
        return text.count('"POST /abort_requests '), sum(len(ids.split(",")) for ids in ended)


class Servers:
    """Lends servers by model and flags. At most two are alive: each takes 2 GB or more."""

    ALIVE = 2

    def __init__(self, home):
        self.home = home
        self.lent = {}

    def get(self, model, *flags):
        key = (model, *flags)
        server = self.lent.pop(key, None) or Server(self.home, model, *flags)
        if server.process is None:
            alive = [other for other in self.lent.values() if other.process]
            for oldest in alive[: len(alive) - self.ALIVE + 1]:
                oldest.kill()
            print(f"    starting vllm serve {model.name} {' '.join(flags)}", flush=True)
            server.start()
        # The one used last is the last to go.
        self.lent[key] = server
        return server

    def close(self):
        for server in self.lent.values():
            server.kill()
