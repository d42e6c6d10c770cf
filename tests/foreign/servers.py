"""Starts real vLLM and SGLang servers on loopback, and lends them to the cases."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SMOLLM = TESTS / ".venv-vllm/smollm2"
# Importing torch and the server takes most of it, on a busy machine minutes.
START = 900


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
    """A server process, which can be killed and started again at the same address."""

    def __init__(self, home, model, variant, dtype):
        self.model, self.variant, self.dtype = model, variant, dtype
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / f"{self.kind}-{self.port}.log"
        self.process = None

    def start(self):
        print(f"    starting {self.kind}, {self.model.name}, {self.variant}, {self.dtype}", flush=True)
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", **self.environment()}
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command())), stdout=log, stderr=log, env=environment, start_new_session=True
            )
        end = time.monotonic() + START
        while not self.is_well():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"{self.kind} did not start: {self.log}")
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
        return json.loads(request(self.url + self.INFO)[1])["weight_version"]

    def models(self):
        """Returns the names of its model and adapters."""
        return [model["id"] for model in json.loads(request(self.url + "/v1/models")[1])["data"]]

    def count(self, name):
        """Returns the sum of a counter of its /metrics."""
        lines = request(self.url + "/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{self.kind}:{name}{{"))

    def orders(self):
        """Returns how often all calls were aborted."""
        return self.log.read_text().count(f'"POST {self.ABORT} ')


class Vllm(Server):
    kind, INFO, ABORT = "vllm", "/weight_info", "/abort_requests"
    # The flag for log-probs of the sampled distribution; without it they are of raw logits.
    FIX = "--logprobs-mode processed_logprobs"
    VARIANTS = {
        # The smallest blocks of the prefix cache on a CPU; 128 tokens by default.
        "whole": ["--block-size", "32"],
        "raw": [],
        "processed": FIX.split(),
        "adapters": ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "2"],
        "short": ["--max-model-len", "512"],
    }

    def environment(self):
        return {
            "VLLM_NO_USAGE_STATS": "1",
            # Threads are not bound to cores: a container may not allow it.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # The routes for whole weights and for adapters.
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        }

    def command(self):
        command = [TESTS / ".venv-vllm/bin/vllm", "serve", self.model, "--host", "127.0.0.1", "--port", self.port]
        command += ["--dtype", self.dtype, "--enforce-eager", "--max-logprobs", "20", "--enable-log-requests"]
        # On a CPU, vLLM 0.32 ends when a prompt with a seed is computed in several pieces.
        return [*command, "--no-enable-chunked-prefill", *self.VARIANTS[self.variant]]

    def aborted(self):
        """Returns how many calls were aborted."""
        ended = re.findall(r"Aborted request\(s\) (\S+)\.", self.log.read_text())
        return sum(len(ids.split(",")) for ids in ended)

    def answered(self):
        """Returns how many calls were answered."""
        return self.count("request_success_total")

    def cached(self):
        """Returns how many prompt tokens came from the prefix cache."""
        return self.count("prefix_cache_hits_total")

    def likely(self, prompt, reuse):
        """Returns the likeliest next tokens with their log-probs, or None if the call is aborted."""
        body = {"model": str(self.model), "prompt": prompt, "max_tokens": 1, "logprobs": 5, "temperature": 1.0}
        body |= {"return_tokens_as_token_ids": True}
        if not reuse:
            body["cache_salt"] = uuid.uuid4().hex
        status, text = request(self.url + "/v1/completions", body)
        choice = json.loads(text)["choices"][0] if status == 200 else {}
        return ((choice.get("logprobs") or {}).get("top_logprobs") or [None])[0]


class Sglang(Server):
    kind, INFO, ABORT = "sglang", "/model_info", "/abort_request"
    FIX = "SGLANG_RETURN_ORIGINAL_LOGPROB"
    VARIANTS = {
        "whole": [],
        "raw": [],
        "processed": [],
        "adapters": "--enable-lora --max-lora-rank 8 --lora-target-modules all --max-loras-per-batch 4".split(),
        "short": ["--context-length", "512"],
    }

    def environment(self):
        # The stub stands for the CUDA driver, which the kernels' library is linked with.
        folder = TESTS / ".venv-sglang/stub"
        environment = {"SGLANG_USE_CPU_ENGINE": "1", "LD_LIBRARY_PATH": str(folder)}
        return environment | ({self.FIX: "1"} if self.variant == "raw" else {})

    def command(self):
        command = [TESTS / ".venv-sglang/bin/python", "-m", "sglang.launch_server", "--model-path", self.model]
        command += ["--host", "127.0.0.1", "--port", self.port, "--device", "cpu", "--dtype", self.dtype]
        command += ["--attention-backend", "torch_native", "--disable-overlap-schedule", "--enable-metrics"]
        # By default its cache takes most of the machine's memory.
        return [*command, "--max-total-tokens", "65536", *self.VARIANTS[self.variant]]

    def aborted(self):
        return int(self.count("num_aborted_requests_total"))

    def answered(self):
        return self.count("num_requests_total")

    def cached(self):
        return self.count("cached_tokens_total")

    def likely(self, prompt, reuse):
        body = {"input_ids": prompt, "return_logprob": True, "top_logprobs_num": 5, "stream": False}
        body["sampling_params"] = {"max_new_tokens": 1, "temperature": 1.0}
        if not reuse:
            body["extra_key"] = uuid.uuid4().hex
        status, text = request(self.url + "/generate", body)
        places = json.loads(text)["meta_info"].get("output_top_logprobs") if status == 200 else None
        return {str(token): logprob for logprob, token, _ in places[0]} if places else None


KINDS = {server.kind: server for server in (Vllm, Sglang)}


class Servers:
    """Lends servers by model, variant and dtype. At most two are alive: each takes 2 GB or more."""

    ALIVE = 2

    def __init__(self, home, kind):
        self.home, self.kind = home, kind
        self.lent = {}

    def get(self, model, variant, dtype="float32"):
        key = (model, variant, dtype)
        server = self.lent.pop(key, None) or KINDS[self.kind](self.home, *key)
        if server.process is None:
            alive = [other for other in self.lent.values() if other.process]
            for oldest in alive[: len(alive) - self.ALIVE + 1]:
                oldest.kill()
            server.start()
        # The one used last is the last to go.
        self.lent[key] = server
        return server

    def close(self):
        for server in self.lent.values():
            server.kill()
