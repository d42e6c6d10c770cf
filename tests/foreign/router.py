"""An agent behind sglang-router, which shares its calls among several servers."""

import subprocess
import time

from runs import engine, expect
from servers import TESTS, free_port, request


class Router:
    """A running sglang-router in front of servers. It has the interface that `engine` needs."""

    def __init__(self, home, servers, kind):
        self.kind, port = kind, free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [TESTS / ".venv-vllm/bin/python", "-m", "sglang_router.launch_router", "--policy", "round_robin"]
        command += ["--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port()]
        command += ["--worker-urls", *(server.url for server in servers)]
        self.log = home / "router.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)

    def __enter__(self):
        end = time.monotonic() + 300
        while not self.is_ready():
            alive = self.process.poll() is None and time.monotonic() < end
            expect(alive, f"expected the router to start: {self.log.read_text()[-2000:]}")
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def is_ready(self):
        try:
            return request(self.url + "/readiness")[0] == 200
        except OSError:
            return False


def router(bench):
    """A partner that does not train works behind sglang-router in front of two servers."""
    servers = [bench.servers.get(bench.model, variant) for variant in ("whole", "raw")]
    # Its route for completions takes no token ids, so vLLM is reached as a chat server.
    kinds = ["openai"] if bench.servers.kind == "vllm" else ["openai", "sglang"]
    for kind in kinds:
        before = [server.answered() for server in servers]
        with Router(bench.home, servers, kind) as between:
            a = engine(between) + "\ntrain.enabled = false"
            if kind == "openai":
                a = a.replace(', swap = "in_place"', "") + f'\nmodel = {{ served = "{bench.model}" }}'
            # The speaker: the router rejects empty messages, which listeners may get.
            with bench.run(f"router-{kind}", steps=4, lead="b", a=a) as run:
                run.expect_success(4)
        counts = [server.answered() - then for server, then in zip(servers, before)]
        expect(all(counts), f"{kind}: expected calls at both servers, but they answered {counts}")
        print(f"    {kind}: calls answered by each server: {counts}", flush=True)
